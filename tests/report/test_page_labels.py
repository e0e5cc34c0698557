"""Names of lines in the figures of a report."""

from importlib.resources import files

import pytest

LABELS = files("aquila.report.page") / "resources" / "labels.js"
FRAME = {"left": 50, "top": 70, "right": 650, "bottom": 400}
PLACE = """([lines, frame]) => placeLabels(
    lines.map(({ label, points }) => ({ run: { label }, points })), frame, (text) => 7 * text.length
).map(({ run, box, leader }) => ({ label: run.label, box, leader }))"""


@pytest.fixture
def page(browser):
    page = browser.new_page()
    page.add_script_tag(content=LABELS.read_text())
    yield page
    page.close()


def place(page, headroom):
    """Return the labels of six lines that end within 30 pixels of each other, at the top."""
    names = ["aquila", "aquila_topk", "aquila_dither", "eden density=0.1", "sparseloco", "laq"]
    lines = [
        {"label": name, "points": [[100 + 5 * n, 380], [300 + 6 * n, 80 + n]]}
        for n, name in enumerate(names)
    ]
    return page.evaluate(PLACE, [lines, {**FRAME, "headroom": headroom}])


def overlap(a, b):
    horizontal = a["left"] < b["right"] and b["left"] < a["right"]
    return horizontal and a["top"] < b["bottom"] and b["top"] < a["bottom"]


def test_labels_of_lines_that_end_together_do_not_overlap(page):
    for headroom, count in ((0, 4), (52, 5)):
        labels = place(page, headroom)
        boxes = [label["box"] for label in labels]
        assert len(boxes) >= count  # a name without room is left out
        assert not any(overlap(a, b) for n, a in enumerate(boxes) for b in boxes[:n])
        for label in labels:
            distance = abs(label["box"]["bottom"] - 80)
            assert label["leader"] or distance < 40, label


def test_the_first_figure_has_room_for_labels_above_its_lines(page):
    labels = place(page, 52)
    assert sum(label["box"]["bottom"] <= FRAME["top"] for label in labels) >= 4
