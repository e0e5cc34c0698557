"""Draws the figures of the documentation from committed results.

    python benchmarks/gallery.py
    python benchmarks/gallery.py --demo runs/demo

The first command redraws the figures whose runs are in `results/`. The second one, after
`make demo`, draws the runs of the demo and takes a picture of their report in a browser.
`choosing_figures.py` and `front_figure.py` draw the others. docs/gallery.md shows all of them.
"""

import argparse
import json
import os
import shutil
from pathlib import Path

from coders.figure import draw as draw_codec

from aquila.report.figures import FIGURES
from aquila.report.loss_plot import plot_loss_against_uplink
from aquila.report.runs import find_runs
from aquila.report.style import save_figure

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"
FROM_RUNS = {
    "recipe_quality": ("recipes/cifar10_resnet18", "quality_against_uplink"),
    "cifar10_iid_loss": ("table2/cifar10_iid", "loss_against_bits"),
    "cifar10_iid_levels": ("table2/cifar10_iid", "levels"),
    "beta_digits": ("beta_digits", "loss_by_beta"),
    "beta_cifar10": ("beta_cifar10", "quality_by_beta"),
}
"""Name of the picture -> folder of runs, and figure of `aquila figures`."""
EARLIER_DEFAULTS = {"memory": "device", "upload_every": 1}
"""Parameters of runs that figures leave out, because they hide those with today's defaults."""
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
PICTURE = {"width": 1280, "height": 1130}
"""Size of the part of a report that is shown, in pixels."""


def read_results(folder: Path):
    """Return the runs of a folder, AQUILA first, as `aquila figures` orders them.

    Of runs with the same label, which differ in the downlink only, it takes the longest.
    """
    runs = sorted(find_runs(folder), key=lambda run: run.method != "aquila")
    runs = [run for run in runs if not EARLIER_DEFAULTS.items() <= run.facts["parameters"].items()]
    longest = {}
    for result in (run.result for run in runs):
        other = longest.get(result.label)
        if other is None or len(result.records) > len(other.records):
            longest[result.label] = result
    return list(longest.values())


def draw_runs(out: Path):
    """Draw the figures of committed runs; yield their paths."""
    for name, (folder, figure) in FROM_RUNS.items():
        yield save_figure(FIGURES[figure](read_results(RESULTS / folder)), out / f"{name}.png")
    machine, *rows = map(json.loads, (RESULTS / "codec_cpu.jsonl").read_text().splitlines())
    draw_codec(machine, rows, out / "codec.png")
    yield out / "codec.png"


def draw_demo(folder: Path, out: Path):
    """Draw the runs of `make demo`, and take a picture of their report; yield the paths."""
    yield plot_loss_against_uplink(read_results(folder), out / "loss_against_uplink.png")
    from playwright.sync_api import sync_playwright

    executable = next(filter(None, map(shutil.which, BROWSERS)), None)
    root = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=root)
        page = browser.new_page(viewport=PICTURE, device_scale_factor=1.25)
        page.goto((folder / "report.html").resolve().as_uri())
        page.wait_for_selector("html[data-ready=true]")
        page.screenshot(path=out / "report.png")
        browser.close()
    yield out / "report.png"


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--demo", type=Path, help="folder of `make demo`")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "images")
    chosen = parser.parse_args()
    drawn = draw_demo(chosen.demo, chosen.out) if chosen.demo else draw_runs(chosen.out)
    print(*drawn, sep="\n")


if __name__ == "__main__":
    main()
