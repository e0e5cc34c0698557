"""docs/references.md and the catalogue of methods name the same methods."""

import re
from pathlib import Path

import pytest

import aquila
from aquila.sim.setting import setting_parameters

PAGE = Path(__file__).parent.parent / "docs" / "references.md"
NAMES = re.compile(r"`([a-z0-9_]+)`")


def rows() -> list[list[str]]:
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in cells if row[0] not in ("reference of the paper", "method")]


def named(kind: str) -> list[str]:
    """Return the names in cells that start with a kind, such as `option`; '' means methods."""
    cells = [row[2] for row in rows() if len(row) == 3] + [
        row[0] for row in rows() if len(row) == 2
    ]
    prefixes = ("option", "data", "model", "what", "background")
    chosen = [c for c in cells if (c.startswith(kind) if kind else not c.startswith(prefixes))]
    return [name for cell in chosen for name in NAMES.findall(cell)]


def test_page_lists_every_method_once():
    assert sorted(named("")) == sorted(aquila.METHODS)


def test_page_has_every_reference_of_the_paper():
    """The paper has 27 references. Three share a row, and two rows are the paper's own."""
    of_paper = [row for row in rows() if len(row) == 3]
    assert len(of_paper) == 27 - 2 + 2


@pytest.mark.parametrize("name", named("option"))
def test_options_exist(name):
    assert name in setting_parameters()


@pytest.mark.parametrize("name", named("model"))
def test_models_exist(name):
    from aquila.tasks.models import MODELS

    assert name in MODELS


@pytest.mark.parametrize("name", named("data"))
def test_data_sets_exist(name):
    from aquila.tasks.sources import SOURCES

    assert name in SOURCES
