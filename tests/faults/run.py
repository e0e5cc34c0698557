"""Inject the faults of cases.py into a real federation on loopback, one case after the other.

python tests/faults/run.py [--only NAME ...] [--output FOLDER]
FAULTS_METHOD=aquila_dither python tests/faults/run.py  # with AQUILA-Dither

Each case takes one to four minutes. It starts its own SuperLink and SuperNodes and stops them.
"""

import argparse
import sys
import tempfile
import time
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from faults.cases import CASES
from faults.faulty_federation import faulty_federation


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES), metavar="NAME")
    parser.add_argument("--output", type=Path, help="save logs and states in this new folder")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.output or Path(temporary)
        passed = [run_case(name, folder / name) for name in options.only]
    return 0 if all(passed) else 1


def run_case(name: str, folder: Path) -> bool:
    """Run a case, and print its result and the log line that reports the fault."""
    began = time.monotonic()
    try:
        with faulty_federation(folder) as federation:
            reported = CASES[name](federation)
    except Exception:
        traceback.print_exc()
        reported = ""
    seconds = time.monotonic() - began
    print(f"{'ok' if reported else 'FAILED':6} {name:16} {seconds:4.0f} s  {reported}")
    return bool(reported)


if __name__ == "__main__":
    sys.exit(main())
