r"""Accuracy if a fifth of the devices send wrong uploads, with default settings.

    python benchmarks/attacks.py run results/attacks.jsonl
    python benchmarks/attacks.py run results/attacks.jsonl --participation 0.1 --seeds 6 \
        --methods fedavg aquila_dither aquila_topk aquila
    python benchmarks/attacks.py table results/attacks.jsonl

Softmax regression on the digits, 20 devices with IID data, 60 rounds. `run` appends one JSON line
per method, attack and seed, and skips those that the file has. `table` prints the mean accuracy
over the seeds in percent. Its last column has the most points lost to an attack with any seed.
"""

import argparse
import json
import logging
import statistics
import sys
from itertools import product
from pathlib import Path

import torch

sys.path.append(str(Path(__file__).parents[1] / "tests"))

import aquila
from helpers.bad_devices import ATTACKS, softmax_digits, with_bad_devices

METHODS = (
    "fedavg", "qsgd", "eden", "topk", "ef_signsgd", "sparseloco", "signsgd", "laq", "lag", "diana",
    "ef21", "marina", "aquila_dither", "aquila_topk", "aquila", "aquila:b_min=2",
)  # fmt: skip
HONEST = "honest"
KINDS = {HONEST: (), **{name: (name,) for name in ATTACKS}, "mixed": tuple(ATTACKS)}
DEVICES, ROUNDS = 20, 60
ALPHA, ALPHAS = 1.0, {"signsgd": 0.02}
"""Step sizes. Those of signSGD do not shrink with the gradient."""
KEY = ("participation", "method", "attack", "seed")


def accuracy(method, attack, seed, participation):
    """Return the test accuracy at the end of a run under an attack."""
    problem = softmax_digits(DEVICES)
    bad = KINDS[attack]
    name, _, options = method.partition(":")
    alpha = ALPHAS.get(name, ALPHA)
    made = aquila.create(name, alpha=alpha, **dict(o.split("=") for o in options.split(",") if o))
    run = aquila.simulate(
        made,
        torch.zeros(650),
        with_bad_devices(problem.devices, bad) if bad else problem.devices,
        ROUNDS,
        seed,
        options=aquila.RunOptions(participation=participation),
    )
    return problem.accuracy(run.theta)


def read_lines(path):
    """Return the lines of a file as key -> accuracy."""
    lines = path.read_text().splitlines() if path.exists() else []
    results = [json.loads(line) for line in lines]
    return {tuple(result[field] for field in KEY): result["accuracy"] for result in results}


def run(path, methods, seeds, participation):
    """Append a line per run that the file does not have yet."""
    known = read_lines(path)
    for method, seed, attack in product(methods, range(seeds), KINDS):
        key = (participation, method, attack, seed)
        if key in known:
            continue
        line = dict(zip(KEY, key, strict=True)) | {"accuracy": accuracy(*key[1:], participation)}
        with path.open("a") as file:
            file.write(json.dumps(line) + "\n")
        print(*key, line["accuracy"], flush=True)


def table_rows(results):
    """Yield participation, method, mean accuracy per attack, and the most points lost."""
    groups = sorted(dict.fromkeys(key[:2] for key in results), key=lambda group: -group[0])
    for participation, method in groups:
        runs = {key[2:]: end for key, end in results.items() if key[:2] == (participation, method)}
        means = {
            attack: statistics.fmean(end for (name, _), end in runs.items() if name == attack)
            for attack in KINDS
        }
        lost = [
            runs[HONEST, seed] - end for (attack, seed), end in runs.items() if attack != HONEST
        ]
        yield participation, method, means.values(), max(lost)


def print_table(path):
    """Print a row per participation and method."""
    print("| devices per round | method |", " | ".join(KINDS), "| most points lost |")
    print("|---:|---|" + "---:|" * (len(KINDS) + 1))
    for participation, method, means, lost in table_rows(read_lines(path)):
        cells = [f"{100 * points:.1f}" for points in (*means, lost)]
        print(f"| {round(participation * DEVICES)} | `{method}` |", " | ".join(cells), "|")


def main():
    """Run the attacks, or print their table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("action", choices=("run", "table"))
    parser.add_argument("path", type=Path)
    parser.add_argument("--methods", nargs="+", default=METHODS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--participation", type=float, default=1.0)
    args = parser.parse_args()
    if args.action == "table":
        print_table(args.path)
    else:
        logging.disable()  # quarantine is logged for every bad device
        run(args.path, args.methods, args.seeds, args.participation)


if __name__ == "__main__":
    main()
