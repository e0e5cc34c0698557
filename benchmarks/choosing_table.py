"""The table of `choosing.py`: quality at the end, and what each method needs to the level.

    python benchmarks/choosing_table.py
    python benchmarks/choosing_table.py --task digits_mlp

Prints one row per task, split and method, as means over the seeds, and how many methods keep the
quality. Bytes to the level are `-` if not all seeds reach it.
"""

import argparse
import statistics
from pathlib import Path

from choosing_figures import by_label, read_rows, with_labels

from aquila.report.units import format_bytes

KEPT = 0.005
"""Methods that are behind by at most this keep the quality."""
DENSE = "fedsgd"
HEADINGS = (
    "task", "split", "method", "quality", "against dense", "uplink", "rounds to level",
    "uplink to level", "uplink of fedsgd ÷ this", "NB-IoT energy of fedsgd ÷ this",
)  # fmt: skip


def mean(values):
    """Return the mean, None if a value is None."""
    return None if None in values else statistics.fmean(values)


def facts(rows):
    """Return the means of a method over its seeds."""
    needed = [row["bytes_to_quality"] for row in rows]
    links = [row["links"].get("nb_iot", {}) for row in rows]
    quality = statistics.fmean(row["quality_end"] or 0 for row in rows)
    return {
        "quality": quality,
        "gap": quality - statistics.fmean(row["dense_quality_end"] for row in rows),
        "uplink": statistics.fmean(row["uplink_bytes"] for row in rows),
        "rounds": mean([each["rounds"] for each in needed]),
        "bytes": mean([each["uplink_bytes"] for each in needed]),
        "joules": mean([each.get("joules_to_quality") for each in links]),
    }


def ratio(dense, own):
    """Return how many times less a method needs, as text."""
    return "-" if dense is None or own is None else f"{dense / own:,.1f}"


def table_row(found, dense):
    """Return the cells of a method after its name."""
    rounds, needed = found["rounds"], found["bytes"]
    return (
        f"{found['quality']:.1%}",
        f"{100 * found['gap']:+.1f} points",
        format_bytes(found["uplink"]),
        "-" if rounds is None else f"{rounds:.1f}",
        "-" if needed is None else format_bytes(needed),
        ratio(dense["bytes"], needed),
        ratio(dense["joules"], found["joules"]),
    )


def print_task(task, rows):
    """Print the rows of a task, and how many methods keep the quality with each split."""
    for split in dict.fromkeys(row["split"] for row in rows):
        of_split = [row for row in rows if row["split"] == split]
        # methods that read the links have no rows without a preset
        methods = {name: facts(found) for name, found in by_label(of_split, "nb_iot").items()}
        for name, found in methods.items():
            cells = (task, split, f"`{name}`", *table_row(found, methods[DENSE]))
            print(f"| {' | '.join(cells)} |")
        kept = sum(found["gap"] >= -KEPT for found in methods.values())
        print(f"| {task} | {split} | {kept} of {len(methods)} within {100 * KEPT:.1f} points |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--summary", type=Path, default=Path("results/choosing/summary.jsonl"))
    parser.add_argument("--task", help="print this task only")
    chosen = parser.parse_args()
    rows = with_labels(read_rows(chosen.summary))
    print(f"| {' | '.join(HEADINGS)} |\n|---|---|---|{'---:|' * (len(HEADINGS) - 3)}")
    for task in dict.fromkeys(row["task"] for row in rows):
        if chosen.task in (None, task):
            print_task(task, [row for row in rows if row["task"] == task])


if __name__ == "__main__":
    main()
