"""The site builds strictly, holds every page of its menu, and needs no network."""

import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from helpers.documents import DOCUMENTS, ROOT

if find_spec("mkdocs") is None or find_spec("material") is None:
    pytest.skip("mkdocs-material is not installed (the extra `docs`)", allow_module_level=True)

NAV = re.findall(r"^ +- .*: (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site; `--strict` fails on every link, anchor or file that leads nowhere."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return folder


def test_every_page_of_the_menu_is_there(site):
    assert len(NAV) > 20
    for page in NAV:
        assert "<h1" in (site / page).with_suffix(".html").read_text()


def test_every_document_is_in_the_menu():
    pages = {path.name.lower() for path in DOCUMENTS} - {"readme.md"}
    assert pages == set(NAV)


def test_nothing_is_loaded_from_elsewhere(site):
    for page in site.rglob("*.html"):
        html = page.read_text()
        assert not re.search(r"<(script|img|iframe)[^>]*src=\"?(https?:)?//", html)
        assert not re.search(r"<link[^>]*href=\"?(https?:)?//", html)


def test_links_to_files_outside_become_their_names(site):
    assert "<code>src/aquila/methods/laq.py</code>" in (site / "methods.html").read_text()
    assert 'href="security.html"' in (site / "deployment.html").read_text()


@pytest.mark.skipif(BROWSER is None, reason="no chromium found")
def test_search_works_on_files(site):
    root = ["--no-sandbox"] if os.geteuid() == 0 else []
    command = [BROWSER, "--headless", "--disable-gpu", *root]
    command += ["--virtual-time-budget=20000", "--dump-dom"]
    done = subprocess.run(
        [*command, (site / "index.html").as_uri() + "?q=innovation"],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert re.search(r"\d+ matching documents", done.stdout)
