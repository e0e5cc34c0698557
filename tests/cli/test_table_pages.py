"""docs/table2.md and docs/table3.md are what the command prints for the committed runs."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from aquila.cli import main

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.parametrize("number", ["2", "3"])
def test_page_is_up_to_date(number):
    words = ["table", number, "--markdown", "--results", str(ROOT / "results")]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 0, result.output
    page = ROOT / "docs" / f"table{number}.md"
    assert page.read_text() == result.output, f"run: aquila table {number} --markdown > {page.name}"
