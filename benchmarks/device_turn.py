"""Time of each step of a device's turn.

    python benchmarks/device_turn.py --out results/device_turn.jsonl --label "after"

Small: logistic regression with 7,850 parameters on 20 samples, where the overhead around a gradient
dominates; the last lines are whole rounds of 1,000 such devices. Large: a convolutional network on
500 images, where the gradient dominates. Everything runs on one thread. Each number is the minimum
of several timings, because other processes can only add to a timing.
"""

import argparse
import json
import time
from pathlib import Path

import torch

import aquila
from aquila.core.innovation import aquila_level, measure
from aquila.core.packet import Packet
from aquila.core.random import Key
from aquila.core.vector import max_norm
from aquila.core.wire import pack, unpack
from aquila.runtime.traffic import cost_of
from aquila.tasks import build_model

SEED, DEVICES, SAMPLES, FEATURES, CLASSES = 0, 1000, 20, 784, 10
REPEATS = 15


def least_microseconds(work, repeat):
    """Return the minimum time per call over several repeats."""
    work()
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        for _ in range(repeat):
            work()
        times.append((time.perf_counter() - start) / repeat)
    return min(times) * 1e6


def build_problem(name, devices):
    generator = torch.Generator().manual_seed(SEED)
    torch.manual_seed(SEED)
    if name == "small":
        module, shape = torch.nn.Linear(FEATURES, CLASSES), (SAMPLES, FEATURES)
    else:
        module, shape = build_model("cnn"), (500, 1, 28, 28)
    x = torch.randn(devices, *shape, generator=generator)
    y = torch.randint(0, CLASSES, (devices, shape[0]), generator=generator)
    return aquila.problem(module, list(zip(x, y, strict=True)))


def turn_steps(name):
    """Return the steps of a turn by name."""
    problem = build_problem(name, devices=1)
    theta, shard = problem.theta0, problem.devices[0]
    oracle = shard.oracle(Key((SEED, 0, 0)))
    memory = oracle.gradient(theta)[1]
    gradient = oracle.gradient(theta * 1.1)[1]
    innovation = measure(gradient, memory)
    level = aquila_level(innovation, tightness=7)
    upload = innovation.midrise(level).upload
    reply = Packet(1, upload)
    frame = pack(reply)
    received = unpack(frame, dimension=len(theta))
    total = torch.zeros_like(theta, dtype=torch.float64)
    return {
        "gradient, one device": lambda: oracle.gradient(theta),
        "guard": lambda: max_norm(gradient),
        "measure the innovation": lambda: measure(gradient, memory),
        f"quantize, {level} bits": lambda: innovation.midrise(level),
        "pack": lambda: pack(reply),
        "count": lambda: cost_of(frame),
        "unpack": lambda: unpack(frame, dimension=len(theta), trusted=True),
        "decode and add": lambda: total.add_(received.vector.decode()),
    }


def simulated_round(method):
    problem = build_problem("small", DEVICES)
    created = aquila.create(method, alpha=0.05)
    simulation = aquila.Simulation(created, problem.theta0, problem.devices, seed=SEED)
    simulation.advance()
    return lambda: simulation.advance()


def rows():
    for name, repeat in (("small", 200), ("large", 2)):
        for step, work in turn_steps(name).items():
            yield name, step, least_microseconds(work, repeat)
    for method in ("fedsgd", "aquila"):
        elapsed_us = least_microseconds(simulated_round(method), 1)
        yield "small", f"round of {method}, per device", elapsed_us / DEVICES


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--label", default="", help="label of this measurement in the output file")
    parser.add_argument("--out", type=Path, help="file to append JSON lines to")
    args = parser.parse_args()
    torch.set_num_threads(1)
    lines = []
    for case, step, elapsed_us in rows():
        print(f"{case:<8}{step:<32}{elapsed_us:>12.1f} us", flush=True)
        lines.append({"label": args.label, "case": case, "step": step, "microseconds": elapsed_us})
    if args.out:
        with args.out.open("a") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)


if __name__ == "__main__":
    main()
