"""Pickles of plain values and byte arrays, read without running anything they ask for.

A pickle builds objects by naming functions to call. Here only the three names that NumPy's arrays
need are known, and each stands for a class of this file; any other name is refused unseen.
"""

import io
import pickle
from pickletools import genops

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]


class _Uint8Dtype:
    """In the place of `numpy.dtype`: bytes without a sign, and nothing else."""

    __slots__ = ()

    def __init__(self, code: object, *_: object) -> None:
        if code not in (b"u1", "u1"):
            raise ValueError("it holds an array of something else than bytes")

    def __setstate__(self, state: object) -> None:
        pass  # byte order and the like, which bytes do not have


class _Array:
    """In the place of `numpy.ndarray`: takes its shape and its bytes, checked."""

    __slots__ = ("values",)
    values: Bytes

    def __init__(self, *_: object) -> None:
        self.values = np.zeros(0, np.uint8)

    def __setstate__(self, state: object) -> None:
        match state:
            case (int(), tuple(shape), _Uint8Dtype(), bool(by_column), bytes(raw)):
                order = "F" if by_column else "C"
                self.values = np.frombuffer(raw, np.uint8).reshape(shape, order=order)  # type: ignore[call-overload]
            case _:
                raise ValueError("it holds an array in a form that is not known")


ALLOWED: dict[tuple[str, str], object] = {
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy._core.multiarray", "_reconstruct"): _Array,
    ("numpy", "ndarray"): "ndarray",  # only named, never called
    ("numpy", "dtype"): _Uint8Dtype,
}


class _SafeUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> object:
        """Return our own class for a known name, and refuse all others."""
        if (module, name) not in ALLOWED:
            raise ValueError(f"it asks for {module}.{name}, which no data file needs")
        return ALLOWED[module, name]


def read_pickle(content: bytes) -> dict[str, object]:
    """Return the dictionary in a pickle: arrays of bytes, lists, numbers, and text as bytes.

    Anything else raises ValueError, and nothing of it is run.
    """
    try:
        _check_memo_size(content)
        entries = _SafeUnpickler(io.BytesIO(content), encoding="bytes").load()
        if not isinstance(entries, dict):
            raise ValueError("it holds no dictionary")
        return {_text(key): _without_wrapper(value) for key, value in entries.items()}
    except Exception as error:  # broken pickles raise errors of nearly every kind
        raise ValueError(f"refused to read this pickle: {error}") from error


def _check_memo_size(content: bytes) -> None:
    """Refuse places in the reader's memo so far out that to make room for them fills the memory."""
    for code, place, _ in genops(content):
        if "PUT" in code.name and isinstance(place, int) and place > len(content):
            raise ValueError("it asks for more memory than a file of its size can need")


def _text(key: object) -> str:
    return key.decode("latin1") if isinstance(key, bytes) else str(key)


def _without_wrapper(value: object) -> object:
    return value.values if isinstance(value, _Array) else value
