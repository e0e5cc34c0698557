"""Bring samples that a user gives into one form: inputs and targets as tensors."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from aquila.training.inputs import Batch, Inputs

FORMS = "a pair of tensors, inputs and targets, a dict of tensors, a Dataset or a DataLoader"
"""What a shard can be."""


def as_batch(name: str, given: Any, dtype: torch.dtype) -> Batch:
    """Return inputs and targets of a batch; ValueError if it is neither a pair nor a dict.

    NumPy arrays become tensors, and their floating-point numbers get the given type.
    """
    if isinstance(given, Mapping):
        return _as_inputs(name, given, dtype), None
    if not is_pair(given):
        raise ValueError(f"{name} must be {FORMS}, not {describe(given)}")
    x, y = given
    return _as_inputs(name, x, dtype), _as_tensor(name, "targets", y, dtype)


def as_sample(name: str, sample: Any, dtype: torch.dtype) -> Any:
    """Return a sample of a Dataset with tensors for NumPy arrays, ready to be stacked."""
    if not (isinstance(sample, Mapping) or is_pair(sample)):
        raise ValueError(
            f"{name} is a Dataset whose samples must be pairs, inputs and targets, or dicts, not "
            f"{describe(sample)}"
        )
    return _with_tensors(name, sample, dtype)


def is_pair(given: object) -> bool:
    """Whether an object is a tuple or list of two."""
    return isinstance(given, tuple | list) and len(given) == 2


def describe(given: object) -> str:
    """Return the type of an object in words."""
    length = f" of {len(given)}" if isinstance(given, tuple | list) else ""
    return f"a {type(given).__name__}{length}"


def _as_inputs(name: str, x: Any, dtype: torch.dtype) -> Inputs:
    if isinstance(x, Mapping):
        found: Inputs = {
            key: _as_tensor(name, f"inputs {key!r}", part, dtype) for key, part in x.items()
        }
    elif isinstance(x, tuple | list):
        found = tuple(_as_tensor(name, f"inputs {n}", part, dtype) for n, part in enumerate(x))
    else:
        return _as_tensor(name, "inputs", x, dtype)
    if not found:
        raise ValueError(f"{name} has an empty {type(x).__name__} of inputs")
    return found


def _as_tensor(name: str, what: str, value: Any, dtype: torch.dtype) -> torch.Tensor:
    if isinstance(value, torch.Tensor):
        return value
    if not isinstance(value, np.ndarray):
        raise ValueError(
            f"{name} has {what} of type {type(value).__name__}; they must be tensors or NumPy "
            "arrays"
        )
    return _from_numpy(name, what, value, dtype)


def _from_numpy(
    name: str, what: str, array: np.ndarray[Any, Any], dtype: torch.dtype
) -> torch.Tensor:
    # torch warns about arrays that cannot be written to, and refuses negative strides
    usable = array if array.flags.writeable and array.flags.c_contiguous else array.copy()
    try:
        tensor = torch.from_numpy(usable)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{name} has {what} of NumPy type {array.dtype}, which torch does not take"
        ) from error
    return tensor.to(dtype) if tensor.is_floating_point() else tensor


def _with_tensors(name: str, value: Any, dtype: torch.dtype) -> Any:
    if isinstance(value, Mapping):
        return {key: _with_tensors(name, part, dtype) for key, part in value.items()}
    if isinstance(value, tuple | list):
        return tuple(_with_tensors(name, part, dtype) for part in value)
    return _from_numpy(name, "samples", value, dtype) if isinstance(value, np.ndarray) else value
