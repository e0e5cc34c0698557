"""Lists the Markdown documents of the repository, and finds fenced blocks in them."""

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted((*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")))
BLOCK = re.compile(r"^( *)```(\w+)\n(.*?)^\1```", re.MULTILINE | re.DOTALL)


def code_blocks(path: Path, *kinds: str) -> Iterator[tuple[str, str]]:
    """Yield kind and text of each fenced block of these kinds."""
    for match in BLOCK.finditer(path.read_text()):
        if match[2] in kinds:
            yield match[2], textwrap.dedent(match[3])


def documents_with_blocks(*kinds: str) -> list[Path]:
    """Return the documents that have such blocks."""
    return [path for path in DOCUMENTS if any(code_blocks(path, *kinds))]


def document_name(path: Path) -> str:
    """Return the path of a document relative to the repository, as a test id."""
    return str(path.relative_to(ROOT))
