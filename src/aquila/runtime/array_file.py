"""Reads `.npz` files that may be damaged or hostile: bounded memory, and one kind of error.

NumPy and `zipfile` raise errors of many kinds for damaged files, and expand compressed members of
any size. AQUILA writes members uncompressed, so a file never holds more bytes than its own size.
"""

import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from pathlib import Path
from tokenize import TokenError
from typing import IO, Any
from zipfile import ZIP_STORED, BadZipFile, ZipFile

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

READ_ERRORS = (
    ArithmeticError, AttributeError, BadZipFile, EOFError, LookupError, MemoryError, RuntimeError,
    SyntaxError, TokenError, TypeError, ValueError, struct.error, zlib.error,
)  # fmt: skip
"""What a damaged file can raise, NotImplementedError and RecursionError included."""

_SUFFIX = ".npy"
_ENCRYPTED = 1


@contextmanager
def open_arrays(file: Path | IO[bytes]) -> Iterator[ZipFile]:
    """Open an `.npz` file for `read_array`; ValueError if it would expand when it is read."""
    with ZipFile(file) as archive:
        check_stored(archive)
        yield archive


def check_stored(archive: ZipFile) -> None:
    """Raise ValueError unless all members are uncompressed, and different parts of the file."""
    members = archive.infolist()
    for member in members:
        if member.compress_type != ZIP_STORED or member.flag_bits & _ENCRYPTED:
            raise ValueError(f"its member {member.filename!r} is compressed or encrypted")
        if member.file_size != member.compress_size:
            raise ValueError(f"its member {member.filename!r} has two sizes")
    if sum(member.file_size for member in members) > archive.start_dir:
        raise ValueError("its members are larger than the file")


def array_names(archive: ZipFile) -> list[str]:
    """Return the names of the arrays in a file."""
    names = [name for name in archive.namelist() if name.endswith(_SUFFIX)]
    return [name.removesuffix(_SUFFIX) for name in names]


def read_array(archive: ZipFile, name: str) -> NDArray[Any]:
    """Return one array. KeyError if there is none of this name."""
    with open_array(archive, name) as (member, shape, dtype, by_column):
        data = np.frombuffer(member.read(), dtype)
        return data.reshape(shape, order="F" if by_column else "C").copy()


def read_rows(archive: ZipFile, name: str) -> Iterator[NDArray[Any]]:
    """Yield the rows of an array one by one, without reading all of it into memory."""
    with open_array(archive, name) as (member, shape, dtype, _):
        size = prod(shape[1:]) * dtype.itemsize
        for _ in range(shape[0]):
            yield np.frombuffer(member.read(size), dtype).reshape(shape[1:])


def read_arrays(file: Path | IO[bytes]) -> dict[str, NDArray[Any]]:
    """Return all arrays of a file by name."""
    with open_arrays(file) as archive:
        return {name: read_array(archive, name) for name in array_names(archive)}


@contextmanager
def open_array(
    archive: ZipFile, name: str
) -> Iterator[tuple[IO[bytes], tuple[int, ...], np.dtype[Any], bool]]:
    """Open an array: its file after the header, shape, dtype, and whether it is column by column.

    ValueError if the header does not describe the bytes that follow it.
    """
    with archive.open(f"{name}{_SUFFIX}") as member:
        read_header = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}.get(
            npy.read_magic(member)
        )
        if read_header is None:
            raise ValueError(f"the array {name!r} has an unknown version")
        shape, by_column, dtype = read_header(member)
        if dtype.hasobject:
            raise ValueError(f"the array {name!r} holds pickled objects")
        size = archive.getinfo(f"{name}{_SUFFIX}").file_size - member.tell()
        if min(shape, default=0) < 0 or prod(shape) * dtype.itemsize != size:
            raise ValueError(f"the array {name!r} does not have the size that its header states")
        yield member, shape, dtype, by_column
