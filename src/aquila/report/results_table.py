"""The table of results that `aquila run` and `aquila compare` print."""

from collections import Counter
from collections.abc import Sequence
from functools import cache

import torch
from rich import box
from rich.table import Table

from aquila.core.fleet import Fleet
from aquila.core.packet import Dense, Packet
from aquila.core.wire import pack
from aquila.report.costs import SIMULATED_COSTS
from aquila.report.labelled_run import FINAL_EVALUATIONS, LabelledRun
from aquila.report.units import format_bytes

HEADINGS = (
    "accuracy", "vs dense", "loss", "up/skip", "level", "uplink", "paper", "saving", "both"
)  # fmt: skip

NARROW_WIDTH = 70
WIDE_ONLY_COLUMNS = ("level", "paper")
"""Columns that a narrow terminal omits."""

EXTRA_METRICS = {"local_accuracy": ("local", "{:.1%}"), "perplexity": ("perplexity", "{:.4g}")}
"""Heading and format of metrics that only some runs have."""


def results_table(results: Sequence[LabelledRun], fleet: Fleet, width: int = 100) -> Table:
    """Return one row per run: quality, traffic and saving, for a terminal of this width."""
    shown = [name for name in HEADINGS if width >= NARROW_WIDTH or name not in WIDE_ONLY_COLUMNS]
    dense = _dense_accuracy(results, fleet)
    if dense is None:
        shown.remove("vs dense")
    has_coded_models = any(result.downlink_bytes < dense_bytes(result, fleet) for result in results)
    if not has_coded_models:
        shown.remove("both")
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), caption_justify="left")
    table.add_column("method", overflow="fold")
    extra = [
        name for name in EXTRA_METRICS if any(r.last_metric(name) is not None for r in results)
    ]
    simulated = [c for c in SIMULATED_COSTS if any(c.total(r.records) is not None for r in results)]
    shown += [cost.key for cost in simulated]
    for heading in (*shown, *(EXTRA_METRICS[name][0] for name in extra)):
        table.add_column(heading, justify="right", no_wrap=True, min_width=len(heading))
    for result in results:
        cells = _format_cells(result, fleet, dense)
        label = result.label + (" (stopped)" if result.stopped else "")
        texts = (cells.get(name, "-") for name in shown)
        table.add_row(label, *texts, *(_format_extra(result, name) for name in extra))
    table.caption = _caption(results, dense is not None, has_coded_models, bool(simulated))
    return table


def _caption(
    results: Sequence[LabelledRun], has_dense: bool, has_coded_models: bool, is_simulated: bool
) -> str:
    """Return the explanations of the columns, and a warning if a loss has risen."""
    lines = [
        "up/skip: replies with / without a vector.",
        "level: mean bits per coordinate.",
        "uplink: real frames of all devices.",
        "paper: bits × coordinates, as papers count the uplink.",
        "saving: dense uplink ÷ this uplink.",
    ]
    if has_dense:
        lines.insert(
            0, "vs dense: points of accuracy above the run with dense uploads, "
            f"mean of the last {FINAL_EVALUATIONS} evaluations.",
        )  # fmt: skip
    if has_coded_models:
        lines.append("both: dense bytes of uplink and downlink ÷ those of this run.")
    if is_simulated:
        lines.append("time, energy: of the run and all devices, simulated by the link model.")
    worse = [result.label for result in results if result.loss_increased]
    if worse:
        lines.append(f"Loss above its first value: {', '.join(worse)}. A smaller alpha may help.")
    return "\n".join(lines)


def _format_extra(result: LabelledRun, name: str) -> str:
    value = result.last_metric(name)
    return "-" if value is None else EXTRA_METRICS[name][1].format(value)


def dense_bytes(result: LabelledRun, fleet: Fleet) -> int:
    """Return the bytes of the same replies if each were an uncompressed vector."""
    replies = Counter(fleet.groups[device] for r in result.records for device in r.uplink)
    return sum(
        count * _dense_frame_bytes(fleet.dimension_of_group(group))
        for group, count in replies.items()
    )


@cache
def _dense_frame_bytes(dimension: int) -> int:
    return len(pack(Packet(0, Dense(torch.zeros(dimension)), refers_to=1)))


def _dense_accuracy(results: Sequence[LabelledRun], fleet: Fleet) -> float | None:
    """Return the final accuracy of the run with dense uploads; None if no other run compares."""
    if len(results) > 1:
        for result in results:
            if result.records and result.uplink_bytes >= dense_bytes(result, fleet):
                return result.final_metric("test_accuracy")
    return None


def _format_cells(
    result: LabelledRun, fleet: Fleet, dense_accuracy: float | None
) -> dict[str, str]:
    if not result.records:
        return {}
    accuracy = result.last_metric("test_accuracy")
    final = result.final_metric("test_accuracy")
    loss = result.records[-1].loss
    dense = dense_bytes(result, fleet)
    return {
        "accuracy": "-" if accuracy is None else f"{accuracy:.1%}",
        "vs dense": "-"
        if final is None or dense_accuracy is None
        else f"{100 * (final - dense_accuracy):+.1f}",
        "loss": "-" if loss is None else f"{loss:.4g}",
        "up/skip": f"{result.uploads}/{result.skips}",
        "level": "-" if result.mean_level is None else f"{result.mean_level:.2f}",
        "uplink": format_bytes(result.uplink_bytes),
        "paper": format_bytes(result.paper_bits / 8),
        "saving": f"{dense / result.uplink_bytes:.1f} x",
        "both": f"{2 * dense / (result.uplink_bytes + result.downlink_bytes):.1f} x",
        **{
            cost.key: cost.format_total(total)
            for cost in SIMULATED_COSTS
            if (total := cost.total(result.records)) is not None
        },
    }
