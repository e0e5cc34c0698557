"""Tries an installed package: the C extensions, the command line and a short comparison.

    python tests/release/smoke.py

It needs nothing but the package, and writes to a temporary folder only.
"""

import os
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def aquila(*words: str, folder: str) -> str:
    """Run a command of the installed package and return what it prints."""
    command = [str(Path(sys.executable).with_name("aquila")), *words]
    done = subprocess.run(
        command, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, timeout=600
    )
    if done.returncode:
        sys.exit(f"aquila {' '.join(words)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def require(correct: bool, problem: str) -> None:
    """Stop with this problem unless the condition is true."""
    if not correct:
        sys.exit(problem)


def check_extensions() -> None:
    """Load the C extensions from the installed package, and compute a known checksum."""
    from aquila import native

    place = Path(native.__file__)
    require(place.is_relative_to(sys.prefix), f"{place} is not the installed package")
    require(native.checksum.crc32(b"123456789") == 0xCBF43926, "the CRC-32 is wrong")


def check_commands(folder: str) -> None:
    """Run the commands that a new user tries first."""
    printed = aquila("--version", folder=folder)
    require(version("aquila-fl") in printed, f"aquila --version prints {printed!r}")
    methods = ("aquila", "aquila_dither")
    words = [word for name in methods for word in ("-m", name)]
    printed = aquila("compare", *words, "--rounds", "3", "--out", "runs", folder=folder)
    require(all(name in printed for name in methods), f"aquila compare prints {printed!r}")
    pages = [path.name for path in Path(folder, "runs").rglob("*.html")]
    require(bool(pages), "aquila compare wrote no report")
    printed = aquila("advise", folder=folder)
    require("aquila" in printed, f"aquila advise prints {printed!r}")


def main() -> None:
    """Run all checks; the first failure ends the program with a message."""
    check_extensions()
    with tempfile.TemporaryDirectory() as folder:
        check_commands(folder)
    print(f"aquila-fl {version('aquila-fl')} works in {sys.prefix}")


if __name__ == "__main__":
    main()
