"""Parameters of a method: declared in the signature of its factory, checked here."""

import inspect
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from numbers import Integral, Real
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

Value = float | int | str | bool
INTEGER = re.compile(r"\s*[+-]?\d+\s*")


@dataclass(frozen=True)
class Bounds:
    """Annotation of a numeric parameter: its meaning and its allowed range."""

    help: str
    low: float = -math.inf
    high: float = math.inf
    above: float = -math.inf

    def allows(self, value: float) -> bool:
        """Return whether the value is finite and in range."""
        finite = isinstance(value, int) or math.isfinite(value)
        return finite and self.low <= value <= self.high and value > self.above

    def __str__(self) -> str:
        if self.above > -math.inf:
            return f"> {self.above:g}" + (f" and <= {self.high:g}" if self.high < math.inf else "")
        if self.high < math.inf:
            return f"from {self.low:g} to {self.high:g}"
        return f">= {self.low:g}"


@dataclass(frozen=True)
class Parameter:
    """One parameter of a factory."""

    name: str
    default: Value
    type: type
    choices: tuple[str, ...]
    bounds: Bounds | None
    help: str

    def __str__(self) -> str:
        if self.choices:
            return f"one of {', '.join(self.choices)}"
        if self.bounds is None:
            return "true or false" if self.type is bool else "text"
        kind = "a whole number" if self.type is int else "a number"
        return f"{kind} {self.bounds}"

    def check(self, value: object) -> Value:
        """Return the value converted to the parameter's type, or raise ValueError.

        Text such as "0.1" is accepted for numbers, because command lines pass text.
        """
        read: Value | None
        if self.bounds is not None:
            read = self._number(value)
            read = read if read is not None and self.bounds.allows(read) else None
        elif self.type is bool:
            read = {"true": True, "false": False}.get(str(value).lower())
        else:
            read = value if isinstance(value, str) else None
            read = read if not self.choices or read in self.choices else None
        if read is None:
            raise ValueError(f"{self.name} must be {self}, not {value!r}")
        return read

    def _number(self, value: object) -> float | int | None:
        if isinstance(value, bool) or not isinstance(value, Real | str):
            return None
        if self.type is int and INTEGER.fullmatch(str(value)):
            return int(str(value))  # a float would keep only 53 bits
        try:
            number = float(value)
        except (ValueError, OverflowError):
            return None
        if self.type is not int:
            return number
        return int(number) if number.is_integer() else None


def parameters(factory: Callable[..., Any]) -> dict[str, Parameter]:
    """Return the parameters of a factory whose types are `Annotated`."""
    return dict(_read_signature(factory))


@cache  # a report of many runs asks thousands of times
def _read_signature(factory: Callable[..., Any]) -> dict[str, Parameter]:
    hints = get_type_hints(factory, include_extras=True)
    return {
        name: _parameter(name, hints[name], given.default)
        for name, given in inspect.signature(factory).parameters.items()
        if get_origin(hints[name]) is Annotated
    }


def check_arguments(
    owner: str, factory: Callable[..., Any], given: dict[str, object]
) -> dict[str, Value]:
    """Return keyword arguments converted to a factory's parameters, or raise ValueError."""
    return check_values(owner, parameters(factory), given)


def check_values(
    owner: str, known: Mapping[str, Parameter], given: Mapping[str, object]
) -> dict[str, Value]:
    """Return values converted to the known parameters, or raise ValueError."""
    checked = {}
    for name, value in given.items():
        if name not in known:
            raise ValueError(f"{owner} has no parameter {name!r}{spelling_hint(name, known)}")
        try:
            checked[name] = known[name].check(value)
        except ValueError as error:
            raise ValueError(f"{owner}: {error}") from None
    return checked


def split_spec(text: str) -> tuple[str, dict[str, object]]:
    """Return the name and the parameters of a text such as `name:parameter=value,other=value`."""
    name, _, rest = text.partition(":")
    given: dict[str, object] = {}
    for assignment in filter(None, rest.split(",")):
        key, equals, value = (part.strip() for part in assignment.partition("="))
        if not equals:
            raise ValueError(f"{text!r}: {assignment!r} is not of the form parameter=value")
        if key in given:
            raise ValueError(f"{text!r} sets {key} twice")
        given[key] = value
    return name.strip(), given


def check_whole_number(name: str, value: object, low: int) -> int:
    """Return the value as an int; ValueError unless it is a whole number of at least `low`."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < low:
        raise ValueError(f"{name} must be a whole number >= {low}, not {value!r}")
    return int(value)


def spelling_hint(name: str, known: Iterable[str]) -> str:
    """Return a hint for a misspelt name: the closest known name, then all known names."""
    known = list(known)
    close = get_close_matches(name.lower(), known, n=1)
    close = close or [one for one in known if name and name.lower() in one]
    guess = f"; did you mean {close[0]!r}?" if close else "."
    return f"{guess} Known: {', '.join(known)}"


def _parameter(name: str, hint: Any, default: Value) -> Parameter:
    base, annotation = get_args(hint)
    if get_origin(base) is Literal:
        return Parameter(name, default, str, get_args(base), None, annotation)
    if base in (str, bool):
        return Parameter(name, default, base, (), None, annotation)
    return Parameter(name, default, base, (), annotation, annotation.help)
