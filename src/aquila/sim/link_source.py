"""Link models from presets and from CSV traces."""

import csv
from collections.abc import Iterator, Mapping
from pathlib import Path

from aquila.core.link import LINK_FIELDS, DeviceLink
from aquila.core.parameter import spelling_hint
from aquila.core.random import Key, Purpose
from aquila.runtime.link_model import TRACE_PREFIX, LinkChoice, LinkModel
from aquila.runtime.link_presets import MIXED, MIXED_SHARES, PRESETS

REQUIRED = ("round", "device", "uplink_rate", "downlink_rate")
KNOWN = ("round", "device", *LINK_FIELDS)


def resolve_link(link: LinkChoice, devices: int, seed: int) -> LinkModel:
    """Return the link model of an option `link` that is not empty."""
    if isinstance(link, LinkModel):
        if link.devices != devices:
            raise ValueError(
                f"the link model has {link.devices} devices, but the run has {devices}"
            )
        return link
    if link.startswith(TRACE_PREFIX):
        return read_trace(Path(link.removeprefix(TRACE_PREFIX)), devices)
    return preset_links(link, devices, seed)


def preset_links(name: str, devices: int, seed: int = 0) -> LinkModel:
    """Return the links of a preset. The seed spreads the kinds of devices of a mixed fleet."""
    if name != MIXED:
        return LinkModel.constant([PRESETS[name].link] * devices, name)
    kinds = _kinds_in_shares(devices)
    order = Key((seed, Purpose.LINK)).numpy().permutation(devices)
    return LinkModel.constant([PRESETS[kinds[place]].link for place in order], name)


def _kinds_in_shares(devices: int) -> list[str]:
    """Return one kind per device, so that the counts are as close to the shares as possible."""
    exact = {kind: share * devices for kind, share in MIXED_SHARES.items()}
    counts = {kind: int(count) for kind, count in exact.items()}
    by_rest = sorted(exact, key=lambda kind: counts[kind] - exact[kind])
    for kind in by_rest[: devices - sum(counts.values())]:
        counts[kind] += 1
    return [kind for kind, count in counts.items() for _ in range(count)]


def read_trace(path: Path, devices: int) -> LinkModel:
    """Read a trace: a CSV file with one row per round and device.

    Rows of devices that the run does not have are ignored. ValueError says what is wrong.
    """
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = dict(_rows(path, csv.DictReader(file)))
    except FileNotFoundError:
        raise ValueError(f"there is no trace {path}") from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"the trace {path} cannot be read: {error}") from None
    if not rows:
        raise ValueError(f"the trace {path} has no rows")
    rounds = 1 + max(number for number, _ in rows)
    for number in range(rounds):
        for device in range(devices):
            if (number, device) not in rows:
                raise ValueError(
                    f"the trace {path} has no row for device {device} in round {number}; it needs "
                    f"one per round and device, for rounds 0 to {rounds - 1} and devices 0 to "
                    f"{devices - 1}"
                )
    links = tuple(tuple(rows[n, device] for device in range(devices)) for n in range(rounds))
    return LinkModel(links, f"{TRACE_PREFIX}{path.name}")


def _rows(
    path: Path, reader: "csv.DictReader[str]"
) -> Iterator[tuple[tuple[int, int], DeviceLink]]:
    columns = [name.strip() for name in reader.fieldnames or ()]
    reader.fieldnames = columns
    for name in columns:
        if name not in KNOWN:
            raise ValueError(f"the trace {path} has no column {name!r}{spelling_hint(name, KNOWN)}")
    missing = [name for name in REQUIRED if name not in columns]
    if missing:
        raise ValueError(
            f"the trace {path} lacks the column {missing[0]}; it needs {', '.join(REQUIRED)}"
        )
    seen: set[tuple[int, int]] = set()
    for row in reader:
        try:
            place, link = _read_row(row)
        except ValueError as error:
            raise ValueError(f"the trace {path}, line {reader.line_num}: {error}") from None
        if place in seen:
            raise ValueError(
                f"the trace {path}, line {reader.line_num}: a second row for device {place[1]} in "
                f"round {place[0]}"
            )
        seen.add(place)
        yield place, link


def _read_row(row: Mapping[str | None, str | None]) -> tuple[tuple[int, int], DeviceLink]:
    if None in row or None in row.values():
        raise ValueError("the row and the heading have different numbers of columns")
    numbers = {str(name): _number(str(name), str(text)) for name, text in row.items()}
    place = []
    for name in ("round", "device"):
        value = numbers.pop(name)
        if value < 0 or not value.is_integer():
            raise ValueError(f"{name} must be a whole number >= 0, not {row[name]!r}")
        place.append(int(value))
    return (place[0], place[1]), DeviceLink(**numbers)


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{name} must be a number, not {text!r}") from None
