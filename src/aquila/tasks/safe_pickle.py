"""Reads pickles of plain values and uint8 arrays without executing any code from them.

A pickle builds objects by naming functions to call. This reader allows only the names that NumPy
arrays need, and replaces each by a class of this module. It refuses every other name before
importing it.
"""

import io
import pickle
from pickletools import genops

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]


class _Uint8Dtype:
    """Replaces `numpy.dtype`, and accepts only uint8."""

    __slots__ = ()

    def __init__(self, code: object, *_: object) -> None:
        if code not in (b"u1", "u1"):
            raise ValueError("it has an array that is not uint8")

    def __setstate__(self, state: object) -> None:
        pass  # byte order and alignment, which do not matter for bytes


class _Array:
    """Replaces `numpy.ndarray`: checks the shape and the bytes."""

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
                raise ValueError("it has an array in an unknown format")


ALLOWED: dict[tuple[str, str], object] = {
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy._core.multiarray", "_reconstruct"): _Array,
    ("numpy", "ndarray"): "ndarray",  # pickles name it but never call it
    ("numpy", "dtype"): _Uint8Dtype,
}


class _SafeUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> object:
        """Return the replacement for an allowed name, and refuse all others."""
        if (module, name) not in ALLOWED:
            raise ValueError(f"it uses {module}.{name}, which is not allowed")
        return ALLOWED[module, name]


def read_pickle(content: bytes) -> dict[str, object]:
    """Return the dictionary in a pickle: uint8 arrays, lists, numbers, and text as bytes.

    Anything else raises ValueError. No code from the pickle is executed.
    """
    try:
        _check_memo_size(content)
        entries = _SafeUnpickler(io.BytesIO(content), encoding="bytes").load()
        if not isinstance(entries, dict):
            raise ValueError("it does not hold a dictionary")
        return {_text(key): _without_wrapper(value) for key, value in entries.items()}
    except Exception as error:  # a damaged pickle can raise almost any error
        raise ValueError(f"refused to read this pickle: {error}") from error


def _check_memo_size(content: bytes) -> None:
    """Refuse memo indices that are so large that the unpickler would exhaust the memory."""
    for code, index, _ in genops(content):
        if "PUT" in code.name and isinstance(index, int) and index > len(content):
            raise ValueError("it would use more memory than a file of its size needs")


def _text(key: object) -> str:
    return key.decode("latin1") if isinstance(key, bytes) else str(key)


def _without_wrapper(value: object) -> object:
    return value.values if isinstance(value, _Array) else value
