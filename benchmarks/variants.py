"""Runs variants of a method of ours, as benchmarks/beyond.py runs methods.

A variant is a function from alpha and work to the two halves of a method, device and server.
"""

import argparse
from pathlib import Path

from beyond import YARDSTICK, append, read, train

from aquila.cli.spec import parse_spec
from aquila.core.method import Method
from aquila.sim.experiment import read_experiment


def methods(experiment, variants):
    """Return AQUILA as printed and all variants by name."""
    setting = experiment.setting
    made = {YARDSTICK: parse_spec(YARDSTICK).create(experiment)}
    for name, halves in variants.items():
        made[name] = Method(name, *halves(setting.alpha, setting.work))
    return made


def run(paths, seeds, out, variants):
    """Run what is missing."""
    out.mkdir(parents=True, exist_ok=True)
    for path in paths:
        target = out / f"{path.stem}.jsonl"
        for seed in seeds:
            experiment = read_experiment(path, {"seed": seed})
            every, done = methods(experiment, variants), read(target)
            missing = {name: method for name, method in every.items() if (name, seed) not in done}
            problem = experiment.setting.problem()[0] if missing else None
            for name, method in missing.items():
                append(target, name, seed, train(method, experiment.setting, problem))
                print(f"{path.stem}, seed {seed}: {name}", flush=True)


def main(text, variants, name):
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=text.partition("\n")[0])
    parser.add_argument("experiments", nargs="+", type=Path)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--out", type=Path, default=Path("results/beyond") / name)
    given = parser.parse_args()
    run(given.experiments, given.seeds, given.out, variants)
