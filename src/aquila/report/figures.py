"""The figures of the paper, and further ones, drawn from the records of runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

from aquila.report.beta_sweep import loss_by_beta, quality_by_beta
from aquila.report.bits_per_coordinate import bytes_against_width
from aquila.report.costs import BYTES, ENERGY, TIME, Cost
from aquila.report.curves import Series, draw_curves, quality_metric
from aquila.report.labelled_run import LabelledRun
from aquila.report.levels import levels_over_time
from aquila.report.runs import StoredRun
from aquila.report.style import line_styles, save_figure
from aquila.report.units import format_byte_tick
from aquila.sim.setting import RUN_FILE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from aquila.sim.records import Record


def draw_all(runs: Sequence[StoredRun], root: Path, out: Path) -> list[Path]:
    """Draw every figure that the runs have data for, and return the paths.

    Runs in the same folder form one comparison.
    """
    if not runs:
        raise ValueError(f"there is no run in {root} that has a {RUN_FILE} and rounds")
    comparisons: dict[Path, list[LabelledRun]] = {}
    for run in sorted(runs, key=lambda run: run.method != "aquila"):  # first in the legend
        comparisons.setdefault(run.folder.parent, []).append(run.result)
    paths = []
    for folder, results in comparisons.items():
        is_below = folder.is_relative_to(root)  # false if the root is itself a run
        subfolder = folder.relative_to(root) if is_below else root.resolve().name
        target = out / subfolder if len(comparisons) > 1 else out
        figures = {name: draw(results) for name, draw in FIGURES.items()}
        paths += [save_figure(f, target / f"{name}.png") for name, f in figures.items() if f]
    return paths


def loss_against_bits(results: Sequence[LabelledRun]) -> Figure | None:
    """Draw Figures 2 and 3, (a) to (c): training loss against total bits sent, counted as b·d."""
    curves = _against_total(results, lambda r: r.paper_bits / 8, lambda r: r.loss)
    return draw_curves(
        curves,
        "uplink as the paper counts it (b·d)",
        "training loss",
        title="Training loss against bits sent (the paper's Figures 2 and 3, a to c)",
        xscale="log",
        yscale="log",
        xformat=format_byte_tick,
    )


def bits_per_round(results: Sequence[LabelledRun]) -> Figure | None:
    """Draw Figures 2 and 3, (d) to (f): bits sent per round, counted as b·d, smoothed."""
    window = 1 + max(len(result.records) for result in results) // 10
    curves = [
        Series(result.label, _smooth([r.paper_bits / 1e6 for r in result.records], window))
        for result in results
    ]
    return draw_curves(
        curves,
        "round",
        f"Mbit per round (b·d, all devices), mean of {window} rounds",
        title="Bits per round (the paper's Figures 2 and 3, d to f)",
        yscale="log",
    )


def quality_against_uplink(results: Sequence[LabelledRun]) -> Figure | None:
    """Draw test accuracy or perplexity against real bytes."""
    return quality_against(results, BYTES)


def quality_against_time(results: Sequence[LabelledRun]) -> Figure | None:
    """Draw test accuracy or perplexity against the simulated time of runs with a link model."""
    return quality_against(results, TIME)


def quality_against_energy(results: Sequence[LabelledRun]) -> Figure | None:
    """Draw test accuracy or perplexity against the simulated energy of all devices."""
    return quality_against(results, ENERGY)


def quality_against(results: Sequence[LabelledRun], cost: Cost) -> Figure | None:
    """Draw test accuracy or perplexity against a cost, if a run has both."""
    metric, label, times = quality_metric(results)
    known = [result for result in results if cost.total(result.records) is not None]
    if all(result.last_metric(metric) is None for result in known):
        return None
    total = max(cost.total(result.records) or 0 for result in known)
    size, name = (1.0, "real frames") if cost is BYTES else _axis_unit(cost, total)
    curves = _against_total(
        known,
        lambda r: (cost.of_round(r) or 0) / size,
        lambda r: times * r.metrics[metric] if metric in r.metrics else None,
    )
    return draw_curves(
        curves,
        f"{cost.title}, {name}",
        label if times == 1 else f"{label}, %",
        title=f"{label.capitalize()} against {'real bytes' if cost is BYTES else cost.title}",
        xscale="log",
        xformat=format_byte_tick if cost is BYTES else "{:g}".format,
    )


def error_ratio(results: Sequence[LabelledRun]) -> Figure | None:
    """Draw ‖quantization error‖ ÷ ‖quantized vector‖ of the runs that quantize."""
    curves = [
        Series(
            result.label, [(r.round + 1, r.error_ratio) for r in result.records if r.error_ratio]
        )
        for result in results
    ]
    styles = line_styles([curve.label for curve in curves])  # as in the other figures
    both = [(curve, style) for curve, style in zip(curves, styles, strict=True) if curve.points]
    if not both:
        return None
    return draw_curves(
        [curve for curve, _ in both],
        "round",
        "‖ε‖ / ‖v‖, mean over devices",
        title="Error ratio",
        yscale="log",
        styles=[style for _, style in both],
    )


FIGURES: dict[str, Callable[[Sequence[LabelledRun]], Figure | None]] = {
    "loss_against_bits": loss_against_bits,
    "bits_per_round": bits_per_round,
    "loss_by_beta": loss_by_beta,
    "quality_by_beta": quality_by_beta,
    "quality_against_uplink": quality_against_uplink,
    "quality_against_time": quality_against_time,
    "quality_against_energy": quality_against_energy,
    "levels": levels_over_time,
    "error_ratio": error_ratio,
    "bytes_against_width": bytes_against_width,
}


def _against_total(
    results: Sequence[LabelledRun],
    cost: Callable[[Record], float],
    value: Callable[[Record], float | None],
) -> list[Series]:
    """Return a value against the total cost so far, for the rounds that have the value."""
    curves = []
    for result in results:
        totals: Iterable[float] = accumulate(cost(record) for record in result.records)
        both = zip(totals, map(value, result.records), strict=True)
        curves.append(Series(result.label, [(x, y) for x, y in both if y is not None]))
    return curves


def _smooth(values: Sequence[float], window: int) -> list[tuple[float, float]]:
    """Return a trailing moving average with this window."""
    parts = (values[max(0, n - window) : n] for n in range(1, len(values) + 1))
    return [(number, sum(part) / len(part)) for number, part in enumerate(parts, 1)]


def _axis_unit(cost: Cost, largest: float) -> tuple[float, str]:
    unit = cost.unit_for(largest)
    return unit.size, unit.name
