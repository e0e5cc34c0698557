"""One colour per method, the same in every figure and on every page."""

from collections.abc import Sequence
from typing import NamedTuple
from zlib import crc32

# related methods share a colour: colour-blind readers can distinguish only a few
COLOURS = {
    "aquila": "aquila", "aquila_peak": "green", "aquila_topk": "red", "aquila_dither": "plum",
    "fedsgd": "ink", "fedavg": "ink",
    "qsgd": "blue", "fedpaq": "blue", "eden": "blue",
    "adaquantfl": "green", "adaquantfl_levels": "green", "dadaquant": "green",
    "lag": "ochre", "laq": "ochre", "aqg": "ochre",
    "ladaq": "grey",
    "lena": "sky", "lena_tables": "sky",
    "marina": "pink", "diana": "pink", "ef21": "pink", "ef21_sgdm": "pink",
}  # fmt: skip
FALLBACK_COLOURS = ("blue", "green", "ochre", "sky", "pink", "ink", "grey")


def is_aquila(label: str) -> bool:
    """Return whether a run uses AQUILA or a method that builds on it."""
    return label.startswith("aquila")


class AssignedColour(NamedTuple):
    """Colour of a run, and how many earlier runs share that colour, and that method."""

    colour: str
    colour_index: int
    method_index: int


def assign_colours(labels: Sequence[str]) -> list[AssignedColour]:
    """Return the colour of each run, and its index among runs of that colour and method."""
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
