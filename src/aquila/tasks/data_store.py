"""The data store: finds, verifies and downloads data sets.

By default it searches $AQUILA_DATA, ./data, ~/.cache/aquila and the folder of Debian's data
packages. A data set can be an official folder or an official archive, which is read in place.
"""

import gzip
import io
import os
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TypeVar

from aquila.core.parameter import spelling_hint
from aquila.tasks.download import download
from aquila.tasks.sources import SOURCES, Source, has_checksum

T = TypeVar("T")
Progress = Callable[[str, int, int], None]
"""(file, bytes so far, total bytes)"""

FOLDER_VARIABLE = "AQUILA_DATA"
DEBIAN_FOLDER = Path("/usr/share/datasets")
UNPACK_ERRORS = (
    tarfile.TarError,
    zipfile.BadZipFile,
    gzip.BadGzipFile,
    zlib.error,
    EOFError,
    KeyError,
    RuntimeError,
    ValueError,
)
"""RuntimeError: encrypted members and methods of compression that Python does not know."""

MAX_RATIO = 50
"""How many times its size an archive may expand; the published ones expand less than fourfold."""


@dataclass(frozen=True)
class LocalCopy:
    """A data set on this machine: the folder of its files, or its archive."""

    source: Source
    path: Path

    def files(self) -> Iterator[tuple[str, bytes]]:
        """Yield the name and unpacked content of every file. ValueError for a damaged file."""
        try:
            yield from _unpacked_files(self.source, self.path)
        except UNPACK_ERRORS as error:
            raise ValueError(f"{self.path} is damaged: {error}") from error

    def read(self, parse: Callable[[bytes], T]) -> dict[str, T]:
        """Return every file parsed by `parse`. ValueError names an invalid or missing file."""
        found = {}
        for file, content in self.files():
            try:
                found[file] = parse(content)
            except ValueError as error:
                raise ValueError(f"{self.path}: {file}: {error}") from error
        if missing := [file for file in self.source.files if file not in found]:
            raise ValueError(f"{self.path} has no {', '.join(missing)}")
        return {file: found[file] for file in self.source.files}


def search_folders(folder: Path | None = None) -> list[Path]:
    """Return the folders to search, in order."""
    if folder is not None:
        return [folder]
    return [*_folder_from_environment(), Path("data"), _cache_folder(), DEBIAN_FOLDER]


def default_folder() -> Path:
    """Return the download folder: $AQUILA_DATA, or ~/.cache/aquila."""
    return [*_folder_from_environment(), _cache_folder()][0]


def get_source(name: str) -> Source:
    """Return the source of a data set. ValueError for an unknown name."""
    if name not in SOURCES:
        raise ValueError(f"there is no data set {name!r} to fetch{spelling_hint(name, SOURCES)}")
    return SOURCES[name]


def find(name: str, folder: Path | None = None) -> LocalCopy | None:
    """Return the first complete copy, or None."""
    source = get_source(name)
    for parent in search_folders(folder):
        for candidate in (*(parent / subfolder for subfolder in source.folders), parent):
            if all(_find_file(candidate, file) for file in source.files):
                return LocalCopy(source, candidate)
        if source.archive and (parent / source.archive).is_file():
            return LocalCopy(source, parent / source.archive)
    return None


def find_required(name: str, folder: Path | None = None) -> LocalCopy:
    """Return the first complete copy. FileNotFoundError explains how to get one."""
    copy = find(name, folder)
    if copy is not None:
        return copy
    source = get_source(name)
    file_names = " or ".join(filter(None, (f"{source.folders[0]}/", source.archive)))
    ways = [
        f"run `aquila data fetch {name}`",
        source.alternative,
        f"put {file_names} into {folder or default_folder()}",
    ]
    raise FileNotFoundError(f"{source.title} was not found: {', or '.join(filter(None, ways))}")


def verify(name: str, folder: Path | None = None) -> list[str]:
    """Return the files of the first copy that differ from the published ones."""
    copy = find_required(name, folder)
    valid = set()
    try:
        for file, content in copy.files():
            if has_checksum(content, copy.source.files[file]):
                valid.add(file)
    except ValueError:
        pass  # files that cannot be unpacked do not become valid
    return [file for file in copy.source.files if file not in valid]


def fetch(name: str, target: Path | None = None, progress: Progress | None = None) -> LocalCopy:
    """Download a data set from its official address into a folder (default: `default_folder()`).

    Existing files with the right checksum are kept. An interrupted download is continued.
    """
    source, target = get_source(name), target or default_folder()
    for item in source.downloads:
        path = target / item.path
        if path.is_file() and has_checksum(path.read_bytes(), item.checksum):
            continue
        try:
            download(item.address, path, item.checksum, _progress_of_file(path.name, progress))
        except ConnectionError as error:
            raise ConnectionError(
                f"{error}; or get the file in another way and save it as {path}"
            ) from None
    return find_required(name, target)


def _unpacked_files(source: Source, path: Path) -> Iterator[tuple[str, bytes]]:
    members = {f"{source.folders[0]}/{file}": file for file in source.files}
    if path.is_dir():
        for file in source.files:
            packed = _find_file(path, file)
            if packed is None:
                continue
            content = packed.read_bytes()
            yield file, _gunzip(content) if packed.suffix == ".gz" else content
    elif path.suffix == ".zip":
        with zipfile.ZipFile(path) as zipped:
            for member, file in members.items():
                with zipped.open(member) as unpacked:
                    yield file, _read_within(unpacked, path.stat().st_size)
    else:
        with tarfile.open(path, "r|gz") as archive:
            for info in archive:
                member_file = archive.extractfile(info) if info.name in members else None
                if member_file is not None:
                    yield members[info.name], _read_within(member_file, path.stat().st_size)


def _gunzip(content: bytes) -> bytes:
    with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
        return _read_within(file, len(content))


def _read_within(file: IO[bytes] | gzip.GzipFile, packed_size: int) -> bytes:
    """Return the content of a file in an archive. ValueError if it expands too much."""
    limit = MAX_RATIO * packed_size
    content = file.read(limit + 1)
    if len(content) > limit:
        raise ValueError(f"it would expand to more than {MAX_RATIO} times its size")
    return content


def _find_file(folder: Path, file: str) -> Path | None:
    """Return the path of a file or of its .gz version, or None."""
    return next((p for p in (folder / file, folder / f"{file}.gz") if p.is_file()), None)


def _folder_from_environment() -> list[Path]:
    folder = os.environ.get(FOLDER_VARIABLE)
    return [Path(folder).expanduser()] if folder else []


def _cache_folder() -> Path:
    return Path.home() / ".cache" / "aquila"


def _progress_of_file(file: str, progress: Progress | None) -> Callable[[int, int], None] | None:
    if progress is None:
        return None
    return lambda done, total: progress(file, done, total)
