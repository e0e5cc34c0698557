"""The catalogue of methods, one file per method."""

from importlib import import_module

from aquila.core.method import Method
from aquila.core.parameter import spelling_hint
from aquila.methods.parts.factory import MethodFactory

FILES = (
    "aquila",
    "aquila_peak",
    "aquila_topk",
    "aquila_dither",
    "fedsgd",
    "fedavg",
    "qsgd",
    "fedpaq",
    "adaquantfl",
    "dadaquant",
    "lag",
    "laq",
    "ladaq",
    "aqg",
    "lena",
    "marina",
    "ef21",
    "ef21_sgdm",
    "diana",
    "eden",
    "signsgd",
    "ef_signsgd",
    "topk",
    "sparseloco",
    "feddq",
    "cdag_fl",
    "powersgd",
    "bandwidth_adaptive",
    "channel_adaptive",
    "noma_adaptive",
    "aqed",
    "adagq",
)
"""The files of this folder with methods, in the order of all lists. A new method adds a line."""


def _factories(file: str) -> dict[str, MethodFactory]:
    """Return the methods that a file defines, by name."""
    module = import_module(f"{__name__}.{file}")
    found = [value for value in vars(module).values() if isinstance(value, MethodFactory)]
    return {one.name: one for one in found if one.function.__module__ == module.__name__}


METHODS: dict[str, MethodFactory] = {
    name: factory for file in FILES for name, factory in _factories(file).items()
}


def create(name: str, /, **parameters: object) -> Method:
    """Return a method by name.

    An unknown name or an invalid parameter raises a ValueError that lists what is allowed.
    """
    if not isinstance(name, str):
        raise TypeError(f"name must be text such as 'aquila', not {type(name).__name__}")
    if name not in METHODS:
        raise ValueError(f"there is no method {name!r}{spelling_hint(name, METHODS)}")
    return METHODS[name](**parameters)
