"""What is worth keeping of a run: its settings, its records and its split, the last two compressed.

Checkpoints, figures and pages are left behind; figures and pages can be made again.
"""

from collections.abc import Iterable
from pathlib import Path

from aquila.sim.packed import find_file, forms, read_file, write_file
from aquila.sim.records import RECORDS
from aquila.sim.setting import SETTINGS, SPLIT

Files = dict[Path, bytes]
"""What each file is to hold once it is unpacked."""


def kept_files(folder: Path, target: Path) -> Files:
    """Return the files that keep a run in the target; ValueError if another run is there."""
    if find_file(target / RECORDS) == target / RECORDS:
        raise ValueError(f"{target} holds a run that is not a kept one; choose another folder")
    files = dict(_kept(folder, target))
    for path, content in files.items():
        if path.exists() and read_file(path) != content:
            raise ValueError(
                f"{path} does not hold what {folder} does; remove it or choose another folder"
            )
    return files


def write_files(files: Files) -> int:
    """Write what is not there yet; return how many bytes all the files take."""
    for path, content in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            write_file(path, content)
    return sum(path.stat().st_size for path in files)


def _kept(folder: Path, target: Path) -> Iterable[tuple[Path, bytes]]:
    yield target / SETTINGS, (folder / SETTINGS).read_bytes()
    for name in (RECORDS, SPLIT):
        path = find_file(folder / name)
        if path is not None:
            content = read_file(path)
            whole = content[: content.rfind(b"\n") + 1] if name == RECORDS else content
            yield forms(target / name)[1], whole
