"""Time of the quantize path, from gradient and memory to codes and new memory.

    python benchmarks/quantize.py --device cpu
    python benchmarks/quantize.py --device cuda

Prints one JSON line per length: seconds of the two passes, their bandwidth relative to a copy, and
the time of the whole step compared with the same step in torch operations. The bandwidth counts the
bytes that must move: the first pass reads two vectors; the second reads two vectors and writes one
vector and the codes. On a GPU, the passes are timed without launch overhead, as one graph of
several calls, with and without the reduction of their partial sums; the whole step is timed by
wall clock. On the CPU, everything runs on one thread.

On the CPU, a second line per length measures the sparse quantizer: the search for the k-th largest
coordinate compared with torch's `topk`, and vector to codes compared with torch operations.
"""

import argparse
import json
import platform
import statistics
import time
from datetime import date

import torch

from aquila.core.innovation import measure
from aquila.core.packet import code_dtype
from aquila.core.passes import passes_for, plain
from aquila.core.quantize import (
    DEAD_ZONE,
    SPARSE_LEVELS,
    bits_for_levels,
    range_grid,
    sparse,
)

LENGTHS = (11_173_962, 19_000_000, 100_000_000)
BITS = 4
DENSITY = 0.01


def step_in_torch(g, q):
    """Compute the same step with torch operations; norms sum in torch's order."""
    v = g - q
    R = float(v.abs().max())
    norm = torch.linalg.vector_norm(v, dtype=torch.float64).item()
    top = 2**BITS - 1
    low, step = v.new_tensor([-R]), v.new_tensor([2 * R / top])
    codes = ((v + R) / step + 0.5).floor_().clamp_(0, top).to(torch.uint8)
    dq = codes.to(v.dtype).mul_(step).add_(low)
    norms = [torch.linalg.vector_norm(x, dtype=torch.float64).item() for x in (dq, v - dq)]
    return codes, q + dq, norm, norms


def sparse_in_torch(v):
    """Quantize sparsely with torch operations."""
    sizes = v.abs()
    least = float(sizes.topk(round(DENSITY * v.numel()), sorted=False).values.min())
    threshold = max(least, DEAD_ZONE * float(sizes.max()) / SPARSE_LEVELS)
    step = v.new_tensor([threshold / DEAD_ZONE])
    magnitude = (sizes / step + (1 - DEAD_ZONE)).floor_()
    magnitude[sizes == threshold] = 1
    top = int(magnitude.max())
    return (magnitude * v.sign() + top).to(code_dtype(bits_for_levels(top)))


def wall_seconds(work, repeats):
    """Return the median seconds of a synchronous call."""
    work()
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def gpu_seconds(work, repeats, calls=10):
    """Return the median seconds of one call without launch overhead, by replaying a graph."""
    work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(calls):
            work()
    marks = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(repeats + 3)]
    for start, end in marks:
        start.record()
        graph.replay()
        end.record()
    torch.cuda.synchronize()
    return statistics.median(a.elapsed_time(b) for a, b in marks[3:]) / 1000 / calls


def copy_bandwidth(device):
    """Return bytes read and written per second by copies of 1 GiB."""
    source = torch.zeros(2**30, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)

    def copies():
        for _ in range(10):
            target.copy_(source)
        if device == "cuda":
            torch.cuda.synchronize()

    return 10 * 2 * len(source) / wall_seconds(copies, 5)


def kernel_seconds(g, q, grid, repeats):
    """Return seconds of the two GPU passes, with and without the reduction of partial sums."""
    from aquila.core.passes import gpu, kernels

    squares = g.new_empty(2 * gpu.LANES, dtype=torch.float64)
    result, magnitudes = squares.new_empty(2), g.new_empty(gpu.PROGRAMS)
    moved, codes = torch.empty_like(q), torch.empty_like(q, dtype=grid.code_dtype)
    size = g.numel(), -(-g.numel() // gpu.LANES)
    points = grid.max_abs, grid.step, grid.max_code

    def first():
        kernels.measure[(gpu.PROGRAMS,)](g, q, squares, magnitudes, *size, **gpu.KERNEL_OPTIONS)

    def first_reduced():
        first()
        kernels.finish_measure[(1,)](squares, magnitudes, result, **gpu.REDUCTION_OPTIONS)

    def second():
        kernels.quantize[(gpu.PROGRAMS,)](
            g, q, moved, codes, squares, *points, *size, **gpu.KERNEL_OPTIONS
        )

    def second_reduced():
        second()
        kernels.finish_quantize[(2,)](squares, result, **gpu.REDUCTION_OPTIONS)

    calls = {
        "measure": first,
        "measure_reduced": first_reduced,
        "quantize": second,
        "quantize_reduced": second_reduced,
    }
    return {name: gpu_seconds(call, repeats) for name, call in calls.items()}


def cpu_seconds(g, q, grid, repeats):
    passes = passes_for(g, q)
    return {
        "measure": wall_seconds(lambda: passes.measure(g, q), repeats),
        "quantize": wall_seconds(lambda: passes.quantize(g, q, grid), repeats),
    }


def quantize_row(d, device, repeats, bandwidth):
    g, q = torch.randn(d, device=device), torch.randn(d, device=device) / 8
    grid = range_grid(measure(g, q).max_abs, BITS, g.dtype)
    seconds = (kernel_seconds if device == "cuda" else cpu_seconds)(g, q, grid, repeats)
    bytes_moved = {"measure": 8 * d, "quantize": 13 * d}
    step_seconds = wall_seconds(lambda: measure(g, q).midrise(BITS), repeats)
    torch_seconds = wall_seconds(lambda: step_in_torch(g, q), repeats)
    return {
        "d": d,
        "copy_gb_s": round(bandwidth / 1e9, 1),
        **{f"{name}_us": round(1e6 * s, 1) for name, s in seconds.items()},
        **{
            f"{name}_of_copy": round(bytes_moved[name.split("_")[0]] / s / bandwidth, 3)
            for name, s in seconds.items()
        },
        "step_us": round(1e6 * step_seconds, 1),
        "step_in_torch_us": round(1e6 * torch_seconds, 1),
        "speedup": round(torch_seconds / step_seconds, 2),
    }


def sparse_row(d, repeats):
    v = torch.randn(d)
    k = round(DENSITY * d)
    assert torch.equal(sparse(v, DENSITY).codes, sparse_in_torch(v))
    search = wall_seconds(lambda: passes_for(v).kth_largest(v, k), repeats)
    topk = wall_seconds(lambda: plain.kth_largest(v, k), repeats)
    step_seconds = wall_seconds(lambda: sparse(v, DENSITY), repeats)
    torch_seconds = wall_seconds(lambda: sparse_in_torch(v), repeats)
    return {
        "d": d,
        "density": DENSITY,
        "search_us": round(1e6 * search, 1),
        "topk_us": round(1e6 * topk, 1),
        "sparse_us": round(1e6 * step_seconds, 1),
        "sparse_in_torch_us": round(1e6 * torch_seconds, 1),
        "speedup": round(torch_seconds / step_seconds, 2),
    }


def machine(device):
    if device == "cuda":
        return torch.cuda.get_device_name()
    return f"{platform.machine()}, one thread"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--lengths", nargs="+", type=int, default=LENGTHS)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    header = {
        "date": str(date.today()),
        "machine": machine(args.device),
        "torch": torch.__version__,
        "seed": 0,
    }
    bandwidth = copy_bandwidth(args.device)
    for d in args.lengths:
        rows = [quantize_row(d, args.device, args.repeats, bandwidth)]
        if args.device == "cpu":
            rows.append(sparse_row(d, args.repeats))
        for timed in rows:
            print(json.dumps({**header, **timed}), flush=True)


if __name__ == "__main__":
    main()
