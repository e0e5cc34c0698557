"""Time of one round of AQUILA with local epochs, and where it goes.

    python benchmarks/round.py --devices 10 --precision bf16
    python benchmarks/round.py --model transformer --devices 80 --batch-size 10

Inputs are random numbers of the shape of CIFAR-10's images or WikiText-2's lines, and as many:
arithmetic takes as long on them as on real ones. Prints one JSON line: seconds a round (median),
seconds of the devices' local epochs alone, side by side as in the round, the share outside them,
seconds of a bare training loop of the same model over the same minibatches (one graphed step after
another), its speed against the round's, and the peak of GPU memory.
"""

import argparse
import json
import statistics
import time

import torch

import aquila
from aquila.core.packet import Packet
from aquila.core.random import Key
from aquila.sim.hardware import prepare
from aquila.tasks import build_model
from aquila.tasks.transformer import token_loss


def clock(work, repeats, device):
    """Median seconds of a piece of work, the GPU's queue included."""
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


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--devices", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=250)
    parser.add_argument("--precision", default="bf16", choices=["float32", "tf32", "bf16"])
    parser.add_argument("--device", default="cuda", choices=["cpu", "cuda"])
    parser.add_argument("--model", default="resnet18", choices=["resnet18", "transformer"])
    parser.add_argument("--method", default="aquila")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--fuse", action="store_true")
    return parser.parse_args()


def make(given):
    """A problem of the right size."""
    words = given.model == "transformer"
    each = (LINES if words else IMAGES) // given.devices

    def shard():
        if words:
            return (torch.randint(0, VOCABULARY, (each, WORDS)),) * 2
        return torch.randn(each, 3, 32, 32), torch.randint(0, 10, (each,))

    return aquila.problem(
        build_model(given.model),
        [shard() for _ in range(given.devices)],
        loss=token_loss if words else torch.nn.functional.cross_entropy,
        batch_size=given.batch_size,
        device=given.device,
        precision=given.precision,
        fuse=given.fuse,
    )


def measure(given, made):
    """Seconds of a round, of the local epochs in it, and of a bare loop over as many samples."""
    method = aquila.create(given.method, alpha=0.01, work="epochs")
    run = aquila.Simulation(
        method, made.theta0, made.devices, fleet=made.fleet, workers=given.workers
    )

    def local_epochs():
        def train(number):
            made.devices[number].oracle(Key((0, 0, number))).train(run.theta, 0.01)
            return Packet(0)

        run._crew.turns(range(given.devices), train, lambda *_: True, lambda _: None)

    def bare_loop():
        batches = [b for shard in made.devices for b in shard.oracle(Key((1, 0, 0))).batches(0)]
        made.devices[0].models.first.descend(made.theta0, batches, 0.01, Key((1,)))

    return [
        clock(work, given.rounds, given.device) for work in (run.advance, local_epochs, bare_loop)
    ]


def main():
    given = arguments()
    prepare(given.device, given.precision, deterministic=False)
    torch.manual_seed(0)
    made = make(given)
    whole, epochs, bare = measure(given, made)
    samples = sum(len(shard.data[0]) for shard in made.devices)
    on_gpu = given.device == "cuda"
    row = {
        "gpu": torch.cuda.get_device_name() if on_gpu else "none",
        "torch": torch.__version__,
        **vars(given),
        "parameters": len(made.theta0),
        "side_by_side": made.devices[0].side_by_side,
        "round_s": round(whole, 4),
        "local_epochs_s": round(epochs, 4),
        "outside_share": round(1 - epochs / whole, 4),
        "bare_loop_s": round(bare, 4),
        "of_bare_speed": round(bare / whole, 4),
        "samples_per_s": round(samples / whole),
        "peak_gib": round(torch.cuda.max_memory_allocated() / 2**30, 2) if on_gpu else 0.0,
    }
    print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
