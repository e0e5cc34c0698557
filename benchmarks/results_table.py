"""The table that `aquila compare` prints, from stored runs of one model.

python benchmarks/results_table.py results/digits/all
"""

import argparse
from pathlib import Path

from rich.console import Console

from aquila.core.fleet import Fleet
from aquila.report.results_table import results_table
from aquila.report.runs import find_runs

WIDTH = 120


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("runs", type=Path, help="folder of `aquila compare` or `aquila archive`")
    runs = find_runs(parser.parse_args().runs)
    if not runs:
        raise SystemExit("there are no runs in this folder")
    facts = runs[0].facts
    fleet = Fleet.uniform(facts["dimension"], facts["devices"])
    console = Console(width=WIDTH, color_system=None)
    console.print(results_table([run.result for run in runs], fleet, WIDTH))


if __name__ == "__main__":
    main()
