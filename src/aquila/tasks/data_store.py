"""The data store: where data sets are looked for, checked and fetched to.

Without a folder given, the places are $AQUILA_DATA, ./data, ~/.cache/aquila and the folder of
Debian's data packages. Official folders and official archives both do; archives are read in place.
"""

import gzip
import os
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from aquila.core.parameter import spelling_hint
from aquila.tasks.download import download
from aquila.tasks.sources import SOURCES, Source, has_checksum

T = TypeVar("T")
Progress = Callable[[str, int, int], None]
"""(file, bytes so far, bytes in all)"""

FOLDER_VARIABLE = "AQUILA_DATA"
DEBIAN_FOLDER = Path("/usr/share/datasets")
DAMAGE_ERRORS = (
    tarfile.TarError,
    zipfile.BadZipFile,
    gzip.BadGzipFile,
    zlib.error,
    EOFError,
    KeyError,
)


@dataclass(frozen=True)
class LocalCopy:
    """A data set on this machine: a folder with its files, or its archive."""

    source: Source
    path: Path

    def files(self) -> Iterator[tuple[str, bytes]]:
        """Yield name and unpacked content of every file; ValueError if one cannot be unpacked."""
        try:
            yield from _contents(self.source, self.path)
        except DAMAGE_ERRORS as error:
            raise ValueError(f"{self.path} is damaged: {error}") from error

    def read(self, parse: Callable[[bytes], T]) -> dict[str, T]:
        """Return every file as `parse` reads it; ValueError names the file it cannot read."""
        found = {}
        for file, content in self.files():
            try:
                found[file] = parse(content)
            except ValueError as error:
                raise ValueError(f"{self.path}: {file}: {error}") from error
        if missing := [file for file in self.source.files if file not in found]:
            raise ValueError(f"{self.path} lacks {', '.join(missing)}")
        return {file: found[file] for file in self.source.files}


def search_folders(folder: Path | None = None) -> list[Path]:
    """Return the folders to look in, first the one to look in first."""
    if folder is not None:
        return [folder]
    return [*_folder_from_environment(), Path("data"), _cache_folder(), DEBIAN_FOLDER]


def default_folder() -> Path:
    """Return the folder that new data goes to: $AQUILA_DATA, or ~/.cache/aquila."""
    return [*_folder_from_environment(), _cache_folder()][0]


def get_source(name: str) -> Source:
    """Return what is known of a data set; ValueError for an unknown one."""
    if name not in SOURCES:
        raise ValueError(f"there is no data set {name!r} to fetch{spelling_hint(name, SOURCES)}")
    return SOURCES[name]


def find(name: str, folder: Path | None = None) -> LocalCopy | None:
    """Return the first copy with all its files, or None."""
    source = get_source(name)
    for place in search_folders(folder):
        for candidate in (*(place / own for own in source.folders), place):
            if all(_find_file(candidate, file) for file in source.files):
                return LocalCopy(source, candidate)
        if source.archive and (place / source.archive).is_file():
            return LocalCopy(source, place / source.archive)
    return None


def find_required(name: str, folder: Path | None = None) -> LocalCopy:
    """Return the first copy; FileNotFoundError says in one sentence how to get one."""
    copy = find(name, folder)
    if copy is not None:
        return copy
    source = get_source(name)
    wanted = " or ".join(filter(None, (f"{source.folders[0]}/", source.archive)))
    ways = [
        f"run `aquila data fetch {name}`",
        source.alternative,
        f"put {wanted} into {folder or default_folder()}",
    ]
    raise FileNotFoundError(f"{source.title} is not here: {', or '.join(filter(None, ways))}")


def verify(name: str, folder: Path | None = None) -> list[str]:
    """Return the files of the first copy that are not as published; an empty list is good news."""
    copy = find_required(name, folder)
    good = set()
    try:
        for file, content in copy.files():
            if has_checksum(content, copy.source.files[file]):
                good.add(file)
    except ValueError:
        pass  # what cannot be unpacked is not good either
    return [file for file in copy.source.files if file not in good]


def fetch(name: str, target: Path | None = None, progress: Progress | None = None) -> LocalCopy:
    """Download a data set from its official address into a folder (default: `default_folder()`).

    Files that are already there and right are kept, and a broken download goes on where it stopped.
    """
    source, target = get_source(name), target or default_folder()
    for item in source.downloads:
        path = target / item.path
        if path.is_file() and has_checksum(path.read_bytes(), item.checksum):
            continue
        try:
            download(item.address, path, item.checksum, _progress_of_file(path.name, progress))
        except ConnectionError as error:
            raise ConnectionError(f"{error}; or get the file elsewhere as {path}") from None
    return find_required(name, target)


def _contents(source: Source, path: Path) -> Iterator[tuple[str, bytes]]:
    inside = {f"{source.folders[0]}/{file}": file for file in source.files}
    if path.is_dir():
        for file in source.files:
            packed = _find_file(path, file)
            if packed is None:
                continue
            content = packed.read_bytes()
            yield file, gzip.decompress(content) if packed.suffix == ".gz" else content
    elif path.suffix == ".zip":
        with zipfile.ZipFile(path) as zipped:
            for member, file in inside.items():
                yield file, zipped.read(member)
    else:
        with tarfile.open(path, "r|gz") as archive:
            for info in archive:
                content_of = archive.extractfile(info) if info.name in inside else None
                if content_of is not None:
                    yield inside[info.name], content_of.read()


def _find_file(folder: Path, file: str) -> Path | None:
    """Return the file in a folder, plain or packed."""
    return next((p for p in (folder / file, folder / f"{file}.gz") if p.is_file()), None)


def _folder_from_environment() -> list[Path]:
    named = os.environ.get(FOLDER_VARIABLE)
    return [Path(named).expanduser()] if named else []


def _cache_folder() -> Path:
    return Path.home() / ".cache" / "aquila"


def _progress_of_file(file: str, progress: Progress | None) -> Callable[[int, int], None] | None:
    if progress is None:
        return None
    return lambda done, total: progress(file, done, total)
