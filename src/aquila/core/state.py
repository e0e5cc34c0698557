"""Conversion between states and arrays, so that states are saved and loaded without pickle.

A state is a frozen dataclass. Its fields are tensors, numbers, tuples of numbers of one type
(nested tuples must have equal lengths), or further such dataclasses.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

Arrays = dict[str, npt.NDArray[Any]]


def to_arrays(state: object, prefix: str = "") -> Arrays:
    """Flatten a state into arrays, named by the path of their field."""
    if dataclasses.is_dataclass(state):
        arrays: Arrays = {}
        for field in dataclasses.fields(state):
            arrays |= to_arrays(getattr(state, field.name), f"{prefix}{field.name}.")
        return arrays
    if isinstance(state, torch.Tensor):
        return {prefix: state.detach().cpu().numpy()}
    if isinstance(state, tuple | bool | int | float):
        return {prefix: np.asarray(state)}
    raise TypeError(
        f"{prefix.rstrip('.')} is a {type(state).__name__}; "
        "allowed are tensors, numbers, tuples, dataclasses"
    )


def from_arrays(template: Any, arrays: Mapping[str, npt.NDArray[Any]], prefix: str = "") -> Any:
    """Rebuild a state with the structure of the template and the values of the arrays."""
    if dataclasses.is_dataclass(template):
        values = {
            f.name: from_arrays(getattr(template, f.name), arrays, f"{prefix}{f.name}.")
            for f in dataclasses.fields(template)
        }
        return dataclasses.replace(template, **values)  # type: ignore[type-var]
    if prefix not in arrays:
        raise ValueError(f"the saved state has no {prefix.rstrip('.')}")
    array = arrays[prefix]
    if isinstance(template, torch.Tensor):
        if array.shape != template.shape:
            raise ValueError(
                f"the saved {prefix.rstrip('.')} has shape {array.shape}, "
                f"not {tuple(template.shape)}"
            )
        return torch.from_numpy(np.array(array)).to(template.device, template.dtype)
    if isinstance(template, tuple):
        return _as_tuples(array.tolist())
    return type(template)(array.item())


def tensors_of(state: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors of a state, in the order of its fields."""
    if dataclasses.is_dataclass(state):
        for field in dataclasses.fields(state):
            yield from tensors_of(getattr(state, field.name))
    elif isinstance(state, torch.Tensor):
        yield state


def map_tensors(state: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """Return a copy of the state with `change` applied to each tensor, in field order."""
    if dataclasses.is_dataclass(state):
        values = {
            f.name: map_tensors(getattr(state, f.name), change) for f in dataclasses.fields(state)
        }
        return dataclasses.replace(state, **values)  # type: ignore[type-var]
    return change(state) if isinstance(state, torch.Tensor) else state


def _as_tuples(value: Any) -> Any:
    return tuple(map(_as_tuples, value)) if isinstance(value, list) else value
