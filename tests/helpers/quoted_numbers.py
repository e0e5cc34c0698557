"""Compares numbers of Markdown pages with what commands print from committed results.

A comment before a table names the commands that print its rows:

    <!-- printed by: python benchmarks/end_of_training.py results/recipes; aquila table 2 -->

Every row must be printed: its method and its numbers, in this order, on one line. Cells with other
words are not compared.

A comment at the end of a paragraph or list item names numbers of the text, the words of the printed
line that has them, and the command. `~325` stands for a text that says about 325:

    <!-- quotes 93.98 %, 391 of aquila_topk: python benchmarks/end_of_training.py FOLDER -->
"""

import contextlib
import io
import re
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from unittest import mock

from click.testing import CliRunner

from aquila.cli import main
from helpers.documents import ROOT

TABLE = re.compile(
    r"<!-- printed by: (?P<commands>.+?) -->\n\n(?P<table>(?:\|[^\n]*\n)+)", re.DOTALL
)
QUOTES = re.compile(
    r"<!-- quotes (?P<numbers>.+?) of (?P<words>.+?): (?P<command>.+?) -->", re.DOTALL
)
BLOCK_START = re.compile(r"\n\n|\n- |\n\|")
NUMBER = re.compile(
    r"(?P<about>~)?(?P<sign>[-+]?)(?P<digits>\d+(?:,\d{3})*(?:\.\d+)?)\s?"
    r"(?P<unit>%|points|x\b|(?:[KMGT]i?)?B\b|[µm]?s\b)?"
)
PART = rf"(?:{re.sub(r'[?]P<[a-z]+>', '?:', NUMBER.pattern)}|-)"
NUMERIC_CELL = re.compile(rf"{PART}(?: of \d+)?(?:(?:, | / | to | [(]){PART}[)]?)*")
METHOD = re.compile(r"`(\w+[^`]*)`")
ABOUT = 0.02
"""Relative error of a number that the text gives roughly."""


@dataclass(frozen=True)
class Number:
    """A number as it is written."""

    text: str
    value: float
    decimals: int
    signed: bool
    unit: str
    about: bool = False

    def agrees(self, printed: "Number") -> bool:
        """Return whether this is the printed number, possibly with fewer digits."""
        if self.unit and self.unit != printed.unit:
            return False
        value = printed.value if self.signed else abs(printed.value)
        error = ABOUT * abs(value) if self.about else 0.5 * 10**-self.decimals
        return abs(self.value - value) <= error + 1e-9


def numbers(text: str) -> list[Number]:
    """Return the numbers of a text."""
    found = []
    for match in NUMBER.finditer(text):
        digits = match["digits"].replace(",", "")
        found.append(
            Number(
                text=match[0].lstrip("~").strip(),
                value=float(match["sign"] + digits),
                decimals=len(digits.partition(".")[2]),
                signed=bool(match["sign"]),
                unit=match["unit"] or "",
                about=bool(match["about"]),
            )
        )
    return found


@cache
def printed_lines(command: str) -> tuple[str, ...]:
    """Return what `python FILE ...` or `aquila ...` prints, run in the repository's root."""
    program, *words = shlex.split(command)
    with contextlib.chdir(ROOT):
        if program == "aquila":
            result = CliRunner().invoke(main, words, catch_exceptions=False)
            assert result.exit_code == 0, result.output
            return tuple(result.output.splitlines())
        assert program == "python", f"{command} is neither python nor aquila"
        output = io.StringIO()
        folder = str(ROOT / "benchmarks")
        with (
            mock.patch.object(sys, "argv", words),
            mock.patch.object(sys, "path", [folder, *sys.path]),
            contextlib.redirect_stdout(output),
        ):
            import_module(Path(words[0]).stem).main()
        return tuple(output.getvalue().splitlines())


def outdated(text: str) -> Iterator[str]:
    """Yield what a page says that its commands do not print."""
    for match in TABLE.finditer(text):
        lines = [line for command in commands(match["commands"]) for line in printed_lines(command)]
        for row in match["table"].splitlines()[2:]:
            if not any(row_is_printed(row, line) for line in lines):
                yield f"no command prints {row}"
    for match in QUOTES.finditer(text):
        yield from outdated_quotes(match, block_before(text, match.start()))


def commands(text: str) -> list[str]:
    """Return the commands of a comment, which may be on several lines."""
    return [" ".join(part.split()) for part in text.split(";")]


def row_is_printed(row: str, line: str) -> bool:
    """Return whether a line has the method and the numeric cells of a row, in this order."""
    cells = [cell.strip("* ") for cell in row.strip("| ").split("|")]
    wanted = [number for cell in cells if NUMERIC_CELL.fullmatch(cell) for number in numbers(cell)]
    methods = METHOD.findall(row)
    if not wanted and not methods:
        return False
    if methods and not has_words(line, plain(methods[0])):
        return False
    left = iter(numbers(line))
    return all(any(number.agrees(printed) for printed in left) for number in wanted)


def outdated_quotes(match: re.Match[str], block: str) -> Iterator[str]:
    """Yield the numbers of a comment that its text or its printed line lacks."""
    lines = printed_lines(" ".join(match["command"].split()))
    words = " ".join(match["words"].split())
    printed = [number for line in lines if has_words(line, words) for number in numbers(line)]
    for number in numbers(match["numbers"]):
        if not re.search(rf"(?<![\d.,]){re.escape(number.text)}(?![\d]|[.,]\d)", block):
            yield f"the text before the comment lacks {number.text}"
        if not any(number.agrees(other) for other in printed):
            yield f"{number.text} is not printed in a line with {words}"


def block_before(text: str, end: int) -> str:
    """Return the paragraph or list item that ends at a position, without its comments."""
    starts = [match.start() for match in BLOCK_START.finditer(text, 0, end)]
    return re.sub(r"<!--.*?-->", "", text[starts[-1] if starts else 0 : end], flags=re.DOTALL)


def plain(text: str) -> str:
    """Return a method with parameters as words: `qsgd:bits=2` is printed as `qsgd bits=2`."""
    return re.sub(r"[:,`|]", " ", text)


def has_words(line: str, words: str) -> bool:
    """Return whether a line has all of these words."""
    return set(words.replace(":", " ").split()) <= set(plain(line).split())
