"""What lots that both sides know are worth: bytes and time of uploads with and without them.

    python benchmarks/drawn.py > results/drawn.jsonl

One JSON line for a distribution of sizes, a length and a share: bytes of the same codes as a drawn
frame and as a coded one, bits a winner, and the least of a few timings of drawing, packing and
unpacking, on one thread.
"""

import json
import time
from dataclasses import replace

import torch

from aquila.core.packet import Packet
from aquila.core.quantize import shared_lottery
from aquila.core.random import Key
from aquila.core.wire import pack, unpack

LENGTHS, SHARES = (10_000, 100_000, 11_000_000), (0.001, 0.003, 0.01, 0.1)
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


def least(work):
    """Return the result of some work, and its least time in milliseconds."""
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        result = work()
        times.append(time.perf_counter() - start)
    return result, round(1e3 * min(times), 3)


def measured(v, share):
    """Return what an upload of a vector costs."""
    codes, drawing = least(lambda: shared_lottery(v, share, Key((2,))))
    frame, packing = least(lambda: pack(Packet(0, codes)))
    read, unpacking = least(lambda: unpack(frame, v.numel()))
    if not torch.equal(read.vector.codes, codes.codes):
        raise SystemExit("what was read is not what was written")
    coded, coding = least(lambda: pack(Packet(0, replace(codes, lots=None))))
    winners = int((codes.decode() != 0).sum())
    sizes = {"winners": winners, "drawn": len(frame), "coded": len(coded)}
    ratios = {"saves": len(coded) / len(frame), "bits_a_winner": 8 * len(frame) / winners}
    times = {"draw_ms": drawing, "pack_ms": packing, "unpack_ms": unpacking, "coded_ms": coding}
    return sizes | {name: round(ratio, 2) for name, ratio in ratios.items()} | times


def main():
    """Print a line for every vector and share."""
    torch.set_num_threads(1)
    for d in LENGTHS:
        for name, v in vectors(d):
            for share in SHARES:
                facts = {"sizes": name, "d": d, "share": share}
                print(json.dumps(facts | measured(v, share)), flush=True)


if __name__ == "__main__":
    main()
