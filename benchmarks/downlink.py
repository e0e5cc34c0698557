"""Bytes both ways and accuracy, with whole models and with differences of models.

    python benchmarks/downlink.py --seeds 3
    python benchmarks/downlink.py --data cifar10 --model cnn --split dirichlet:0.5 --alpha 0.1 \
        --batch-size 50 --samples 10000 --test-samples 2000 --rounds 400

Prints one JSON line a run. `accuracy` is the mean over the second half of the rounds, `rounds_to`
when the mean of five evaluations first reaches what the same seed ends with on whole models, null
if it never does. `fewer_bytes` compares both directions with whole models down and the paper's own
count, bits times coordinates, up. A run that diverges is said to.
"""

import argparse
import json

import torch

import aquila
from aquila.sim.setting import Setting

EVERY = 5


def measured(method, setting, problem, error):
    run = aquila.simulate(
        method, problem.theta0, problem.devices, setting.rounds, setting.seed,
        evaluate=problem.evaluate, evaluate_every=EVERY, downlink=error,
    )  # fmt: skip
    records = run.records
    accuracies = [r.metrics["test_accuracy"] for r in records if r.metrics]
    windows = [sum(accuracies[i : i + 5]) / 5 for i in range(len(accuracies) - 4)]
    half = accuracies[len(accuracies) // 2 :]
    sums = {
        "down_mb": sum(r.downlink_bytes for r in records) / 1e6,
        "up_mb": sum(r.uplink_bytes for r in records) / 1e6,
        "up_by_the_papers_count_mb": sum(r.paper_bits for r in records) / 8e6,
    }
    return {**sums, "accuracy": sum(half) / len(half)}, windows


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--errors", default="0.3,0.5,0.7,0.9")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--method", default="aquila")
    parser.add_argument("--b-min", type=int, default=2)
    given, rest = parser.parse_known_args()
    names = [name.removeprefix("--").replace("-", "_") for name in rest[::2]]
    torch.set_num_threads(1)
    for seed in range(given.seeds):
        setting = Setting.of({**dict(zip(names, rest[1::2], strict=True)), "seed": seed})
        problem, _ = setting.problem()
        own = {"b_min": given.b_min} if given.method == "aquila" else {}
        method = aquila.create(given.method, alpha=setting.alpha, **own)
        whole, target = 0.0, 0.0
        for error in (0.0, *map(float, given.errors.split(","))):
            line = {"method": given.method, "seed": seed, "downlink": error}
            try:
                sums, windows = measured(method, setting, problem, error)
            except aquila.NonFiniteError as problem_:
                print(json.dumps({**line, "diverged": str(problem_)}), flush=True)
                continue
            if error == 0:
                whole, target = sums["down_mb"] + sums["up_by_the_papers_count_mb"], windows[-1]
            reached = [EVERY * (i + 5) for i, mean in enumerate(windows) if mean >= target]
            sums["fewer_bytes"] = whole / (sums["down_mb"] + sums["up_mb"])
            line |= {name: round(value, 4) for name, value in sums.items()}
            print(json.dumps({**line, "rounds_to": reached[0] if reached else None}), flush=True)


if __name__ == "__main__":
    main()
