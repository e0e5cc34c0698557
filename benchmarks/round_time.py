"""Time of one round of AQUILA with local epochs, by part.

    python benchmarks/round_time.py --devices 10 100 --augment --compile-model
    python benchmarks/round_time.py --model mobilenetv2 --devices 10 100 --augment --compile-model
    python benchmarks/round_time.py --model transformer --devices 10 100 --batch-size 10

Inputs are random, with the shape and number of the images of CIFAR-10, or of CIFAR-100 for
MobileNet-v2, or of the lines of WikiText-2 for the Transformer. Prints one JSON line per number of
devices. It has median seconds per round, of opening and closing it, of deliveries after the last
device has answered (`tail_s`), and of the local epochs alone (devices in parallel, as in the
round). The rest outside the local epochs is the work of devices between training and delivery.

A bare loop in plain PyTorch trains on the same minibatches, which are ready and augmented in
memory. `bare_s` has its seconds with each of its settings, and `of_bare_speed` compares the round
with the best of them. `of_peak` is the fraction of the chip's arithmetic that the layers use: the
operations of the forward and backward pass, counted by torch, per second and `--peak`. The default
peak is what a bf16 product of 8192 x 8192 matrices of random numbers reached on an H200.
"""

import argparse
import json
import time
from types import SimpleNamespace

import torch
from bare_loop import SETTINGS, bare_seconds, median_seconds, synchronize
from torch.utils.flop_counter import FlopCounterMode

import aquila
from aquila.core.packet import Packet
from aquila.core.random import Key
from aquila.sim.hardware import configure_torch
from aquila.tasks import build_model
from aquila.tasks.images import augment
from aquila.tasks.transformer import token_loss
from aquila.training.training_copy import training_copy

IMAGES, LINES, WORDS, VOCABULARY = 50_000, 32_600, 64, 33_278
CLASSES = {"resnet18": 10, "mobilenetv2": 100}
PARTS = "open", "close"
H200_PEAK = 790.0
"""TFLOP/s of a bf16 matrix product on an H200, measured."""


def parse_args():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--devices", type=int, nargs="+", default=[10])
    parser.add_argument("--batch-size", type=int, default=250)
    parser.add_argument("--precision", default="bf16", choices=["float32", "tf32", "bf16"])
    parser.add_argument("--device", default="cuda", choices=["cpu", "cuda"])
    parser.add_argument("--model", default="resnet18", choices=[*CLASSES, "transformer"])
    parser.add_argument("--method", default="aquila")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--augment", action="store_true", help="crop and flip images")
    parser.add_argument("--compile-model", action="store_true", help="compile the devices' model")
    parser.add_argument("--bare", nargs="*", default=list(SETTINGS), choices=list(SETTINGS))
    parser.add_argument("--bare-batches", type=int, default=400, help="most minibatches it trains")
    parser.add_argument("--samples", type=int, default=0, help="of all devices; 0: the data set's")
    parser.add_argument("--peak", type=float, default=H200_PEAK, help="TFLOP/s")
    return parser.parse_args()


def build_problem(args, module, devices):
    """Return a problem of the size of the data set."""
    is_text = args.model == "transformer"
    samples_per_device = (args.samples or (LINES if is_text else IMAGES)) // devices

    def shard():
        if is_text:
            return (torch.randint(0, VOCABULARY, (samples_per_device, WORDS)),) * 2
        y = torch.randint(0, CLASSES[args.model], (samples_per_device,))
        return torch.randn(samples_per_device, 3, 32, 32), y

    options = aquila.ProblemOptions(
        device=args.device,
        precision=args.precision,
        compile_model=args.compile_model,
        augment=augment if args.augment else None,
    )
    return aquila.problem(
        module,
        [shard() for _ in range(devices)],
        loss=loss_of(args),
        batch_size=args.batch_size,
        options=options,
    )


def loss_of(args):
    return token_loss if args.model == "transformer" else torch.nn.functional.cross_entropy


def minibatches(problem, most):
    """Return augmented minibatches of an epoch, and how many an epoch has."""
    kept, count = [], 0
    for number, shard in enumerate(problem.devices):
        for batch in shard.oracle(Key((1, 0, number))).batches(0):
            count += 1
            if len(kept) < most:
                kept.append(batch)
    return kept, count


def count_operations(module, loss, batch, device):
    """Return the operations of a forward and backward pass per sample."""
    model, (x, y) = training_copy(module, device), batch
    with FlopCounterMode(display=False) as counter:
        loss(model(x), y).backward()
    return counter.get_total_flops() / len(x)


def time_calls(owner, name, device):
    """Replace a function by one that measures itself; return the list of its durations."""
    work, seconds = getattr(owner, name), []

    def measured(*arguments):
        synchronize(device)
        start = time.perf_counter()
        result = work(*arguments)
        synchronize(device)
        seconds.append(time.perf_counter() - start)
        return result

    setattr(owner, name, measured)
    return seconds


def time_tails(executor):
    """Return a list that gets the seconds from the last answer of each round to its delivery."""
    run, seconds = executor.run, []

    def measured(work):
        answer, ends = work.answer, []

        def answered(device):
            reply = answer(device)
            ends.append(time.perf_counter())
            return reply

        work.answer = answered
        arrived = run(work)
        seconds.append(time.perf_counter() - max(ends))
        return arrived

    executor.run = measured
    return seconds


def measure_rounds(args, problem):
    """Return seconds of a round, of its local epochs, and of its beginning and end."""
    method = aquila.create(args.method, alpha=0.01, work="epochs")
    options = aquila.RunOptions(fleet=problem.fleet, workers=args.workers)
    run = aquila.Simulation(method, problem.theta0, problem.devices, options=options)

    def train(number):
        problem.devices[number].oracle(Key((0, 0, number))).train(run.theta, 0.01)
        return Packet(0)

    def local_epochs():
        work = SimpleNamespace(
            devices=range(len(problem.devices)),
            prefetch=lambda devices: None,
            answer=train,
            deliver=lambda device, reply: True,
        )
        run._executor.run(work)

    seconds = {"round_s": median_seconds(run.advance, args.rounds, args.device)}
    seconds["local_epochs_s"] = median_seconds(local_epochs, args.rounds, args.device)
    parts = {name: time_calls(run.server, f"{name}_round", args.device) for name in PARTS}
    parts["tail"] = time_tails(run._executor)
    for _ in range(2):
        run.advance()
    return seconds | {f"{name}_s": min(durations) for name, durations in parts.items()}


def round_row(args, problem, operations, bare):
    """Return the line of a number of devices."""
    seconds = measure_rounds(args, problem)
    samples, whole = sum(shard.samples for shard in problem.devices), seconds["round_s"]
    best = min(bare, key=bare.get) if bare else ""
    rate = operations * samples / 1e12 / args.peak
    row = {
        "devices": len(problem.devices),
        "parameters": len(problem.theta0),
        **{name: round(value, 4) for name, value in seconds.items()},
        "outside_fraction": round(1 - seconds["local_epochs_s"] / whole, 4),
        "of_peak": round(rate / whole, 4),
        "samples_per_s": round(samples / whole),
    }
    if args.device == "cuda":
        row["peak_gib"] = round(torch.cuda.max_memory_allocated() / 2**30, 2)
    if best:
        row["bare_s"] = {name: round(value, 4) for name, value in bare.items()}
        row["best_bare"], row["bare_loop_s"] = best, round(bare[best], 4)
        row["of_bare_speed"] = round(bare[best] / whole, 4)
        row["bare_of_peak"] = round(rate / bare[best], 4)
    return row


def bare_epoch_seconds(args, module, problem):
    """Return seconds per epoch of the bare loop with each setting, and operations per sample."""
    batches, count = minibatches(problem, args.bare_batches)
    loss, scale = loss_of(args), count / len(batches)
    operations = count_operations(module, loss, batches[0], args.device)
    seconds = bare_seconds(training_copy(module, args.device), loss, batches, args)
    return {name: scale * value for name, value in seconds.items()}, operations


def main():
    args = parse_args()
    configure_torch(args.device, args.precision, deterministic=False)
    torch.manual_seed(0)
    module = build_model(args.model)
    bare, operations = {}, 0.0
    common = {
        "gpu": torch.cuda.get_device_name() if args.device == "cuda" else "none",
        "torch": torch.__version__,
        **{name: value for name, value in vars(args).items() if name not in ("devices", "bare")},
    }
    for number, devices in enumerate(args.devices):
        problem = build_problem(args, module, devices)
        if number == 0:
            bare, operations = bare_epoch_seconds(args, module, problem)
        if args.device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        row = {**common, **round_row(args, problem, operations, bare)}
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
