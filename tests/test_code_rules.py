"""The rules of CONTRIBUTING.md about the size of files and functions."""

from pathlib import Path

import pytest

from helpers.code_rules import check_file_length, check_function_length, check_parameters

ROOT = Path(__file__).parent.parent
SOURCES = sorted((ROOT / "src").rglob("*.py"))
BENCHMARKS = sorted((ROOT / "benchmarks").rglob("*.py"))
MODULE = Path("module.py")
FUNCTION_LINES = {"src": 40, "benchmarks": 50}


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def function_of(lines: int, docstring: str = "") -> str:
    return "def f():\n" + docstring + "    pass\n" * (lines - 1)


@pytest.mark.parametrize("path", [*SOURCES, *BENCHMARKS], ids=name_of)
def test_files_and_functions_are_short(path):
    name, text = path.relative_to(ROOT), path.read_text()
    found = check_file_length(name, text)
    found += check_function_length(name, text, FUNCTION_LINES[name.parts[0]])
    assert not found, "\n".join(found)


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_functions_have_few_parameters(path):
    found = check_parameters(path.relative_to(ROOT), path.read_text())
    assert not found, "\n".join(found)


def test_file_has_at_most_300_lines():
    assert check_file_length(MODULE, "x\n" * 300) == []
    assert check_file_length(MODULE, "x\n" * 301) == [
        "module.py: 301 lines, at most 300: split the file"
    ]


def test_function_has_at_most_40_lines():
    assert check_function_length(MODULE, function_of(40), 40) == []
    assert check_function_length(MODULE, function_of(41), 40) == [
        "module.py:1: f has 41 lines, at most 40"
    ]


def test_docstring_does_not_count_for_the_length():
    docstring = '    """First.\n\n    Second.\n    """\n'
    assert check_function_length(MODULE, function_of(40, docstring), 40) == []
    assert len(check_function_length(MODULE, function_of(41, docstring), 40)) == 1


def test_methods_and_nested_functions_are_checked():
    nested = "class A:\n    async def f(self):\n        def g():\n" + "            pass\n" * 40
    assert [
        line.split(": ")[1].split()[0] for line in check_function_length(MODULE, nested, 40)
    ] == [
        "f",
        "g",
    ]


@pytest.mark.parametrize(
    "good",
    [
        "def f(a, b, c, d, e, f, g, h): ...",
        "def f(a, b, c, d, *, e, f, g, h): ...",
        "def f(a, b, c, d, e, f, g, h, **options): ...",
        "class A:\n    def __init__(self, a, b, c, d, e, f, g, h): ...",
        "def _f(a, b, c, d, e, f, g): ...",
        "def _f(a, b, c, d, e, f, g, *, h, i): ...",
        "@triton.jit\ndef f(a, b, c, d, e, f, g, h, i): ...",
    ],
)
def test_allowed_parameters(good):
    assert check_parameters(MODULE, good) == []


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ("def f(a, b, c, d, e, f, g, h, i): ...", "f has 9 parameters, at most 8"),
        ("def f(a, b, c, d, *, e, f, g, h, i): ...", "f has 9 parameters, at most 8"),
        (
            "class A:\n    def __init__(self, a, b, c, d, e, f, g, h, i): ...",
            "__init__ has 9 parameters, at most 8",
        ),
        ("def _f(a, b, c, d, e, f, g, h): ...", "_f has 8 positional parameters, at most 7"),
    ],
)
def test_too_many_parameters(bad, message):
    (found,) = check_parameters(MODULE, bad)
    assert message in found
