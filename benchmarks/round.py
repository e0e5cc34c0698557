"""Time of one round of CIFAR-10/ResNet-18 with AQUILA, and where it goes.

    python benchmarks/round.py --devices 10 --precision bf16

Images are random numbers of CIFAR-10's shape: arithmetic takes as long on them as on real ones.
Prints one JSON line: seconds a round (median), seconds in the devices' local epochs alone, the
share outside them, seconds of a bare graphed training loop of the same model over as many images,
and the peak of GPU memory.
"""

import argparse
import json
import statistics
import time

import torch

import aquila
from aquila.core.random import Key
from aquila.sim.hardware import prepare
from aquila.tasks import build_model


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


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--devices", type=int, default=10)
    parser.add_argument("--images", type=int, default=50_000)
    parser.add_argument("--batch-size", type=int, default=250)
    parser.add_argument("--precision", default="bf16", choices=["float32", "tf32", "bf16"])
    parser.add_argument("--device", default="cuda", choices=["cpu", "cuda"])
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--method", default="aquila")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--fuse", action="store_true")
    given = parser.parse_args()

    prepare(given.device, given.precision, deterministic=False)
    torch.manual_seed(0)
    each = given.images // given.devices
    shards = [
        (torch.randn(each, 3, 32, 32), torch.randint(0, 10, (each,))) for _ in range(given.devices)
    ]
    made = aquila.problem(
        build_model(given.model),
        shards,
        batch_size=given.batch_size,
        device=given.device,
        precision=given.precision,
        fuse=given.fuse,
    )
    method = aquila.create(given.method, alpha=0.01, work="epochs")
    run = aquila.Simulation(method, made.theta0, made.devices, fleet=made.fleet)
    whole = clock(run.advance, given.rounds, given.device)

    def local_epochs():
        for number, shard in enumerate(made.devices):
            shard.oracle(Key((0, number))).train(run.theta, 0.01)

    def bare_loop():
        model = made.devices[0].model
        batches = [b for shard in made.devices for b in shard.oracle(Key((1,))).batches(0)]
        model.descend(made.theta0, batches, 0.01, Key((1,)))

    epochs = clock(local_epochs, given.rounds, given.device)
    bare = clock(bare_loop, given.rounds, given.device)
    peak = torch.cuda.max_memory_allocated() / 2**30 if given.device == "cuda" else 0.0
    gpu = torch.cuda.get_device_name() if given.device == "cuda" else "none"
    print(
        json.dumps(
            {
                "gpu": gpu,
                "torch": torch.__version__,
                **vars(given),
                "parameters": len(made.theta0),
                "round_s": round(whole, 4),
                "local_epochs_s": round(epochs, 4),
                "outside_share": round(1 - epochs / whole, 4),
                "bare_loop_s": round(bare, 4),
                "images_per_s": round(each * given.devices / whole),
                "peak_gib": round(peak, 2),
            }
        )
    )


if __name__ == "__main__":
    main()
