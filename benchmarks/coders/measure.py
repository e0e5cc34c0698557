"""Measures sizes, speeds and memory of coders: one row per stream of codes."""

import ctypes
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch
from code_streams import DISTRIBUTIONS, code_entropy, code_streams, random_source

from aquila.core.packet import Packet
from aquila.core.wire import pack
from coders.adapters import AquilaFrame
from coders.goals import size_limit

LARGE_GRIDS = ("AQUILA", "QSGD, 6 bits", "LAQ, 6 bits", "zero, 1 rms", "zero, 4 rms")
PEAK_RESET = "/proc/self/clear_refs"
MMAP_THRESHOLD = -3
"""M_MMAP_THRESHOLD of glibc: blocks from this size on get their own pages."""


def measure_stream(stream, peers, repeats, device):
    """Return one row: size and speed of every coder on the same codes."""
    codes = stream.codes
    coders = [AquilaFrame(codes, device), *(peer(codes) for peer in peers)]
    seconds = {coder.name: ([], []) for coder in coders}
    for _ in range(repeats * max(1, 10**6 // codes.dimension)):  # short streams: more repeats
        for coder in coders:
            data, encoding = time_once(coder.encode, device)
            _, decoding = time_once(partial(coder.decode, data), device)
            seconds[coder.name][0].append(encoding)
            seconds[coder.name][1].append(decoding)
    row = stream_row(stream, "stream")
    row["coders"] = {
        coder.name: coder_result(coder, codes, row["entropy"], *map(min, seconds[coder.name]))
        for coder in coders
    }
    return row


def time_once(work, device):
    """Return result and seconds of a call: processor time, or wall time with queued GPU work."""
    if device == "cuda":
        torch.cuda.synchronize()
    clock = time.perf_counter if device == "cuda" else time.thread_time
    start = clock()
    result = work()
    if device == "cuda":
        torch.cuda.synchronize()
    return result, clock() - start


def wall_time(work):
    """Return the seconds that pass during a call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def stream_row(stream, kind):
    """Return the fields that every row of a stream has."""
    codes = stream.codes
    return {
        "kind": kind,
        "source": stream.source,
        "data": stream.data,
        "grid": stream.grid,
        "d": codes.dimension,
        "b": codes.bits,
        "entropy": code_entropy(codes.codes),
    }


def coder_result(coder, codes, entropy, encoding, decoding):
    """Return size and speed of one coder, and check that it decodes correctly."""
    data = coder.encode()
    decoded = coder.decode(data)
    host = decoded.cpu().numpy() if isinstance(decoded, torch.Tensor) else decoded
    if not np.array_equal(host, codes.codes.numpy()):
        raise RuntimeError(f"{coder.name} does not decode to the original codes")
    size = memoryview(data).nbytes
    return {
        "bytes": size,
        "bits_per_coordinate": 8 * size / codes.dimension,
        "ratio_to_entropy": 8 * size / codes.dimension / entropy if entropy else None,
        "encode_gb_s": 4 * codes.dimension / encoding / 1e9,
        "decode_gb_s": 4 * codes.dimension / decoding / 1e9,
    }


def measure_sizes(dimensions, seed):
    """Yield one row with the frame size per synthetic stream and dimension."""
    for dimension in dimensions:
        for name in DISTRIBUTIONS:
            for stream in code_streams(random_source(name, dimension, seed), seed):
                row = stream_row(stream, "size")
                row["bytes"] = len(pack(Packet(0, stream.codes)))
                row["limit"] = size_limit(row)
                yield row


def measure_threads(stream, repeats):
    """Return one row: the throughput of two threads relative to one, ideally 2."""
    coder = AquilaFrame(stream.codes, "cpu")
    frame = coder.encode()
    row = stream_row(stream, "threads")
    with ThreadPoolExecutor(2) as pool:
        for name, work in (("encode", coder.encode), ("decode", partial(coder.decode, frame))):
            one, two = [], []
            for _ in range(repeats * max(1, 10**6 // stream.codes.dimension)):
                one.append(wall_time(work))
                two.append(wall_time(partial(run_twice_in_parallel, pool, work)))
            row[f"{name}_gb_s"] = 4 * stream.codes.dimension / min(one) / 1e9
            row[f"{name}_gain"] = 2 * min(one) / min(two)
    return row


def run_twice_in_parallel(pool, work):
    for started in [pool.submit(work), pool.submit(work)]:
        started.result()


def measure_memory(dimension, seed):
    """Yield one row per grid: peak memory in addition to the input, each in its own process."""
    if not os.access(PEAK_RESET, os.W_OK):
        print(f"memory is not measured: it needs {PEAK_RESET}", file=sys.stderr)
        return
    for grid in LARGE_GRIDS:
        with ProcessPoolExecutor(1, get_context("spawn")) as fresh:
            yield fresh.submit(memory_row, grid, dimension, seed).result()


def memory_row(grid, dimension, seed):
    """Return peak memory to encode and decode a large stream, as multiples of its codes."""
    torch.set_num_threads(1)
    ctypes.CDLL(None).mallopt(MMAP_THRESHOLD, 2**16)  # freed memory is no longer resident
    stream = next(
        s for s in code_streams(random_source("Gaussian", dimension, seed), seed) if s.grid == grid
    )
    row = stream_row(stream, "memory")
    coder = AquilaFrame(stream.codes, "cpu")
    frame, encoding = measure_peak(coder.encode)
    _, decoding = measure_peak(partial(coder.decode, frame))
    row["encode_peak"] = encoding / stream.codes.codes.nbytes
    row["decode_peak"] = decoding / stream.codes.codes.nbytes
    return row


def measure_peak(work):
    """Return the result of a call, and the largest increase of resident memory meanwhile."""
    Path(PEAK_RESET).write_text("5")  # resets the peak to the current value
    before = read_status_bytes("VmRSS")
    result = work()
    return result, read_status_bytes("VmHWM") - before


def read_status_bytes(field):
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return 1024 * int(line.split()[1])
    raise OSError(f"/proc/self/status has no {field}")
