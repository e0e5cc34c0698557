"""The numbers behind the figures, packed: columns of 4 bytes, levels of 1, deflated, in base64."""

import base64
import json
import zlib
from collections.abc import Sequence
from dataclasses import asdict

import numpy as np

from aquila.report.page.lines import Chart, charts, looks, values
from aquila.report.page.runs import Run
from aquila.report.page.story import Comparison, measures

MOST_POINTS = 2_000
MOST_CELLS = 100_000
"""A run with more has every second, third, ... round shown."""

MOST_DEVICES = 500
SILENT, ABSENT, LARGEST = 0, 255, 254
"""Cells of the map of levels beside the levels themselves: a reply without upload, no reply."""


def packed(runs: Sequence[Run], comparison: Comparison | None) -> str:
    """Return all that the page's script needs, as JSON that is safe inside a script element."""
    figures = charts(runs)
    parts = [part for run in runs for part in _parts(run, figures)]
    content = {
        "charts": [chart.to_dict() for chart in figures],
        "measures": {m.key: m.higher_is_better for m in measures(runs)},
        "target": comparison.target if comparison else None,
        "runs": [
            {"label": run.label, "own": run.own, **asdict(look), **_shape(run)}
            for run, look in zip(runs, looks(runs), strict=True)
        ],
        "numbers": base64.b64encode(zlib.compress(b"".join(parts), 9)).decode(),
    }  # fmt: skip
    return json.dumps(content, ensure_ascii=True).replace("<", "\\u003c")


def shown_rounds(count: int, most: int) -> range:
    """Return the rounds to show: all of them, or evenly some."""
    return range(0, count, -(-count // max(most, 1)) or 1)


def level_map(run: Run) -> np.ndarray:
    """Return a row a device, a cell a shown round: the level, SILENT or ABSENT."""
    devices = min(run.devices, MOST_DEVICES)
    rounds = _map_rounds(run)
    cells = np.full((devices, len(rounds)), ABSENT, np.uint8)
    for number, round in enumerate(rounds):
        record = run.records[round]
        for device in record.uplink:
            if device < devices:
                cells[device, number] = min(record.levels.get(device, SILENT), LARGEST)
    return cells


def device_uplink(run: Run) -> np.ndarray:
    """Return the bytes each shown device sent in all."""
    sent = np.zeros(run.devices)
    for record in run.records:
        for device, count in record.uplink.items():
            sent[device] += count
    return sent[:MOST_DEVICES]


def _map_rounds(run: Run) -> range:
    return shown_rounds(len(run.records), MOST_CELLS // max(min(run.devices, MOST_DEVICES), 1))


def _shape(run: Run) -> dict[str, object]:
    """What the script needs to cut the numbers apart."""
    rounds = _map_rounds(run)
    return {
        "points": len(shown_rounds(len(run.records), MOST_POINTS)),
        "devices": run.devices,
        "rows": min(run.devices, MOST_DEVICES),
        "cells": len(rounds),
        "every": rounds.step,
        "silence": _silence(run),
        "uplink": run.result.uplink_bytes,
    }


def _silence(run: Run) -> str:
    """Say what a reply without an upload may have been."""
    lost, refused = (any(getattr(r, n) for r in run.records) for n in ("lost", "refused"))
    return " or ".join(["skip", *["lost"] * lost, *["refused"] * refused])


def _parts(run: Run, figures: Sequence[Chart]) -> list[bytes]:
    """Rounds, bytes and a column a figure at the shown rounds; the map; the devices' bytes."""
    shown = shown_rounds(len(run.records), MOST_POINTS)
    names = ["sent", *(chart.column for chart in figures)]
    columns = [np.array(shown, "<f4")]
    columns += [_floats(values(run, name))[shown.start :: shown.step] for name in names]
    return [
        *(column.tobytes() for column in columns),
        level_map(run).tobytes(),
        device_uplink(run).astype("<f4").tobytes(),
    ]


def _floats(numbers: Sequence[float | None]) -> np.ndarray:
    return np.array([np.nan if n is None else n for n in numbers], "<f4")
