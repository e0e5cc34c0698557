"""The text tables of benchmarks/codec.py."""

from coders.adapters import AquilaFrame
from coders.goals import SIZE_GOAL, SIZE_SLACK

THREADS_HEADINGS = {
    "encode_gb_s": "encode, GB/s",
    "encode_gain": "two threads",
    "decode_gb_s": "decode, GB/s",
    "decode_gain": "two threads",
}


MEMORY_HEADINGS = {"encode_peak": "encode", "decode_peak": "decode"}


def report(machine, rows, notes):
    """Return all tables as text."""
    streams, sizes, threads, memory = (
        [row for row in rows if row["kind"] == kind]
        for kind in ("stream", "size", "threads", "memory")
    )
    lines = [*(f"{name:<14}{value}" for name, value in machine.items()), *notes, ""]
    lines += [
        "H: order-0 entropy, bits per coordinate. bits: bits per coordinate of the whole frame.",
        "of H: size ÷ H. enc, dec: GB/s of the float32 vector that the codes represent.",
        "AQUILA with b_min = 2 differs only where b < 2, and is listed only there.",
        "",
        *stream_table(streams),
        "",
        f"Frames against their limit, {SIZE_GOAL} H d / 8 + {SIZE_SLACK} bytes",
        *size_table(sizes),
    ]
    if threads:
        lines += ["", "Throughput of one thread, and of two threads relative to one"]
        lines += number_table(threads, THREADS_HEADINGS)
    if memory:
        lines += [
            "",
            "Peak memory in addition to the input, as a multiple of the bytes of the codes",
        ]
        lines += number_table(memory, MEMORY_HEADINGS)
    return "\n".join(lines) + "\n"


def stream_table(rows):
    """Yield the lines of the main table, at most 120 characters wide."""
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
    """Return a number in few characters; large ones get one decimal."""
    if number is None:
        return "-"
    return f"{number:.{digits}f}" if number < 10 else f"{number:.1f}"


def size_table(rows):
    """Yield one line per dimension: the frame closest to its limit."""
    yield f"{'d':>12}{'streams':>9}{'bytes':>13}{'limit':>13}{'of limit':>10}  closest to its limit"
    for dimension in dict.fromkeys(row["d"] for row in rows):
        same = [row for row in rows if row["d"] == dimension]
        worst = max(same, key=lambda row: row["bytes"] / row["limit"])
        yield (
            f"{dimension:>12,}{len(same):>9}{worst['bytes']:>13,}{worst['limit']:>13,.0f}"
            f"{worst['bytes'] / worst['limit']:>10.3f}  {worst['source']}, {worst['grid']}"
        )


def number_table(rows, headings):
    """Yield one line per stream with the numbers under these headings."""
    yield f"{'':<30}{'d':>12}" + "".join(f"{heading:>14}" for heading in headings.values())
    for row in rows:
        name = f"{row['source']}, {row['grid']}"
        yield f"{name:<30}{row['d']:>12,}" + "".join(f"{row[f]:>14.2f}" for f in headings)
