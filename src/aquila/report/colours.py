"""Which colour a run has: that of its method, in every figure and on every page."""

from collections.abc import Sequence
from typing import NamedTuple
from zlib import crc32

# kindred methods share one: there are not many that colour-blind readers can tell apart
COLOURS = {
    "aquila": "own", "aquila_zero": "red", "aquila_lots": "plum",
    "fedsgd": "ink", "fedavg": "ink",
    "qsgd": "blue", "eden": "blue",
    "adaquantfl": "green", "adaquantfl_levels": "green",
    "lag": "ochre", "laq": "ochre",
    "ladaq": "grey",
    "lena": "sky", "lena_tables": "sky",
    "marina": "pink", "diana": "pink", "ef21": "pink",
}  # fmt: skip
OTHERS = ("blue", "green", "ochre", "sky", "pink", "ink", "grey")


def is_own(label: str) -> bool:
    """Say whether a run is of AQUILA or of a method that builds on it."""
    return label.startswith("aquila")


class Place(NamedTuple):
    """The colour of a run, and how many runs before it are of that colour and of its method."""

    colour: str
    of_colour: int
    of_method: int


def places(labels: Sequence[str]) -> list[Place]:
    """Return the colour of each run, and what it must be told apart from."""
    methods = [label.partition(" ")[0] for label in labels]
    given = [_colour(method) for method in methods]
    return [
        Place(colour, given[:number].count(colour), methods[:number].count(method))
        for number, (colour, method) in enumerate(zip(given, methods, strict=True))
    ]


def _colour(method: str) -> str:
    by_name = "own" if is_own(method) else OTHERS[crc32(method.encode()) % len(OTHERS)]
    return COLOURS.get(method, by_name)
