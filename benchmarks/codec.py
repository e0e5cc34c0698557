"""Size and speed of AQUILA's frames, compared with other coders on the same codes.

    python benchmarks/codec.py --out results/codec_cpu
    python benchmarks/codec.py --out results/codec_streams --only Gaussian Laplace 'Student-t(3)'

Prints tables and writes them to OUT.txt, the rows to OUT.jsonl and a figure to OUT.png. Sizes are
those of whole frames. Times cover the whole work of a caller on one core: from Codes to the frame
(`pack`) and back (`unpack`), checksum included. GB/s refer to the float32 vector that the codes
represent. A time is the best of several repeats, and the coders take turns in each. On the CPU it
is processor time. Memory is the peak of resident memory minus the memory before.

Peers are measured if they are installed, with assumptions in their favour. The size of constriction
excludes the table that its reader needs, and its time excludes fitting the model. zstd and blosc2
get the codes as an array of the smallest type. With --check, the script lists every missed goal and
exits with 1; goals for speed apply to streams of at least a million codes. With --device cuda,
codes start and end on the GPU, and no peer is measured. With --only, just the streams of some
sources are measured, without the tables of sizes and memory.
"""

import argparse
import json
import math
import os
import platform
import sys
from datetime import date
from importlib.metadata import version
from pathlib import Path

import torch
from code_streams import (
    DISTRIBUTIONS,
    TRAININGS,
    code_streams,
    innovation_source,
    random_source,
)
from coders.adapters import PEERS, available_peers, installed
from coders.figure import draw
from coders.goals import missed_goals
from coders.measure import measure_memory, measure_sizes, measure_stream, measure_threads
from coders.tables import report
from machine import cpu_name

SIZES = (10, 100, 1000, 10_000, 100_000, 19_000_000)
LARGE_DIMENSION = SIZES[-1]
ALL_SOURCES = (*DISTRIBUTIONS, *TRAININGS)
THREAD_STREAMS = (("Gaussian", "AQUILA"), ("ResNet-18", "AQUILA"), ("ResNet-18", "LAQ, 6 bits"))


def measure_all(args, peers):
    """Yield all rows; print progress to standard error."""
    max_steps, sizes = (2, SIZES[:-1]) if args.quick else (math.inf, SIZES)
    sources = [
        random_source(name, args.dimension, args.seed)
        if name in DISTRIBUTIONS
        else innovation_source(name, args.seed, args.data, max_steps)
        for name in args.only or ALL_SOURCES
    ]
    torch.set_num_threads(1)  # speed is measured on one core; training used all
    for source in sources:
        print(f"{source.name}, d = {source.vector.numel():,}", file=sys.stderr)
        for stream in code_streams(source, args.seed):
            yield measure_stream(stream, peers, args.repeats, args.device)
            threads = not args.only and args.device == "cpu"
            if threads and (source.name, stream.grid) in THREAD_STREAMS:
                yield measure_threads(stream, args.repeats)
    if args.only:
        return
    print("sizes and memory", file=sys.stderr)
    yield from measure_sizes(sizes, args.seed)
    if args.device == "cpu":
        yield from measure_memory(LARGE_DIMENSION, args.seed)


def describe_machine(args):
    """Return machine, versions, date and seed of the measurement."""
    machine = {
        "cpu": cpu_name(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        **{module: version(module) for module in PEERS if installed(module)},
        "date": date.today().isoformat(),
        "seed": args.seed,
        "repeats": args.repeats,
    }
    return machine | ({"gpu": torch.cuda.get_device_name()} if args.device == "cuda" else {})


def parse_args():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", required=True, help="write OUT.txt, OUT.jsonl and OUT.png")
    parser.add_argument("--dimension", type=int, help="of synthetic vectors (default 5,000,000)")
    parser.add_argument("--repeats", type=int, help="repeats per coder (default 7)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", choices=ALL_SOURCES, help="sources (default: all)")
    parser.add_argument("--data", help="folder with CIFAR-10 and WikiText-2")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument(
        "--quick", action="store_true", help="smaller run: dimension 500,000, 2 repeats"
    )
    parser.add_argument("--check", action="store_true", help="list missed goals and exit with 1")
    args = parser.parse_args()
    args.dimension = args.dimension or (500_000 if args.quick else 5_000_000)
    args.repeats = args.repeats or (2 if args.quick else 7)
    return args


def main():
    args = parse_args()
    peers, note = available_peers(args.device)
    machine = describe_machine(args)
    rows = list(measure_all(args, peers))
    missed = list(missed_goals(rows)) if args.check else []
    text = report(machine, rows, [note] if note else [])
    print(text, *missed, sep="\n")
    out = Path(args.out)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.with_name(out.name + ".txt").write_text(text)
    lines = (json.dumps(row) + "\n" for row in ({"kind": "machine", **machine}, *rows))
    out.with_name(out.name + ".jsonl").write_text("".join(lines))
    if not args.only:
        draw(machine, rows, out.with_name(out.name + ".png"))
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
