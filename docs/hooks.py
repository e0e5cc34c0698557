"""MkDocs hooks: pages from the root, a page per method, links between pages, figures in the page.

Links in the documents are paths in the repository, so they work on GitHub. The hooks turn them into
links between pages. A link to a file that is not part of the site becomes the name of the file.
"""

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from aquila.cli.method_reference import page as method_page
from aquila.methods import METHODS

ROOT = Path(__file__).parent.parent
DOCS = "docs/"
PAGES = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
}
DOCUMENTS = {page: document for document, page in PAGES.items()}
FRONT_FIGURE = re.compile(r'<img[^>]*src="(images/front[^"]*\.svg)"[^>]*>')
STYLE = re.compile(r"<style>.*?</style>", re.DOTALL)
LINK = re.compile(r"\[([^\]]*)\]\(([^)#:\s]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages from the root and a page per method."""
    for document, page in PAGES.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / document)))
    for name, factory in METHODS.items():
        files.append(File.generated(config, _page_of(name), content=method_page(factory)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrite links; hide the side menus of the front page and of pages with wide tables."""
    path = page.file.src_uri
    if page.is_homepage or path.startswith("table"):
        page.meta["hide"] = ["navigation", "toc"]
    folder = posixpath.dirname(DOCUMENTS.get(path, DOCS + path))

    def rewrite(link: re.Match[str]) -> str:
        text, anchor = link[1], link[3] or ""
        if text.strip("`") in METHODS and link[2].endswith(".py"):
            return f"[{text}]({_page_of(text.strip('`'))})"
        target = posixpath.normpath(posixpath.join(folder, link[2]))
        inside = PAGES.get(target, target.removeprefix(DOCS))
        if files.get_file_from_path(inside) is not None:
            return f"[{text}]({inside}{anchor})"
        if not (ROOT / target).exists():
            return link[0]  # the strict build reports it
        name = text.strip("`")
        return f"`{name}`" if name in target else f"{text} (`{target}`)"

    return LINK.sub(rewrite, markdown)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Put the figure of the front page into the page, so that it has the colours of the scheme."""

    def inline(image: re.Match[str]) -> str:
        return STYLE.sub("", (ROOT / DOCS / image[1]).read_text())

    return FRONT_FIGURE.sub(inline, html) if page.is_homepage else html


def _page_of(method: str) -> str:
    return f"method-{method}.md"
