"""`aquila frame`: the content of a frame."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from aquila.cli.named_path import NamedPath

if TYPE_CHECKING:
    from aquila.core.packet import Codes, RelayedRound, RelayedUploads, SparseCodes, Upload


@click.command()
@click.argument("file", type=NamedPath(exists=True, dir_okay=False, path_type=Path))
def frame(file: Path) -> None:
    """Print the content of the frame in FILE."""
    from rich.console import Console
    from rich.table import Table

    from aquila.core.envelope import VERSION, parse
    from aquila.core.packet import NEVER
    from aquila.core.wire import unpack

    data = file.read_bytes()
    parsed, packet = parse(data), unpack(data)
    facts: list[tuple[str, object]] = [
        ("version", VERSION),
        ("kind", parsed.kind.name.lower()),
        ("round", parsed.round),
        ("acknowledges", "nothing" if parsed.ack == NEVER else f"round {parsed.ack}"),
        ("refers to", f"{parsed.refers_to:08x}" if parsed.refers_to else "nothing"),
        ("restarted from the initial state", "yes" if packet.fresh else "no"),
        ("device refused to upload", "yes" if packet.refused else "no"),
        *((f"scalar {name}", f"{value:g}") for name, value in parsed.scalars.items()),
        *upload_facts(packet.vector, len(data)),
        ("header bytes", len(data) - parsed.body_bytes),
        ("body bytes", parsed.body_bytes),
        ("bits as papers count them", parsed.paper_bits),
    ]
    table = Table.grid(padding=(0, 2))
    for name, value in facts:
        table.add_row(name, str(value))
    Console().print(table)


def upload_facts(upload: Upload | None, frame_bytes: int) -> list[tuple[str, object]]:
    """Return facts about what a frame of this length holds."""
    from aquila.core.packet import RelayedUploads

    if upload is None:
        return []
    if isinstance(upload, RelayedUploads):
        return relayed_facts(upload)
    return vector_facts(upload, frame_bytes)


def relayed_facts(relayed: RelayedUploads) -> list[tuple[str, object]]:
    """Return facts about replies that a frame relays."""
    return [
        ("coordinates of the model", relayed.dimension),
        ("type of the model", str(relayed.dtype).removeprefix("torch.")),
        ("relayed rounds", len(relayed.rounds)),
        ("relayed replies", sum(len(one.frames) for one in relayed.rounds)),
        ("bytes of the replies", sum(_reply_bytes(one) for one in relayed.rounds)),
        *(
            (
                f"from model {one.base:08x}",
                f"{len(one.frames)} replies, {_reply_bytes(one)} bytes, factor {one.factor:g}",
            )
            for one in relayed.rounds
        ),
    ]


def _reply_bytes(relayed: RelayedRound) -> int:
    return sum(map(len, relayed.frames))


def vector_facts(vector: Upload, frame_bytes: int) -> list[tuple[str, object]]:
    """Return facts about the vector in a frame of this length."""
    from aquila.core.packet import Codes, SparseCodes
    from aquila.core.vector import max_norm, squared_norm

    values = vector.decode()
    facts: list[tuple[str, object]] = [
        ("coordinates", vector.dimension),
        ("bits per coordinate, nominal", vector.bits),
        ("2-norm", f"{squared_norm(values) ** 0.5:g}"),
        ("largest coordinate", f"{max_norm(values):g}"),
    ]
    if isinstance(vector, Codes | SparseCodes):
        facts += [
            ("grids", f"{len(vector.low)}, each for {vector.bucket} coordinates"),
            ("bits per coordinate, entropy", f"{entropy(vector):.3f}"),
        ]
        if vector.dither_seed is not None:
            sent = int((values != 0).sum())
            facts += [("dither seed", f"{vector.dither_seed:08x}"), ("coordinates sent", sent)]
    if vector.dimension:
        bits = f"{8 * frame_bytes / vector.dimension:.3f}"
        facts.append(("bits per coordinate, on the wire", bits))
    return facts


def entropy(vector: Codes | SparseCodes) -> float:
    """Return the order-0 entropy of the codes in bits per coordinate."""
    import torch

    counts = torch.unique(vector.codes, return_counts=True)[1].double()
    frequencies = counts / counts.sum()
    return float(-(frequencies * frequencies.log2()).sum().clamp_max(0))
