"""The figures of the paper, and some that it lacks, from the records of runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

from aquila.report.beta import loss_by_beta, quality_by_beta
from aquila.report.coding import bytes_against_width
from aquila.report.curves import Curve, draw_curves, quality_of
from aquila.report.levels import levels_over_time
from aquila.report.runs import FoundRun
from aquila.report.style import line_styles, save
from aquila.report.table import MIB, Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from aquila.sim.records import Record

GIB = 2**30


def draw_all(runs: Sequence[FoundRun], root: Path, out: Path) -> list[Path]:
    """Draw every figure that the runs have numbers for, and return the paths.

    Runs side by side in one folder are one comparison.
    """
    if not runs:
        raise ValueError(f"there is no run in {root}")
    sets: dict[Path, list[Result]] = {}
    for run in sorted(runs, key=lambda run: run.method != "aquila"):  # the legend opens with it
        sets.setdefault(run.folder.parent, []).append(run.result)
    paths = []
    for folder, results in sets.items():
        below = folder.is_relative_to(root)  # not so if the root is a run itself
        name = folder.relative_to(root) if below else root.resolve().name
        target = out / name if len(sets) > 1 else out
        drawn = ((name, draw(results)) for name, draw in FIGURES.items())
        paths += [save(figure, target / f"{name}.png") for name, figure in drawn if figure]
    return paths


def loss_against_bits(results: Sequence[Result]) -> Figure | None:
    """Figures 2 and 3, (a) to (c): training loss against all bits sent, as the paper counts."""
    total = max(result.paper_bits for result in results) / 8
    curves = _against(results, lambda r: r.paper_bits / 8 / _size(total), lambda r: r.loss)
    return draw_curves(
        curves,
        f"uplink as the paper counts it (b·d), {_unit(total)}",
        "training loss",
        title="Training loss against bits sent (the paper's Figures 2 and 3, a to c)",
        xscale="log",
        yscale="log",
    )


def bits_a_round(results: Sequence[Result]) -> Figure | None:
    """Figures 2 and 3, (d) to (f): bits sent in each round, as the paper counts, smoothed."""
    window = 1 + max(len(result.records) for result in results) // 10
    curves = [
        Curve(result.label, _smooth([r.paper_bits / 1e6 for r in result.records], window))
        for result in results
    ]
    return draw_curves(
        curves,
        "round",
        f"Mbit a round (b·d, all devices), mean of {window} rounds",
        title="Bits a round (the paper's Figures 2 and 3, d to f)",
        yscale="log",
    )


def quality_against_uplink(results: Sequence[Result]) -> Figure | None:
    """Test accuracy, or perplexity, against real bytes."""
    metric, label, times = quality_of(results)
    if all(result.last_metric(metric) is None for result in results):
        return None
    total = max(result.uplink_bytes for result in results)
    curves = _against(
        results,
        lambda r: r.uplink_bytes / _size(total),
        lambda r: times * r.metrics[metric] if metric in r.metrics else None,
    )
    return draw_curves(
        curves,
        f"uplink, {_unit(total)} of real frames",
        label if times == 1 else f"{label}, %",
        title=f"{label.capitalize()} against real bytes",
        xscale="log",
    )


def error_ratio(results: Sequence[Result]) -> Figure | None:
    """Norm of the quantization error over that of what was quantized; none where none is made."""
    curves = [
        Curve(result.label, [(r.round + 1, r.error_ratio) for r in result.records if r.error_ratio])
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


FIGURES: dict[str, Callable[[Sequence[Result]], Figure | None]] = {
    "loss_against_bits": loss_against_bits,
    "bits_a_round": bits_a_round,
    "loss_by_beta": loss_by_beta,
    "quality_by_beta": quality_by_beta,
    "quality_against_uplink": quality_against_uplink,
    "levels": levels_over_time,
    "error_ratio": error_ratio,
    "bytes_against_width": bytes_against_width,
}


def _against(
    results: Sequence[Result],
    sent: Callable[[Record], float],
    value: Callable[[Record], float | None],
) -> list[Curve]:
    """Return a value of the rounds that have it against everything sent until then."""
    curves = []
    for result in results:
        totals: Iterable[float] = accumulate(sent(record) for record in result.records)
        both = zip(totals, map(value, result.records), strict=True)
        curves.append(Curve(result.label, [(x, y) for x, y in both if y is not None]))
    return curves


def _smooth(values: Sequence[float], window: int) -> list[tuple[float, float]]:
    """Return the mean of so many rounds up to each."""
    parts = (values[max(0, n - window) : n] for n in range(1, len(values) + 1))
    return [(number, sum(part) / len(part)) for number, part in enumerate(parts, 1)]


def _size(largest: float) -> int:
    return GIB if largest >= GIB else MIB


def _unit(largest: float) -> str:
    return "GiB" if largest >= GIB else "MiB"
