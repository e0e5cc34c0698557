"""Figures of `choosing.py`: quality at the end, and bytes, time and energy to the same quality.

    python benchmarks/choosing_figures.py --out docs/images

For each task, `choosing_TASK_end.png` shows the quality at the end against the uplink. For each
task and split, `choosing_TASK_SPLIT.png` shows what each method needs to reach the level. Dots are
means over the seeds, lines go from the smallest to the largest. Hollow dots are means over the
seeds that reach the level, where not all do.
"""

import argparse
import json
from pathlib import Path

from choosing_runs import PRESETS, SPLITS, TUNING_PRESET
from choosing_summary import LEVEL_FRACTION

from aquila.report.colours import assign_colours
from aquila.report.new_figure import new_figure
from aquila.report.style import PALETTE, save_figure
from aquila.report.units import format_byte_tick

LABELLED = 12
"""Methods with a label and a colour in the figure of the quality at the end."""
HIDDEN_PART = 12
"""One of this many methods, those with the lowest quality at the end, may be below the axis."""
LABEL_OFFSETS = [
    (dx, sign * dy) for dy in range(9, 100, 9) for dx in (0, -24, 24, -48, 48) for sign in (1, -1)
]
"""Places of a label next to its dot, in points, nearest first."""
PRESET_STYLES = {"nb_iot": ("ochre", "s"), "lte": ("blue", "o"), "mixed": ("green", "^")}
PRESET_NAMES = {"nb_iot": "NB-IoT", "lte": "LTE", "mixed": "mixed fleet"}
TASK_NAMES = {
    "digits_mlp": "digits, MLP, one full gradient per round",
    "cifar10_cnn": "CIFAR-10, small CNN, one local epoch per round",
}
SPLIT_NAMES = {"iid": "IID", "dirichlet:0.3": "Dirichlet 0.3"}


def read_rows(path: Path) -> list[dict]:
    """Return the rows of a summary."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def with_labels(rows) -> list[dict]:
    """Return rows with a label: the method, and the options that not all its variants have."""

    def options(row):
        return {item for item in row["options"].items() if item[0] not in ("alpha", "work")}

    shared = {}
    for row in rows:
        shared[row["method"]] = shared.get(row["method"], options(row)) & options(row)
    return [{**row, "label": label(row, options(row) - shared[row["method"]])} for row in rows]


def label(row, own) -> str:
    """Return a method with the options of its variant."""
    return " ".join([row["method"], *(f"{name}={value}" for name, value in sorted(own))])


def by_label(rows, preset: str = TUNING_PRESET) -> dict[str, list[dict]]:
    """Return the rows of each method: those without a preset, and those with the given one."""
    found: dict[str, list[dict]] = {}
    for row in rows:
        if row["preset"] in (None, preset):
            found.setdefault(row["label"], []).append(row)
    return found


def spread(values):
    """Return mean, minimum and maximum of the values that are not None, and whether all are not."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    return sum(known) / len(known), min(known), max(known), len(known) == len(values)


def draw_dots(axes, spreads, **style) -> None:
    """Draw one dot per method, from top to bottom, with a line over the seeds."""
    color = style.pop("color")
    for place, found in enumerate(spreads):
        if found is None:
            continue
        mean, low, high, complete = found
        shade = color if isinstance(color, str) else color[place]
        axes.plot([low, high], [place, place], color=shade, linewidth=1, zorder=2)
        face = shade if complete else "white"
        axes.plot(
            [mean], [place], linestyle="", color=shade, markerfacecolor=face, zorder=3, **style
        )


def method_colours(labels) -> list[str]:
    """Return the colour of each method in all figures of the project."""
    return [PALETTE[assigned.colour] for assigned in assign_colours(labels)]


def plot_to_quality(rows, task: str, split: str, path: Path) -> Path:
    """Draw what each method needs to reach the level, sorted by bytes; return the path."""
    rows = [row for row in rows if (row["task"], row["split"]) == (task, split)]
    runs = by_label(rows)
    needed = {
        name: spread([row["bytes_to_quality"]["uplink_bytes"] for row in found])
        for name, found in runs.items()
    }
    # methods that all seeds reach first, then by bytes
    labels = sorted(
        needed,
        key=lambda n: (needed[n] is None, not (needed[n] and needed[n][3]), (needed[n] or (0,))[0]),
    )
    figure = new_figure(11, 1.2 + 0.2 * len(labels))
    panels = figure.subplots(1, 3, sharey=True)
    draw_dots(
        panels[0], [needed[name] for name in labels], color=method_colours(labels), marker="o",
        markersize=5,
    )  # fmt: skip
    for axes, quantity in ((panels[1], "seconds"), (panels[2], "joules")):
        for preset in PRESETS:
            of_preset = by_label(rows, preset)
            values = [
                spread([r["links"][preset][f"{quantity}_to_quality"] for r in of_preset[name]])
                for name in labels
            ]
            unit = 60 if quantity == "seconds" else 1000
            values = [v and tuple(x / unit for x in v[:3]) + v[3:] for v in values]
            shade, marker = PRESET_STYLES[preset]
            draw_dots(axes, values, color=PALETTE[shade], marker=marker, markersize=4)
            axes.plot([], [], color=PALETTE[shade], marker=marker, label=PRESET_NAMES[preset])
    missed = [place for place, name in enumerate(labels) if needed[name] is None]
    for place in missed:
        panels[0].text(
            0.02, place, "not reached", color=PALETTE["grey"], va="center", fontsize=7,
            transform=panels[0].get_yaxis_transform(),
        )  # fmt: skip
    finish_panels(panels, labels)
    figure.suptitle(
        f"{TASK_NAMES[task]}, {SPLIT_NAMES[split]}: "
        f"to {100 * LEVEL_FRACTION:.0f} % of the accuracy without compression",
        fontsize=10,
    )
    return save_figure(figure, path)


def finish_panels(panels, labels) -> None:
    """Set scales, titles and the names of the methods."""
    from matplotlib.ticker import LogLocator, NullFormatter

    titles = ("uplink, real frames", "simulated time, minutes", "energy of all devices, kJ")
    for axes, title in zip(panels, titles, strict=True):
        axes.set_xscale("log")
        low, high = axes.get_xlim()
        steps = (1,) if high > 100 * low else (1, 2, 5)
        axes.xaxis.set_major_locator(LogLocator(subs=steps))
        text = format_byte_tick if axes is panels[0] else "{:g}".format
        axes.xaxis.set_major_formatter(lambda value, _, text=text: text(value))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_xlabel(title, fontsize=9)
        axes.grid(which="major", alpha=0.3)
        axes.tick_params(labelsize=8)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_yticks(range(len(labels)), labels, fontsize=8)
    panels[0].set_ylim(len(labels) - 0.4, -0.6)
    panels[1].legend(
        frameon=False, fontsize=8, ncols=len(PRESETS), loc="lower center", bbox_to_anchor=(0.5, 1)
    )


def front(points) -> list[str]:
    """Return the methods that no other beats in both quality and bytes, fewest bytes first."""
    chosen, best = [], float("-inf")
    for name, (_, quality) in sorted(points.items(), key=lambda item: item[1]):
        if quality > best:
            chosen.append(name)
            best = quality
    return chosen


def to_label(points, count: int) -> list[str]:
    """Return the methods with labels: one front after another, until there are enough."""
    left, found = dict(points), []
    while left and len(found) < count:
        for name in front(left):
            found.append(name)
            del left[name]
    return found[:count]


def plot_end(rows, task: str, path: Path) -> Path:
    """Draw the quality at the end against the uplink, one panel per split; return the path."""
    rows = [row for row in rows if row["task"] == task]
    dense = rows[0]["dense_method"]
    figure = new_figure(11, 5.5)
    panels = figure.subplots(1, len(SPLITS), sharey=True)
    points = [end_points([row for row in rows if row["split"] == split]) for split in SPLITS]
    for axes, split, own in zip(panels, SPLITS, points, strict=True):
        draw_points(axes, own, dense)
        axes.set_title(SPLIT_NAMES[split], fontsize=10)
    bottom = min(map(lowest_shown, points))
    panels[0].set_ylim(bottom=bottom)
    panels[0].set_ylabel("test accuracy at the end, %")
    figure.suptitle(TASK_NAMES[task], fontsize=10)
    figure.draw_without_rendering()  # labels are placed on the final layout
    figure.set_layout_engine("none")
    for axes, own in zip(panels, points, strict=True):
        place_labels(axes, own, dense, bottom)
    return save_figure(figure, path)


def end_points(rows) -> dict[str, tuple[float, float]]:
    """Return uplink bytes and quality in percent at the end of each method."""
    return {
        name: (
            sum(row["uplink_bytes"] for row in found) / len(found),
            100 * sum(row["quality_end"] or 0 for row in found) / len(found),
        )
        for name, found in by_label(rows).items()
    }


def draw_points(axes, points, dense: str) -> None:
    """Draw one dot per method: colours for the best ones and the dense method, grey for others."""
    named = list(dict.fromkeys([*to_label(points, LABELLED - 1), dense]))
    colours = dict(zip(named, method_colours(named), strict=True))
    for name, point in points.items():
        size = 6 if name in named else 4
        axes.plot(*point, "o", color=colours.get(name, "#BBBBBB"), markersize=size, zorder=2)
    axes.axhline(points[dense][1], color=PALETTE["ink"], linewidth=0.8, linestyle=":", zorder=1)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(lambda value, _: format_byte_tick(value))
    axes.set_xlabel("uplink of the whole run, real frames", fontsize=9)
    axes.grid(which="major", alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)


def place_labels(axes, points, dense: str, bottom: float) -> None:
    """Label the best methods without overlaps; name the methods below the axis in a corner."""
    from matplotlib.transforms import Bbox

    shown = {name: point for name, point in points.items() if point[1] >= bottom}
    named = list(dict.fromkeys([*to_label(points, LABELLED - 1), dense]))
    taken = [axes.transData.transform(point) for point in shown.values()]
    boxes = [Bbox.from_bounds(x - 4, y - 4, 8, 8) for x, y in taken]
    for name, color in zip(named, method_colours(named), strict=True):
        if name in shown:
            boxes.append(place_label(axes, name, shown[name], color, boxes))
    hidden = [f"{name} {y:.0f} %" for name, (_, y) in points.items() if y < bottom]
    if hidden:
        axes.text(
            0.02, 0.02, "below the axis: " + ", ".join(hidden), wrap=True, fontsize=7,
            color=PALETTE["grey"], transform=axes.transAxes,
        )  # fmt: skip


def place_label(axes, name: str, point, color: str, boxes):
    """Write a label at the nearest free place, and return the space that it takes."""
    from matplotlib.text import Text

    arrow = {"arrowstyle": "-", "color": color, "linewidth": 0.5, "shrinkA": 0, "shrinkB": 2}
    for dx, dy in LABEL_OFFSETS:
        text = axes.annotate(
            name, point, xytext=(dx, dy), textcoords="offset points", ha="center", va="center",
            fontsize=7, color=color, arrowprops=arrow,
        )  # fmt: skip
        text.get_window_extent()  # sets the position
        box = Text.get_window_extent(text)  # without the line
        inside = axes.bbox.x0 <= box.x0 and box.x1 <= axes.bbox.x1 and box.y0 >= axes.bbox.y0
        if inside and not any(box.overlaps(other) for other in boxes):
            break
        if (dx, dy) != LABEL_OFFSETS[-1]:
            text.remove()
    return box


def lowest_shown(points) -> float:
    """Return the bottom of the axis in percent, such that differences at the top are visible."""
    qualities = sorted(quality for _, quality in points.values())
    lowest = qualities[len(qualities) // HIDDEN_PART]
    return lowest - 0.2 * (qualities[-1] - lowest)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--summary", type=Path, default=Path("results/choosing/summary.jsonl"))
    parser.add_argument("--out", type=Path, default=Path("docs/images"))
    args = parser.parse_args()
    rows = with_labels(read_rows(args.summary))
    for task in dict.fromkeys(row["task"] for row in rows):
        print(plot_end(rows, task, args.out / f"choosing_{task}_end.png"))
        for split in SPLITS:
            name = f"choosing_{task}_{split.partition(':')[0]}.png"
            print(plot_to_quality(rows, task, split, args.out / name))


if __name__ == "__main__":
    main()
