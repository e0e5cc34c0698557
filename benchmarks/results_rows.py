"""Numbers of result files or archived runs, one line per row, to compare with the pages.

    python benchmarks/results_rows.py results/ingest.jsonl upload frame_bytes unpack_ms:ms
    python benchmarks/results_rows.py results/downlink_digits.jsonl down_mb --by downlink_error
    python benchmarks/results_rows.py results/beta_digits records.uploads.sum --by run

A row is a line of a file, or a run with its `records` and its folder `run`. A column is the path of
a field, such as `records.metrics.test_accuracy`. It may end in `.mean` (default), `.median`,
`.min`, `.max`, `.sum`, `.last`, `.each` or `.argmax`, a factor such as `*8` or `/1024`, and a unit
such as `:GiB`. The unit `%` multiplies by 100. `--by` joins rows with the same values, and
`--across` prints rows that differ in this field on one line.
"""

import argparse
import json
import re
import statistics
from functools import cache
from pathlib import Path

from aquila.report.runs import find_runs

REDUCTIONS = {
    "mean": statistics.fmean,
    "median": statistics.median,
    "min": min,
    "max": max,
    "sum": sum,
    "last": lambda values: values[-1],
    "argmax": lambda values: 1 + values.index(max(values)),
}
COLUMN = re.compile(
    rf"(?P<path>.+?)(?:\.(?P<reduction>{'|'.join(REDUCTIONS)}|each))?"
    r"(?:(?P<operation>[*/])(?P<factor>[\d.e]+))?(?::(?P<unit>\S+))?"
)


@cache
def read_rows(path):
    """Return the rows of a .jsonl file, or of all runs in a folder."""
    if path.is_file():
        return [json.loads(line) for line in path.read_text().splitlines()]
    return [
        {**run.facts, "run": run.folder.name, "records": [vars(r) for r in run.result.records]}
        for run in find_runs(path)
    ]


def find_values(value, path):
    """Return all values at a path, also in lists; missing ones are left out."""
    if isinstance(value, list):
        return [found for each in value for found in find_values(each, path)]
    if path:
        if not isinstance(value, dict) or path[0] not in value:
            return []
        return find_values(value[path[0]], path[1:])
    if isinstance(value, dict):
        return [found for each in value.values() for found in find_values(each, path)]
    return [value]


def format_column(column, rows):
    """Return the text of a column of joined rows."""
    match = COLUMN.fullmatch(column)
    values = find_values(rows, match["path"].split("."))
    reduction = match["reduction"] or "mean"
    numeric = [value for value in values if isinstance(value, int | float)]
    if reduction != "each" and len(numeric) == len(values) > 0:
        values = [REDUCTIONS[reduction](values)]
    return " ".join(format_value(value, match) for value in values) or "-"


def format_value(value, match):
    """Return a number with its factor and unit; texts stay as they are."""
    if not isinstance(value, int | float):
        return "-" if value is None else str(value)
    factor = float(match["factor"] or 1)
    number = value / factor if match["operation"] == "/" else value * factor
    number *= 100 if match["unit"] == "%" else 1
    text = f"{number:.6f}".rstrip("0").rstrip(".")
    return f"{text} {match['unit']}" if match["unit"] else text


def group_rows(rows, fields):
    """Return values of the fields -> rows, ordered by the first occurrence of each value."""
    groups = {}
    for row in rows:
        groups.setdefault(tuple(str(row.get(field)) for field in fields), []).append(row)
    seen = [list(dict.fromkeys(key[place] for key in groups)) for place in range(len(fields))]
    order = sorted(groups, key=lambda key: [s.index(v) for s, v in zip(seen, key, strict=True)])
    return {key: groups[key] for key in order}


def print_rows(rows, columns, by, across):
    """Print one line per group of rows."""
    groups = group_rows(rows, by).items() if by else [((), [row]) for row in rows]
    for key, group in groups:
        parts = group_rows(group, across).values() if across else [group]
        cells = [format_column(column, part) for part in parts for column in columns]
        print(" | ".join((*key, *cells)))


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("results", type=Path, help="a .jsonl file, or a folder of runs")
    parser.add_argument("columns", nargs="+")
    parser.add_argument("--where", nargs="+", default=[], metavar="FIELD=VALUE")
    parser.add_argument("--by", nargs="+", default=[], metavar="FIELD")
    parser.add_argument("--across", nargs="+", default=[], metavar="FIELD")
    args = parser.parse_args()
    wanted = dict(condition.split("=", 1) for condition in args.where)
    rows = [
        row
        for row in read_rows(args.results)
        if all(str(row.get(field)) == value for field, value in wanted.items())
    ]
    if not rows:
        raise SystemExit(f"{args.results} has no such rows")
    print_rows(rows, args.columns, args.by, args.across)


if __name__ == "__main__":
    main()
