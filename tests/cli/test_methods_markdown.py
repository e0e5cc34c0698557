"""docs/methods.md is what the command prints, and every method has a page."""

from pathlib import Path

import pytest
from click.testing import CliRunner

import aquila
from aquila.cli import main

REFERENCE = Path(__file__).parent.parent.parent / "docs" / "methods.md"


def printed(*words: str) -> str:
    result = CliRunner().invoke(main, ["methods", *words])
    assert result.exit_code == 0, result.output
    return result.output


def test_page_is_up_to_date():
    fresh = printed("--markdown")
    assert REFERENCE.read_text() == fresh, "run: aquila methods --markdown > docs/methods.md"


@pytest.mark.parametrize("name", aquila.METHODS)
def test_page_covers_the_method(name):
    entry, page = aquila.METHODS[name], printed(name, "--markdown")
    assert page.startswith(f"# `{name}`\n\n{entry.summary}\n")
    assert entry.lost_reply in page
    assert entry.reconstruction in page
    for parameter in entry.parameters.values():
        row = f"| `{parameter.name}` | `{parameter.default}` | {parameter} | {parameter.help} |"
        assert row in page
    listed = f"| [`{name}`](../src/aquila/methods/" in REFERENCE.read_text()
    assert listed, f"docs/methods.md lacks {name}, run: aquila methods --markdown > docs/methods.md"


def test_unknown_method_is_an_error():
    result = CliRunner().invoke(main, ["methods", "aqila", "--markdown"])
    assert result.exit_code == 1
    assert "did you mean 'aquila'?" in result.output
