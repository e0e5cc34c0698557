"""What lots that both sides know are worth: bytes and time of uploads with and without them.

    python benchmarks/dithered.py > results/dithered.jsonl

One JSON line for a distribution of sizes, a length and a density: bytes of the same codes as a
dithered frame and as a coded one, bits per sent coordinate, and the least of a few timings of
quantizing, packing and unpacking, on one thread.
"""

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
    """Yield vectors by name: even sizes, exponential ones, and layers of very different size."""
    noise = torch.randn(d, generator=Key((0, d)).torch())
    laplace = noise.sign() * -torch.log1p(-Key((1, d)).uniform(noise))
    scales = torch.logspace(-1, 1, LAYERS).repeat_interleave(-(-d // LAYERS))[:d]
    yield "gaussian", noise
    yield "laplace", laplace
    yield "layers", laplace * scales


def least_time(work):
    """Return the result of some work, and its least time in milliseconds."""
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        result = work()
        times.append(time.perf_counter() - start)
    return result, round(1e3 * min(times), 3)


def upload_cost(v, density):
    """Return what an upload of a vector costs."""
    codes, quantizing = least_time(lambda: shared_dither(v, density, Key((2,))))
    frame, packing = least_time(lambda: pack(Packet(0, codes)))
    read, unpacking = least_time(lambda: unpack(frame, v.numel()))
    if not torch.equal(read.vector.codes, codes.codes):
        raise SystemExit("what was read is not what was written")
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
    """Print a line for every vector and density."""
    torch.set_num_threads(1)
    for d in LENGTHS:
        for name, v in vectors(d):
            for density in DENSITIES:
                facts = {"sizes": name, "d": d, "density": density}
                print(json.dumps(facts | upload_cost(v, density)), flush=True)


if __name__ == "__main__":
    main()
