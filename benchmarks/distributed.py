"""Loss against bytes and time: DDP with its hooks, DiLoCo, SparseLoCo and methods of this project.

    python benchmarks/distributed.py run --task cnn --ranks 2 --steps 600 --out results/distributed
    python benchmarks/distributed.py run --task gpt --ranks 4 --device cuda --every 50 --out FOLDER
    python benchmarks/distributed.py suite --device cuda --bf16 --seconds 400 --out FOLDER
    python benchmarks/distributed.py table results/distributed/cnn.jsonl
    python benchmarks/distributed.py means results/distributed/seeds/gpt.jsonl
    python benchmarks/distributed.py times results/distributed/links/cnn.jsonl
    python benchmarks/distributed.py figure results/distributed/cnn.jsonl --out FILE.svg

`run` trains one model per rival on all ranks, which are processes of this machine on gloo. It
appends one JSON line per run to FOLDER/TASK.jsonl and leaves out runs that the file has.
`--link 10` limits every rank to 10 Mbit/s while it trains. `suite` runs a plan of
`distributed_suite.py`, several runs at a time, most important ones first. All ranks may share one
GPU: frames and the gradients of DDP go through the host.

`table` prints the last loss, the bytes per rank and the time, `figure` draws them. For links that
were not run, both add bytes ÷ rate to the time without limit; nothing overlaps then, as with
`--link`. `means` prints the mean losses over all seeds, and `times` the measured times per link
with their ratio to dense frames.
"""

import argparse
import json
import math
import os
import signal
import sys
from pathlib import Path

import torch
from distributed_figures import LINKS, draw, group_runs
from distributed_jobs import MEGABIT, SETTING, Job, is_done, run_jobs
from distributed_rivals import DENSE, RIVALS, SHORT
from distributed_seeds import print_means, print_times
from distributed_suite import PLANS, planned_jobs
from distributed_tasks import TASKS, load_data

CHOICES = ("every", "ranks", "steps")
"""Settings that choose the runs of a figure."""


def run(args):
    """Run the rivals that the file does not have yet, one after the other."""
    names = args.rivals.split(",")
    for name in names:
        if name not in RIVALS:
            raise SystemExit(f"there is no rival {name!r}; known: {', '.join(RIVALS)}")
    limit = args.limit or math.inf
    start([Job(name, args, limit) for name in names if not is_done(name, args)], args.ranks)


def suite(args):
    """Run the plan, several runs at a time."""
    start(planned_jobs(args), args.cores, args.seconds or math.inf)


def start(jobs, cores, limit=math.inf):
    """Run jobs; exit with 1 if one has no result."""
    # ranks are ended if this process is
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    torch.set_num_threads(1)  # threads of a parent do not survive a fork
    for task, folder in {(job.args.task, job.args.data) for job in jobs}:
        load_data(task, folder)
    missing = run_jobs(jobs, cores, limit)
    signal.signal(signal.SIGTERM, before)
    if missing:
        raise SystemExit(f"{len(missing)} of {len(jobs)} runs have no result")


def time_at(entry, link, entries):
    """Return the seconds of a run on a link in Mbit/s, measured if it was run, else computed."""
    for other in entries:
        if other["link"] == link and all(other[key] == entry[key] for key in (*SETTING, "rival")):
            return f"{other['curve'][-1][4]:,.0f}"
    link_bytes, seconds = entry["curve"][-1][3:5]
    return f"*{seconds + 8 * link_bytes / (link * MEGABIT):,.0f}*"


def table(args):
    """Print one table per setting of a file; computed times are in italics."""
    entries = read_entries(args.file)
    for setting, of_setting in group_runs(entries).items():
        runs = [entry for entry in of_setting if not entry["link"]]
        print(f"\n{dict(zip(SETTING, setting, strict=True))}\n")
        print("| rival | loss | ÷ dense | MB per rank | dense MB ÷ this | seconds |", end="")
        print("".join(f" at {link} Mbit/s |" for link in LINKS), "validation loss |")
        print("|---|" + "---:|" * (6 + len(LINKS)))
        last = {run["rival"]: run["curve"][-1] for run in runs}
        for one in runs:
            dense = last.get(DENSE[RIVALS[one["rival"]][0]])
            _, loss, sent, _, seconds = one["curve"][-1][:5]
            ratios = ("", "") if dense is None else (loss / dense[1], dense[2] / sent)
            quality, saving = (f"{ratio:,.4g}" if ratio else "" for ratio in ratios)
            cells = (one["rival"], f"{loss:.4f}", quality, f"{sent / 1e6:,.3f}", saving)
            times = (f"{seconds:,.0f}", *(time_at(one, link, entries) for link in LINKS))
            validation = "".join(f"{loss:.4f}" for loss in one["curve"][-1][5:])
            print(f"| {' | '.join((*cells, *times, validation))} |")


def figure(args):
    """Draw the runs of one setting of a file."""
    wanted = {name: getattr(args, name) for name in CHOICES if getattr(args, name) is not None}
    print(draw(read_entries(args.file), args.out, wanted))


def read_entries(file):
    """Return the runs of a file."""
    return [json.loads(line) for line in Path(file).read_text().splitlines()]


def add_settings(parser):
    """Add the settings of a run; a plan replaces some of them."""
    parser.add_argument("--task", default="cnn", choices=TASKS)
    parser.add_argument("--data", default=None, help="folder of the data set")
    parser.add_argument("--out", required=True, help="folder of the results")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--bf16", action="store_true", help="autocast to bfloat16")
    numbers = {
        "ranks": 2, "every": 50, "steps": 600, "batch": 64, "seed": 0, "nice": 0,
        "evaluate_every": 50, "test_samples": 2000, "width": 128, "layers": 4, "heads": 4,
    }  # fmt: skip
    for name, default in numbers.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=default)
    parser.add_argument("--lr", type=float, default=1e-3, help="largest rate of AdamW")
    parser.add_argument("--link", type=float, default=0, help="Mbit/s per rank; 0: no limit")
    parser.add_argument("--limit", type=float, default=0, help="seconds of one run; 0: no limit")


def parse(words=None):
    """Return the arguments of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    training = commands.add_parser("run", help="train the rivals")
    training.set_defaults(function=run)
    training.add_argument("--rivals", default=",".join(SHORT), help="names, joined by commas")
    add_settings(training)
    planned = commands.add_parser("suite", help="train all rivals of the documented tables")
    planned.set_defaults(function=suite)
    planned.add_argument("--plan", default="documented", choices=PLANS)
    planned.add_argument("--cores", type=int, default=os.cpu_count(), help="ranks at a time")
    planned.add_argument("--seconds", type=float, default=0, help="limit of all runs; 0: none")
    planned.add_argument("--tiny", action="store_true", help="few steps of a tiny model, as a test")
    add_settings(planned)
    printing = commands.add_parser("table", help="print a table of results")
    printing.set_defaults(function=table)
    printing.add_argument("file")
    for name, function in {"means": print_means, "times": print_times}.items():
        over_seeds = commands.add_parser(name, help=function.__doc__.partition(".")[0].lower())
        over_seeds.set_defaults(function=lambda args, show=function: show(read_entries(args.file)))
        over_seeds.add_argument("file")
    drawing = commands.add_parser("figure", help="draw loss against bytes and time")
    drawing.set_defaults(function=figure)
    drawing.add_argument("file")
    drawing.add_argument("--out", required=True, help="the image, .svg or .png")
    for name in CHOICES:
        drawing.add_argument(f"--{name}", type=int, help=f"{name} of the runs to draw")
    return parser.parse_args(words)


def main():
    args = parse()
    args.function(args)


if __name__ == "__main__":
    main()
