"""Ablation: our methods with one part at a time changed or removed.

    python benchmarks/ablation.py aquila_dither experiments/bytes_to_accuracy/digits_*.toml
    python benchmarks/ablation.py aquila_topk experiments/bytes_to_accuracy/digits_*.toml
    python benchmarks/ablation.py aquila_peak experiments/ablation/cifar10_cnn_*.toml
    python benchmarks/end_of_training.py results/ablation/aquila_dither

Runs dense uploads and all variants of the method, and skips runs that the output already has. The
output has the format of benchmarks/bytes_to_accuracy.py.
"""

import argparse
from pathlib import Path
from unittest.mock import patch

from ablation_variants import PEAK_CONSTANTS, VARIANTS
from bytes_to_accuracy import append_run, read_runs, train

from aquila.cli.method_spec import parse_method_spec
from aquila.core import peaks
from aquila.core.method import Method
from aquila.sim.experiment import read_experiment

DENSE = {"gradient": "fedsgd", "epochs": "fedavg"}


def build_methods(experiment, variants):
    """Return dense uploads and all variants by name."""
    setting = experiment.setting
    dense = DENSE[setting.work]
    built = {dense: parse_method_spec(dense).create(experiment)}
    for name, parts in variants.items():
        built[name] = Method(name, *parts(setting.alpha, setting.work))
    return built


def run(paths, seeds, out, variants):
    """Run all methods that the output lacks, experiment by experiment and seed by seed."""
    out.mkdir(parents=True, exist_ok=True)
    for path in paths:
        target = out / f"{path.stem}.jsonl"
        for seed in seeds:
            experiment = read_experiment(path, {"seed": seed})
            methods, done = build_methods(experiment, variants), read_runs(target)
            missing = {name: method for name, method in methods.items() if (name, seed) not in done}
            problem = experiment.setting.problem()[0] if missing else None
            for name, method in missing.items():
                with patch.dict(vars(peaks), PEAK_CONSTANTS.get(name, {})):
                    append_run(target, name, seed, train(method, experiment.setting, problem))
                print(f"{path.stem}, seed {seed}: {name}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("method", choices=VARIANTS)
    parser.add_argument("experiments", nargs="+", type=Path)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--out", type=Path, help="default: results/ablation/METHOD")
    args = parser.parse_args()
    out = args.out or Path("results/ablation") / args.method
    run(args.experiments, args.seeds, out, VARIANTS[args.method])


if __name__ == "__main__":
    main()
