"""Time of sparse updates on a GPU, from gradient and state to codes and new state.

    python benchmarks/gpu_updates.py --out results/gpu_updates_h200.jsonl

Prints one JSON line per method and length. `passes_us` are the two passes over the vectors.
`all_us` has everything else, too: the keys of the dither or the search for the k-th largest
magnitude, and the reduction of partial sums. Both are timed without launch overhead, as one graph
of several calls, and compared with the bandwidth of a copy. They count the bytes that must move:
21 per coordinate for AQUILA-Dither and 33 for AQUILA-TopK. `update_us` is the wall-clock time of
the update, and `separate_us` that of the same steps in separate passes. Both give the same bits,
which is checked.
"""

import argparse
import json
from datetime import date
from functools import partial
from pathlib import Path

import torch
from device_turn import (
    DITHER_DENSITY,
    MOVED_BYTES,
    RATE,
    SEED,
    TOPK_DENSITY,
    separate_dithered_update,
    separate_feedback_update,
)
from quantize import copy_bandwidth, gpu_seconds, wall_seconds

from aquila.core.packet import code_dtype
from aquila.core.passes import plain
from aquila.core.passes.grid import DitherGrid, SparseGrid
from aquila.core.quantize import DEAD_ZONE, bits_for_levels, levels_for_bits, sent_count
from aquila.core.random import Key
from aquila.core.updates import dithered_update, feedback_update

LENGTHS = (11_172_170, 100_000_000)


def vectors(d):
    """Return a gradient, a memory and an error."""
    g, q, e = (torch.randn(d, device="cuda") for _ in range(3))
    return g, q / 8, e * 20


def measure_pass(g, q):
    """Return a function that runs the kernel of the first pass alone."""
    from aquila.core.passes import gpu, kernels

    squares = g.new_empty(gpu.LANES, dtype=torch.float64)
    magnitudes, size = g.new_empty(gpu.PROGRAMS), (g.numel(), -(-g.numel() // gpu.LANES))
    return lambda: kernels.measure[(gpu.PROGRAMS,)](
        g, q, squares, magnitudes, *size, **gpu.KERNEL_OPTIONS
    )


def dither_works(d):
    """Return the works of AQUILA-Dither by name."""
    from aquila.core.passes import dither_kernels as dithering
    from aquila.core.passes import gpu, kernels

    g, q, _ = vectors(d)
    update = dithered_update(g, q, RATE, DITHER_DENSITY, Key((SEED,)))
    codes, seed = update.codes, update.codes.dither_seed
    own = separate_dithered_update(g, q)
    assert torch.equal(own[0].codes, codes.codes)
    assert torch.equal(own[1], update.memory)
    assert own[2] == update.error_ratio
    grid = DitherGrid(float(codes.step), seed, levels_for_bits(codes.bits), code_dtype(codes.bits))
    squares, tops = g.new_empty(gpu.LANES, dtype=torch.float64), g.new_empty(gpu.PROGRAMS)
    block_bits = plain.dither_block_bits(seed, d)
    keys = gpu._block_keys(seed - (seed >> 31 << 32), block_bits, g)
    numbers = seed - (seed >> 31 << 32), block_bits, grid.centre, d, -(-d // gpu.LANES)

    def second_pass():
        dithering.dithered_codes[(gpu.PROGRAMS,)](
            g, q, update.memory, codes.codes, keys, squares, tops, grid.step, RATE, *numbers,
            **gpu.KERNEL_OPTIONS,
        )  # fmt: skip

    def everything():
        measure_pass(g, q)()
        kernels.finish_measure[(1,)](squares, tops, squares.new_empty(2), **gpu.REDUCTION_OPTIONS)
        gpu.launch_dithered_codes(g, q, RATE, grid)

    return {
        "first": measure_pass(g, q),
        "second": second_pass,
        "all": everything,
        "update": partial(dithered_update, g, q, RATE, DITHER_DENSITY, Key((SEED,))),
        "separate": partial(separate_dithered_update, g, q),
    }


def topk_works(d):
    """Return the works of AQUILA-TopK by name."""
    from aquila.core.passes import feedback_kernels as feedback
    from aquila.core.passes import gpu

    g, q, e = vectors(d)
    update = feedback_update(e, g, q, RATE, TOPK_DENSITY)
    own = separate_feedback_update(e, g, q)
    assert torch.equal(own[0].codes, update.codes.codes)
    assert torch.equal(own[1], update.error)
    assert torch.equal(own[2], update.memory)
    assert own[3] == update.error_ratio
    codes, k, rows = update.codes, sent_count(g, TOPK_DENSITY), -(-d // gpu.LANES)
    top = round(float(-codes.low / codes.step))
    step = float(codes.step)
    grid = SparseGrid(step, 1 - DEAD_ZONE, step * DEAD_ZONE)
    squares, magnitudes = g.new_empty(gpu.LANES, dtype=torch.float64), g.new_empty(gpu.PROGRAMS)
    selection, v = gpu._Selection(e, k), torch.empty_like(g)
    selection.set_bound(e, g, q)

    def accumulate():
        feedback.accumulate[(gpu.PROGRAMS,)](
            e, g, q, v, squares, magnitudes, *selection.collecting, d, rows, selection.room,
            **gpu.KERNEL_OPTIONS,
        )  # fmt: skip

    def feed_back():
        feedback.feed_back[(gpu.PROGRAMS,)](
            v, q, update.memory, codes.codes, squares, grid.step, grid.rounding_offset,
            grid.threshold, RATE, top, d, rows, **gpu.KERNEL_OPTIONS,
        )  # fmt: skip

    def everything():
        sent, _ = gpu.launch_accumulate(e, g, q, k)
        gpu.launch_feed_back(sent, q, RATE, grid, top, code_dtype(bits_for_levels(top)))

    return {
        "first": accumulate,
        "second": feed_back,
        "all": everything,
        "update": partial(feedback_update, e, g, q, RATE, TOPK_DENSITY),
        "separate": partial(separate_feedback_update, e, g, q),
    }


def update_row(method, d, repeats, bandwidth):
    works = (dither_works if method == "aquila_dither" else topk_works)(d)
    with torch.no_grad():
        seconds = {name: gpu_seconds(works[name], repeats) for name in ("first", "second", "all")}
        wall = {name: wall_seconds(works[name], repeats) for name in ("update", "separate")}
    passes, moved = seconds["first"] + seconds["second"], MOVED_BYTES[method] * d
    return {
        "method": method,
        "d": d,
        "copy_gb_s": round(bandwidth / 1e9, 1),
        **{f"{name}_us": round(1e6 * s, 1) for name, s in seconds.items()},
        "passes_us": round(1e6 * passes, 1),
        "passes_of_copy": round(moved / passes / bandwidth, 3),
        "all_of_copy": round(moved / seconds["all"] / bandwidth, 3),
        **{f"{name}_us": round(1e6 * s, 1) for name, s in wall.items()},
        "speedup": round(wall["separate"] / wall["update"], 2),
    }


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--lengths", nargs="+", type=int, default=LENGTHS)
    parser.add_argument("--out", type=Path, help="file to append JSON lines to")
    args = parser.parse_args()
    torch.manual_seed(SEED)
    machine = {
        "date": str(date.today()), "gpu": torch.cuda.get_device_name(), "torch": torch.__version__
    }  # fmt: skip
    bandwidth = copy_bandwidth("cuda")
    for d in args.lengths:
        for method in MOVED_BYTES:
            line = json.dumps({**machine, **update_row(method, d, args.repeats, bandwidth)})
            print(line, flush=True)
            if args.out:
                with args.out.open("a") as file:
                    file.write(line + "\n")


if __name__ == "__main__":
    main()
