"""How many uploads per second a server takes in, and a load test of the server session.

    python benchmarks/ingest.py --out results/ingest.jsonl
    python benchmarks/ingest.py --load 100000 --dimension 100000 --out results/ingest.jsonl

The first command takes frames from bytes to a float64 sum: read, measure the norm, add. It does so
on one and two threads, each with a sum of its own. Beside it, in the same run, it times three
peers: the same frame read and added with all its coordinates, a dense float32 frame, and a copy of
the sum. Peaks are added in their rotated basis; `finish_ms` is the time to rotate such a sum back,
at most 256 times per round. The second command sends one frame per device through the real server
session, made of a few recorded uploads. Each command appends JSON lines.
"""

import argparse
import json
import math
import os
import resource
import statistics
import threading
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import torch
from machine import cpu_name

import aquila
from aquila.core.envelope import parse, seal
from aquila.core.fleet import Fleet
from aquila.core.method import decode_summand
from aquila.core.packet import Dense, Packet, SparseCodes
from aquila.core.peak_reader import PeakReader
from aquila.core.peaks import quantize_peaks
from aquila.core.quantize import midrise, shared_dither, sparse
from aquila.core.random import Key
from aquila.core.rotated import RotatedSum, RotatedVector
from aquila.core.tensors import one_tensor
from aquila.core.wire import pack, unpack
from aquila.runtime.norm_limit import upload_norm
from aquila.runtime.options import RunOptions
from aquila.runtime.server_session import ServerSession

DIMENSION = 11_172_170
DENSITY = 0.0026
"""Sends 20,600 of 11 million Laplace coordinates."""
PEAK_BLOCK = 320
"""Coordinates per peak, the default of large models."""
PEAKS = "peaks"
DISTINCT = 8
"""Recorded uploads of the load test."""
BURST = 0.1
"""Seconds that threads work at a time. Short bursts are rarely interrupted by other programs."""


def laplace(d, seed):
    """Return a vector whose coordinates have the Laplace distribution."""
    noise = torch.randn(d, generator=Key((seed, d)).torch())
    return noise.sign() * -torch.log1p(-Key((seed + 1, d)).uniform(noise))


def uploads(d, seed):
    """Return the measured uploads by name."""
    v = laplace(d, seed)
    peaks, _ = quantize_peaks(v, one_tensor(d), PEAK_BLOCK, Key((seed,)), 0)
    return {
        PEAKS: peaks.to_codes(),
        "dithered": shared_dither(v, DENSITY, Key((seed,))),
        "top-k, 0.18 %": sparse(v, 0.0018),
        "top-k, 1 %": sparse(v, 0.01),
        "AQUILA, 4 bits": midrise(v, 4),
        "dense float32": Dense(v),
    }


class Sum:
    """A float64 sum, and what is still in a rotated basis."""

    def __init__(self, d):
        self.total = torch.zeros(d, dtype=torch.float64)
        self.rotated = RotatedSum(self.total)

    def add(self, vector):
        """Add a vector of any form."""
        if isinstance(vector, RotatedVector):
            self.rotated.add(vector, 1.0)
        elif isinstance(vector, torch.Tensor):
            self.total.add_(vector)
        else:
            vector.add_to(self.total, 1.0)


def reader_of(name, d):
    """Return a function from the frame of an upload to its reply."""
    if name != PEAKS:
        return lambda frame: unpack(frame, d)
    reader, shapes = PeakReader(), one_tensor(d)
    sizes = reader.dimensions(shapes)

    def read(frame):
        reply = unpack(frame, sizes)
        return replace(reply, vector=reader.read(reply, shapes))

    return read


def ingest(frame, read, total):
    """Take in one upload as the server does."""
    reply = read(frame)
    upload_norm(reply)
    total.add(decode_summand(reply))


def ingest_all_coordinates(frame, read, total):
    """Take in one upload with a pass over all coordinates per step."""
    vector = read(frame).vector
    if isinstance(vector, SparseCodes):
        vector = vector.to_codes()
    values = vector.decode()
    float(values.double().square().sum())
    total.total.add_(values)


def finish(total, vector):
    """Add a vector in its basis, and rotate it back."""
    total.rotated.add(vector, 1.0)
    total.rotated.finish()


def least(work, repeats):
    """Return the least processor time and the least wall time of a call, in seconds."""
    cpu, wall = [], []
    for _ in range(repeats):
        start, started = time.thread_time(), time.perf_counter()
        work()
        cpu.append(time.thread_time() - start)
        wall.append(time.perf_counter() - started)
    return min(cpu), min(wall)


def scheduled_seconds():
    """Return the seconds that this thread ran or waited for a core; None if unknown."""
    try:
        ran, waited, _ = Path("/proc/thread-self/schedstat").read_text().split()
    except OSError:
        return None
    return (int(ran) + int(waited)) / 1e9


def threaded_run(frame, read, d, threads, count):
    """Take in frames on several threads, each with a sum of its own.

    Returns frames per second, and the share of the time in which threads waited for each other.
    """
    totals = [Sum(d) for _ in range(threads)]
    start_line, spent = threading.Barrier(threads + 1), []

    def work(total):
        start_line.wait()
        start, scheduled = time.perf_counter(), scheduled_seconds()
        for _ in range(count):
            ingest(frame, read, total)
        if scheduled is not None:
            wall = time.perf_counter() - start
            spent.append((wall, wall - (scheduled_seconds() - scheduled)))

    workers = [threading.Thread(target=work, args=(total,)) for total in totals]
    for worker in workers:
        worker.start()
    start_line.wait()
    start = time.perf_counter()
    for worker in workers:
        worker.join()
    rate = threads * count / (time.perf_counter() - start)
    wall, blocked = (sum(parts) for parts in zip(*spent, strict=True)) if spent else (1, math.nan)
    return rate, blocked / wall


def threaded_results(frame, read, d, count, repeats):
    """Return the best rates of one and of two threads, which take turns, and what two wait."""
    runs = [[threaded_run(frame, read, d, n, count) for n in (1, 2)] for _ in range(repeats)]
    one, two = (max(rate for rate, _ in of_threads) for of_threads in zip(*runs, strict=True))
    return {
        "frames_per_s_1_thread": round(one, 1), "frames_per_s_2_threads": round(two, 1),
        "threads_ratio": round(two / one, 2),
        "threads_blocked": round(statistics.median(blocked for _, (_, blocked) in runs), 3),
    }  # fmt: skip


def measure_upload(name, upload, d, repeats):
    """Return sizes and rates of one upload."""
    frame, read, total = pack(Packet(0, upload)), reader_of(name, d), Sum(d)
    cpu, wall = least(lambda: ingest(frame, read, total), repeats)
    dense_cpu, _ = least(lambda: ingest_all_coordinates(frame, read, total), max(3, repeats // 5))
    reply = read(frame)
    parts = {
        "unpack": lambda: read(frame),
        "norm": lambda: upload_norm(reply),
        "add": lambda: total.add(decode_summand(reply)),
    }
    times = {f"{part}_ms": round(1e3 * least(f, repeats)[0], 3) for part, f in parts.items()}
    other = torch.empty_like(total.total)
    copy, _ = least(lambda: other.copy_(total.total), repeats)
    count = max(2, round(BURST / wall))
    sent = decode_summand(reply)
    if isinstance(sent, RotatedVector):
        total.rotated.finish()
        times["finish_ms"] = round(1e3 * least(lambda: finish(total, sent), repeats)[0], 1)
    return {
        "upload": name, "d": d, "frame_bytes": len(frame),
        "sent": getattr(sent, "positions", total.total).numel(),
        **times,
        "frames_per_s_and_core": round(1 / cpu, 1),
        "all_coordinates_per_s_and_core": round(1 / dense_cpu, 1),
        "ratio": round(dense_cpu / cpu, 1),
        **threaded_results(frame, read, d, count, repeats),
        "all_ms": round(1e3 * cpu, 2),
        "copy_of_sum_ms": round(1e3 * copy, 2),
        "all_of_copy_bandwidth": round(copy / cpu, 2),
        "add_of_copy_bandwidth": round(copy / (times["add_ms"] / 1e3), 2),
    }  # fmt: skip


def recorded_bodies(d, density, seed):
    """Return parsed frames of a few different uploads."""
    for number in range(DISTINCT):
        v = laplace(d, seed + 2 * number)
        yield parse(pack(Packet(0, shared_dither(v, density, Key((seed, number))))))


def load(args):
    """Send one reply per device through a server session, and return times and memory."""
    d, devices = args.dimension, args.load
    records = list(recorded_bodies(d, args.density, args.seed))
    method = aquila.create("aquila_dither", alpha=0.1)
    start = time.perf_counter()
    session = ServerSession(
        method, torch.zeros(d), Fleet.uniform(d, devices), args.seed, RunOptions()
    )
    orders = session.open_round()
    opened, receive_cpu, uplink = time.perf_counter() - start, 0.0, 0
    for device, order in orders.items():
        record = records[device % DISTINCT]
        frame = seal(record._replace(refers_to=order.checksum))
        uplink += len(frame)
        begin = time.thread_time()
        session.receive(device, frame)
        receive_cpu += time.thread_time() - begin
    begin = time.thread_time()
    replies = session.close_round()
    close_cpu = time.thread_time() - begin
    return {
        "load": devices, "d": d, "density": args.density, "applied": len(replies),
        "uplink_mib": round(uplink / 2**20, 1),
        "open_s": round(opened, 2),
        "receive_ms_per_frame": round(1e3 * receive_cpu / devices, 3),
        "close_ms_per_frame": round(1e3 * close_cpu / devices, 3),
        "frames_per_s_and_core": round(devices / (receive_cpu + close_cpu), 1),
        "wall_s": round(time.perf_counter() - start, 1),
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }  # fmt: skip


def main():
    """Measure and append JSON lines to a file, or print them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--dimension", type=int, default=DIMENSION, help="number of coordinates")
    parser.add_argument("--density", type=float, default=DENSITY, help="density of the load test")
    parser.add_argument("--load", type=int, default=0, help="devices of the load test; 0: none")
    parser.add_argument(
        "--repeats", type=int, default=15, help="timings per step; the least counts"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="file to append to; default: print")
    args = parser.parse_args()
    torch.set_num_threads(1)
    facts = {
        "cpu": cpu_name(), "cores": os.cpu_count(), "torch": torch.__version__, "seed": args.seed,
        "date": datetime.now(UTC).date().isoformat(),
    }  # fmt: skip
    measured = (
        [load(args)]
        if args.load
        else (
            measure_upload(name, upload, args.dimension, args.repeats)
            for name, upload in uploads(args.dimension, args.seed).items()
        )
    )
    for result in measured:
        line = json.dumps(result | facts)
        print(line, flush=True)
        if args.out:
            with args.out.open("a") as file:
                file.write(line + "\n")


if __name__ == "__main__":
    main()
