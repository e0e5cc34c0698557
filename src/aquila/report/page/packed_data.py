"""Packs the data of the figures: float32 columns and byte levels, deflated, in base64."""

import base64
import json
import zlib
from collections.abc import Sequence
from dataclasses import asdict

import numpy as np

from aquila.report.page.charts import (
    Chart,
    charts_for,
    column_range,
    column_values,
    line_styles,
)
from aquila.report.page.comparison import Comparison
from aquila.report.page.costs import PageCost, available_costs
from aquila.report.page.featured import featured_runs
from aquila.report.page.measures import available_measures
from aquila.report.page.runs import PageRun

MAX_POINTS = 2_000
MAX_CELLS = 100_000
"""Limits of a curve and of a level map; longer runs show every second, third, ... round."""

MAX_DEVICES = 500
NO_UPLOAD, NO_REPLY, MAX_LEVEL = 0, 255, 254
"""Special cells of the level map: a reply without a vector, and no reply."""


def pack_page_data(runs: Sequence[PageRun], comparison: Comparison | None) -> str:
    """Return the data for the script of the page, as JSON that is safe in a script element."""
    figures, costs = charts_for(runs), available_costs(runs)
    featured = featured_runs(runs, comparison)
    parts = [part for run in runs for part in _binary_parts(run, costs, figures)]
    content = {
        "costs": [cost.to_dict() for cost in costs],
        "charts": [chart.to_dict() for chart in figures],
        "measures": {
            m.key: {"higher": m.higher_is_better, "fraction": m.is_fraction}
            for m in available_measures(runs)
        },
        "target": comparison.target if comparison else None,
        "reference": list(runs).index(comparison.reference) if comparison else None,
        "runs": [
            {"label": run.label, "is_aquila": run.is_aquila, "featured": run.label in featured,
             **asdict(style), **_layout(run)}
            for run, style in zip(runs, line_styles(runs), strict=True)
        ],
        "numbers": base64.b64encode(zlib.compress(b"".join(parts), 9)).decode(),
    }  # fmt: skip
    return json.dumps(content, ensure_ascii=True).replace("<", "\\u003c")


def shown_rounds(count: int, most: int) -> range:
    """Return the rounds to show: all, or evenly spaced ones."""
    return range(0, count, -(-count // max(most, 1)) or 1)


def level_map(run: PageRun) -> np.ndarray:
    """Return the level, NO_UPLOAD or NO_REPLY by device and shown round."""
    devices = min(run.devices, MAX_DEVICES)
    rounds = _map_rounds(run)
    cells = np.full((devices, len(rounds)), NO_REPLY, np.uint8)
    for number, record_index in enumerate(rounds):
        record = run.records[record_index]
        for device in record.uplink:
            if device < devices:
                cells[device, number] = min(record.levels.get(device, NO_UPLOAD), MAX_LEVEL)
    return cells


def device_uplink(run: PageRun) -> np.ndarray:
    """Return the total bytes sent by each shown device."""
    sent = np.zeros(run.devices)
    for record in run.records:
        for device, count in record.uplink.items():
            sent[device] += count
    return sent[:MAX_DEVICES]


def _map_rounds(run: PageRun) -> range:
    return shown_rounds(len(run.records), MAX_CELLS // max(min(run.devices, MAX_DEVICES), 1))


def _layout(run: PageRun) -> dict[str, object]:
    """Return the sizes that the script needs to unpack the data."""
    rounds = _map_rounds(run)
    return {
        "points": len(shown_rounds(len(run.records), MAX_POINTS)),
        "devices": run.devices,
        "map_devices": min(run.devices, MAX_DEVICES),
        "map_rounds": len(rounds),
        "map_round_step": rounds.step,
        "no_upload_label": _no_upload_label(run),
        "uplink": run.result.uplink_bytes,
        "seeds": len(run.members),
    }


def _no_upload_label(run: PageRun) -> str:
    """Return what a reply without an upload can mean in this run."""
    lost, refused = (any(getattr(r, n) for r in run.records) for n in ("lost", "refused"))
    return " or ".join(["skip", *["lost"] * lost, *["refused"] * refused])


def _binary_parts(run: PageRun, costs: Sequence[PageCost], figures: Sequence[Chart]) -> list[bytes]:
    """Return the columns at the shown rounds, the level map and the bytes per device."""
    shown = shown_rounds(len(run.records), MAX_POINTS)
    numbers = [cost.values(run) for cost in costs]
    numbers += [[*column_values(run, chart.column)] for chart in figures]
    if run.members:
        numbers += [edge for chart in figures for edge in column_range(run, chart.column)]
    columns = [np.array(shown, "<f4")]
    columns += [_floats(column)[shown.start :: shown.step] for column in numbers]
    return [
        *(column.tobytes() for column in columns),
        level_map(run).tobytes(),
        device_uplink(run).astype("<f4").tobytes(),
    ]


def _floats(numbers: Sequence[float | None]) -> np.ndarray:
    return np.array([np.nan if n is None else n for n in numbers], "<f4")
