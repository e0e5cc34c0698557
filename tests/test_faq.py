"""The messages that docs/errors.md, faq.md and checkpoints.md quote are those that users get."""

import ast
import doctest
import re
from collections.abc import Iterator

import pytest
from click.testing import CliRunner

from aquila.cli import main
from helpers.documents import ROOT, code_blocks

ERRORS, FAQ = ROOT / "docs" / "errors.md", ROOT / "docs" / "faq.md"
CHECKPOINTS = ROOT / "docs" / "checkpoints.md"
LOOSE = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
FIXED = 15  # characters that identify a message


def templates() -> Iterator[re.Pattern[str]]:
    """Yield a pattern for every string in the source, with wildcards for its values."""
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.JoinedStr | ast.Constant):
                continue
            parts = node.values if isinstance(node, ast.JoinedStr) else [node]
            texts = [part.value if isinstance(part, ast.Constant) else None for part in parts]
            if sum(len(text) for text in texts if isinstance(text, str)) >= FIXED:
                yield re.compile(
                    "".join(".+" if t is None else re.escape(str(t)) for t in texts), re.DOTALL
                )


def test_quoted_messages_are_in_the_source():
    known = list(templates())
    blocks = [block for page in (ERRORS, FAQ, CHECKPOINTS) for block in code_blocks(page, "output")]
    quoted = [line for _, text in blocks for line in text.splitlines()]
    assert len(quoted) > 4
    assert [line for line in quoted if not any(k.fullmatch(line) for k in known)] == []


@pytest.fixture
def bare(tmp_path, monkeypatch):
    """An empty folder, and no data sets."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AQUILA_DATA", str(tmp_path))


def test_commands_print_the_quoted_messages(bare):
    ran = 0
    for _, text in [*code_blocks(ERRORS, "console"), *code_blocks(CHECKPOINTS, "console")]:
        for exchange in text.split("$ aquila ")[1:]:
            command, _, expected = exchange.partition("\n")
            result = CliRunner().invoke(main, command.split(), prog_name="aquila")
            same = doctest.OutputChecker().check_output(expected, result.output, LOOSE)
            assert same, f"aquila {command} prints {result.output}"
            ran += 1
    assert ran > 20


def test_python_raises_the_quoted_messages():
    session = "\n".join(text for _, text in code_blocks(FAQ, "pycon"))
    test = doctest.DocTestParser().get_doctest(session, {}, "faq", str(FAQ), 0)
    report: list[str] = []
    doctest.DocTestRunner(optionflags=LOOSE).run(test, out=report.append)
    assert report == []
    assert len(test.examples) > 10
