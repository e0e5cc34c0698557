"""Figures of distributed.py: loss against bytes, and against time on links of several rates."""

from pathlib import Path

from distributed_jobs import MEGABIT, SETTING
from distributed_rivals import RIVALS

from aquila.report.new_figure import new_figure
from aquila.report.style import DASHES, PALETTE, save_figure
from aquila.report.units import format_byte_tick

LINKS = (10, 100, 1000)
"""Rates of links in Mbit/s."""
STYLES = {
    "ddp": ("DDP, dense", "ink", 0),
    "ddp_fp16": ("DDP, fp16 hook", "ink", 1),
    "ddp_powersgd_1": ("DDP, PowerSGD, rank 1", "grey", 2),
    "ddp_powersgd_2": ("DDP, PowerSGD, rank 2", "grey", 0),
    "ddp_powersgd_4": ("DDP, PowerSGD, rank 4", "grey", 1),
    "hook_aquila_topk": ("DDP, our hook, AQUILA-TopK 1 %", "plum", 2),
    "diloco": ("DiLoCo, dense", "blue", 0),
    "average": ("model average, dense", "blue", 1),
    "sparseloco": ("SparseLoCo, 2 %", "ochre", 0),
    "outer_aquila_topk_300": ("AQUILA-TopK", "red", 1),
    "outer_aquila_topk_300_sgd": ("AQUILA-TopK, no momentum", "red", 0),
    "outer_aquila_topk_sgd": ("AQUILA-TopK 1 %, no momentum", "red", 2),
    "outer_aquila_peak_300": ("AQUILA-Peak", "green", 0),
    "outer_aquila_peak_300_avg": ("AQUILA-Peak, no momentum", "green", 1),
    "outer_aquila_dither": ("AQUILA-Dither", "plum", 1),
    "outer_aquila_dither_300": ("AQUILA-Dither 4.5 %", "plum", 0),
    "outer_flush_300": ("keep_unsent, 0.8 %, flush", "aquila", 0),
    "outer_unsent_300": ("keep_unsent, 1.15 %", "aquila", 3),
    "outer_unsent_300_0.7": ("keep_unsent, 1.15 %, momentum 0.7", "green", 0),
    "outer_flush_300_0.7": ("keep_unsent, 0.8 %, flush, momentum 0.7", "green", 1),
    "outer_unsent_100": ("keep_unsent, 3.6 %", "aquila", 1),
    "outer_unsent_600": ("keep_unsent, 0.53 %", "aquila", 2),
}
"""Label, colour and dashes of the rivals that figures show."""


def group_runs(entries):
    """Return the runs of each setting. Those of DDP belong to all intervals of exchanges."""
    groups = {}
    for entry in entries:
        groups.setdefault(tuple(entry[key] for key in SETTING), [])
    for setting, runs in groups.items():
        shared = dict(zip(SETTING, setting, strict=True))
        for entry in entries:
            if RIVALS[entry["rival"]][0] != "outer":
                shared["every"] = entry["every"]
            else:
                shared["every"] = setting[SETTING.index("every")]
            if shared.items() <= entry.items():
                runs.append(entry)
    return groups


def select(entries, wanted):
    """Return the runs of the setting that has most runs among those with the wanted values."""
    groups = [
        runs
        for setting, runs in group_runs(entries).items()
        if wanted.items() <= dict(zip(SETTING, setting, strict=True)).items()
    ]
    if not groups:
        raise SystemExit(f"the file has no run with {wanted}")
    return max(groups, key=len)


def curve_on_link(entry, link, entries):
    """Return the seconds and losses of a run on a link.

    Without a measured run on that link, bytes ÷ rate are added to the time without a limit.
    """
    for other in entries:
        if link and other["link"] == link and other["rival"] == entry["rival"]:
            return [(point[4], point[1]) for point in other["curve"]]
    wait = 8 / (link * MEGABIT) if link else 0
    return [(point[4] + wait * point[3], point[1]) for point in entry["curve"]]


def draw_line(axes, entry, points):
    """Draw the curve of a run."""
    label, colour, dash = STYLES[entry["rival"]]
    ours = colour == "aquila"
    axes.plot(
        *zip(*points, strict=True), label=label, color=PALETTE[colour], linestyle=DASHES[dash],
        linewidth=2.2 if ours else 1.3, zorder=3 if ours else 2, marker="." if ours else None,
    )  # fmt: skip


def draw(entries, path, wanted):
    """Draw the runs of one setting, which has the wanted values; return the path."""
    on_links = select(entries, wanted)
    runs = [run for run in on_links if run["rival"] in STYLES and not run["link"]]
    runs.sort(key=lambda run: list(STYLES).index(run["rival"]))
    links = (*LINKS, 0)
    figure = new_figure(3 * (1 + len(links)), 3.4)
    panels = figure.subplots(1, 1 + len(links), sharey=True)
    for run in runs:
        draw_line(panels[0], run, [(point[2], point[1]) for point in run["curve"]])
        for axes, link in zip(panels[1:], links, strict=True):
            draw_line(axes, run, curve_on_link(run, link, on_links))
    panels[0].set_xlabel("bytes sent per rank")
    panels[0].set_ylabel("test loss")
    for axes, link in zip(panels[1:], links, strict=True):
        axes.set_xlabel(f"seconds at {link:,} Mbit/s" if link else "seconds, no limit")
    best = min(point[1] for run in runs for point in run["curve"])
    start = max(run["curve"][0][1] for run in runs)
    for axes in panels:
        axes.set_xscale("log")
        axes.xaxis.set_minor_formatter("")
        axes.set_ylim(best - 0.05 * (start - best), min(start, best + 1.5))
        axes.grid(which="major", alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].xaxis.set_major_formatter(lambda count, _: format_byte_tick(count))
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center", frameon=False, handlelength=3)
    return save_figure(figure, Path(path))
