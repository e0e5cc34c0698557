"""Bytes and noise of one upload: what unbiased quantizers pay for the same local update.

    python benchmarks/upload_noise.py --data-folder FOLDER --out results/upload_noise.jsonl

For each experiment, one device trains for a local epoch, and the next one for another. The update
of the last one is sent by every method, with three seeds. The noise is the squared error of the
decoded upload relative to the squared norm of the update. The price of a method is that noise times
the bits per coordinate. At low densities it hardly depends on them, so it compares methods at any
cost.
"""

import argparse
import json
from dataclasses import dataclass, replace
from pathlib import Path

import torch

import aquila
from aquila.core.random import Key, Purpose
from aquila.core.tensors import Shapes
from aquila.core.vector import Vector
from aquila.sim.experiment import read_experiment

EXPERIMENTS = ("cifar10_cnn", "cifar10_resnet18", "cifar100_mobilenetv2", "wikitext2_transformer")
FOLDER = Path("experiments/end_of_training")
EPOCHS = 2
"""Local epochs of different devices, one after the other. The update of the last one is sent."""
METHODS = (
    "aquila_peak:density=0.003125",
    "aquila_peak:density=0.02",
    "aquila_dither:density=0.015",
    "aquila_dither:density=0.06",
    "eden:density=0.03",
    "eden:density=0.15",
)
SEEDS = (0, 1, 2)


@dataclass(frozen=True)
class FixedUpdate:
    """An oracle that returns the same update in every round."""

    update: Vector
    shapes: Shapes
    samples: int = 1

    def gradient(self, theta):
        """Return a loss and the update."""
        return 1.0, self.update

    def train(self, theta, alpha):
        """Return the same as `gradient`."""
        return self.gradient(theta)


def local_update(name, data_folder):
    """Return the update of the last of `EPOCHS` devices, and the shapes of its tensors."""
    experiment = read_experiment(FOLDER / f"{name}.toml", {})
    setting = replace(
        experiment.setting, data_folder=data_folder, device="cpu", precision="float32"
    )
    problem = setting.problem()[0]
    theta = problem.theta0
    for device in range(EPOCHS):
        oracle = problem.devices[device].oracle(Key((0, 0, device, Purpose.DATA)))
        _, update = oracle.train(theta, setting.alpha)
        theta = theta - setting.alpha * update
    return update, tuple(oracle.shapes)


def cost_and_noise(spec, update, shapes, seed):
    """Return the bytes of an upload and its noise."""
    name, _, options = spec.partition(":")
    method = aquila.create(name, alpha=1.0, **dict(one.split("=") for one in options.split(",")))
    fleet = aquila.Fleet(update.numel(), [0], shapes=[shapes])
    run = aquila.simulate(
        method,
        torch.zeros_like(update),
        [FixedUpdate(update, shapes)],
        rounds=1,
        seed=seed,
        options=aquila.RunOptions(fleet=fleet),
    )
    error = (run.theta + update).double().square().sum() / update.double().square().sum()
    return run.records[0].uplink_bytes, float(error)


def row(name, spec, update, shapes):
    """Return the means over the seeds."""
    measured = [cost_and_noise(spec, update, shapes, seed) for seed in SEEDS]
    size, noise = (sum(values) / len(SEEDS) for values in zip(*measured, strict=True))
    squares = update.double().square().mean()
    return {
        "experiment": name,
        "method": spec,
        "dimension": update.numel(),
        "upload_bytes": size,
        "saving": 4 * update.numel() / size,
        "noise": noise,
        "price": noise * 8 * size / update.numel(),
        "evenness": float(update.abs().double().mean() ** 2 / squares),
    }


def main():
    """Measure all experiments and write one line per method and experiment."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data-folder", default="")
    parser.add_argument("--experiments", nargs="+", choices=EXPERIMENTS, default=EXPERIMENTS)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    with args.out.open("w") as file:
        for name in args.experiments:
            update, shapes = local_update(name, args.data_folder)
            for spec in METHODS:
                measured = row(name, spec, update, shapes)
                print(json.dumps(measured), file=file, flush=True)
                print(f"{name:24} {spec:30} 1/{measured['saving']:.0f}", end=" ")
                print(f"noise {measured['noise']:.3g} price {measured['price']:.3g}", flush=True)


if __name__ == "__main__":
    main()
