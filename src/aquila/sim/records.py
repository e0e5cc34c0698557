"""Records of a run: one JSON line per round."""

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from aquila.core.fleet import DeviceId, Fleet
from aquila.core.packet import Packet
from aquila.core.vector import Vector
from aquila.runtime.files import append
from aquila.runtime.traffic import Traffic, total_cost
from aquila.sim.compressed import find_file, read_file, write_file

RECORDS_FILE = "records.jsonl"

Evaluate = Callable[[Vector], Mapping[str, float]]
"""model -> metrics, by name"""


@dataclass(frozen=True)
class Record:
    """What happened in one round.

    Args:
        round: Number of the round, from 0.
        loss: Mean training loss of the devices, with the weights of the run.
        uplink_bytes: Total length of the reply frames that were sent, headers included.
        uplink_header_bytes: The header part of it.
        downlink_bytes: Total length of the order frames that were sent, headers included.
        downlink_header_bytes: The header part of it.
        paper_bits: The uplink as the papers count it, from bits per coordinate.
        uploads: Replies with a vector that arrived.
        skips: Replies without a vector that arrived.
        lost: Messages that did not arrive.
        refused: Devices that computed nothing to upload, because their gradient was not finite or
            because they do not hold the model that a difference refers to.
        levels: Bits per coordinate of each upload that arrived, by device.
        uplink: Bytes sent by each device that replied.
        error_ratio: Mean relative quantization error, if the method notes it.
        notes: Further values that the method noted, averaged over the devices.
        metrics: Results of `evaluate`. Values that are not finite are left out, because JSON cannot
            represent them.
        seconds: Simulated duration of the round, None without a link model.
        joules: Simulated energy of all devices, None without a link model.
        late: Replies that the deadline lost, None without a link model. `lost` includes them.
        rejected: Devices whose uploads were above the norm limit of the fleet, None if there were
            none. Their uploads are not among `uploads`.
        quarantined: Devices that may not take part in the next round, None if there are none.
        epsilon: Privacy spent so far, None without differential privacy.
        delta: The delta that `epsilon` belongs to.
    """

    round: int
    loss: float | None
    uplink_bytes: int
    uplink_header_bytes: int
    downlink_bytes: int
    downlink_header_bytes: int
    paper_bits: int
    uploads: int
    skips: int
    lost: int
    refused: int
    levels: Mapping[DeviceId, int]
    uplink: Mapping[DeviceId, int]
    error_ratio: float | None = None
    notes: Mapping[str, float] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    seconds: float | None = None
    joules: float | None = None
    late: int | None = None
    rejected: Sequence[DeviceId] | None = None
    quarantined: Sequence[DeviceId] | None = None
    epsilon: float | None = None
    delta: float | None = None

    @property
    def mean_level(self) -> float | None:
        """Mean bits per coordinate over the uploads of the round."""
        return sum(self.levels.values()) / len(self.levels) if self.levels else None


@dataclass(frozen=True)
class SimulatedCost:
    """Duration, energy and late replies of a round under a link model."""

    seconds: float
    joules: float
    late: int


@dataclass(frozen=True)
class ProtectionOutcome:
    """Rejected uploads, quarantine and spent privacy after a round; None where there is nothing."""

    rejected: Sequence[DeviceId] | None = None
    quarantined: Sequence[DeviceId] | None = None
    epsilon: float | None = None
    delta: float | None = None


OPTIONAL_FIELDS = tuple(f.name for c in (SimulatedCost, ProtectionOutcome) for f in fields(c))
"""Fields that a record has only if they apply."""


@dataclass(frozen=True)
class RoundOutcome:
    """What happened to the messages of a round."""

    traffic: Traffic
    levels: dict[DeviceId, int]
    skips: int
    lost: int
    refused: int
    cost: SimulatedCost | None = None
    protection: ProtectionOutcome = ProtectionOutcome()

    @classmethod
    def of(
        cls,
        traffic: Traffic,
        replies: Mapping[DeviceId, Packet],
        lost: int,
        cost: SimulatedCost | None = None,
        protection: ProtectionOutcome | None = None,
    ) -> "RoundOutcome":
        """Return the outcome of a round from the replies that arrived."""
        levels = {d: r.vector.bits for d, r in replies.items() if r.vector is not None}
        refused = sum(reply.refused for reply in replies.values())
        skips = len(replies) - len(levels) - refused
        return cls(traffic, levels, skips, lost, refused, cost, protection or ProtectionOutcome())


def make_record(
    round_number: int,
    outcome: RoundOutcome,
    notes: Mapping[DeviceId, Mapping[str, float]],
    fleet: Fleet,
    metrics: Mapping[str, float],
) -> Record:
    """Return the record of a round; `notes` holds what each device noted."""
    up, down = total_cost(outcome.traffic.uplink), total_cost(outcome.traffic.downlink)
    means = _mean_notes(notes, fleet)
    return Record(
        round=round_number,
        loss=means.pop("loss", None),
        uplink_bytes=up.bytes,
        uplink_header_bytes=up.header_bytes,
        downlink_bytes=down.bytes,
        downlink_header_bytes=down.header_bytes,
        paper_bits=up.paper_bits,
        uploads=len(outcome.levels),
        skips=outcome.skips,
        lost=outcome.lost,
        refused=outcome.refused,
        levels=outcome.levels,
        uplink={d: outcome.traffic.uplink[d].bytes for d in sorted(outcome.traffic.uplink)},
        error_ratio=means.pop("error_ratio", None),
        notes=means,
        metrics=_finite_metrics(metrics),
        **({} if outcome.cost is None else asdict(outcome.cost)),
        **asdict(outcome.protection),
    )


def _finite_metrics(metrics: object) -> dict[str, float]:
    """Return the finite results of the user's `evaluate`; TypeError unless they are numbers."""
    values: dict[Any, Any] = dict(metrics) if isinstance(metrics, Mapping) else {"": None}
    try:
        valid = not any(isinstance(v, str) for v in values.values())
        numbers = {name: float(v) for name, v in values.items()} if valid else {}
    except (TypeError, ValueError, RuntimeError):  # torch raises each of them
        valid = False
    if not valid or not all(isinstance(name, str) for name in values):
        raise TypeError(
            f"evaluate must return numbers by name, such as {{'accuracy': 0.9}}, not {metrics!r}"
        )
    return {name: number for name, number in numbers.items() if math.isfinite(number)}


def to_line(record: Record) -> str:
    """Return a record as one line of JSON."""
    values = asdict(record)
    for name in OPTIONAL_FIELDS:
        if values[name] is None:
            del values[name]
    return json.dumps(values, allow_nan=False) + "\n"


def from_line(line: str) -> Record:
    """Parse a record from one line of JSON."""
    values: dict[str, Any] = json.loads(line)
    for name in ("levels", "uplink"):
        values[name] = {int(device): number for device, number in values[name].items()}
    return Record(**values)


def records_file(folder: Path) -> Path | None:
    """Return the file with the records of a run, compressed or not, or None."""
    return find_file(folder / RECORDS_FILE)


def read_records(folder: Path) -> list[Record]:
    """Read all records of a run, without a truncated last line."""
    path = records_file(folder)
    try:
        text = "" if path is None else read_file(path).decode()
    except UnicodeDecodeError:
        raise ValueError(f"{path} does not hold records: it is not text") from None
    lines = text.splitlines(keepends=True)
    records = []
    for number, line in enumerate(line for line in lines if line.endswith("\n")):
        try:
            records.append(from_line(line))
            valid = records[-1].round == number
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            valid = False
        if not valid:
            raise ValueError(f"{path}, line {number + 1}, is not the record of round {number}")
    return records


def write_records(folder: Path, records: Iterable[Record]) -> None:
    """Replace the records of a run atomically."""
    write_file(folder / RECORDS_FILE, "".join(to_line(record) for record in records).encode())


def append_record(folder: Path, record: Record, sync: bool) -> None:
    """Append one record; `sync` waits until the file is on the disk."""
    append(folder / RECORDS_FILE, to_line(record).encode(), sync=sync)


def _mean_notes(notes: Mapping[DeviceId, Mapping[str, float]], fleet: Fleet) -> dict[str, float]:
    gathered: dict[str, dict[DeviceId, float]] = {}
    for device, note in notes.items():
        for name, value in note.items():
            gathered.setdefault(name, {})[device] = value
    return {name: fleet.mean_number(values) for name, values in gathered.items()}
