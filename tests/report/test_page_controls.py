"""The report in a browser: many runs, hover, smoothing, saving and copying."""

from pathlib import Path

import pytest

from aquila.report.page import read_runs, render
from helpers.run_folders import write_run

SIZE = {"width": 1280, "height": 900}
RUNS = 12


@pytest.fixture(scope="module")
def many_runs(tmp_path_factory) -> Path:
    """Return the page of twelve runs, one of which has three seeds."""
    folder = tmp_path_factory.mktemp("many")
    names = ["aquila", "fedsgd", *(f"m{n}" for n in range(RUNS - 3))]
    for level, name in enumerate(names, start=2):
        write_run(folder / name, name, level=32 if name == "fedsgd" else level, rounds=8)
    for seed in range(3):
        loss = {"loss": 1.0 + seed, "metrics": {"test_accuracy": 0.9 + 0.03 * seed, "rmse": 2.0}}
        write_run(folder / f"laq{seed}", "laq", rounds=8, facts={"seed": seed}, **loss)
    path = folder / "page.html"
    path.write_text(render(read_runs([folder]), ["aquila run --seed 1"]), encoding="utf-8")
    return path


@pytest.fixture
def page(browser, many_runs):
    context = browser.new_context(viewport=SIZE, accept_downloads=True)
    page = context.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: errors.append(message.text))
    page.goto(many_runs.as_uri())
    page.wait_for_selector("html[data-ready=true]")
    yield page
    context.close()
    assert errors == []


def visible(page, selector: str) -> int:
    return page.locator(f"{selector}:visible").count()


def test_main_runs_are_shown_first_and_the_others_on_request(page):
    assert visible(page, "#methods-table tbody tr") == 6
    assert visible(page, "#legend button") == visible(page, ".cost-to-quality tbody tr") == 6
    button = page.locator("#all-runs")
    assert button.inner_text() == "show all 12 runs"
    button.click()
    assert visible(page, "#methods-table tbody tr") == RUNS
    assert button.get_attribute("aria-pressed") == "true"
    button.click()
    assert visible(page, "#legend button") == 6


def test_filter_finds_any_run_by_name(page):
    page.locator("#run-filter").fill("M")
    assert visible(page, "#methods-table tbody tr") == RUNS - 3
    page.locator("#run-filter").fill("laq")
    assert page.locator("#methods-table tbody tr:visible").inner_text().startswith("laq\nmean of")
    assert page.locator("#legend [aria-pressed=true]").count() == 1
    page.locator("#run-filter").fill("")
    assert visible(page, "#methods-table tbody tr") == 6


def test_hover_reads_all_runs_in_all_charts_with_the_same_axis(page):
    plot = page.locator(".charts [data-chart=loss] .u-over")
    plot.scroll_into_view_if_needed()
    plot.hover(position={"x": 400, "y": 60})
    assert page.locator(".charts [data-chart=loss] .tooltip span:visible").count() >= 4
    assert visible(page, ".charts [data-chart=test_accuracy] .cursor-line") == 1
    assert visible(page, ".charts [data-chart=test_accuracy] .tooltip") == 0
    assert visible(page, ".charts [data-chart=level] .cursor-line") == 0
    assert page.locator(".charts [data-chart=test_accuracy] .readout").inner_text()
    page.locator("h1").hover()
    assert visible(page, ".cursor-line") == 0


def test_error_axis_and_smoothing_redraw_the_accuracy(page):
    chart = page.locator(".charts [data-chart=test_accuracy]")
    seen = {chart.locator("canvas").evaluate("c => c.toDataURL()")}
    page.locator("#error-axis").check()
    assert chart.locator("h3").inner_text() == "1 − test accuracy"
    page.evaluate("() => new Promise(done => setTimeout(done, 60))")
    seen.add(chart.locator("canvas").evaluate("c => c.toDataURL()"))
    page.locator("#smoothing").select_option("3")
    assert chart.locator("h3").inner_text() == "1 − test accuracy, mean of 3 evaluations"
    page.evaluate("() => new Promise(done => setTimeout(done, 60))")
    seen.add(chart.locator("canvas").evaluate("c => c.toDataURL()"))
    assert len(seen) == 3


def test_figures_and_tables_can_be_saved(page):
    def saved(selector: str) -> tuple[str, str]:
        with page.expect_download() as download:
            page.locator(selector).click()
        return download.value.suggested_filename, Path(download.value.path()).read_text()

    name, svg = saved(".charts [data-chart=loss] [data-save=svg]")
    assert name == "training_loss.svg"
    assert svg.count("<polyline") == 6
    assert ">fedsgd</text>" in svg
    name, csv = saved(".charts [data-chart=loss] [data-save=csv]")
    assert csv.startswith("run,uplink,Training loss\naquila,")
    assert csv.count("\n") == 1 + 6 * 8
    name, csv = saved("[data-csv=methods-table]")
    assert name == "methods_table.csv"
    assert csv.count("\n") == 1 + 6


def test_commands_and_tables_are_copied(page):
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    read = "navigator.clipboard.readText()"
    page.locator("[data-copy=reproduce]").click()
    page.locator("[data-copy=reproduce]", has_text="copied").wait_for()
    assert page.evaluate(read) == "aquila run --seed 1\n"
    page.locator("[data-copy-table]").click()
    page.locator("[data-copy-table]", has_text="copied").wait_for()
    assert page.evaluate(read).startswith("| method")


def test_navigation_stays_and_tables_show_that_they_continue(page):
    page.locator("#glossary").scroll_into_view_if_needed()
    page.wait_for_function("document.querySelector('nav').getBoundingClientRect().top <= 0")
    page.set_viewport_size({"width": 390, "height": 800})
    frame = page.locator("#methods .scroll-frame")
    page.locator("#methods .more-right").wait_for()
    frame.locator(".scrollable").evaluate("region => { region.scrollLeft = 1e6 }")
    page.locator("#methods .more-left:not(.more-right)").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") == 390


def test_bars_are_logarithmic_and_show_factors(page):
    rows = page.locator(".cost-to-quality tbody tr:visible")
    widths = rows.locator("rect").evaluate_all(
        "all => all.map(r => parseFloat(r.getAttribute('width')))"
    )
    assert min(widths) > 10
    assert widths == sorted(widths)
    assert "1.0 ×" in rows.filter(has_text="fedsgd").locator("svg text").last.text_content()
    assert page.locator("#bar-axis text").first.text_content().endswith("B")
