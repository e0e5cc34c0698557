"""Uploads of an open round that take little memory: they are decoded when they are used."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from aquila.core.packet import Codes, Upload, summand_of
from aquila.core.vector import SparseVector, Summand, Vector

KEEP_RATIO = 64
"""A sparse upload stays decoded if at most one coordinate in so many is nonzero."""


@dataclass(frozen=True, eq=False)
class StoredUpload:
    """An upload that is decoded again whenever it is used."""

    dimension: int
    bits: int
    load: Callable[[], Upload]

    def decode(self) -> Vector:
        """Return the vector both sides agree on."""
        return self.load().decode()

    def summand(self) -> Summand:
        """Return the vector for an average."""
        return summand_of(self.load())


@dataclass(frozen=True, eq=False)
class SparseUpload:
    """An upload of which only the nonzero coordinates are kept."""

    dimension: int
    bits: int
    vector: SparseVector

    def decode(self) -> Vector:
        """Return the vector both sides agree on."""
        return self.vector.to_dense(self.dimension)

    def summand(self) -> Summand:
        """Return the nonzero coordinates."""
        return self.vector


@dataclass(frozen=True, eq=False)
class ScaledUpload:
    """An upload times a factor. `bits` are those of the values."""

    upload: Upload
    factor: float
    bits: int

    @property
    def dimension(self) -> int:
        """Number of coordinates."""
        return self.upload.dimension

    def decode(self) -> Vector:
        """Return the scaled vector."""
        return self.upload.decode() * self.factor


def stored_upload(upload: Upload, load: Callable[[], Upload]) -> Upload:
    """Return an upload with the same vector that takes little memory.

    Args:
        upload: The upload, decoded from its frame.
        load: Decodes the frame again.
    """
    if isinstance(upload, ScaledUpload):
        return replace(upload, upload=stored_upload(upload.upload, load))
    if isinstance(upload, Codes) and upload.nonzero is not None:
        summand = upload.summand()
        is_small = KEEP_RATIO * upload.nonzero.numel() <= upload.dimension
        if is_small and isinstance(summand, SparseVector):
            return SparseUpload(upload.dimension, upload.bits, summand)
    return StoredUpload(upload.dimension, upload.bits, load)
