"""Files of a run that may be compressed: `name`, or `name.gz` where the run was kept."""

import gzip
import io
import zlib
from pathlib import Path

from aquila.runtime.files import atomic_write

GZIP_SUFFIX = ".gz"


def plain_and_compressed(path: Path) -> tuple[Path, Path]:
    """Return where a file of a run is as long as the run lives, and where it is kept."""
    return path, path.with_name(path.name + GZIP_SUFFIX)


def find_file(path: Path) -> Path | None:
    """Return the form of a file that counts: the living one if there are both."""
    return next((form for form in plain_and_compressed(path) if form.exists()), None)


def read_file(path: Path) -> bytes:
    """Return what a file holds, compressed or not; ValueError if it is damaged."""
    content = path.read_bytes()
    if path.suffix != GZIP_SUFFIX:
        return content
    try:
        decompressed = gzip.decompress(content)
    except (EOFError, gzip.BadGzipFile, zlib.error):
        decompressed = None
    if decompressed is None or not content:  # gzip takes an empty file for nothing, compressed
        raise ValueError(f"{path} is damaged: it is not a whole gzip file")
    return decompressed


def write_file(path: Path, content: bytes) -> None:
    """Write a file atomically, compressed if its name ends in .gz."""
    atomic_write(path, _compress(content) if path.suffix == GZIP_SUFFIX else content)


def _compress(content: bytes) -> bytes:
    """Compress without name and time, so that the same content gives the same bytes."""
    compressed = io.BytesIO()
    with gzip.GzipFile("", "wb", fileobj=compressed, mtime=0) as file:
        file.write(content)
    return compressed.getvalue()
