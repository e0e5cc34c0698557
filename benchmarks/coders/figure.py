"""The figure of benchmarks/codec.py: size against entropy, and speed."""

from aquila.report.new_figure import new_figure
from aquila.report.style import PALETTE
from coders.adapters import AquilaFrame, Blosc, Constriction, Zstd
from coders.goals import AQUILA_GOAL, SPARSE_GOAL

FIGURE_STREAMS = (
    ("Gaussian", "AQUILA"),
    ("Gaussian", "zero, 1 rms"),
    ("Gaussian", "zero, 4 rms"),
    ("ResNet-18", "AQUILA"),
    ("ResNet-18", "QSGD, 6 bits"),
    ("ResNet-18", "LAQ, 6 bits"),
    ("ResNet-18", "zero, 4 rms"),
    ("Transformer", "AQUILA"),
    ("Transformer", "zero, 4 rms"),
)
"""Streams whose speed is drawn."""


STYLES = {
    coder.name: {"color": PALETTE[color], "marker": marker}
    for coder, color, marker in (
        (AquilaFrame, "aquila", "o"),
        (Constriction, "blue", "s"),
        (Zstd, "green", "^"),
        (Blosc, "pink", "D"),
    )
}
"""Colours that colour-blind readers can distinguish, and markers for black-and-white print."""


def draw(machine, rows, path):
    """Draw sizes of all streams on the left, and speeds of some on the right."""
    rows = [row for row in rows if row["kind"] == "stream"]
    figure = new_figure(12, 5.6)
    left, right = figure.subplots(1, 2, width_ratios=[1, 1.15])
    draw_sizes(left, rows)
    chosen = [row for row in rows if (row["source"], row["grid"]) in FIGURE_STREAMS]
    draw_speeds(right, chosen)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(which="major", alpha=0.25)
    where = f"{machine['gpu']} and {machine['cpu']}" if "gpu" in machine else machine["cpu"]
    caption = f"{where}, one core; torch {machine['torch']}; {machine['date']}"
    figure.supxlabel(f"{caption}; seed {machine['seed']}", fontsize=8, color="0.35")
    figure.savefig(path, dpi=160)


def draw_sizes(axes, rows):
    """Draw bits per coordinate against entropy."""
    entropies = [row["entropy"] for row in rows if row["entropy"]]
    ends = [min(entropies) / 1.3, max(entropies) * 1.3]
    axes.plot(ends, ends, color="0.5", linewidth=1, zorder=1, label="entropy")
    for name in reversed(rows[0]["coders"]):  # AQUILA last, on top
        points = [(r["entropy"], r["coders"][name]["bits_per_coordinate"]) for r in rows]
        axes.scatter(*zip(*points, strict=True), s=34, label=name, alpha=0.85, **STYLES[name])
    axes.set(xscale="log", yscale="log", xlim=ends)
    axes.set(xlabel="order-0 entropy, bits per coordinate", ylabel="size, bits per coordinate")
    axes.set_title("Size of each stream", loc="left")
    axes.legend(frameon=False, loc="upper left", reverse=True)
    below = "below the line: gradients, whose\ncoordinates are not independent"
    axes.text(0.98, 0.04, below, transform=axes.transAxes, ha="right", color="0.35")
    for axis in (axes.xaxis, axes.yaxis):
        set_plain_ticks(axis)


def draw_speeds(axes, rows):
    """Draw encode (filled) and decode (hollow) speed, one line per stream and coder."""
    coders = list(rows[0]["coders"])
    for number, row in enumerate(rows):
        for offset, name in enumerate(coders):
            y = number + 0.17 * (offset - (len(coders) - 1) / 2)
            encode, decode = (row["coders"][name][f"{way}_gb_s"] for way in ("encode", "decode"))
            style = STYLES[name]
            axes.plot([encode, decode], [y, y], color=style["color"], linewidth=1.2, zorder=2)
            axes.scatter(encode, y, s=30, zorder=3, **style)
            axes.scatter(decode, y, s=30, zorder=3, **(style | {"facecolor": "white"}))
    for goal in (AQUILA_GOAL, SPARSE_GOAL):
        axes.axvline(goal, color="0.3", linewidth=1, linestyle="--", zorder=1)
    axes.set(xscale="log", xlabel="GB/s of the float32 vector", ylim=(len(rows) - 0.5, -0.5))
    axes.set_yticks(range(len(rows)), [stream_label(row) for row in rows])
    axes.set_title("Speed: encode filled, decode hollow, goals dashed", loc="left")
    set_plain_ticks(axes.xaxis)


def set_plain_ticks(axis):
    """Put ticks at 1, 2 and 5 times the powers of ten in view."""
    low, high = axis.get_view_interval()
    numbers = [m * 10.0**e for e in range(-6, 4) for m in (1, 2, 5)]
    axis.set_ticks([number for number in numbers if low <= number <= high])
    axis.set_ticks([], minor=True)
    axis.set_major_formatter("{x:g}")


def stream_label(row):
    return f"{row['source']}\n{row['grid']}  (H {row['entropy']:.2f})"
