"""Names of functions that are values of options."""

from collections.abc import Callable
from functools import partial
from typing import Any


def function_name(function: Callable[..., Any]) -> str:
    """Return a name that is the same in every process, with the arguments of a `partial`."""
    if isinstance(function, partial):
        given = [*map(repr, function.args), *(f"{k}={v!r}" for k, v in function.keywords.items())]
        return f"{function_name(function.func)}({', '.join(given)})"
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{named.__module__}.{named.__qualname__}"
