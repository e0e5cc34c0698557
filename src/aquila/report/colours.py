"""Which colour a run has: that of its method, in every figure and on every page."""

from collections.abc import Sequence
from typing import NamedTuple
from zlib import crc32

# kindred methods share one: there are not many that colour-blind readers can tell apart
COLOURS = {
    "aquila": "aquila", "aquila_topk": "red", "aquila_dither": "plum",
    "fedsgd": "ink", "fedavg": "ink",
    "qsgd": "blue", "eden": "blue",
    "adaquantfl": "green", "adaquantfl_levels": "green",
    "lag": "ochre", "laq": "ochre",
    "ladaq": "grey",
    "lena": "sky", "lena_tables": "sky",
    "marina": "pink", "diana": "pink", "ef21": "pink",
}  # fmt: skip
FALLBACK_COLOURS = ("blue", "green", "ochre", "sky", "pink", "ink", "grey")


def is_aquila(label: str) -> bool:
    """Say whether a run is of AQUILA or of a method that builds on it."""
    return label.startswith("aquila")


class AssignedColour(NamedTuple):
    """The colour of a run, and how many runs before it are of that colour and of its method."""

    colour: str
    colour_index: int
    method_index: int


def assign_colours(labels: Sequence[str]) -> list[AssignedColour]:
    """Return the colour of each run, and what it must be told apart from."""
    methods = [label.partition(" ")[0] for label in labels]
    colours = [_method_colour(method) for method in methods]
    return [
        AssignedColour(colour, colours[:number].count(colour), methods[:number].count(method))
        for number, (colour, method) in enumerate(zip(colours, methods, strict=True))
    ]


def _method_colour(method: str) -> str:
    fallback = (
        "aquila"
        if is_aquila(method)
        else FALLBACK_COLOURS[crc32(method.encode()) % len(FALLBACK_COLOURS)]
    )
    return COLOURS.get(method, fallback)
