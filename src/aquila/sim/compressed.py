"""Files of a run: `name`, or the compressed `name.gz` in an archived run."""

import gzip
import io
import zlib
from pathlib import Path

from aquila.runtime.files import atomic_write

GZIP_SUFFIX = ".gz"
MIN_LIMIT, MAX_RATIO = 2**26, 100
"""A file may expand to 64 MiB, or to a hundred times its size; records expand about tenfold."""


def plain_and_compressed(path: Path) -> tuple[Path, Path]:
    """Return the path of a file in a working run, and in an archived one."""
    return path, path.with_name(path.name + GZIP_SUFFIX)


def find_file(path: Path) -> Path | None:
    """Return the existing form of a file, the uncompressed one if both exist, or None."""
    return next((form for form in plain_and_compressed(path) if form.exists()), None)


def read_file(path: Path) -> bytes:
    """Return the content of a file, decompressed; ValueError if it is damaged."""
    content = path.read_bytes()
    if path.suffix != GZIP_SUFFIX:
        return content
    limit = max(MIN_LIMIT, MAX_RATIO * len(content))
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
            decompressed = file.read(limit + 1)
    except (EOFError, gzip.BadGzipFile, zlib.error):
        decompressed = None
    if decompressed is not None and len(decompressed) > limit:
        raise ValueError(f"{path} is damaged: it would expand to more than {limit} bytes")
    if decompressed is None or not content:  # gzip accepts an empty file
        raise ValueError(f"{path} is damaged: it is not a complete gzip file")
    return decompressed


def write_file(path: Path, content: bytes) -> None:
    """Write a file atomically, compressed if its name ends in .gz."""
    atomic_write(path, _compress(content) if path.suffix == GZIP_SUFFIX else content)


def _compress(content: bytes) -> bytes:
    """Compress without file name and time, so equal contents give equal bytes."""
    compressed = io.BytesIO()
    with gzip.GzipFile("", "wb", fileobj=compressed, mtime=0) as file:
        file.write(content)
    return compressed.getvalue()
