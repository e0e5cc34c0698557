import builtins
import re
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from aquila.report.split_figure import plot_split
from aquila.runtime.install_hint import install_hint


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures that were written to files."""
    figures: list[Figure] = []
    real = Figure.savefig

    def keep(self: Figure, *arguments: Any, **options: Any) -> None:
        figures.append(self)
        real(self, *arguments, **options)

    monkeypatch.setattr(Figure, "savefig", keep)
    return figures


def counts(devices: int, classes: int) -> list[list[int]]:
    return [[(d * c) % 7 + 1 for c in range(classes)] for d in range(1, devices + 1)]


@pytest.mark.parametrize(("devices", "classes"), [(1, 1), (10, 10), (100, 10), (100, 100)])
def test_figure_of_any_size_has_readable_axes(
    tmp_path: Path, drawn: list[Figure], devices: int, classes: int
) -> None:
    path = plot_split(counts(devices, classes), tmp_path / "new" / "split.png", "a title")
    assert path.read_bytes().startswith(b"\x89PNG")
    sizes, cells = drawn[0].axes[:2]
    assert len(sizes.patches) == devices
    assert cells.images[0].get_array().shape == (classes, devices)
    assert 1 <= len(cells.get_xticks()) <= 20
    assert 1 <= len(cells.get_yticks()) <= 20
    assert drawn[0].get_suptitle() == "a title"


def test_every_cell_shows_its_count(tmp_path: Path, drawn: list[Figure]) -> None:
    plot_split([[5, 0, 7], [0, 9, 1]], tmp_path / "split.png")
    sizes, cells = drawn[0].axes
    assert [bar.get_height() for bar in sizes.patches] == [12, 10]
    assert cells.images[0].get_array().tolist() == [[5, 0], [0, 9], [7, 1]]
    written = {text.get_position(): text.get_text() for text in cells.texts}
    assert written == {(0, 0): "5", (0, 2): "7", (1, 1): "9", (1, 2): "1"}


def test_many_cells_get_a_colour_bar_instead_of_numbers(
    tmp_path: Path, drawn: list[Figure]
) -> None:
    plot_split(counts(100, 10), tmp_path / "split.png")
    _, cells, bar = drawn[0].axes
    assert not cells.texts
    assert bar.get_ylabel() == "samples"


def test_missing_matplotlib_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def without(name: str, *arguments: Any, **options: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ValueError, match=re.escape(install_hint("report"))):
        plot_split([[1]], tmp_path / "split.png")
