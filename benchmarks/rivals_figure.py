"""Draws the quality at the end of training against the uplink: one line per method.

    python benchmarks/rivals_figure.py

The dots of a line are runs of one method with different parameters. Quality is the mean of the last
five evaluations. The dotted line is the quality of dense uploads.
"""

import argparse
from pathlib import Path

from aquila.report.colours import assign_colours
from aquila.report.new_figure import new_figure
from aquila.report.runs import find_runs
from aquila.report.style import PALETTE, save_figure
from aquila.report.units import format_byte_tick

ROOT = Path(__file__).parents[1]
DENSE = "fedavg"
MARKERS = "os^Dv"
"""Marks of the methods that share a colour."""
METRIC = "test_accuracy"
BELOW_DENSE = 0.08
"""Accuracy below that of dense uploads at which the axis ends."""


def read_points(folder: Path) -> dict[str, list[tuple[float, float]]]:
    """Return method -> uplink bytes and final accuracy of its runs, smallest uplink first."""
    points: dict[str, list[tuple[float, float]]] = {}
    for run in find_runs(folder):
        result = run.result
        point = result.uplink_bytes, result.final_metric(METRIC)
        points.setdefault(run.method, []).append(point)
    return {method: sorted(own) for method, own in points.items()}


def draw(points):
    """Return the figure."""
    figure = new_figure(8.5, 5)
    axes = figure.subplots()
    ((_, dense),) = points.pop(DENSE)
    bottom = dense - BELOW_DENSE
    for (method, own), colour in zip(points.items(), assign_colours(list(points)), strict=True):
        ours = method.startswith("aquila")
        is_hidden = max(quality for _, quality in own) < bottom
        axes.plot(
            *zip(*own, strict=True), label=f"{method}, below the axis" if is_hidden else method,
            color=PALETTE[colour.colour],
            marker=MARKERS[colour.colour_index], markersize=6 if ours else 4.5,
            linewidth=2 if ours else 1, linestyle="-" if ours else "--",
        )  # fmt: skip
    axes.axhline(dense, color=PALETTE["ink"], linewidth=0.8, linestyle=":", label="dense uploads")
    axes.set_ylim(bottom=bottom)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(lambda value, _: format_byte_tick(value))
    axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
    axes.set_xlabel("uplink of the whole run, real frames")
    axes.set_ylabel("test accuracy at the end")
    axes.grid(which="major", alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False, fontsize=9)
    return figure


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=Path, default=ROOT / "results/rivals/cifar10_cnn")
    parser.add_argument("--out", type=Path, default=ROOT / "docs/images/rivals.png")
    args = parser.parse_args()
    print(save_figure(draw(read_points(args.runs)), args.out))


if __name__ == "__main__":
    main()
