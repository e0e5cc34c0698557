"""Time of each step of a device's turn.

    python benchmarks/device_turn.py --out results/device_turn.jsonl --label "after"

Small: logistic regression with 7,850 parameters on 20 samples, where the overhead around a gradient
dominates; the last lines are whole rounds of 1,000 such devices. Large: a convolutional network on
500 images, where the gradient dominates. Everything runs on one thread. Each number is the minimum
of several timings, because other processes can only add to a timing.

Sparse: the turn after the gradient of methods with sparse uploads, for the 11,172,170 parameters of
ResNet-18. The same update also runs as separate passes, alternately. Times are CPU times of the
thread. `of_copy` is the bandwidth of its two passes relative to a plain copy, over the bytes that
must move, if the outputs are in memory. Otherwise the kernel has to map new pages for them first.
`peak_vectors` is the peak memory of a turn beside gradient, model and state, in vectors.
"""

import argparse
import ctypes
import json
import math
import time
from dataclasses import replace
from datetime import date
from functools import partial
from itertools import chain
from pathlib import Path

import torch
from machine import cpu_name

import aquila
from aquila import native
from aquila.core.innovation import aquila_level, measure
from aquila.core.packet import Dense, Packet
from aquila.core.passes import passes_for
from aquila.core.quantize import DEAD_ZONE, dither_seed, sparse, stochastic_sparse
from aquila.core.random import Key
from aquila.core.updates import dithered_update, feedback_update
from aquila.core.vector import error_ratio, max_norm, relative_norm, squared_norm
from aquila.core.wire import pack, unpack
from aquila.runtime.traffic import cost_of
from aquila.tasks import build_model

SEED, DEVICES, SAMPLES, FEATURES, CLASSES = 0, 1000, 20, 784, 10
REPEATS = 15
COORDINATES, DITHER_DENSITY, TOPK_DENSITY, RATE = 11_172_170, 0.015, 0.01, 0.01
MOVED_BYTES = {"aquila_dither": 8 + 13, "aquila_topk": 16 + 17}
"""Bytes per coordinate that the two passes of an update must read and write."""


def least_microseconds(work, repeat):
    """Return the minimum time per call over several repeats."""
    work()
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        for _ in range(repeat):
            work()
        times.append((time.perf_counter() - start) / repeat)
    return min(times) * 1e6


def build_problem(name, devices):
    generator = torch.Generator().manual_seed(SEED)
    torch.manual_seed(SEED)
    if name == "small":
        module, shape = torch.nn.Linear(FEATURES, CLASSES), (SAMPLES, FEATURES)
    else:
        module, shape = build_model("cnn"), (500, 1, 28, 28)
    x = torch.randn(devices, *shape, generator=generator)
    y = torch.randint(0, CLASSES, (devices, shape[0]), generator=generator)
    return aquila.problem(module, list(zip(x, y, strict=True)))


def turn_steps(name):
    """Return the steps of a turn by name."""
    problem = build_problem(name, devices=1)
    theta, shard = problem.theta0, problem.devices[0]
    oracle = shard.oracle(Key((SEED, 0, 0)))
    memory = oracle.gradient(theta)[1]
    gradient = oracle.gradient(theta * 1.1)[1]
    innovation = measure(gradient, memory)
    level = aquila_level(innovation, tightness=7)
    upload = innovation.midrise(level).upload
    reply = Packet(1, upload)
    frame = pack(reply)
    received = unpack(frame, dimension=len(theta))
    total = torch.zeros_like(theta, dtype=torch.float64)
    return {
        "gradient, one device": lambda: oracle.gradient(theta),
        "guard": lambda: max_norm(gradient),
        "measure the innovation": lambda: measure(gradient, memory),
        f"quantize, {level} bits": lambda: innovation.midrise(level),
        "pack": lambda: pack(reply),
        "count": lambda: cost_of(frame),
        "unpack": lambda: unpack(frame, dimension=len(theta), trusted=True),
        "decode and add": lambda: total.add_(received.vector.decode()),
    }


def simulated_round(method):
    problem = build_problem("small", DEVICES)
    created = aquila.create(method, alpha=0.05)
    simulation = aquila.Simulation(created, problem.theta0, problem.devices, seed=SEED)
    simulation.advance()
    return lambda: simulation.advance()


class FixedGradient:
    """An oracle that has already computed its gradient."""

    samples = 1

    def __init__(self, gradient):
        self.result = 1.0, gradient

    def gradient(self, theta):
        return self.result


def separate_dithered_update(g, q):
    """Compute `dithered_update` in separate passes."""
    v = g - q
    seed = dither_seed(Key((SEED,)), DITHER_DENSITY)
    codes = stochastic_sparse(v, DITHER_DENSITY, passes_for(v).dither(seed, v))
    u = codes.decode()
    return codes, q + RATE * u, error_ratio(v, u)


def separate_feedback_update(e, g, q):
    """Compute `feedback_update` in separate passes."""
    v = e + (g - q)
    codes = sparse(v, TOPK_DENSITY)
    u = codes.decode()
    residual = v - u
    return codes, residual, q + RATE * u, relative_norm(squared_norm(residual), squared_norm(v))


def dithered_passes(g, q):
    """Return a function that runs the two passes of `dithered_update` with outputs in memory."""
    update = dithered_update(g, q, RATE, DITHER_DENSITY, Key((SEED,)))
    codes, memory = update.codes.codes.numpy(), update.memory.numpy()
    step, seed, centre = float(update.codes.step), update.codes.dither_seed, 1

    def both():
        native.passes.measure(g.numpy(), q.numpy())
        native.dither.codes(g.numpy(), q.numpy(), memory, codes, step, seed, centre, RATE)

    return both


def feedback_passes(e, g, q):
    """Return a function that runs the two passes of `feedback_update` with outputs in memory."""
    update = feedback_update(e, g, q, RATE, TOPK_DENSITY)
    codes, memory, v = update.codes.codes.numpy(), update.memory.numpy(), update.error.numpy()
    step, top = float(update.codes.step), round(float(-update.codes.low / update.codes.step))
    grid = step, 1 - DEAD_ZONE, step * DEAD_ZONE, top

    def both():
        k = round(TOPK_DENSITY * COORDINATES)
        native.error_feedback.accumulate(e.numpy(), g.numpy(), q.numpy(), v, k)
        native.error_feedback.feed_back(q.numpy(), v, memory, codes, *grid, RATE)

    return both


def cpu_milliseconds(works):
    """Return the minimum CPU time of each work; they run alternately."""
    least = dict.fromkeys(works, math.inf)
    for _ in range(REPEATS):
        for name, work in works.items():
            start = time.thread_time()
            work()
            least[name] = min(least[name], 1e3 * (time.thread_time() - start))
    return least


def status_bytes(field):
    """Return an amount of memory of this process, from Linux."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(field))


def peak_bytes(work):
    """Return how much the peak memory of a call exceeds the memory before it."""
    ctypes.CDLL(None).malloc_trim(0)  # returns freed memory, which the call could reuse
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    before = status_bytes("VmRSS")
    work()
    return status_bytes("VmHWM") - before


def sparse_works(method):
    """Return the works of a method's turn after the gradient, by name."""
    g, q, e, theta = (
        torch.randn(COORDINATES, generator=Key((SEED, number)).torch()) for number in range(4)
    )
    device, key = aquila.create(method, alpha=0.1).device, Key((SEED,))
    if method == "aquila_dither":
        scalars, state = {"share": DITHER_DENSITY, "rate": RATE}, device.init(theta)
        state = replace(state, q=q)
        separate, passes = partial(separate_dithered_update, g, q), dithered_passes(g, q)
        fused = partial(dithered_update, g, q, RATE, DITHER_DENSITY, key)
    else:
        scalars = {"share": TOPK_DENSITY, "rate": RATE}
        state = replace(device.init(theta), e=e, q=q)
        separate, passes = partial(separate_feedback_update, e, g, q), feedback_passes(e, g, q)
        fused = partial(feedback_update, e, g, q, RATE, TOPK_DENSITY)
    order, oracle = Packet(1, Dense(theta), scalars), FixedGradient(g)
    reply = device.step(state, order, oracle, key).reply
    target = torch.zeros_like(g)
    return {
        "copy": lambda: target.copy_(g),
        "separate": separate,
        "fused": fused,
        "passes": passes,
        "pack": lambda: pack(reply),
        "guard": lambda: max_norm(g),
        "turn": lambda: pack(device.step(state, order, oracle, key).reply),
    }


def sparse_row(method):
    """Return times, ratios and peak memory of a method's turn after the gradient."""
    works = sparse_works(method)
    vector = 4 * COORDINATES
    peaks = {name: peak_bytes(works[name]) / vector for name in ("separate", "turn")}
    least = cpu_milliseconds(works)
    bandwidth = 2 * vector / least["copy"]
    return {
        "d": COORDINATES,
        **{f"{name}_ms": round(milliseconds, 2) for name, milliseconds in least.items()},
        "speedup": round(least["separate"] / least["fused"], 2),
        "of_copy": round(MOVED_BYTES[method] * COORDINATES / least["passes"] / bandwidth, 3),
        "separate_peak_vectors": round(peaks["separate"], 2),
        "peak_vectors": round(peaks["turn"], 2),
    }


def gradient_rows():
    for name, repeat in (("small", 200), ("large", 2)):
        for step, work in turn_steps(name).items():
            yield name, step, {"microseconds": least_microseconds(work, repeat)}
    for method in ("fedsgd", "aquila"):
        elapsed_us = least_microseconds(simulated_round(method), 1)
        yield "small", f"round of {method}, per device", {"microseconds": elapsed_us / DEVICES}


def sparse_rows():
    for method in MOVED_BYTES:
        yield "sparse", f"turn of {method}", sparse_row(method)


def machine():
    """Return date, processor and version of torch."""
    return {"date": str(date.today()), "cpu": cpu_name(), "torch": torch.__version__}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--label", default="", help="label of this measurement in the output file")
    parser.add_argument("--out", type=Path, help="file to append JSON lines to")
    parser.add_argument("--only-sparse", action="store_true", help="measure sparse turns only")
    args = parser.parse_args()
    torch.set_num_threads(1)
    lines = []
    for case, step, numbers in chain([] if args.only_sparse else gradient_rows(), sparse_rows()):
        print(f"{case:<8}{step:<32}{json.dumps(numbers)}", flush=True)
        lines.append({"label": args.label, "case": case, "step": step, **numbers, **machine()})
    if args.out:
        with args.out.open("a") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)


if __name__ == "__main__":
    main()
