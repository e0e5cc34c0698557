"""Bytes of both directions if the server had passed the uploads of recorded runs on.

    python benchmarks/relayed_uploads.py results/end_of_training results/recipes

Reads runs at any depth of folders. With `relay_uploads` a run trains in the same way up to
rounding, so its records tell what the downlink would take: the whole model once, then in each round
the frames of the round before. This holds for methods without memories whose devices take part in
every round; other runs are left out. Dense is 32 bits per coordinate in both directions.
"""

import argparse
from itertools import pairwise
from pathlib import Path

from aquila.core.header import seal_varint
from aquila.report.runs import find_runs
from aquila.report.units import format_bytes

MODEL_FRAME = 2 + 4 + 4
"""Bytes of a model frame besides varints and body: its first bytes, a checksum, the name."""
ROUND_FIELDS, REPLY_FIELDS = 4 + 8, 8
"""Bytes of a relayed round and of each of its replies besides varints and frames."""
HEADINGS = (
    "training", "method", "rounds", "dense uplink ÷ this", "both directions, whole models",
    "both directions, relayed uploads", "downlink, relayed uploads",
)  # fmt: skip
WITHOUT_MEMORY = ("aquila_peak", "aquila_dither")
LARGE_MODEL = 10**6


def varint(number):
    """Return the bytes of an integer in a header."""
    return len(seal_varint(number))


def relayed_frame(lengths, number, dimension):
    """Return the bytes of a model frame that passes on replies of these lengths."""
    header = MODEL_FRAME + varint(number) + varint(dimension)
    replies = sum(REPLY_FIELDS + varint(length) + length for length in lengths)
    return header + ROUND_FIELDS + varint(len(lengths)) + replies


def relayed_downlink(records, dimension, devices):
    """Return the bytes of all orders: control frames as recorded, and models as relayed uploads."""
    first, *_ = records
    total = first.downlink_bytes + devices * 4  # the whole model also gets its name
    for before, record in pairwise(records):
        whole = MODEL_FRAME - 4 + varint(record.round) + varint(dimension) + 4 * dimension
        frame = relayed_frame(uploads_of(before), record.round, dimension)
        total += record.downlink_bytes - devices * whole + devices * frame
    return total


def uploads_of(record):
    """Return the lengths of the replies of a round that have an upload."""
    return [length for device, length in record.uplink.items() if device in record.levels]


def is_relayable(run):
    """Whether the step of a run follows from the mean of its uploads, and all devices take part."""
    facts = run.facts
    has_memory = facts["parameters"].get("memory", "auto") == "device"
    return (
        run.method in WITHOUT_MEMORY
        and not has_memory
        and facts["dimension"] > LARGE_MODEL
        and (facts["participation"], facts["downlink_error"]) == (1, 0)
        and facts["server_optimizer"] == "sgd"
    )


def cells(run):
    """Return the row of a run."""
    records, facts = run.result.records, run.facts
    dimension, devices = facts["dimension"], facts["devices"]
    dense = 4 * dimension * devices * len(records)
    up = sum(record.uplink_bytes for record in records)
    whole = sum(record.downlink_bytes for record in records)
    relayed = relayed_downlink(records, dimension, devices)
    return (
        run.folder.parent.name, f"`{run.folder.name}`", str(len(records)), f"{dense / up:,.0f}",
        f"{2 * dense / (up + whole):.1f}", f"{2 * dense / (up + relayed):.1f}",
        format_bytes(relayed),
    )  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("results", type=Path, nargs="+", help="folders of runs")
    args = parser.parse_args()
    print(f"| {' | '.join(HEADINGS)} |\n|---|---|{'---:|' * (len(HEADINGS) - 2)}")
    for run in (run for folder in args.results for run in find_runs(folder)):
        if is_relayable(run):
            print(f"| {' | '.join(cells(run))} |")


if __name__ == "__main__":
    main()
