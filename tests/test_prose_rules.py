"""Every rule of tests/helpers/prose.py finds a bad example and passes a good one."""

import subprocess
import sys
from pathlib import Path

import pytest

from helpers import prose
from helpers.prose import check_page, check_source

PAGE = Path("page.md")
TWENTY_FIVE = " ".join(["word"] * 25)
LONG = "x" * 101


def rules(text, path=PAGE):
    return [finding.rule for finding in check_page(path, text)]


def places(text):
    return [finding.line for finding in check_page(PAGE, text)]


def words(text, name="module.py"):
    return [finding.rule.split('"')[1] for finding in check_source(Path(name), text)]


# length


def test_a_page_has_at_most_200_lines():
    assert rules("\n" * 200) == []
    assert rules("\n" * 201) == ["page of 201 lines, at most 200: split it"]
    assert rules("\n" * 201, Path("CHANGELOG.md")) == []


# width


def test_a_line_of_prose_has_at_most_100_columns():
    assert rules("x" * 100) == []
    assert rules(f"- {LONG}\n") == ["line of 103 columns, at most 100"]
    assert rules(f"> {LONG}\n") == ["line of 103 columns, at most 100"]
    assert places(f"a\nb\n\nc\n{LONG}") == [5]


@pytest.mark.parametrize(
    "text",
    [
        f"| {LONG} |",
        f"# {LONG}",
        f"```python\n{LONG}\n```",
        f"- item\n\n    ```sh\n    {LONG}\n    ```",
        f"> ```\n> {LONG}\n> ```",
        f"text\n\n    {LONG}\n    {LONG}",
        f"- item\n\n      {LONG}",
        f"$$\n{LONG}\n$$",
        f"[name]: https://example.org/{LONG}",
        f"[name](https://example.org/{LONG})",
        f"- [name](https://example.org/{LONG}).",
        f"![picture]({LONG})",
        f"https://example.org/{LONG}",
        f"<!-- {LONG}\n{LONG} -->",
    ],
)
def test_what_is_not_prose_may_be_wide(text):
    assert rules(text) == []


@pytest.mark.parametrize(
    "text",
    [
        f"```\ncode\n```\n{LONG}",
        f"$$\nx\n$$\n{LONG}",
        f"text\n    {LONG}",
        f"- item\n\n    {LONG}",
        f"    code\n\ntext\n    {LONG}",
        f"[name](page.md) {LONG}",
    ],
)
def test_prose_beside_code_is_prose(text):
    assert len(rules(text)) == 1


# paragraphs


def test_a_paragraph_has_at_most_six_lines():
    line = "Short.\n"
    assert rules(line * 6 + "\n" + line * 6) == []
    assert rules(line * 7) == ["paragraph of 7 lines, at most 6"]
    assert places("# Title\n\n" + line * 7) == [3]


def test_list_items_and_quotes_are_paragraphs():
    assert rules("- Short.\n" * 7) == []
    assert rules("- Short.\n" + "  Short.\n" * 5 + "- Short.\n") == []
    assert rules("- Short.\n" + "  Short.\n" * 6) == ["paragraph of 7 lines, at most 6"]
    assert rules("> Short.\n" * 7) == ["paragraph of 7 lines, at most 6"]
    assert rules("> Short.\n" * 4 + ">\n" + "> Short.\n" * 4) == []


# sentences


def test_a_sentence_has_at_most_25_words():
    wide = "sentence of 26 words, at most 25"
    assert wide not in rules(TWENTY_FIVE)
    assert wide in rules(f"{TWENTY_FIVE} more")
    assert wide in rules(f"1. {TWENTY_FIVE} more")
    assert wide in rules(f"> {TWENTY_FIVE} more")


@pytest.mark.parametrize("end", [".", "!", "?", ":", ";", '."', ".)", ".**"])
def test_sentences_end_at_punctuation(end):
    half = "\n".join(["word word word word word"] * 3)
    assert rules(f"{half}{end}\n{half}{end}") == []
    assert len(rules(f"{half}\n{half}")) == 1


@pytest.mark.parametrize(
    "inner", ["e.g.", "i.e.", "3.5", "a.b", "`a. b`", "$a. b$", "[a. b](c.md)"]
)
def test_sentences_do_not_end_inside_words(inner):
    half = "\n".join(["word word word word"] * 3)
    assert rules(f"{half} {inner}\n{half}") == []
    assert rules(f"{half} {inner}\n{half} word") == ["sentence of 26 words, at most 25"]


@pytest.mark.parametrize(
    "one",
    ["`a b c`", "``a ` b``", "$a + b$", "[a b c](page.md)", "![a b](c.png)", "`a\nb`", "[a\nb](c)"],
)
def test_code_formulas_and_links_are_one_word(one):
    rest = "\n".join(["word word word word word word"] * 4)
    assert rules(f"{one}\n{rest}") == []
    assert rules(f"{one}\n{rest} word") == ["sentence of 26 words, at most 25"]


def test_marks_are_no_words():
    assert rules("\n".join(["word word word word word"] * 5) + " – = + &") == []


def test_a_sentence_is_found_where_it_starts():
    lines = "\n".join(["word word word word word"] * 5)
    assert places(f"Short.\n\nShort. Short.\n{lines} more.") == [4]


# formulas


def test_formulas_avoid_what_github_takes_for_escapes():
    assert rules(r"So $\lVert x \rVert \le 1$.") == []
    assert rules(r"So $\|x\| \le 1$.") == [
        r"formula with \|, which GitHub removes: use a command made of letters"
    ]
    assert places("a\n\n$$\na \\, b\n$$\n") == [3]
    assert rules(r"The code `$\{x\}$` and `$HOME\,` are no formulas.") == []


# words


@pytest.mark.parametrize(
    ("bad", "good"),
    [
        ("the crew", "the executor"),
        ("AQUILA-Lots", "AQUILA-Dither"),
        ("`aquila_zero`", "`aquila_topk`"),
        ("a shared_lottery", "a shared dither"),
        ("it draws a lot", "a lot of bytes"),
        ("every coordinate has lots", "slots and plots"),
        ("the way\ndown", "the downlink"),
        ("> the way\n> down", "> the way\n> to go"),
        ("the how manieth attempt", "the attempt number"),
        ("it hardly talks", "it hardly changes"),
        ("a Judge", "to judge"),
        ("Held", "Held-out data is held"),
        ("a device is told to stop", "two devices that can be told apart"),
        ("a step size that is none", "an argument that is None"),
        ("it mends this", "we recommend to amend this"),
        ("1.5 bits a coordinate", "the bits a device sends"),
        ("60 samples a device", "60 samples per device"),
        ("gigabytes a second", "in a second"),
    ],
)
def test_coined_words_are_found(bad, good):
    assert len(rules(bad)) == 1, rules(bad)
    assert rules(good) == []


def test_coined_words_are_found_in_tables_code_and_headings():
    for text in ("| crew |", "```\ncrew\n```", "# The crew", "`crew`"):
        assert rules(text) == ['"crew", plainer: executor']


def test_every_word_has_a_plain_replacement_that_passes():
    for plain in prose.WORDS.values():
        assert plain
        assert rules(plain) == []


# sources


def test_comments_and_docstrings_are_read_and_code_is_not():
    assert words('"""A crew."""\n') == ["crew"]
    assert words('def f():\n    """A\n    crew."""\n') == ["crew"]
    assert words('x = 1\n"""The crew: an attribute."""\n') == ["crew"]
    assert words("x = 1  # the crew\n") == ["crew"]
    assert words("# the way\n# down\n") == ["the way down"]
    assert words('crew = "crew"\n') == []
    assert words("# the way\nx = 1\n# down\n") == []


def test_comments_of_c_are_read():
    assert words("int crew; /* the\n * crew */", "a.c") == ["crew"]
    assert words('char *u = "https://crew"; // crew', "a.h") == ["crew"]


def test_a_finding_names_its_line():
    (found,) = check_source(Path("a.py"), "x = 1\n\ny = 2  # the crew\n")
    assert str(found) == 'a.py:3: "crew", plainer: executor\n    # the crew'


# the command


def test_the_command_prints_findings_and_fails(tmp_path):
    good, bad, source = tmp_path / "good.md", tmp_path / "bad.md", tmp_path / "bad.py"
    good.write_text("# Title\n\nShort.\n")
    bad.write_text("The crew.\n")
    source.write_text("# the crew\n")

    def run(*paths):
        command = [sys.executable, prose.__file__, *map(str, paths)]
        return subprocess.run(command, capture_output=True, text=True)

    assert (run(good).returncode, run(good).stdout) == (0, "")
    done = run(good, bad, source)
    assert done.returncode == 1
    assert done.stdout.count("plainer: executor") == 2
    assert f"{bad}:1: " in done.stdout
    assert run().returncode == 2
