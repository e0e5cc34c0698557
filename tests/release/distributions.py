"""Checks the source package and the wheel in a folder before they are published.

    python tests/release/distributions.py dist

The exit status is 1 if anything is wrong, and each finding is one line.
"""

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
NOT_SHIPPED = (".ci/", ".git")  # what only a checkout needs
SOURCE_ENDINGS = (".c", ".h")


def tracked_files() -> set[str]:
    """Return the files of the repository that belong into the source package."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, check=True)
    names = listed.stdout.decode().splitlines()
    return {name for name in names if not name.startswith(NOT_SHIPPED) and (ROOT / name).exists()}


def check_source_package(path: Path) -> list[str]:
    """Compare the files of a source package with those of the repository."""
    with tarfile.open(path) as archive:
        names = {member.name.partition("/")[2] for member in archive if member.isfile()}
    return [f"{path.name} lacks {name}" for name in sorted(tracked_files() - names)]


def check_wheel(path: Path) -> list[str]:
    """Look for a platform that is no standard one, C sources, and paths of this machine."""
    found = [] if "manylinux" in path.name else [f"{path.name} is not a manylinux wheel"]
    machine = [str(place).encode() for place in {ROOT, Path(sys.base_prefix)}]
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            if name.endswith(SOURCE_ENDINGS):
                found.append(f"{path.name} contains the C source {name}")
            if name.endswith(".so") and any(place in archive.read(name) for place in machine):
                found.append(f"{name} contains a path of this machine")
    return found


def main(folder: str) -> int:
    """Check the only source package and the only wheel of a folder; return the exit status."""
    [source], [wheel] = (list(Path(folder).glob(name)) for name in ("*.tar.gz", "*.whl"))
    found = check_source_package(source) + check_wheel(wheel)
    print("\n".join(found) or f"{source.name} and {wheel.name} are complete")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
