"""Every method has a fixed colour."""

import itertools
import math
import re
from importlib.resources import files

import numpy as np
import pytest

from aquila.methods import METHODS
from aquila.report.colours import COLOURS, FALLBACK_COLOURS, assign_colours
from aquila.report.paper import TABLES, paper_rows
from aquila.report.style import PALETTE


def test_method_keeps_its_colour_next_to_any_others():
    assert set(COLOURS) <= set(METHODS)
    for method in (*METHODS, "mine"):
        variant, plain = assign_colours(["mine too", *METHODS, f"{method} bits=2", method])[-2:]
        assert variant.colour == plain.colour == assign_colours([method])[0].colour
        assert variant.colour_index + 1 == plain.colour_index


def test_methods_of_one_paper_table_have_distinct_colours():
    own = {"aquila", "aquila_topk", "aquila_dither"}
    for row in (row for table in TABLES for row in paper_rows(table)):
        compared = own | set(row.printed)
        assert len({COLOURS[method] for method in compared}) == len(compared)


def test_figures_and_pages_define_every_colour():
    assert {*COLOURS.values(), *FALLBACK_COLOURS} == set(PALETTE)
    folder = files("aquila.report.page").joinpath("resources")
    css = "".join(folder.joinpath(name).read_text() for name in ("page.css", "figures.css"))
    for name in PALETTE:
        assert css.count(f"--{name}: #") >= 2  # light and dark
        assert f".{name} {{ --base: var(--{name}); }}" in css


# severe deficiencies as linear maps of RGB, by Machado, Oliveira and Fernandes (2009)
DEFICIENCIES = {
    "none": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413],
                     [-0.011820, 0.042940, 0.968881]],
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216],
                   [-0.003882, -0.048116, 1.051998]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602],
                   [0.004733, 0.691367, 0.303900]],
}  # fmt: skip
TO_CONES = [[0.4122214708, 0.5363325363, 0.0514459929], [0.2119034982, 0.6806995451, 0.1073969566],
            [0.0883024619, 0.2817188376, 0.6299787005]]  # fmt: skip
TO_LAB = [[0.2104542553, 0.7936177850, -0.0040720468], [1.9779984951, -2.4285922050, 0.4505937099],
          [0.0259040371, 0.7827717662, -0.8086757660]]  # fmt: skip


def seen_colour(code: str, deficiency: str) -> np.ndarray:
    """Return a colour as a reader sees it, in the perceptual space OKLab."""
    parts = np.array([int(code[n : n + 2], 16) / 255 for n in (1, 3, 5)])
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    seen = np.clip(DEFICIENCIES[deficiency] @ linear, 0, 1)
    return np.array(TO_LAB) @ np.cbrt(np.array(TO_CONES) @ seen)


@pytest.mark.parametrize("deficiency", DEFICIENCIES)
def test_colours_differ_for_readers_with_a_colour_vision_deficiency(deficiency):
    css = files("aquila.report.page").joinpath("resources", "page.css").read_text()
    for mode in css.split("@media (prefers-color-scheme: dark)"):
        codes = [re.search(rf"--{name}: (#\w{{6}})", mode)[1] for name in PALETTE]
        seen = [seen_colour(code, deficiency) for code in codes]
        assert min(math.dist(a, b) for a, b in itertools.combinations(seen, 2)) > 0.07


def test_figures_have_the_colours_of_the_light_page():
    css = files("aquila.report.page").joinpath("resources", "page.css").read_text()
    for name, code in PALETTE.items():
        assert re.search(rf"--{name}: (#\w{{6}})", css)[1].upper() == code
