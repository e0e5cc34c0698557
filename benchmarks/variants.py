"""Runs variants of a method of ours, as benchmarks/bytes_to_accuracy.py runs methods.

A variant is a function from alpha and work to the two halves of a method, device and server.
"""

import argparse
from pathlib import Path

from bytes_to_accuracy import BASELINE, append_run, read_runs, train

from aquila.cli.method_spec import parse_method_spec
from aquila.core.method import Method
from aquila.sim.experiment import read_experiment


def build_methods(experiment, variants):
    """Return AQUILA as printed and all variants by name."""
    setting = experiment.setting
    built = {BASELINE: parse_method_spec(BASELINE).create(experiment)}
    for name, halves in variants.items():
        built[name] = Method(name, *halves(setting.alpha, setting.work))
    return built


def run(paths, seeds, out, variants):
    """Run what is missing."""
    out.mkdir(parents=True, exist_ok=True)
    for path in paths:
        target = out / f"{path.stem}.jsonl"
        for seed in seeds:
            experiment = read_experiment(path, {"seed": seed})
            all_methods, done = build_methods(experiment, variants), read_runs(target)
            missing = {
                name: method for name, method in all_methods.items() if (name, seed) not in done
            }
            problem = experiment.setting.problem()[0] if missing else None
            for name, method in missing.items():
                append_run(target, name, seed, train(method, experiment.setting, problem))
                print(f"{path.stem}, seed {seed}: {name}", flush=True)


def main(text, variants, name):
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=text.partition("\n")[0])
    parser.add_argument("experiments", nargs="+", type=Path)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--out", type=Path, default=Path("results/bytes_to_accuracy") / name)
    args = parser.parse_args()
    run(args.experiments, args.seeds, args.out, variants)
