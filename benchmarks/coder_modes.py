"""Bytes that each mode and constant of the coder saves, measured by building the coder without it.

    python benchmarks/coder_modes.py > results/coder_modes.jsonl

Prints one JSON line per variant of the coder: the bytes of all streams with and without the change,
and the streams that the change makes longer and shorter by most. With --time, a line also has the
ratio of the least encoding and decoding times, over the long streams whose bytes change; run that
on an idle machine. Needs a C compiler.
"""

import argparse
import importlib.machinery
import importlib.util
import json
import shutil
import subprocess
import sysconfig
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from code_streams import DISTRIBUTIONS, TRAININGS, code_streams, innovation_source, random_source

from aquila.core.quantize import shared_dither
from aquila.core.random import Key

NATIVE = Path(__file__).parents[1] / "src" / "aquila" / "native"
FLAGS = ["-std=c11", "-O3", "-shared", "-fPIC", "-DPy_LIMITED_API=0x030b0000"]
LAST_CHOICE = "bits > NARROW_BITS || has_long_tail(s) ? ZIGZAG : DIRECT"
SIGNED = "signed_cost(zigzag, s->total, bits) <= "
INITIAL = "(uint32_t)initial_probability[level]"
FEW, MANY = "FEW_EXCEPTIONS = 7", "MANY_EXCEPTIONS = 1 << 11"
RATE, STATES = "CODES_PER_EXCEPTION = 8", "FOUR_STATES_FROM = 256"
FAST, LIMIT = "FAST = 1, SLOW = 5", "CANDIDATE_LIMIT = 3 * UNIT / 2"
LISTED = "slot_complement(model->dither, slot));"
TREND = "trend < 0 ? 0 : trend < TRENDS ? (unsigned)trend : TRENDS - 1"
HALF_UNIFORM = 200_000
CODED = {
    "no packed": ("plan.c", "if (s->cost >= (uint64_t)s->total * bits)", "if (0)"),
    "no direct": ("plan.c", LAST_CHOICE, "ZIGZAG"),
    "no zigzag for narrow codes": ("plan.c", LAST_CHOICE, "bits > NARROW_BITS ? ZIGZAG : DIRECT"),
    "no exceptions": ("plan.c", "if (lists_exceptions(exceptions, s->total, bits))", "if (0)"),
    "no signed exceptions": ("plan.c", SIGNED, "0 && " + SIGNED),
    "signed exceptions only if shorter": ("plan.c", "s->cost + s->cost / 200", "s->cost"),
    "one segment": ("body.c", "if (at == 0 ||", "if (1 ||"),
    "long chunks": ("body.c", "MIN_CHUNK = 1 << 9", "MIN_CHUNK = 1 << 13"),
    "FEW_EXCEPTIONS = 1": ("plan.c", FEW, "FEW_EXCEPTIONS = 1"),
    "FEW_EXCEPTIONS without limit": ("plan.c", FEW, "FEW_EXCEPTIONS = 1 << 30"),
    "MANY_EXCEPTIONS without limit": ("plan.c", MANY, "MANY_EXCEPTIONS = 1 << 30"),
    "CODES_PER_EXCEPTION = 4": ("plan.c", RATE, "CODES_PER_EXCEPTION = 4"),
    "CODES_PER_EXCEPTION = 16": ("plan.c", RATE, "CODES_PER_EXCEPTION = 16"),
    "always four states": ("rans.h", STATES, "FOUR_STATES_FROM = 1"),
    "always one state": ("rans.h", STATES, "FOUR_STATES_FROM = 1 << 30"),
    "centre is the most frequent code": ("codes.c", "? mode + 1 : mode", "? mode : mode"),
}
DITHERED = {
    "CANDIDATE_LIMIT = 1 octave": ("dither_model.h", LIMIT, "CANDIDATE_LIMIT = UNIT"),
    "CANDIDATE_LIMIT = 2 octaves": ("dither_model.h", LIMIT, "CANDIDATE_LIMIT = 2 * UNIT"),
    "all are candidates": ("dither_model.h", LIMIT, "CANDIDATE_LIMIT = 64 * UNIT"),
    "listed coordinates do not change the scale": ("dither_model.h", LISTED, LISTED + "return;"),
    "fixed scale": ("dither_model.h", FAST, "FAST = 31, SLOW = 31"),
    "no trend": ("dither_model.h", TREND, "0"),
    "initial probability 1/2": ("dither_model.c", INITIAL, "2048 + 0 * level"),
}


def build_coder(folder, name, change=None):
    """Compile and load the coder, with one piece of its source replaced."""
    home = folder / name.replace(" ", "_").replace("/", "_")
    shutil.copytree(NATIVE, home, ignore=shutil.ignore_patterns("*.so"))
    if change:
        path, old, new = home / "coding" / change[0], *change[1:]
        text = path.read_text()
        if text.count(old) != 1:
            raise SystemExit(f"{path.name} does not contain this exactly once: {old}")
        path.write_text(text.replace(old, new))
    library, sources = home / "coder.abi3.so", sorted((home / "coding").glob("*.c"))
    include = f"-I{sysconfig.get_path('include')}"
    subprocess.run(["cc", *FLAGS, include, *sources, "-o", library], check=True)
    loader = importlib.machinery.ExtensionFileLoader("coder", str(library))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("coder", loader))
    loader.exec_module(module)
    return module


def make_sources(args):
    """Return innovations of training, and vectors of independent coordinates."""
    trainings = TRAININGS if args.steps else ()
    sources = [innovation_source(name, 0, args.data, args.steps) for name in trainings]
    return sources + [random_source(name, d, 0) for d in args.dimensions for name in DISTRIBUTIONS]


def coded_streams(sources):
    """Yield name, codes and bits of the sources on every grid."""
    for source in sources:
        for stream in code_streams(source, 0):
            name = f"{source.name}, d = {source.vector.numel():,}, {stream.grid}"
            yield name, stream.codes.codes.numpy(), stream.codes.bits
    for bits in (2, 6, 8, 12):
        codes = np.zeros(HALF_UNIFORM, np.uint8 if bits <= 8 else np.int16)
        half = HALF_UNIFORM // 2
        codes[:half] = np.random.default_rng(bits).integers(0, 2**bits, half)
        yield f"half uniform, half zero, d = {HALF_UNIFORM:,}, {bits} bits", codes, bits


def dithered_streams(sources):
    """Yield name, codes, bits and seed of sparse uploads with a shared dither."""
    for source in sources:
        for density in (0.001, 0.01):
            codes = shared_dither(source.vector, density, Key((2,)))
            if codes is not None:
                name = f"{source.name}, d = {source.vector.numel():,}, density {density}"
                yield name, codes.codes.numpy(), codes.bits, codes.dither_seed


def sizes(encode, streams):
    return {name: len(encode(*codes)) for name, *codes in streams}


def least_time(work, repeats=5):
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def time_ratios(pairs, streams):
    """Return variant / coder for encoding and decoding, over the long streams that differ."""
    totals = np.zeros((2, 2))
    for _, codes, *options in (s for s in streams if len(s[1]) >= 10**6):
        bodies = [encode(codes, *options) for encode, _ in pairs]
        if bodies[0] == bodies[1]:
            continue
        for i, (encode, decode) in enumerate(pairs):
            body, target = bodies[i], np.empty_like(codes)
            totals[i, 0] += least_time(lambda e=encode, c=codes, o=options: e(c, *o))
            totals[i, 1] += least_time(lambda d=decode, b=body, t=target, o=options: d(b, t, *o))
    return (totals[1] / totals[0]).round(2).tolist() if totals.all() else [None, None]


def compare(folder, kind, changes, functions, streams, args):
    """Print one line per change: what it does to the bytes of the streams."""
    coder = build_coder(folder, f"{kind} as it is")
    before = sizes(getattr(coder, functions[0]), streams)
    for name, change in changes.items():
        variant = build_coder(folder, name, change)
        after = sizes(getattr(variant, functions[0]), streams)
        longest = max(after, key=lambda stream: after[stream] - before[stream])
        shortest = min(after, key=lambda stream: after[stream] - before[stream])
        row = {
            "body": kind, "change": name, "bytes": sum(before.values()),
            "bytes_with_change": sum(after.values()),
            "longer": sum(after[s] > before[s] for s in after),
            "shorter": sum(after[s] < before[s] for s in after),
            "streams": len(after),
            "most_longer": [longest, before[longest], after[longest]],
            "most_shorter": [shortest, before[shortest], after[shortest]],
        }  # fmt: skip
        if args.time:
            pairs = [[getattr(m, f) for f in functions] for m in (coder, variant)]
            row["encode_time"], row["decode_time"] = time_ratios(pairs, streams)
        print(json.dumps(row), flush=True)


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--data", help="folder with CIFAR-10 and WikiText-2")
    options.add_argument("--steps", type=int, default=2, help="of SGD; 0: no innovations")
    options.add_argument("--dimensions", type=int, nargs="+", default=[1000, 10**4, 10**5, 10**6])
    options.add_argument("--time", action="store_true", help="also compare times")
    args = options.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        sources = make_sources(args)
        print(json.dumps({"data": {s.name: s.data for s in sources}}), flush=True)
        streams = list(coded_streams(sources))
        compare(Path(folder), "coded", CODED, ("encode", "decode"), streams, args)
        streams = list(dithered_streams(sources))
        functions = "encode_dithered", "decode_dithered"
        compare(Path(folder), "dithered", DITHERED, functions, streams, args)


if __name__ == "__main__":
    main()
