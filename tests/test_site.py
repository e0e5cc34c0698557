"""The site builds strictly, contains every page of its menu, and needs no network."""

import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import aquila
from aquila.methods import METHODS
from aquila.report.style import PALETTE
from helpers.documents import DOCUMENTS, ROOT

if any(find_spec(name) is None for name in ("mkdocs", "material", "mkdocstrings")):
    pytest.skip("the extra `docs` is not installed", allow_module_level=True)

NAV = re.findall(r"^ +- .*: (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)

FORMULA = re.compile(r'<(span|div) class="arithmatex">.*?</\1>', re.DOTALL)
FONT_LOADED = """() => [...document.fonts].some(
    font => font.family.includes("KaTeX_Math") && font.status === "loaded"
)"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site; `--strict` fails on broken links and anchors."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return folder


def test_every_page_of_the_menu_exists(site):
    assert len(NAV) > 20
    for page in NAV:
        assert "<h1" in (site / page).with_suffix(".html").read_text()


def test_every_document_is_in_the_menu():
    pages = {path.name.lower().replace("readme.md", "index.md") for path in DOCUMENTS}
    assert pages == set(NAV)


def test_every_method_has_a_page(site):
    overview = (site / "methods.html").read_text()
    for name in METHODS:
        assert f'href="method-{name}.html"' in overview
        assert f"<code>{name}</code>" in (site / f"method-{name}.html").read_text()


def test_the_front_page_has_its_figure_and_leads_to_the_paths(site):
    html = (site / "index.html").read_text()
    paths = {f"paths.html#{name}" for name in ("researcher", "practitioner", "operator")}
    assert paths <= set(re.findall(r'href="([^"]*)"', html))
    assert html.count('<svg xmlns="http://www.w3.org/2000/svg" class="front-figure"') == 2
    assert "<style>" not in html.partition("front-figure")[2].partition("</svg>")[0]


def test_the_front_figure_has_the_colours_of_the_report():
    style = (ROOT / "docs" / "site.css").read_text()
    figure = (ROOT / "docs" / "images" / "front.svg").read_text()
    used = set(re.findall(r'class="line (\w+)"', figure))
    assert len(used) == 5
    for name in used:
        assert f".front-figure .{name} {{ --colour: {PALETTE[name].lower()}; }}" in style


def test_the_api_pages_have_every_public_name(site):
    """Headings name the public place, which the identifiers of mkdocstrings do not show."""
    pages = [(ROOT / "docs" / name).read_text() for name in ("api.md", "api-methods.md")]
    shown = set(re.findall(r"heading: aquila\.(\w+)$", "\n".join(pages), re.MULTILINE))
    assert shown == set(aquila.__all__) - {"__version__", "tasks"}
    html = (site / "api.html").read_text()
    assert "Fraction of the devices sampled per round." in html
    assert "Annotated[" not in html


def test_the_flower_page_has_every_public_name(site):
    flower = pytest.importorskip("aquila.flower", reason="the extra `flower` is not installed")
    page = (ROOT / "docs" / "api-flower.md").read_text()
    assert set(re.findall(r"heading: aquila\.flower\.(\w+)", page)) == set(flower.__all__)


def test_pages_load_nothing_from_the_network(site):
    for page in site.rglob("*.html"):
        html = page.read_text()
        assert not re.search(r"<(script|img|iframe)[^>]*src=\"?(https?:)?//", html)
        assert not re.search(r"<link[^>]*href=\"?(https?:)?//", html)


def test_links_to_source_files_become_file_names(site):
    assert "<code>src/aquila/methods/laq.py</code>" in (site / "method-laq.html").read_text()
    assert 'href="security.html"' in (site / "deployment.html").read_text()


@pytest.mark.skipif(BROWSER is None, reason="no chromium found")
def test_search_works_without_a_server(site):
    root = ["--no-sandbox"] if os.geteuid() == 0 else []
    command = [BROWSER, "--headless", "--disable-gpu", *root]
    command += ["--virtual-time-budget=20000", "--dump-dom"]
    done = subprocess.run(
        [*command, (site / "index.html").as_uri() + "?q=innovation"],
        capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert re.search(r"\d+ matching documents", done.stdout)


@pytest.mark.skipif(BROWSER is None, reason="no chromium found")
def test_formulas_render_without_a_network(site):
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    texts = {page: page.read_text() for page in sorted(site.glob("*.html"))}
    pages = [page for page, text in texts.items() if 'class="arithmatex"' in text]
    assert len(pages) > 20
    formulas = [found[0] for text in texts.values() for found in FORMULA.finditer(text)]
    all_formulas = site / "all-formulas.html"  # much faster than to open every page
    all_formulas.write_text(texts[pages[0]].replace("</article>", f"{''.join(formulas)}</article>"))
    root = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=BROWSER, args=root)
        window = browser.new_context(offline=True).new_page()
        window.set_default_timeout(300_000)
        complaints: list[str] = []
        window.on("console", lambda message: complaints.append(message.text))
        window.on("pageerror", lambda error: complaints.append(str(error)))
        window.on("requestfailed", lambda request: complaints.append(request.url))
        for page in (pages[0], all_formulas):
            window.goto(page.as_uri())
            drawn = window.locator(".arithmatex:has(.katex)").count()
            assert window.locator(".arithmatex").count() == drawn > 0
            assert window.locator(".katex-error").all_text_contents() == []
            window.wait_for_function(FONT_LOADED)
        browser.close()
    assert drawn > len(formulas) > 300
    assert complaints == []


def test_dollar_signs_in_code_are_not_formulas(site):
    pages = [page.read_text() for page in site.glob("*.html")]
    code = [text for page in pages for text in re.findall(r"<code.*?</code>", page, re.DOTALL)]
    assert sum("$" in text for text in code) > 1
    assert not any("arithmatex" in text for text in code)
