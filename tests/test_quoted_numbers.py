"""Numbers of the pages are those that commands print from committed results."""

from importlib import import_module

import pytest

from helpers.documents import DOCUMENTS, ROOT, document_name
from helpers.quoted_numbers import QUOTES, TABLE, outdated, printed_lines

CHECKED = [
    path for path in DOCUMENTS if TABLE.search(path.read_text()) or QUOTES.search(path.read_text())
]
COMMAND = "python benchmarks/end_of_training.py results/recipes"
PAGE = """
| method | rounds | quality | uplink |
|---|---:|---:|---:|
| `aquila_topk` | 200 | 93.98 % | 228 MB |
"""
SENTENCE = "- It has 93.98 % with 391 times fewer bytes.\n  <!-- quotes {} of aquila_topk: {} -->\n"


@pytest.mark.parametrize("path", CHECKED, ids=document_name)
def test_numbers_are_up_to_date(path):
    assert list(outdated(path.read_text())) == []


def test_the_key_pages_are_checked():
    names = {document_name(path) for path in CHECKED}
    pages = (
        "index", "our-methods-results", "our-methods-ablation", "method-comparison", "training",
        "performance", "coder-performance", "downlink", "ingest", "distributed", "reproduction",
    )  # fmt: skip
    assert {"README.md", *(f"docs/{page}.md" for page in pages)} <= names


@pytest.mark.parametrize(
    ("old", "new"),
    [("93.98", "93.99"), ("228 MB", "228 GB"), ("228", "227"), ("_topk", "_dither")],
)
def test_changed_rows_are_found(old, new):
    page = f"<!-- printed by: {COMMAND} -->\n{PAGE}"
    assert list(outdated(page)) == []
    assert len(list(outdated(page.replace(old, new)))) == 1


@pytest.mark.parametrize(
    ("row", "count"),
    [
        ("| 10 | 33 to 42 | 4.9 GiB (2) |", 0),
        ("| 10 | 33 to 43 | 4.9 GiB (2) |", 1),
        ("| 10 | 33 to 42 | 4.9 MiB (2) |", 1),
        ("| 10 | 33 to 42 | 4.9 GiB (3) |", 1),
        ("| ten | about 33 |", 1),
    ],
)
def test_cells_of_several_numbers_are_compared(row, count, monkeypatch):
    lines = ("10 | 33.3 42.1 | 4.88 GiB | 2",)
    monkeypatch.setattr("helpers.quoted_numbers.printed_lines", lambda command: lines)
    page = f"<!-- printed by: python FILE -->\n\n| a |\n|---|\n{row}\n"
    assert len(list(outdated(page))) == count


@pytest.mark.parametrize(
    ("numbers", "count"),
    [("93.98 %, 391", 0), ("~391", 0), ("391 %", 2), ("94.25 %", 1), ("39", 2)],
)
def test_changed_sentences_are_found(numbers, count):
    assert len(list(outdated(SENTENCE.format(numbers, COMMAND)))) == count


def test_the_front_figure_is_up_to_date(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    names = [layout.name for layout in import_module("front_figure").LAYOUTS]
    printed_lines(f"python benchmarks/front_figure.py --out {tmp_path}")
    for name in names:
        assert (tmp_path / name).read_bytes() == (ROOT / "docs" / "images" / name).read_bytes()
