"""What is worth keeping of a run: its settings, its records and its split, the last two compressed.

Checkpoints, figures and pages are left behind; figures and pages can be made again.
"""

from collections.abc import Iterable
from pathlib import Path

from aquila.sim.compressed import find_file, plain_and_compressed, read_file, write_file
from aquila.sim.records import RECORDS_FILE
from aquila.sim.setting import RUN_FILE, SPLIT_FILE

FileContents = dict[Path, bytes]
"""What each file is to hold once it is unpacked."""


def archive_contents(folder: Path, target: Path) -> FileContents:
    """Return the files that keep a run in the target; ValueError if another run is there."""
    if find_file(target / RECORDS_FILE) == target / RECORDS_FILE:
        raise ValueError(f"{target} holds a run that is not a kept one; choose another folder")
    files = dict(_contents(folder, target))
    for path, content in files.items():
        if path.exists() and read_file(path) != content:
            raise ValueError(
                f"{path} does not hold what {folder} does; remove it or choose another folder"
            )
    return files


def write_archive(files: FileContents) -> int:
    """Write what is not there yet; return how many bytes all the files take."""
    for path, content in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            write_file(path, content)
    return sum(path.stat().st_size for path in files)


def _contents(folder: Path, target: Path) -> Iterable[tuple[Path, bytes]]:
    yield target / RUN_FILE, (folder / RUN_FILE).read_bytes()
    for name in (RECORDS_FILE, SPLIT_FILE):
        path = find_file(folder / name)
        if path is not None:
            content = read_file(path)
            whole = content[: content.rfind(b"\n") + 1] if name == RECORDS_FILE else content
            yield plain_and_compressed(target / name)[1], whole
