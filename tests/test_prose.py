"""Every page and every comment is plain English; tests/helpers/prose.py has the rules."""

from pathlib import Path

import pytest

from helpers.prose import Finding, check_page, check_source

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "aquila"
SUFFIXES = (".py", ".c", ".h", ".js", ".css")


def pages() -> list[str]:
    folders = ("benchmarks", "docs", "examples", "experiments", "results", "src", "tests")
    paths = [
        *ROOT.glob("*.md"),
        *(path for name in folders for path in (ROOT / name).rglob("*.md")),
    ]
    names = [path.relative_to(ROOT) for path in paths]
    return sorted(str(name) for name in names if not any(p.startswith(".") for p in name.parts))


def layers() -> list[str]:
    return sorted({path.relative_to(SOURCE).parts[0] for path in sources(SOURCE)})


def sources(place: Path) -> list[Path]:
    paths = place.rglob("*") if place.is_dir() else [place]
    return [path for path in paths if path.suffix in SUFFIXES and "vendor" not in path.parts]


def report(findings: list[Finding]) -> None:
    assert not findings, "\n" + "\n".join(map(str, findings))


@pytest.mark.parametrize("name", pages())
def test_page_is_plain_english(name):
    report(check_page(Path(name), (ROOT / name).read_text()))


@pytest.mark.parametrize("name", layers())
def test_comments_and_docstrings_use_plain_words(name):
    found = []
    for path in sorted(sources(SOURCE / name)):
        found += check_source(path.relative_to(ROOT), path.read_text())
    report(found)


def test_pages_are_found():
    assert {"README.md", "docs/theory.md"} <= set(pages())
