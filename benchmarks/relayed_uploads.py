"""Bytes of both directions if the server had passed the uploads of recorded runs on.

    python benchmarks/relayed_uploads.py results/end_of_training results/recipes

Reads runs at any depth of folders. With `relay_uploads` a run trains in the same way up to
rounding, so its records tell what the downlink would take: the whole model once, then in each round
the frames of the round before. This holds for methods without memories whose devices take part in
every round; other runs are left out. Dense is 32 bits per coordinate in both directions.

The last column has the first model coded, as with `downlink_error`. Its bytes are those of the real
frame of the run's initial weights, which do not depend on the images of a data set.
"""

import argparse
from itertools import pairwise
from pathlib import Path

from aquila.core.header import seal_varint
from aquila.core.method import order_scalars
from aquila.core.packet import NEVER
from aquila.report.runs import find_runs
from aquila.runtime.model_downlink import DownlinkCoder, add_models
from aquila.sim.setting import SYNTHETIC_PREFIX, Setting
from aquila.tasks.synthetic import IMAGE_SHAPES

MODEL_FRAME = 2 + 4 + 4
"""Bytes of a model frame besides varints and body: its first bytes, a checksum, the name."""
ROUND_FIELDS, REPLY_FIELDS = 4 + 8, 8
"""Bytes of a relayed round and of each of its replies besides varints and frames."""
HEADINGS = (
    "training", "method", "rounds", "dense uplink ÷ this", "both directions, whole models",
    "both directions, relayed uploads", "the same, first model coded",
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


def coded_first_model(facts):
    """Return the bytes of the coded first model of a run, None if its data is not images."""
    if facts["data"] not in IMAGE_SHAPES:
        return None
    names = ("model", "seed", "devices")
    small = {"data": SYNTHETIC_PREFIX + facts["data"], "samples": 10 * facts["devices"]}
    problem, _ = Setting.of(
        {name: facts[name] for name in names} | small | {"split": "iid"}
    ).problem()
    packets = add_models(order_scalars(problem.fleet), problem.theta0, problem.fleet, 0)
    frames, _ = DownlinkCoder(0.5).encode(packets, problem.fleet, {}, lambda _: NEVER)
    return sum(map(len, frames.values()))


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
    whole_first = devices * (MODEL_FRAME + varint(0) + varint(dimension) + 4 * dimension)
    first = coded_first_model(facts)
    coded = "-" if first is None else f"{2 * dense / (up + relayed - whole_first + first):.1f}"
    return (
        run.folder.parent.name, f"`{run.folder.name}`", str(len(records)), f"{dense / up:,.0f}",
        f"{2 * dense / (up + whole):.1f}", f"{2 * dense / (up + relayed):.1f}",
        coded,
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
