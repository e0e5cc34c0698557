"""Run one simulator and print its log as one JSON line."""

import argparse
import json
from importlib import import_module
from pathlib import Path

import torch

from peers.workload import CASES, RoundLog, Workload


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("simulator", help="a file of this folder, optionally followed by :OPTION")
    parser.add_argument("case", choices=CASES)
    parser.add_argument("folder", type=Path, help="folder of the data")
    parser.add_argument("rounds", type=int)
    args = parser.parse_args()
    name, _, option = args.simulator.partition(":")
    workload, log = Workload(args.case, args.folder, args.rounds, option), RoundLog()
    extra = import_module(f"peers.{name}").run(workload, log) or {}
    report = {
        "ends": log.ends,
        "cpu_ends": log.cpu_ends,
        "losses": log.losses,
        "torch": torch.__version__,
    }
    print("\n" + json.dumps(report | extra))


if __name__ == "__main__":
    main()
