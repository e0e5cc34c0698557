"""Bytes and time of uploads with and without a shared dither.

    python benchmarks/dithered.py > results/dithered.jsonl

Prints one JSON line per distribution, length and density: the bytes of the same codes as a dithered
frame and as a coded frame, bits per sent coordinate, and the minimum of a few timings of
quantizing, packing and unpacking, on one thread.
"""

import argparse
import json
import time
from dataclasses import replace

import torch

from aquila.core.packet import Packet
from aquila.core.quantize import shared_dither
from aquila.core.random import Key
from aquila.core.wire import pack, unpack

LENGTHS, DENSITIES = (10_000, 100_000, 11_000_000), (0.001, 0.003, 0.01, 0.1)
LAYERS = 20
REPEATS = 5


def vectors(d):
    """Yield Gaussian and Laplace vectors, and layers whose scales differ up to 100 times."""
    noise = torch.randn(d, generator=Key((0, d)).torch())
    laplace = noise.sign() * -torch.log1p(-Key((1, d)).uniform(noise))
    scales = torch.logspace(-1, 1, LAYERS).repeat_interleave(-(-d // LAYERS))[:d]
    yield "gaussian", noise
    yield "laplace", laplace
    yield "layers", laplace * scales


def least_time(work):
    """Return the result of a call, and its minimum time in milliseconds."""
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        result = work()
        times.append(time.perf_counter() - start)
    return result, round(1e3 * min(times), 3)


def upload_cost(v, density):
    """Return sizes and times of an upload of a vector."""
    codes, quantizing = least_time(lambda: shared_dither(v, density, Key((2,))))
    frame, packing = least_time(lambda: pack(Packet(0, codes)))
    read, unpacking = least_time(lambda: unpack(frame, v.numel()))
    if not torch.equal(read.vector.codes, codes.codes):
        raise SystemExit("the decoded codes differ from the encoded ones")
    coded_frame, coding_ms = least_time(lambda: pack(Packet(0, replace(codes, dither_seed=None))))
    sent = int((codes.decode() != 0).sum())
    sizes = {"sent": sent, "dithered": len(frame), "coded": len(coded_frame)}
    ratios = {"saving": len(coded_frame) / len(frame), "bits_per_sent": 8 * len(frame) / sent}
    times = {
        "quantize_ms": quantizing,
        "pack_ms": packing,
        "unpack_ms": unpacking,
        "coded_ms": coding_ms,
    }
    return sizes | {name: round(ratio, 2) for name, ratio in ratios.items()} | times


def main():
    """Print one line per vector and density."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--lengths", nargs="+", type=int, default=LENGTHS)
    args = parser.parse_args()
    torch.set_num_threads(1)
    for d in args.lengths:
        for name, v in vectors(d):
            for density in DENSITIES:
                facts = {"sizes": name, "d": d, "density": density}
                print(json.dumps(facts | upload_cost(v, density)), flush=True)


if __name__ == "__main__":
    main()
