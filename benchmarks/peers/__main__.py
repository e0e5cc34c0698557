"""Run one contestant and print what it wrote into its diary as one JSON line."""

import argparse
import json
from importlib import import_module
from pathlib import Path

import torch

from peers.work import CASES, Diary, Work


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("contestant", help="a file of this folder, and perhaps :OPTION")
    parser.add_argument("case", choices=CASES)
    parser.add_argument("folder", type=Path, help="where the data lies")
    parser.add_argument("rounds", type=int)
    given = parser.parse_args()
    name, _, option = given.contestant.partition(":")
    work, diary = Work(given.case, given.folder, given.rounds, option), Diary()
    more = import_module(f"peers.{name}").run(work, diary) or {}
    told = {"ends": diary.ends, "losses": diary.losses, "torch": torch.__version__}
    print("\n" + json.dumps(told | more))


if __name__ == "__main__":
    main()
