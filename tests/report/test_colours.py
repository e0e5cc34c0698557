"""Every method has a fixed colour."""

from importlib.resources import files

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
