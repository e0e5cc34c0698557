"""Checks the language of Markdown pages, and of comments and docstrings in source files.

    python tests/helpers/prose.py FILE...

A page is checked against every rule, a source file only against the list of words. Each finding
names file, line, rule and the offending text; the exit status is 1 if there is any.
"""

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

MAX_PAGE_LINES = 200
MAX_COLUMNS = 100
MAX_PARAGRAPH_LINES = 6
MAX_SENTENCE_WORDS = 25
# a changelog grows with every version, and readers look up one version
ANY_LENGTH = {"CHANGELOG.md"}

# pattern -> plain replacement. Case does not matter unless the pattern says (?-i:...). A space also
# matches a line break, with the marks that begin a line of a quote, list or comment.
WORDS = {
    r"AQUILA-Lots|aquila_lots|AquilaLots": "AQUILA-Dither, aquila_dither",
    r"AQUILA-Zero|aquila_zero|AquilaZero": "AQUILA-TopK, aquila_topk",
    r"(?<![a-z])lotter(?:y|ies)": "stochastic sparsification, stochastic_sparse",
    r"(?<![-\w])lots?\b(?! of\b)": "the dither (random numbers known to both sides)",
    r"\bwinners?\b|\bcoordinates? (?:that|which) wins?\b": "sent coordinates",
    r"\bshares? of (?:the|its|their|all) coordinates\b": "the density",
    r"\b(?-i:DRAWN)\b|drawn (?:body|bodies|frames?)|(?:en|de)code_drawn": "DITHERED, dithered body",
    r"\bOrder\.words\b|\bwords of (?:an|the) orders?\b|\border's words\b": "the control frame",
    r"\bcrews?\b|(?<=[a-z])Crew\b": "executor",
    r"\bforesees?\b|\bforesaw\b|\bforeseen\b": "prefetch, predict",
    r"\bone_by_one\b": "sequential",
    r"\bside_by_side\b": "threads",
    r"\bkeeps_to_itself\b": "returns_fresh_memory",
    r"\bbears? company\b": "is thread-safe",
    r"\bthe judges?\b|\b(?-i:Judge)\b": "the evaluator, Evaluator",
    r"\b(?-i:Happened)\b": "RoundOutcome",
    r"\b(?-i:Held)\b(?!-out)": "ReferenceModel",
    r"\bnameless\b": "unnamed",
    r"\b(?:answered|handled|turns?) aside\b": "a stale turn",
    r"\belsewhere in time\b": "stale",
    r"\bmanieth\b": "the attempt number",
    r"\bgauges?\b": "the noise estimate",
    r"\bbearable\b": "the noise budget",
    r"\bsteer(?:s|ed|ing)?\b": "noise control, adapt",
    r"\bowe[sd]?\b|\bowing\b|\bdebts?\b": "the residual error, ErrorState",
    r"\b(?:is|are|was|were|be|been|being) told\b(?! apart)": "sent, reported, informed",
    r"\bthat (?:is|are) (?-i:none)\b": "invalid",
    r"\bruns of the same\b": "repeated runs",
    r"\bthe gate\b|\bgate's\b": "the proxy",
    r"\baquila keep\b": "aquila archive",
    r"\bsteady\.(?:py|jsonl)\b": "robustness.py, robustness.jsonl",
    r"\b(?:benchmarks|results|experiments)/beyond\b": "bytes_to_accuracy",
    r"\bthe way down\b": "the downlink",
    r"\bthe way up\b": "the uplink",
    r"\bhardly talks?\b": "communication-efficient",
    r"\bthin (?:up|down)?links?\b": "slow links",
    r"\bmend(?:s|ed|ing)?\b": "fix",
    r"\d (?:bits?|bytes?|[KMGT]i?B|samples?|numbers?|seconds?|ms) an? (?:coordinate|device|round"
    r"|second|upload|step|parameter|frame)\b|\b(?:bits|bytes|[KMGT]i?B|(?:kilo|mega|giga)bytes)"
    r" an? (?:coordinate|second)\b": "per",
}
GAP = r"\s+(?:(?:>|#|//|\*)\s+)*"
BANNED = [
    (re.compile(pattern.replace(" ", GAP), re.IGNORECASE), plain)
    for pattern, plain in WORDS.items()
]

FENCED = re.compile(r"^[> ]*(`{3,}|~{3,}).*?^[> ]*\1[`~]*[ ]*$", re.MULTILINE | re.DOTALL)
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
DISPLAY = re.compile(r"^[> ]*\$\$.+?\$\$[ ]*$", re.MULTILINE | re.DOTALL)
ITEM = re.compile(r"^(?:[-*+]|\d+[.)])\s+")
QUOTE = re.compile(r"^(?:> ?)+")
LONE_LINK = re.compile(r"!?\[[^\]]*\]\([^)]*\)[.,:;]?|<?https?://\S+>?")
NOT_PROSE = re.compile(r"\||#|<|\[[^\]]+\]: |(?:---+|\*\*\*+)$")
CODE = r"(?P<ticks>`+)(?!`).+?(?<!`)(?P=ticks)(?!`)"
FORMULA = r"(?<![\\$\w])\$(?![\s$])(?:(?!\n\n)[^$])+?(?<!\s)\$(?![\w$])"
LINK = r"!?\[(?:[^\[\]]|\[[^\]]*\])*\](?:\([^)]*\)|\[[^\]]*\])|<?https?://[^\s>)]+>?"
CODE_SPAN = re.compile(CODE)
ANY_FORMULA = re.compile(rf"\$\$.+?\$\$|{FORMULA}", re.DOTALL)
ONE_WORD = re.compile(f"{CODE}|{FORMULA}|{LINK}", re.DOTALL)
ABBREVIATION = re.compile(r"\b(?:e\.g|i\.e|et al|vs|cf|resp|approx|Eq|Fig|Sec)\.")
END = re.compile(r"[.!?:;]+[\"'”’)\]*_]*(?=\s|$)")
REMOVED_BY_GITHUB = re.compile(r"\\[^A-Za-z\s]")


@dataclass(frozen=True)
class Finding:
    """One place where a rule is broken."""

    path: Path
    line: int
    rule: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.rule}\n    {self.text}"


@dataclass
class Paragraph:
    """Consecutive lines of prose: a paragraph or a list item, quoted or not."""

    line: int
    lines: list[str] = field(default_factory=list)


def check_page(path: Path, text: str) -> list[Finding]:
    """Return what is wrong with a Markdown page."""
    lines = text.splitlines()
    found: list[tuple[int, str, str]] = []
    if len(lines) > MAX_PAGE_LINES and path.name not in ANY_LENGTH:
        rule = f"page of {len(lines)} lines, at most {MAX_PAGE_LINES}: split it"
        found.append((MAX_PAGE_LINES + 1, rule, lines[MAX_PAGE_LINES]))
    for paragraph in paragraphs(text):
        found += _wide_lines(paragraph)
        found += _long_paragraph(paragraph)
        found += _long_sentences(paragraph)
    found += _broken_formulas(text)
    found += _banned_words(text)
    return [Finding(path, *rest) for rest in sorted(found)]


def check_source(path: Path, text: str) -> list[Finding]:
    """Return the listed words that comments and docstrings of a source file use."""
    shown = _python_prose(text) if path.suffix == ".py" else _c_prose(text)
    return [Finding(path, *rest) for rest in sorted(_banned_words(shown))]


def paragraphs(text: str) -> list[Paragraph]:
    """Return the prose of a page, without tables, code, headings, display formulas and HTML."""
    for pattern in (FENCED, COMMENT, DISPLAY):
        text = pattern.sub(lambda match: "\n" * match[0].count("\n"), text)
    found: list[Paragraph] = []
    inside = was_quoted = False
    item_indent, after_blank = 0, True
    for number, whole in enumerate(text.splitlines(), 1):
        line = QUOTE.sub("", whole, count=1)
        quoted, bare = line != whole, line.strip()
        indent, item = len(line) - len(line.lstrip()), ITEM.match(bare)
        if after_blank and bare and not item and indent < item_indent:
            item_indent = 0
        code = after_blank and indent >= item_indent + 4
        if not bare or code or NOT_PROSE.match(bare):
            inside, after_blank = False, not bare or code
            continue
        if item:
            item_indent = indent + 2
        if not inside or item or quoted != was_quoted:
            found.append(Paragraph(number))
        found[-1].lines.append(whole)
        inside, was_quoted, after_blank = True, quoted, False
    return found


def _bare(line: str) -> str:
    """Return a line without the marks of quotes and list items."""
    return ITEM.sub("", QUOTE.sub("", line, count=1).strip(), count=1)


def _wide_lines(paragraph: Paragraph) -> Iterator[tuple[int, str, str]]:
    for number, line in enumerate(paragraph.lines, paragraph.line):
        if len(line) > MAX_COLUMNS and not LONE_LINK.fullmatch(_bare(line)):
            yield number, f"line of {len(line)} columns, at most {MAX_COLUMNS}", line.strip()


def _long_paragraph(paragraph: Paragraph) -> Iterator[tuple[int, str, str]]:
    size = len(paragraph.lines)
    if size > MAX_PARAGRAPH_LINES:
        rule = f"paragraph of {size} lines, at most {MAX_PARAGRAPH_LINES}"
        yield paragraph.line, rule, paragraph.lines[0].strip()


def _long_sentences(paragraph: Paragraph) -> Iterator[tuple[int, str, str]]:
    text = "\n".join(_bare(line) for line in paragraph.lines)
    # masks have the length of the original, so offsets are valid in both texts
    masked = ONE_WORD.sub(lambda match: "x" * len(match[0]), text)
    masked = ABBREVIATION.sub(lambda match: "x" * len(match[0]), masked)
    start = 0
    for end in [*(match.end() for match in END.finditer(masked)), len(masked)]:
        words = sum(any(map(str.isalnum, word)) for word in masked[start:end].split())
        if words > MAX_SENTENCE_WORDS:
            first = start + len(masked[start:end]) - len(masked[start:end].lstrip())
            rule = f"sentence of {words} words, at most {MAX_SENTENCE_WORDS}"
            number = paragraph.line + text.count("\n", 0, first)
            yield number, rule, " ".join(text[start:end].split())
        start = end


def _broken_formulas(text: str) -> Iterator[tuple[int, str, str]]:
    """Find formulas with a backslash that GitHub removes as a Markdown escape."""
    for pattern in (FENCED, CODE_SPAN):
        text = pattern.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)
    for match in ANY_FORMULA.finditer(text):
        if escape := REMOVED_BY_GITHUB.search(match[0]):
            rule = f"formula with {escape[0]}, which GitHub removes: use a command made of letters"
            yield text.count("\n", 0, match.start()) + 1, rule, " ".join(match[0].split())


def _banned_words(text: str) -> Iterator[tuple[int, str, str]]:
    lines = text.splitlines()
    for pattern, plain in BANNED:
        for match in pattern.finditer(text):
            number = text.count("\n", 0, match.start()) + 1
            rule = f'"{re.sub(GAP, " ", match[0])}", plainer: {plain}'
            yield number, rule, lines[number - 1].strip(" \0")


def _only(text: str, spans: Iterable[tuple[int, int]]) -> str:
    """Return the text with NUL in place of all characters outside these spans but line breaks."""
    shown = bytearray(len(text))
    for start, end in spans:
        shown[start:end] = b"\1" * (end - start)
    return "".join(
        char if keep or char == "\n" else "\0" for char, keep in zip(text, shown, strict=True)
    )


def _python_prose(text: str) -> str:
    """Return comments and docstrings at their original positions."""
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    documented = {
        node.lineno
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    }
    spans = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        docstring = token.type == tokenize.STRING and token.start[0] in documented
        if token.type == tokenize.COMMENT or docstring:
            (row, column), (last_row, last_column) = token.start, token.end
            spans.append((starts[row - 1] + column, starts[last_row - 1] + last_column))
    return _only(text, spans)


def _c_prose(text: str) -> str:
    """Return the comments of C, JavaScript or CSS at their original positions."""
    comment = re.compile(r"/\*.*?\*/|(?<!:)//[^\n]*", re.DOTALL)
    return _only(text, (match.span() for match in comment.finditer(text)))


def main(names: list[str]) -> int:
    """Print the findings in these files; return the exit status."""
    if not names:
        print(__doc__)
        return 2
    findings = []
    for path in map(Path, names):
        check = check_page if path.suffix == ".md" else check_source
        findings += check(path, path.read_text())
    for finding in findings:
        print(finding)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
