"""Size and speed of frames of codes, beside other coders on the same codes.

    python benchmarks/codec.py --out results/codec_cpu

Prints tables and writes them to OUT.txt, the rows to OUT.jsonl and a figure to OUT.png. A size is
that of a whole frame; a time is all that a user pays for, from Codes to the frame (`pack`) and from
the frame to Codes (`unpack`), checksum included, on one core. GB/s count the float32 vector that
the codes stand for. Times are the best of several repeats, in each of which every coder has its
turn. Memory is what is resident at the peak, less what was before.

Peers are taken where they are installed, and in their favour: constriction's size leaves out the
table its reader needs and its time leaves out the fit of its model; zstd and blosc2 get the codes
as an array of their smallest type. With --check, every missed goal is named and the exit status
is 1; goals of speed are for streams of a million codes and more. With --device cuda, codes start
and end on the GPU, and there are no peers.
"""

import argparse
import ctypes
import importlib
import importlib.util
import json
import math
import os
import platform
import sys
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from datetime import date
from functools import partial
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch
from code_streams import (
    DISTRIBUTIONS,
    TRAININGS,
    code_counts,
    code_entropy,
    code_streams,
    innovation_source,
    random_source,
)

from aquila.core.packet import Codes, Packet
from aquila.core.wire import pack, unpack
from aquila.report.new_figure import new_figure


def installed(module):
    return importlib.util.find_spec(module) is not None


def import_if_installed(module):
    """A module, or None where it is not installed."""
    return importlib.import_module(module) if installed(module) else None


constriction, zstandard, blosc2 = map(import_if_installed, ("constriction", "zstandard", "blosc2"))

SIZES = (10, 100, 1000, 10_000, 100_000, 19_000_000)
LARGE_DIMENSION = SIZES[-1]
LARGE_GRIDS = ("AQUILA", "QSGD, 6 bits", "LAQ, 6 bits", "zero, 1 rms", "zero, 4 rms")
THREAD_STREAMS = (("Gaussian", "AQUILA"), ("ResNet-18", "AQUILA"), ("ResNet-18", "LAQ, 6 bits"))
FIGURE_STREAMS = (
    ("Gaussian", "AQUILA"),
    ("Gaussian", "zero, 1 rms"),
    ("Gaussian", "zero, 4 rms"),
    ("ResNet-18", "AQUILA"),
    ("ResNet-18", "QSGD, 6 bits"),
    ("ResNet-18", "LAQ, 6 bits"),
    ("ResNet-18", "zero, 4 rms"),
    ("Transformer", "AQUILA"),
    ("Transformer", "zero, 4 rms"),
)
"""Streams whose speed is drawn."""

SIZE_GOAL, SIZE_SLACK = 1.02, 256
LONG_STREAM = 10**6
AQUILA_GOAL = 1.0
SPARSE_GOAL, SPARSE_ENTROPY = 2.0, 0.6
MEMORY_GOAL = 2.0

PEAK_RESET = "/proc/self/clear_refs"
MMAP_THRESHOLD = -3
"""glibc's name for the size from which a block has pages of its own (M_MMAP_THRESHOLD)."""


class AquilaFrame:
    """A frame of this project."""

    name = "aquila frame"

    def __init__(self, codes, device):
        array, low, step = (part.to(device) for part in (codes.codes, codes.low, codes.step))
        self.packet = Packet(0, Codes(array, codes.bits, low, step, codes.bucket))
        self.dimension, self.device = codes.dimension, device

    def encode(self):
        return pack(self.packet)

    def decode(self, frame):
        return unpack(frame, self.dimension, self.device).vector.codes


class Constriction:
    """Asymmetric numeral systems of constriction, with a model fitted to the codes."""

    name = "constriction"

    def __init__(self, codes):
        self.codes = codes.codes.numpy()
        counts = code_counts(codes.codes)
        counts = np.pad(counts, (0, max(0, 2 - len(counts))))  # it knows no alphabet of one symbol
        frequencies = counts / counts.sum()
        self.model = constriction.stream.model.Categorical(frequencies, perfect=False)

    def encode(self):
        coder = constriction.stream.stack.AnsCoder()
        coder.encode_reverse(self.codes.astype(np.int32), self.model)
        return coder.get_compressed()

    def decode(self, words):
        coder = constriction.stream.stack.AnsCoder(words)
        return coder.decode(self.model, len(self.codes)).astype(self.codes.dtype)


class Zstd:
    """Zstandard at its fastest regular level."""

    name = "zstd, level 1"

    def __init__(self, codes):
        self.codes = codes.codes.numpy()

    def encode(self):
        return zstandard.ZstdCompressor(level=1).compress(self.codes)

    def decode(self, data):
        return np.frombuffer(zstandard.ZstdDecompressor().decompress(data), self.codes.dtype)


class Blosc:
    """Blosc2: bit planes, then Zstandard, at the default level."""

    name = "blosc2, bitshuffle"

    def __init__(self, codes):
        self.codes = codes.codes.numpy()

    def encode(self):
        return blosc2.compress2(
            self.codes,
            typesize=self.codes.itemsize,
            codec=blosc2.Codec.ZSTD,
            filters=[blosc2.Filter.BITSHUFFLE],
            nthreads=1,
        )

    def decode(self, data):
        return np.frombuffer(blosc2.decompress2(data, nthreads=1), self.codes.dtype)


STYLES = {
    coder.name: {"color": color, "marker": marker}
    for coder, color, marker in (
        (AquilaFrame, "#0072B2", "o"),
        (Constriction, "#D55E00", "s"),
        (Zstd, "#009E73", "^"),
        (Blosc, "#CC79A7", "D"),
    )
}
"""Colours that stay apart for colour-blind readers, and shapes that stay apart in print."""

PEERS = {"constriction": Constriction, "zstandard": Zstd, "blosc2": Blosc}


def available_peers(device):
    """The peers to measure, and a line on those that are left out."""
    if device == "cuda":
        return [], "Peers are left out: they do not read from the GPU."
    missing = [module for module in PEERS if not installed(module)]
    line = f"Left out, not installed: {', '.join(missing)}." if missing else ""
    return [peer for module, peer in PEERS.items() if module not in missing], line


def time_once(work, device):
    """Result and seconds of a piece of work, the GPU's queue included."""
    if device == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    result = work()
    if device == "cuda":
        torch.cuda.synchronize()
    return result, time.perf_counter() - start


def measure_stream(stream, peers, repeats, device):
    """One row: size and speeds of every coder on the same codes."""
    codes = stream.codes
    coders = [AquilaFrame(codes, device), *(peer(codes) for peer in peers)]
    seconds = {coder.name: ([], []) for coder in coders}
    for _ in range(repeats * max(1, 10**6 // codes.dimension)):  # short streams as long as others
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


def stream_row(stream, kind):
    """What every row of a stream holds."""
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
    """Size and speeds of one coder; it must give back what it got."""
    data = coder.encode()
    decoded = coder.decode(data)
    host = decoded.cpu().numpy() if isinstance(decoded, torch.Tensor) else decoded
    if not np.array_equal(host, codes.codes.numpy()):
        raise RuntimeError(f"{coder.name} does not give the codes back")
    size = memoryview(data).nbytes
    return {
        "bytes": size,
        "bits_per_coordinate": 8 * size / codes.dimension,
        "ratio_to_entropy": 8 * size / codes.dimension / entropy if entropy else None,
        "encode_gb_s": 4 * codes.dimension / encoding / 1e9,
        "decode_gb_s": 4 * codes.dimension / decoding / 1e9,
    }


def measure_sizes(dimensions, seed):
    """One row a drawn stream of each dimension, sizes alone."""
    for dimension in dimensions:
        for name in DISTRIBUTIONS:
            for stream in code_streams(random_source(name, dimension, seed), seed):
                row = stream_row(stream, "size")
                row["bytes"] = len(pack(Packet(0, stream.codes)))
                row["limit"] = size_limit(row)
                yield row


def size_limit(row):
    """Most bytes that the frame of a stream may take."""
    return SIZE_GOAL * row["entropy"] * row["d"] / 8 + SIZE_SLACK


def measure_threads(stream, repeats):
    """One row: two threads at once against one; 2 is a lock that nobody waits for."""
    coder = AquilaFrame(stream.codes, "cpu")
    frame = coder.encode()
    row = stream_row(stream, "threads")
    with ThreadPoolExecutor(2) as pool:
        for name, work in (("encode", coder.encode), ("decode", partial(coder.decode, frame))):
            one, two = [], []
            for _ in range(repeats * max(1, 10**6 // stream.codes.dimension)):
                one.append(time_once(work, "cpu")[1])
                two.append(time_once(lambda work=work: run_twice_in_parallel(pool, work), "cpu")[1])
            row[f"{name}_gb_s"] = 4 * stream.codes.dimension / min(one) / 1e9
            row[f"{name}_gain"] = 2 * min(one) / min(two)
    return row


def run_twice_in_parallel(pool, work):
    for started in [pool.submit(work), pool.submit(work)]:
        started.result()


def measure_memory(dimension, seed):
    """One row a grid: peaks of memory beside the input, each in a process of its own."""
    if not os.access(PEAK_RESET, os.W_OK):
        print(f"memory is left out: it needs {PEAK_RESET}", file=sys.stderr)
        return
    for grid in LARGE_GRIDS:
        with ProcessPoolExecutor(1, get_context("spawn")) as fresh:
            yield fresh.submit(memory_row, grid, dimension, seed).result()


def memory_row(grid, dimension, seed):
    """Peaks while a large stream is encoded and decoded, as multiples of its codes' bytes."""
    torch.set_num_threads(1)
    ctypes.CDLL(None).mallopt(MMAP_THRESHOLD, 2**16)  # what is freed is not resident any more
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
    """Result of a piece of work, and bytes by which resident memory rose at most meanwhile."""
    Path(PEAK_RESET).write_text("5")  # sets the peak to what is resident now
    before = read_status_bytes("VmRSS")
    result = work()
    return result, read_status_bytes("VmHWM") - before


def read_status_bytes(field):
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return 1024 * int(line.split()[1])
    raise OSError(f"/proc/self/status has no {field}")


def missed_goals(rows):
    """One sentence for every goal that is missed."""
    for row in rows:
        name = f"{row['source']}, {row['grid']}, d = {row['d']:,}"
        for problem in missed_goals_of_row(row):
            yield f"{name}: {problem}"


def missed_goals_of_row(row):
    ours = row["coders"][AquilaFrame.name] if row["kind"] == "stream" else row
    if "bytes" in ours and ours["bytes"] > size_limit(row):
        yield f"{ours['bytes']:,} bytes, at most {size_limit(row):,.0f} are allowed"
    goal = speed_goal(row)
    for way in ("encode", "decode"):
        if goal and ours[f"{way}_gb_s"] < goal:
            yield f"{way} {ours[f'{way}_gb_s']:.2f} GB/s, at least {goal} are wanted"
        if row["kind"] == "memory" and row[f"{way}_peak"] > MEMORY_GOAL:
            yield f"{way} takes {row[f'{way}_peak']:.2f} x the codes, at most {MEMORY_GOAL} allowed"


def speed_goal(row):
    """GB/s that a long stream should reach, or None; a short one has its fixed cost to bear."""
    if row["kind"] != "stream" or row["d"] < LONG_STREAM:
        return None
    if row["grid"].startswith("AQUILA"):
        return AQUILA_GOAL
    sparse = row["grid"].startswith("zero") and row["entropy"] < SPARSE_ENTROPY
    return SPARSE_GOAL if sparse else None


def stream_table(rows):
    """Lines of the main table, 120 characters at most."""
    coders = list(rows[0]["coders"])
    bar = " │"
    first = f"{'':27}" + "".join(
        f"{bar}{name:^{27 if name == AquilaFrame.name else 19}}" for name in coders
    )
    second = f"{'codes':<16}{'b':>3}{'H':>8}{bar}{'bits':>8}{'of H':>7}{'enc':>6}{'dec':>6}"
    second += f"{bar}{'of H':>7}{'enc':>6}{'dec':>6}" * (len(coders) - 1)
    yield first.rstrip()
    yield second
    source = None
    for row in rows:
        if row["source"] != source:
            source = row["source"]
            yield "─" * len(second)
            yield f"{source}, d = {row['d']:,}, {row['data']}"
        line = f"{row['grid']:<16}{row['b']:>3}{row['entropy']:>8.4f}"
        for name, cell in row["coders"].items():
            line += bar
            line += f"{cell['bits_per_coordinate']:>8.4f}" if name == AquilaFrame.name else ""
            line += f"{compact(cell['ratio_to_entropy']):>7}"
            line += f"{compact(cell['encode_gb_s'], 2):>6}{compact(cell['decode_gb_s'], 2):>6}"
        yield line


def compact(number, digits=3):
    """A number in few characters; large ones get one digit after the point."""
    if number is None:
        return "-"
    return f"{number:.{digits}f}" if number < 10 else f"{number:.1f}"


def size_table(rows):
    """Lines on the frame nearest to its limit, for each dimension."""
    yield f"{'d':>12}{'streams':>9}{'bytes':>13}{'limit':>13}{'of limit':>10}  nearest to its limit"
    for dimension in dict.fromkeys(row["d"] for row in rows):
        same = [row for row in rows if row["d"] == dimension]
        worst = max(same, key=lambda row: row["bytes"] / row["limit"])
        share = worst["bytes"] / worst["limit"]
        yield (
            f"{dimension:>12,}{len(same):>9}{worst['bytes']:>13,}{worst['limit']:>13,.0f}"
            f"{share:>10.3f}  {worst['source']}, {worst['grid']}"
        )


def number_table(rows, headings):
    """Lines with a stream and some of its numbers."""
    yield f"{'':<30}{'d':>12}" + "".join(f"{heading:>14}" for heading in headings.values())
    for row in rows:
        name = f"{row['source']}, {row['grid']}"
        yield f"{name:<30}{row['d']:>12,}" + "".join(f"{row[f]:>14.2f}" for f in headings)


THREADS_HEADINGS = {
    "encode_gb_s": "encode, GB/s",
    "encode_gain": "two threads",
    "decode_gb_s": "decode, GB/s",
    "decode_gain": "two threads",
}
MEMORY_HEADINGS = {"encode_peak": "encode", "decode_peak": "decode"}


def report(machine, rows, notes):
    """All tables as text."""
    streams, sizes, threads, memory = (
        [row for row in rows if row["kind"] == kind]
        for kind in ("stream", "size", "threads", "memory")
    )
    lines = [*(f"{name:<14}{value}" for name, value in machine.items()), *notes, ""]
    lines += [
        "H: order-0 entropy. bits: the whole frame. Both a coordinate. of H: size over H.",
        "enc, dec: GB/s of the float32 vector represented.",
        "AQUILA with b_min = 2 is the same stream wherever b >= 2, and is not repeated there.",
        "",
        *stream_table(streams),
        "",
        f"Frames against their limit, {SIZE_GOAL} H d / 8 + {SIZE_SLACK} bytes",
        *size_table(sizes),
    ]
    if threads:
        lines += ["", "One thread, and how many times its throughput two have at once"]
        lines += number_table(threads, THREADS_HEADINGS)
    if memory:
        lines += ["", "Peak of memory beside the input, as a multiple of the codes' bytes"]
        lines += number_table(memory, MEMORY_HEADINGS)
    return "\n".join(lines) + "\n"


def draw(machine, rows, path):
    """Sizes of all streams on the left, speeds of some on the right."""
    rows = [row for row in rows if row["kind"] == "stream"]
    figure = new_figure(12, 5.6)
    left, right = figure.subplots(1, 2, width_ratios=[1, 1.15])
    draw_sizes(left, rows)
    chosen = [row for row in rows if (row["source"], row["grid"]) in FIGURE_STREAMS]
    draw_speeds(right, chosen)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(which="major", alpha=0.25)
    where = f"{machine['gpu']} and {machine['cpu']}" if "gpu" in machine else machine["cpu"]
    caption = f"{where}, one core; torch {machine['torch']}; {machine['date']}"
    figure.supxlabel(f"{caption}; seed {machine['seed']}", fontsize=8, color="0.35")
    figure.savefig(path, dpi=160)


def draw_sizes(axes, rows):
    """Bits a coordinate against entropy."""
    entropies = [row["entropy"] for row in rows if row["entropy"]]
    ends = [min(entropies) / 1.3, max(entropies) * 1.3]
    axes.plot(ends, ends, color="0.5", linewidth=1, zorder=1, label="entropy")
    for name in reversed(rows[0]["coders"]):  # ours last, on top
        points = [(r["entropy"], r["coders"][name]["bits_per_coordinate"]) for r in rows]
        axes.scatter(*zip(*points, strict=True), s=34, label=name, alpha=0.85, **STYLES[name])
    axes.set(xscale="log", yscale="log", xlim=ends)
    axes.set(xlabel="order-0 entropy, bits a coordinate", ylabel="size, bits a coordinate")
    axes.set_title("Size of every stream", loc="left")
    axes.legend(frameon=False, loc="upper left", reverse=True)
    below = "below the line: gradients,\ntheir coordinates are not independent"
    axes.text(0.98, 0.04, below, transform=axes.transAxes, ha="right", color="0.35")
    for axis in (axes.xaxis, axes.yaxis):
        set_plain_ticks(axis)


def draw_speeds(axes, rows):
    """Encode (full) and decode (hollow) speed, a line of each coder for every stream."""
    coders = list(rows[0]["coders"])
    for number, row in enumerate(rows):
        for offset, name in enumerate(coders):
            y = number + 0.17 * (offset - (len(coders) - 1) / 2)
            encode, decode = (row["coders"][name][f"{way}_gb_s"] for way in ("encode", "decode"))
            style = STYLES[name]
            axes.plot([encode, decode], [y, y], color=style["color"], linewidth=1.2, zorder=2)
            axes.scatter(encode, y, s=30, zorder=3, **style)
            axes.scatter(decode, y, s=30, zorder=3, **(style | {"facecolor": "white"}))
    for goal in (AQUILA_GOAL, SPARSE_GOAL):
        axes.axvline(goal, color="0.3", linewidth=1, linestyle="--", zorder=1)
    axes.set(xscale="log", xlabel="GB/s of float32 represented", ylim=(len(rows) - 0.5, -0.5))
    axes.set_yticks(range(len(rows)), [stream_label(row) for row in rows])
    axes.set_title("Speed: encode full, decode hollow; dashed: 1 and 2 GB/s", loc="left")
    set_plain_ticks(axes.xaxis)


def set_plain_ticks(axis):
    """Ticks at 1, 2 and 5 of every power of ten in view."""
    low, high = axis.get_view_interval()
    numbers = [m * 10.0**e for e in range(-6, 4) for m in (1, 2, 5)]
    axis.set_ticks([number for number in numbers if low <= number <= high])
    axis.set_ticks([], minor=True)
    axis.set_major_formatter("{x:g}")


def stream_label(row):
    return f"{row['source']}\n{row['grid']}  (H {row['entropy']:.2f})"


def describe_machine(args):
    """Where, when and from which seed the numbers come."""
    names = [line.split(":")[1].strip() for line in cpu_lines() if line.startswith("model name")]
    machine = {
        "cpu": names[0] if names else platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        **{module: version(module) for module in PEERS if installed(module)},
        "date": date.today().isoformat(),
        "seed": args.seed,
        "repeats": args.repeats,
    }
    return machine | ({"gpu": torch.cuda.get_device_name()} if args.device == "cuda" else {})


def cpu_lines():
    known = Path("/proc/cpuinfo")
    return known.read_text().splitlines() if known.is_file() else []


def parse_args():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", required=True, help="results go to OUT.txt, OUT.jsonl, OUT.png")
    parser.add_argument("--dimension", type=int, help="of drawn vectors (5,000,000)")
    parser.add_argument("--repeats", type=int, help="turns of every coder (7)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--data", help="folder with CIFAR-10 and WikiText-2")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--quick", action="store_true", help="small and rough: 500,000 and 2")
    parser.add_argument("--check", action="store_true", help="name missed goals and exit with 1")
    args = parser.parse_args()
    args.dimension = args.dimension or (500_000 if args.quick else 5_000_000)
    args.repeats = args.repeats or (2 if args.quick else 7)
    return args


def measure_all(args, peers):
    """Yield all rows; progress goes to standard error."""
    max_steps, sizes = (2, SIZES[:-1]) if args.quick else (math.inf, SIZES)
    sources = [innovation_source(name, args.seed, args.data, max_steps) for name in TRAININGS]
    sources[:0] = [random_source(name, args.dimension, args.seed) for name in DISTRIBUTIONS]
    torch.set_num_threads(1)  # speeds are those of one core; gradients took all there are
    for source in sources:
        print(f"{source.name}, d = {source.vector.numel():,}", file=sys.stderr)
        for stream in code_streams(source, args.seed):
            yield measure_stream(stream, peers, args.repeats, args.device)
            if (source.name, stream.grid) in THREAD_STREAMS and args.device == "cpu":
                yield measure_threads(stream, args.repeats)
    print("sizes and memory", file=sys.stderr)
    yield from measure_sizes(sizes, args.seed)
    if args.device == "cpu":
        yield from measure_memory(LARGE_DIMENSION, args.seed)


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
    draw(machine, rows, out.with_name(out.name + ".png"))
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
