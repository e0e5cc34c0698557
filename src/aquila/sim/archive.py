"""Archive a run: its settings, its records and its split, the last two compressed.

Checkpoints, models, times, figures and reports are left out. Figures and reports can be made again.
"""

from collections.abc import Iterable
from pathlib import Path

from aquila.runtime.files import make_folder
from aquila.sim.compressed import find_file, plain_and_compressed, read_file, write_file
from aquila.sim.records import RECORDS_FILE
from aquila.sim.setting import RUN_FILE, SPLIT_FILE

FileContents = dict[Path, bytes]
"""The uncompressed content of each file."""


def archive_contents(folder: Path, target: Path) -> FileContents:
    """Return the files of an archived run; ValueError if the target holds another run."""
    if find_file(target / RECORDS_FILE) == target / RECORDS_FILE:
        raise ValueError(f"{target} holds a run that is not archived; choose another folder")
    files = dict(_contents(folder, target))
    for path, content in files.items():
        if path.exists() and read_file(path) != content:
            raise ValueError(
                f"{path} differs from the run in {folder}; remove it or choose another folder"
            )
    return files


def write_archive(files: FileContents) -> int:
    """Write the files that do not exist yet; return the total size of all files in bytes."""
    for path, content in files.items():
        make_folder(path.parent)
        if not path.exists():
            write_file(path, content)
    return sum(path.stat().st_size for path in files)


def _contents(folder: Path, target: Path) -> Iterable[tuple[Path, bytes]]:
    yield target / RUN_FILE, (folder / RUN_FILE).read_bytes()
    for name in (RECORDS_FILE, SPLIT_FILE):
        path = find_file(folder / name)
        if path is not None:
            content = read_file(path)
            if name == RECORDS_FILE:
                content = content[: content.rfind(b"\n") + 1]  # without a truncated last line
            yield plain_and_compressed(target / name)[1], content
