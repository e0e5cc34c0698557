"""Quality at the end of training: compare runs with dense uploads after equally many rounds.

    python benchmarks/end_of_training.py results/end_of_training
    python benchmarks/end_of_training.py results/ablation/aquila_topk

Reads runs of `aquila compare` or `aquila archive` at any depth of a folder, or the files of
benchmarks/ablation.py. Prints a table per folder or file. A run is compared with the run of FedAvg
or FedSGD of the same seed, up to the last round that both have evaluated. Quality is the mean of
the last five evaluations up to that round, and bytes are those of all real frames. Numbers of
several seeds are averaged.
"""

import argparse
import statistics
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

from bytes_to_accuracy import read_runs

from aquila.report.labelled_run import FINAL_EVALUATIONS
from aquila.report.runs import find_runs
from aquila.report.units import format_bytes

DENSE = ("fedavg", "fedsgd")
HEADINGS = (
    "method", "rounds", "quality", "dense", "difference", "uplink", "dense uplink ÷ this",
    "both directions: dense ÷ this",
)  # fmt: skip


@dataclass(frozen=True)
class Evaluation:
    """Quality after a round, and the bytes of all rounds up to it."""

    quality: float
    up: int
    down: int | None


@dataclass(frozen=True)
class Comparison:
    """A run and the dense run of the same seed at the same round."""

    round: int
    qualities: tuple[float, float]
    ends: tuple[Evaluation, Evaluation]


def read_groups(path):
    """Return tables: title -> (method, seed) -> round -> evaluation."""
    if path.is_file() or any(path.glob("*.jsonl")):
        files = [path] if path.is_file() else sorted(path.glob("*.jsonl"))
        return {file.stem: read_curves(file) for file in files}
    groups = {}
    for run in find_runs(path):
        group = groups.setdefault(run.folder.parent.name, {})
        group[run.folder.name, run.facts["seed"]] = evaluations(run.result.records)
    return groups


def read_curves(path):
    """Return the curves of a file; they have no downlink."""
    return {
        key: {
            number: Evaluation(quality, up, None)
            for number, quality, up in zip(
                curve.rounds, curve.accuracy, curve.uplink_bytes, strict=True
            )
        }
        for key, curve in read_runs(path).items()
    }


def evaluations(records):
    """Return round -> evaluation; the quality of language models is their perplexity."""
    up = accumulate(record.uplink_bytes for record in records)
    down = accumulate(record.downlink_bytes for record in records)
    return {
        record.round + 1: Evaluation(
            record.metrics.get("perplexity", record.metrics["test_accuracy"]), *spent
        )
        for record, *spent in zip(records, up, down, strict=True)
        if "test_accuracy" in record.metrics
    }


def compare(run, dense):
    """Return both qualities at the last round that both runs have evaluated."""
    shared = [number for number in run if number in dense]
    if not shared:
        raise SystemExit("a run and its dense run have no evaluated round in common")
    last = shared[-FINAL_EVALUATIONS:]
    qualities = [statistics.mean(each[number].quality for number in last) for each in (run, dense)]
    return Comparison(last[-1], tuple(qualities), (run[last[-1]], dense[last[-1]]))


def print_table(title, runs):
    """Print one row per method, as means over its seeds."""
    dense = {seed: curve for (method, seed), curve in runs.items() if method in DENSE}
    if not dense:
        raise SystemExit(f"{title} has no run of {' or '.join(DENSE)} to compare with")
    print(f"\n{title}, {len(dense)} seed(s)\n\n| {' | '.join(HEADINGS)} |")
    print(f"|---|{'---:|' * (len(HEADINGS) - 1)}")
    for method in dict.fromkeys(method for method, _ in runs):
        found = [
            compare(curve, dense[seed])
            for (name, seed), curve in runs.items()
            if name == method and seed in dense
        ]
        if found:
            print(f"| {' | '.join((f'`{method}`', *cells(found)))} |")


def cells(found):
    """Return the cells of a row."""
    mine, dense = (statistics.mean(each.qualities[k] for each in found) for k in (0, 1))
    up = statistics.mean(each.ends[0].up for each in found)
    return (
        f"{statistics.mean(each.round for each in found):.0f}",
        *map(format_quality, (mine, dense)),
        f"{100 * (mine - dense):+.2f} points" if dense <= 1 else f"{mine / dense - 1:+.1%}",
        format_bytes(up),
        f"{statistics.mean(each.ends[1].up for each in found) / up:,.0f}",
        format_both([each.ends for each in found]),
    )


def format_quality(value):
    """Format an accuracy, or a perplexity, which is above one."""
    return f"{value:.2%}" if value <= 1 else f"{value:.3f}"


def format_both(ends):
    """Return the ratio of the bytes in both directions, if they were recorded."""
    if any(one.down is None for pair in ends for one in pair):
        return "-"
    mine, dense = (sum(pair[k].up + pair[k].down for pair in ends) for k in (0, 1))
    return f"{dense / mine:.1f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("results", type=Path, help="a folder of runs, or a .jsonl file")
    groups = read_groups(parser.parse_args().results)
    if not groups:
        raise SystemExit("there are no runs in this folder")
    for title, runs in groups.items():
        print_table(title, runs)


if __name__ == "__main__":
    main()
