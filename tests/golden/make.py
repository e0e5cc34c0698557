"""Write the golden frames that frames.json describes: `python tests/golden/make.py`.

An existing frame is never overwritten. Frames of a released version must stay readable, so a
changed format gets new frames in addition to the old ones.

Lists of codes and of decoded values may contain {"repeat": [...], "times": n}, also nested, and
{"from": a, "by": b, "times": n} for a, a + b, a + 2 b, ...

The replies of a relayed frame are the names of other golden frames. Its `models` are the values of
a model before each of its rounds and after the last one.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import torch

from aquila.core.packet import Codes, Dense, Packet, RelayedRound, RelayedUploads, code_dtype
from aquila.core.wire import pack

HERE = Path(__file__).parent


def descriptions() -> dict[str, dict]:
    """Return the descriptions of frames.json with all repetitions expanded."""
    described = json.loads((HERE / "frames.json").read_text())
    for name, description in described.items():
        described[name] = description = {"refers_to": 0, "fresh": False, **description}
        vector = description["vector"] or {}
        vector.setdefault("dither_seed", None)
        for field in vector.keys() & {"codes", "decoded"}:
            vector[field] = list(_expanded(vector[field]))
    return described


def _expanded(items: list) -> Iterator[float]:
    for item in items:
        if not isinstance(item, dict):
            yield item
        elif "from" in item:
            yield from (item["from"] + item["by"] * i for i in range(item["times"]))
        else:
            yield from list(_expanded(item["repeat"])) * item["times"]


def packet_of(description: dict) -> Packet:
    """Return the packet of a description in frames.json."""
    d = description
    content = d["round"], _vector(d["vector"]), d["scalars"], d["ack"], d["refused"]
    return Packet(*content, d["refers_to"], d["fresh"])


def _vector(d: dict | None) -> Dense | Codes | RelayedUploads | None:
    if d is None:
        return None
    dtype = getattr(torch, d["float"])
    if "rounds" in d:
        return RelayedUploads(d["dimension"], dtype, tuple(map(_round, d["rounds"])))
    if "values" in d:
        return Dense(torch.tensor(d["values"], dtype=dtype))
    return Codes(
        torch.tensor(d["codes"], dtype=code_dtype(d["bits"])),
        d["bits"],
        torch.tensor(d["low"], dtype=dtype),
        torch.tensor(d["step"], dtype=dtype),
        d["bucket"],
        d["dither_seed"],
    )


def _round(d: dict) -> RelayedRound:
    weights = tuple(reply["weight"] for reply in d["replies"])
    frames = tuple((HERE / f"{reply['frame']}.frame").read_bytes() for reply in d["replies"])
    return RelayedRound(d["base"], d["factor"], weights, frames)


def main() -> None:
    for name, description in descriptions().items():
        path = HERE / f"{name}.frame"
        if path.exists():
            print(f"{path.name} exists and is kept")
        else:
            path.write_bytes(pack(packet_of(description)))
            print(f"{path.name} is new")


if __name__ == "__main__":
    main()
