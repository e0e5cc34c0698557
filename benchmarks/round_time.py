"""Time of one round of AQUILA with local epochs, by part.

    python benchmarks/round_time.py --devices 10 --precision bf16
    python benchmarks/round_time.py --model transformer --devices 80 --batch-size 10

Inputs are random, with the shape and number of CIFAR-10's images or WikiText-2's lines. Prints one
JSON line: median seconds per round, seconds of the local epochs alone (devices in parallel, as in
the round), the fraction outside them, seconds of a bare training loop over the same minibatches
(one graphed step after another), its time relative to the round, and the peak GPU memory.
"""

import argparse
import json
import statistics
import time
from types import SimpleNamespace

import torch

import aquila
from aquila.core.packet import Packet
from aquila.core.random import Key
from aquila.sim.hardware import configure_torch
from aquila.tasks import build_model
from aquila.tasks.transformer import token_loss


def median_seconds(work, repeats, device):
    """Return the median seconds of a call, including queued GPU work."""
    seconds = []
    for _ in range(repeats + 1):
        if device == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
        work()
        if device == "cuda":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds[1:])  # the first one warms up


IMAGES, LINES, WORDS, VOCABULARY = 50_000, 32_600, 64, 33_278


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--devices", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=250)
    parser.add_argument("--precision", default="bf16", choices=["float32", "tf32", "bf16"])
    parser.add_argument("--device", default="cuda", choices=["cpu", "cuda"])
    parser.add_argument("--model", default="resnet18", choices=["resnet18", "transformer"])
    parser.add_argument("--method", default="aquila")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--compile-model", action="store_true")
    return parser.parse_args()


def build_problem(args):
    """Return a problem of the size of the data set."""
    is_text = args.model == "transformer"
    samples_per_device = (LINES if is_text else IMAGES) // args.devices

    def shard():
        if is_text:
            return (torch.randint(0, VOCABULARY, (samples_per_device, WORDS)),) * 2
        return torch.randn(samples_per_device, 3, 32, 32), torch.randint(
            0, 10, (samples_per_device,)
        )

    return aquila.problem(
        build_model(args.model),
        [shard() for _ in range(args.devices)],
        loss=token_loss if is_text else torch.nn.functional.cross_entropy,
        batch_size=args.batch_size,
        options=aquila.ProblemOptions(
            device=args.device, precision=args.precision, compile_model=args.compile_model
        ),
    )


def measure_seconds(args, problem):
    """Return seconds of a round, of its local epochs, and of a bare loop over its samples."""
    method = aquila.create(args.method, alpha=0.01, work="epochs")
    run = aquila.Simulation(
        method,
        problem.theta0,
        problem.devices,
        options=aquila.RunOptions(fleet=problem.fleet, workers=args.workers),
    )

    def local_epochs():
        def train(number):
            problem.devices[number].oracle(Key((0, 0, number))).train(run.theta, 0.01)
            return Packet(0)

        run._executor.run(
            SimpleNamespace(
                devices=range(args.devices),
                prefetch=lambda devices: None,
                answer=train,
                deliver=lambda device, reply: True,
            )
        )

    def bare_loop():
        batches = [b for shard in problem.devices for b in shard.oracle(Key((1, 0, 0))).batches(0)]
        problem.devices[0].models.original.train(problem.theta0, batches, 0.01, Key((1,)))

    return [
        median_seconds(work, args.rounds, args.device)
        for work in (run.advance, local_epochs, bare_loop)
    ]


def main():
    args = parse_args()
    configure_torch(args.device, args.precision, deterministic=False)
    torch.manual_seed(0)
    problem = build_problem(args)
    whole, epochs, bare = measure_seconds(args, problem)
    samples = sum(shard.samples or 0 for shard in problem.devices)
    on_gpu = args.device == "cuda"
    row = {
        "gpu": torch.cuda.get_device_name() if on_gpu else "none",
        "torch": torch.__version__,
        **vars(args),
        "parameters": len(problem.theta0),
        "thread_safe": problem.devices[0].thread_safe,
        "round_s": round(whole, 4),
        "local_epochs_s": round(epochs, 4),
        "outside_fraction": round(1 - epochs / whole, 4),
        "bare_loop_s": round(bare, 4),
        "of_bare_speed": round(bare / whole, 4),
        "samples_per_s": round(samples / whole),
        "peak_gib": round(torch.cuda.max_memory_allocated() / 2**30, 2) if on_gpu else 0.0,
    }
    print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
