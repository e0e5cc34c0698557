"""Fixtures that open a report in a browser."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aquila.report.page import read_runs, render
from helpers.run_folders import write_comparison, write_run

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
WINDOW = {"width": 1280, "height": 900}
TIMEOUT_MS = 120_000


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Return a browser that playwright controls; skip the test if there is none."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    executable = next(filter(None, map(shutil.which, BROWSERS)), None)
    if executable is None:
        pytest.skip(f"no browser found, none of {', '.join(BROWSERS)}")
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=arguments)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def report_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the report of five runs, one of which stopped early and has no accuracy."""
    folder = write_comparison(tmp_path_factory.mktemp("page") / "runs")
    write_run(folder / "laq", "laq", level=3, rounds=9, facts={"rounds": 12}, metrics={})
    page = folder / "report.html"
    page.write_text(render(read_runs([folder]), ["aquila run"]), encoding="utf-8")
    return page


@pytest.fixture
def open_report(browser: Any, report_file: Path) -> Iterator[Any]:
    """Return a function that opens the report in a window.

    At the end, the console must be empty, and the page must not have used the network.
    """
    messages: list[str] = []
    requested: list[str] = []
    contexts = []

    def open_page(size: dict[str, int] = WINDOW, **options: Any) -> Any:
        contexts.append(browser.new_context(viewport=size, **options))
        page = contexts[-1].new_page()
        page.set_default_timeout(TIMEOUT_MS)
        page.on("console", lambda message: messages.append(message.text))
        page.on("pageerror", lambda error: messages.append(str(error)))
        page.on("request", lambda request: requested.append(request.url))
        page.goto(report_file.as_uri())
        if options.get("java_script_enabled", True):
            page.wait_for_selector("html[data-ready=true]")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert messages == []
    assert {url.split(":")[0] for url in requested} <= {"file", "data"}
