"""Bytes in both directions and accuracy, with whole models and with coded differences.

    python benchmarks/downlink.py --seeds 3
    python benchmarks/downlink.py --data cifar10 --model cnn --split dirichlet:0.5 --alpha 0.1 \
        --batch-size 50 --samples 10000 --test-samples 2000 --rounds 400

Prints one JSON line per run. `accuracy` is the mean over the second half of the rounds.
`rounds_to_target` is the round in which the mean of five evaluations first reaches the final value
of the same seed with whole models; null if it never does. `byte_ratio` compares both directions
with whole models on the downlink and bits × coordinates on the uplink. A run that diverges has the
field `diverged`.
"""

import argparse
import json

import torch

import aquila
from aquila.sim.setting import Setting

EVALUATE_EVERY = 5


def run_and_measure(method, setting, problem, error):
    run = aquila.simulate(
        method,
        problem.theta0,
        problem.devices,
        setting.rounds,
        setting.seed,
        evaluate=problem.evaluate,
        options=aquila.RunOptions(evaluate_every=EVALUATE_EVERY, downlink_error=error),
    )
    records = run.records
    accuracies = [r.metrics["test_accuracy"] for r in records if r.metrics]
    windows = [sum(accuracies[i : i + 5]) / 5 for i in range(len(accuracies) - 4)]
    half = accuracies[len(accuracies) // 2 :]
    sums = {
        "down_mb": sum(r.downlink_bytes for r in records) / 1e6,
        "up_mb": sum(r.uplink_bytes for r in records) / 1e6,
        "paper_up_mb": sum(r.paper_bits for r in records) / 8e6,
    }
    return {**sums, "accuracy": sum(half) / len(half)}, windows


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--errors", default="0.3,0.5,0.7,0.9")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--method", default="aquila")
    parser.add_argument("--b-min", type=int, default=2)
    args, rest = parser.parse_known_args()
    names = [name.removeprefix("--").replace("-", "_") for name in rest[::2]]
    torch.set_num_threads(1)
    for seed in range(args.seeds):
        setting = Setting.of({**dict(zip(names, rest[1::2], strict=True)), "seed": seed})
        problem, _ = setting.problem()
        parameters = {"b_min": args.b_min} if args.method == "aquila" else {}
        method = aquila.create(args.method, alpha=setting.alpha, **parameters)
        whole_model_mb, target = 0.0, 0.0
        for error in (0.0, *map(float, args.errors.split(","))):
            line = {"method": args.method, "seed": seed, "downlink_error": error}
            try:
                sums, windows = run_and_measure(method, setting, problem, error)
            except aquila.NonFiniteError as error_raised:
                print(json.dumps({**line, "diverged": str(error_raised)}), flush=True)
                continue
            if error == 0:
                whole_model_mb, target = sums["down_mb"] + sums["paper_up_mb"], windows[-1]
            reached = [EVALUATE_EVERY * (i + 5) for i, mean in enumerate(windows) if mean >= target]
            sums["byte_ratio"] = whole_model_mb / (sums["down_mb"] + sums["up_mb"])
            line |= {name: round(value, 4) for name, value in sums.items()}
            print(
                json.dumps({**line, "rounds_to_target": reached[0] if reached else None}),
                flush=True,
            )


if __name__ == "__main__":
    main()
