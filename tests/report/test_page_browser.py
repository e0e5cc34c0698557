"""The report in a browser: no errors, and every control works."""

from collections.abc import Callable
from typing import Any

import pytest

from aquila.report.page import read_runs, render
from aquila.report.style import PALETTE
from helpers.run_folders import write_run

WIDE, NARROW = {"width": 1280, "height": 900}, {"width": 390, "height": 844}


def first_column(page: Any) -> list[str]:
    return page.locator("#methods-table tbody th").evaluate_all(
        "rows => rows.map(r => r.dataset.value)"
    )


def picture(page: Any, column: str = "loss") -> str:
    """Return the current pixels of a figure."""
    page.evaluate("() => new Promise(done => requestAnimationFrame(() => setTimeout(done, 20)))")
    return page.locator(f"[data-chart={column}] canvas").evaluate("canvas => canvas.toDataURL()")


def wait_until(page: Any, wanted: Callable[[str], bool]) -> bool:
    """Wait until the loss figure satisfies a condition; return False on timeout."""
    return any(wanted(picture(page)) for _ in range(100))


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["1280", "390"])
def test_body_never_scrolls_horizontally(open_report, size, scheme):
    page = open_report(size, color_scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") == size["width"]
    assert page.locator(".plot.interactive canvas").count() == 6


def test_long_names_do_not_widen_the_page(browser, tmp_path):
    for name in ("aquila", "laq"):
        write_run(tmp_path / name, name + 120 * "x", facts={"data": 150 * "y", "gpu": 150 * "z"})
    (tmp_path / "page.html").write_text(render(read_runs([tmp_path])), encoding="utf-8")
    page = browser.new_page(viewport=NARROW)
    page.goto((tmp_path / "page.html").as_uri())
    page.wait_for_selector("html[data-ready=true]")
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    page.close()


def test_headings_sort_in_both_directions_by_mouse_and_keyboard(open_report):
    page = open_report()
    assert first_column(page)[0] == "aquila"
    head = page.locator("#methods-table thead th", has_text="uplink")
    head.locator("button").click()
    rising = first_column(page)
    assert (rising[0], rising[-1], head.get_attribute("aria-sort")) == (
        "laq",
        "fedsgd",
        "ascending",
    )
    head.locator("button").focus()
    page.keyboard.press("Enter")
    assert first_column(page) == rising[::-1]
    assert head.get_attribute("aria-sort") == "descending"
    accuracy = page.locator("#methods-table thead th", has_text="test accuracy").locator("button")
    for _ in range(2):
        accuracy.click()
        assert first_column(page)[-1] == "laq"  # no value: last in both directions
    assert page.locator("#methods-table [aria-sort]").count() == 1


def write_timed_page(folder):
    for name, level, seconds in (("aquila", 4, 3600.0), ("fedsgd", 32, 1800.0)):
        costs = {"seconds": seconds, "joules": 50.0 * level, "late": 1, "lost": 1}
        write_run(folder / name, name, level=level, **costs)
    write_run(folder / "laq", "laq", level=5)
    path = folder / "page.html"
    path.write_text(render(read_runs([folder])), encoding="utf-8")
    return path


def test_time_and_energy_are_axes_and_columns(browser, tmp_path):
    path = write_timed_page(tmp_path)
    page = browser.new_page(viewport=WIDE)
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(path.as_uri())
    page.wait_for_selector("html[data-ready=true]")
    rows = page.locator(".cost-to-quality tbody tr")
    assert rows.first.inner_text().split("\t")[0].strip() == "aquila"
    page.locator("#cost").select_option("time")
    assert "–" in rows.filter(has_text="laq").inner_text()
    assert rows.first.inner_text().split("\t")[0].strip() == "fedsgd"
    heads = page.locator("#methods-table thead th").all_inner_texts()
    assert [h for h in heads if h.startswith(("simulated", "energy", "late"))] == [
        "simulated time", "energy", "late",
    ]  # fmt: skip
    before = picture(page)
    for axis in ("time", "energy"):
        page.locator(f"[data-axis={axis}]").click()
        assert wait_until(page, lambda now, last=before: now != last)
        before = picture(page)
    page.set_viewport_size(NARROW)
    # the figures follow a new size when the browser has told them of it
    page.wait_for_function("document.documentElement.scrollWidth == 390")
    page.close()
    assert errors == []


def test_pages_without_a_link_model_show_bytes_only(open_report):
    page = open_report()
    assert page.locator("[data-axis]").all_inner_texts() == [
        "uplink", "uplink + downlink", "rounds",
    ]  # fmt: skip
    assert page.locator("#cost option").all_inner_texts() == ["uplink", "uplink + downlink"]


def test_legend_hides_and_shows_lines(open_report):
    page = open_report()
    before = picture(page)
    button = page.locator("#legend button", has_text="fedsgd")
    button.focus()
    page.keyboard.press("Space")
    assert button.get_attribute("aria-pressed") == "false"
    assert picture(page) != before
    button.click()
    assert button.get_attribute("aria-pressed") == "true"
    assert picture(page) == before
    page.locator("[data-show=aquila]").click()
    assert page.locator("#legend [aria-pressed=true]").count() == 2
    page.locator("[data-show=none]").click()
    assert page.locator("#legend [aria-pressed=true]").count() == 0


def test_figures_zoom_by_drag_wheel_keys_and_buttons_and_reset(open_report):
    page = open_report()
    plot = page.locator("[data-chart=loss] .u-over")
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    left, top = box["x"], box["y"]
    page.mouse.move(left + 5, top + box["height"] - 2)
    whole = picture(page)

    def drag() -> None:
        page.mouse.move(left + 60, top + 40)
        page.mouse.down()
        page.mouse.move(left + 250, top + 160, steps=4)
        page.mouse.up()

    def wheel() -> None:
        page.mouse.move(left + 100, top + 100)
        page.mouse.wheel(0, -200)

    zooms = [drag, wheel,
             lambda: page.keyboard.press("+"), lambda: page.keyboard.press("ArrowLeft"),
             page.locator("[data-chart=loss] [data-zoom=in]").click]  # fmt: skip
    resets = [lambda: page.keyboard.press("0"), lambda: plot.dblclick(position={"x": 30, "y": 30}),
              page.locator("[data-chart=loss] [data-zoom=reset]").click]  # fmt: skip
    for number, zoom in enumerate(zooms):
        page.locator("[data-chart=loss] .plot").focus()
        zoom()
        assert wait_until(page, lambda now: now != whole), f"zoom {number}"
        page.locator("[data-chart=loss] .plot").focus()
        resets[number % len(resets)]()
        assert wait_until(page, lambda now: now == whole), f"zoom {number}"


def test_wheel_scrolls_past_an_unfocused_figure(open_report):
    page = open_report()
    plot = page.locator("[data-chart=loss] .u-over")
    plot.scroll_into_view_if_needed()
    whole = picture(page)
    plot.hover()
    page.evaluate("""() => {
        window.scrolled = new Promise(done => addEventListener('scroll', () => done(true)));
    }""")
    page.mouse.wheel(0, 300)
    assert page.evaluate("() => window.scrolled")
    assert picture(page) == whole


def test_zoom_is_limited_and_resets(open_report):
    page = open_report()
    whole = picture(page)
    for key in "+-":
        page.locator("[data-chart=loss] .plot").focus()
        page.evaluate(
            """key => {
            const plot = document.activeElement;
            for (let n = 0; n < 400; n++) plot.dispatchEvent(new KeyboardEvent('keydown', { key }));
        }""",
            key,
        )
        assert wait_until(page, lambda now: now != whole)
        page.keyboard.press("0")
        assert wait_until(page, lambda now: now == whole)


def test_loss_can_be_drawn_against_rounds(open_report):
    page = open_report()
    loss, level = picture(page), picture(page, "level")
    page.locator("[data-axis=round]").click()
    assert page.locator("[data-axis=round]").get_attribute("aria-pressed") == "true"
    assert page.locator("[data-axis=bytes]").get_attribute("aria-pressed") == "false"
    assert picture(page) != loss
    assert picture(page, "level") == level


def test_point_under_the_mouse_is_described(open_report):
    page = open_report()
    page.locator("[data-show=aquila]").click()
    page.locator("#legend button", has_text="b_min").click()
    plot = page.locator("[data-chart=level] .u-over")
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    for down in range(4, int(box["height"]), 8):
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + down)
        if shown := page.locator("[data-chart=level] .readout").text_content():
            break
    assert shown.startswith("aquila: ")
    assert "at round" in shown


def test_savings_follow_the_baseline(open_report):
    page = open_report()
    saving = page.locator("#methods-table tbody tr", has_text="qsgd").locator("[data-saving]")
    assert page.locator("#baseline-name").text_content() == "fedsgd"
    assert saving.text_content() != "1.0 ×"
    page.select_option("#baseline", label="qsgd")
    assert page.locator("#baseline-name").text_content() == "qsgd"
    assert saving.text_content() == "1.0 ×"


def test_bytes_to_quality_follow_measure_and_target(open_report):
    page = open_report()
    rows = page.locator(".cost-to-quality tbody tr")
    assert "not reached" in rows.last.text_content()
    shown = rows.first.text_content()
    page.locator("#target").focus()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Home")
    assert rows.first.text_content() != shown
    assert "test accuracy" in page.locator("#target").get_attribute("aria-valuetext")
    page.select_option("#measure", "loss")
    assert page.locator("#goal").text_content().startswith("training loss")
    assert "not reached" not in rows.first.text_content()


def test_arrow_keys_describe_map_cells(open_report):
    page = open_report()
    page.select_option("#device-run", label="qsgd")
    page.locator("#level-map").focus()
    page.keyboard.press("ArrowRight")
    assert page.locator("#map-cell").text_content().startswith("device 0, round 1: skip")
    page.keyboard.press("ArrowDown")
    assert page.locator("#map-cell").text_content().startswith("device 1, round 1: level 8")
    assert "qsgd" in page.locator("#level-map").get_attribute("aria-label")
    assert "6 bits" in page.locator("#map-scale").text_content()


def test_page_has_landmarks_labels_and_a_skip_link(open_report):
    page = open_report()
    for landmark in ("header", "nav", "main", "footer", "h1"):
        assert page.locator(landmark).count() == 1
    assert page.locator("table").count() == page.locator("table > caption").count()
    unnamed = """() => [...document.querySelectorAll('button, select, input, canvas, [tabindex]')]
        .filter(e => e.closest('.uplot') === null)
        .filter(e => !(e.getAttribute('aria-label') || e.textContent.trim() || e.labels?.length))
        .map(e => e.outerHTML)"""
    # a canvas gets its name when the browser has told it its size
    page.wait_for_function(f"({unnamed})().length === 0")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "results"


def test_text_and_lines_have_enough_contrast(open_report):
    contrast = """(names) => {
        const style = getComputedStyle(document.documentElement);
        const parse = (name) => style.getPropertyValue(name).trim();
        const light = (hex) => [1, 3, 5].map(n => parseInt(hex.slice(n, n + 2), 16) / 255)
            .map(c => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
            .reduce((sum, c, n) => sum + c * [0.2126, 0.7152, 0.0722][n], 0);
        const against = (a, b) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
        const paper = light(parse('--paper'));
        const ratio = (name) => against(light(parse(name)), paper);
        return [['--ink', '--muted'].map(ratio), names.map(name => ratio(`--${name}`))];
    }"""
    for scheme in ("light", "dark"):
        texts, lines = open_report(color_scheme=scheme).evaluate(contrast, list(PALETTE))
        assert min(texts) >= 4.5
        assert min(lines) >= 2.8


def test_tables_and_static_figures_work_without_javascript(open_report):
    page = open_report(java_script_enabled=False)
    assert page.locator("svg.static:visible").count() == 6
    assert page.locator("#methods-table:visible").count() == 1
    assert page.locator("#settings:visible").count() == 1
    assert page.locator(".needs-js:visible").count() == 0


def test_print_uses_static_figures(open_report):
    page = open_report()
    page.emulate_media(media="print")
    assert page.locator("svg.static:visible").count() == 6
    assert page.locator(".uplot:visible, nav:visible, .controls:visible").count() == 0
