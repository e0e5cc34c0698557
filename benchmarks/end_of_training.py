"""Quality at the end of training: compare runs with dense uploads after equally many rounds.

    python benchmarks/end_of_training.py results/end_of_training
    python benchmarks/end_of_training.py results/ablation/aquila_topk --side-by-side
    python benchmarks/end_of_training.py results/recipes --until 145

Reads runs of `aquila compare` or `aquila archive` at any depth of a folder, or the files of
benchmarks/ablation.py. Prints a table per folder or file, or joins their rows (--side-by-side). A
run is compared with the run of FedAvg or FedSGD of the same seed, up to the last round that both
have evaluated. --until compares all runs at an earlier round. Quality is the mean of the last five
evaluations up to that round, and bytes are those of all real frames. Numbers of several seeds are
averaged.
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


def shortened(groups, rounds):
    """Return the tables without the evaluations after a number of rounds."""
    return {
        title: {
            key: {number: one for number, one in curve.items() if number <= rounds}
            for key, curve in runs.items()
        }
        for title, runs in groups.items()
    }


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


def table_rows(title, runs):
    """Return method -> cells, as means over its seeds."""
    dense = {seed: curve for (method, seed), curve in runs.items() if method in DENSE}
    if not dense:
        raise SystemExit(f"{title} has no run of {' or '.join(DENSE)} to compare with")
    found = {}
    for (method, seed), curve in runs.items():
        if seed in dense:
            found.setdefault(method, []).append(compare(curve, dense[seed]))
    return {method: cells(comparisons) for method, comparisons in found.items()}


def print_table(title, runs):
    """Print one row per method."""
    seeds = [seed for method, seed in runs if method in DENSE]
    print_rows(f"{title}, {len(seeds)} seed(s)", HEADINGS, table_rows(title, runs))


def print_rows(title, headings, rows):
    """Print a table."""
    print(f"\n{title}\n\n| {' | '.join(headings)} |\n|---|{'---:|' * (len(headings) - 1)}")
    for method, row in rows.items():
        print(f"| {' | '.join((f'`{method}`', *row))} |")


def print_side_by_side(groups):
    """Print the rows of all tables, joined, for methods that are in each of them."""
    tables = {title: table_rows(title, runs) for title, runs in groups.items()}
    first, *others = tables.values()
    shared = [method for method in first if all(method in rows for rows in others)]
    joined = {
        method: [cell for rows in tables.values() for cell in rows[method]] for method in shared
    }
    print_rows(", ".join(tables), (HEADINGS[0], *len(tables) * HEADINGS[1:]), joined)


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
    parser.add_argument("--side-by-side", action="store_true", help="join the tables")
    parser.add_argument("--until", type=int, help="leave out evaluations after this round")
    args = parser.parse_args()
    groups = read_groups(args.results)
    if not groups:
        raise SystemExit("there are no runs in this folder")
    if args.until is not None:
        groups = shortened(groups, args.until)
    if args.side_by_side:
        print_side_by_side(groups)
    else:
        for title, runs in groups.items():
            print_table(title, runs)


if __name__ == "__main__":
    main()
