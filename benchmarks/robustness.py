"""Compares methods with plain gradient descent on many synthetic tasks, with the same step size.

    python benchmarks/robustness.py run results/robustness.jsonl
    python benchmarks/robustness.py run results/robustness.jsonl --methods fedsgd aquila_dither
    python benchmarks/robustness.py table results/robustness.jsonl

Networks with 50 to 10,000 parameters, 2 to 30 devices, IID data or data sorted by class, all
devices or a fifth of them per round, with and without lost replies. `run` writes one JSON line per
run with the mean accuracy of the last five rounds, or null if a gradient was not finite. With
--methods it runs these only, and keeps the lines of all other methods.
"""

import argparse
import json
from itertools import pairwise, product
from pathlib import Path

import torch
from torch import nn

import aquila
from aquila.runtime.nan_guard import NonFiniteError

METHODS = ("fedsgd", "aquila_peak", "aquila_dither", "aquila_topk", "qsgd:bits=2", "laq")
LAYERS = {"50": (9, 5), "1k": (20, 40, 5), "10k": (50, 120, 30, 10)}
TRAIN_SAMPLES = 2400
TOLERANCE = 0.01
"""Largest difference in accuracy that counts as equal."""


def cases():
    """Yield all cases: network, devices, split, alpha, participation, lost fraction."""
    for case in product(LAYERS, (2, 5, 30), ("iid", "class"), (0.1, 0.5)):
        yield (*case, 1.0, 0.0)
    for case in product(LAYERS, (5, 30), ("iid", "class")):
        yield (*case, 0.5, 0.2, 0.0)
        yield (*case, 0.5, 1.0, 0.3)


def network(sizes):
    """Return a network with these layer widths."""
    torch.manual_seed(1)
    layers = [part for n, m in pairwise(sizes) for part in (nn.Linear(n, m), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


def task(name, devices, split):
    """Return a problem: a small tanh network labels random points."""
    sizes, generator = LAYERS[name], torch.Generator().manual_seed(7)
    x = torch.randn(TRAIN_SAMPLES + 600, sizes[0], generator=generator)
    inner = torch.randn(sizes[0], 16, generator=generator) * 2 / sizes[0] ** 0.5
    y = (torch.tanh(x @ inner) @ torch.randn(16, sizes[-1], generator=generator)).argmax(1)
    by_class = y[:TRAIN_SAMPLES].argsort(stable=True).chunk(devices)
    iid_parts = [torch.arange(m, TRAIN_SAMPLES, devices) for m in range(devices)]
    parts = by_class if split == "class" else iid_parts
    shards = [(x[part], y[part]) for part in parts]
    return aquila.problem(network(sizes), shards, test=(x[TRAIN_SAMPLES:], y[TRAIN_SAMPLES:]))


def run_method(problem, method, alpha, participation, lost, rounds=100):
    """Return final accuracy and uplink kilobytes of a method."""
    name, _, options = method.partition(":")
    made = aquila.create(name, alpha=alpha, **dict(o.split("=") for o in options.split(",") if o))
    try:
        run = aquila.simulate(
            made,
            problem.theta0,
            problem.devices,
            rounds,
            evaluate=problem.evaluate,
            options=aquila.RunOptions(
                fleet=problem.fleet, participation=participation, uplink_loss=lost
            ),
        )
    except NonFiniteError:
        return None, None
    last = [record.metrics["test_accuracy"] for record in run.records[-5:]]
    return sum(last) / 5, sum(record.uplink_bytes for record in run.records) / 1000


def run(path, methods):
    """Run all cases with these methods; replace their lines in the file case by case."""
    names = ("network", "devices", "split", "alpha", "participation", "lost")
    results = read_results(path)
    for case in cases():
        problem = task(*case[:3])
        for method in methods:
            accuracy, kilobytes = run_method(problem, method, *case[3:])
            facts = dict(zip(names, case, strict=True)) | {"method": method}
            results[method, *case] = facts | {"accuracy": accuracy, "kB": kilobytes}
        path.write_text("".join(json.dumps(result) + "\n" for result in results.values()))
        print(*case, flush=True)


def read_results(path):
    """Return the lines of a file as method and case -> result."""
    lines = path.read_text().splitlines() if path.exists() else []
    results = [json.loads(line) for line in lines]
    return {(result["method"], *case_key(result)): result for result in results}


def print_table(path):
    """Print how often each method is as accurate as plain gradient descent."""
    runs = list(read_results(path).values())
    settings = {}
    for result in runs:
        settings.setdefault(case_key(result), {})[result["method"]] = result
    print(
        "| method | as good | worse | largest gap, points | diverged | bytes relative to fedsgd |"
    )
    print("|---|---:|---:|---:|---:|---:|")
    for method in measured_methods(runs):
        pairs = [(group[method], group["fedsgd"]) for group in settings.values()]
        whole = [(a, b) for a, b in pairs if a["accuracy"] is not None]
        behind = [b["accuracy"] - a["accuracy"] for a, b in whole]
        fraction = sum(a["kB"] for a, _ in whole) / sum(b["kB"] for _, b in whole)
        print(
            f"| {method} | {sum(gap <= TOLERANCE for gap in behind)} of {len(pairs)} "
            f"| {sum(gap > TOLERANCE for gap in behind)} | {100 * max(behind):.1f} "
            f"| {len(pairs) - len(whole)} | 1 / {1 / fraction:.0f} |"
        )
    print_gaps_by_alpha(runs)


def print_gaps_by_alpha(runs):
    """Print the gaps per step size."""
    steps = sorted({result["alpha"] for result in runs})
    print("\n| method | alpha | worse | largest gap, points |\n|---|---:|---:|---:|")
    for method, alpha in product(measured_methods(runs), steps):
        same = [
            result for result in runs if result["alpha"] == alpha and result["accuracy"] is not None
        ]
        accuracies = {(result["method"], *case_key(result)): result["accuracy"] for result in same}
        behind = [
            accuracies["fedsgd", *at] - end
            for (name, *at), end in accuracies.items()
            if name == method
        ]
        worse = sum(gap > TOLERANCE for gap in behind)
        print(f"| {method} | {alpha} | {worse} | {100 * max(behind):.1f} |")


def measured_methods(runs):
    """Return the methods that have runs, without plain gradient descent."""
    measured = {result["method"] for result in runs}
    return [method for method in METHODS[1:] if method in measured]


def case_key(result):
    """Return the case of a run, without the method."""
    return tuple(v for k, v in result.items() if k not in ("method", "accuracy", "kB"))


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("command", choices=["run", "table"])
    parser.add_argument("results", type=Path)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    args = parser.parse_args()
    if args.command == "table":
        print_table(args.results)
    else:
        torch.set_num_threads(1)
        run(args.results, args.methods)


if __name__ == "__main__":
    main()
