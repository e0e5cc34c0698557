"""The HTML of the report: contents, escaping, security policy and size."""

import base64
import hashlib
import json
import re
import zlib
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from aquila.report.page import PageRuns, read_runs, render, write_page
from aquila.report.page.packed_data import MAX_CELLS, MAX_POINTS, NO_REPLY, level_map, shown_rounds
from helpers.run_folders import write_comparison, write_run

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&"
VOID = {"meta", "link", "input", "img", "br"}


class Document(HTMLParser):
    """Collects elements and checks that every opened one is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture
def comparison(tmp_path: Path) -> PageRuns:
    return read_runs([write_comparison(tmp_path / "runs")])


def data_of(page: str) -> dict:
    return json.loads(
        re.search(r'<script type="application/json" id="data">(.*?)</script>', page)[1]
    )


def test_page_has_all_sections(comparison):
    page = render(comparison, ["aquila compare -m aquila"])
    document = Document(page)
    assert document.open == []
    sections = [attributes["id"] for attributes in document.all("section")]
    assert sections == [
        "quality", "methods", "curves", "devices", "split", "settings", "environment", "reproduce",
        "glossary",
    ]  # fmt: skip
    assert "aquila compare -m aquila" in page
    assert "40 samples on 4 devices" in page
    assert all(
        f"#{part}" in {a["href"] for a in document.all("a")} for part in ("methods", "curves")
    )
    ids = [attributes["id"] for _, attributes in document.elements if attributes.get("id")]
    assert len(ids) == len(set(ids))


def test_tables_show_totals_of_records(comparison):
    page = render(comparison)
    fedsgd = next(run for run in comparison.runs if run.label == "fedsgd")
    assert f'data-value="{float(fedsgd.result.uplink_bytes)!r}"' in page
    assert f">{fedsgd.result.skips}<" in page
    own = comparison.runs[0]
    saving = fedsgd.result.uplink_bytes / own.result.uplink_bytes
    assert f">{saving:.1f} ×<" in page


def test_sample_count_of_zero_is_shown_as_all(tmp_path):
    write_run(tmp_path / "aquila", "aquila", facts={"samples": 0, "seed": 0})
    page = render(read_runs([tmp_path]))
    assert "<dt>samples</dt><dd>all</dd>" in page
    assert "<dt>seed</dt><dd>0</dd>" in page


def test_every_table_number_has_a_sort_key(comparison):
    table = re.search(r'<table id="methods-table">.*?</table>', render(comparison))[0]
    heads = re.findall(r"<th [^>]*scope=\"col\"[^>]*>", table)
    rows = re.findall(r"<tr[^>]*data-run.*?</tr>", table)
    assert len(rows) == 4
    for row in rows:
        keys = re.findall(r'data-value="([^"]*)"', row)
        assert len(keys) == len(heads)
        assert [float(key) for key in keys[1:]]


def test_page_makes_no_network_request(comparison):
    document = Document(render(comparison))
    sources = [a.get("src") or a.get("href") for tag, a in document.elements if tag != "a"]
    assert all(source.startswith("data:") for source in sources if source)
    policy = next(
        m["content"]
        for m in document.all("meta")
        if m.get("http-equiv") == "Content-Security-Policy"
    )
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert not [
        a for _, a in document.elements if "style" in a or any(k.startswith("on") for k in a)
    ]


def test_security_policy_allows_only_the_inline_scripts_and_style(comparison):
    page = render(comparison)
    inside = re.findall(r"<script>(.*?)</script>|<style>(.*?)</style>", page, re.DOTALL)
    assert len(inside) == 3
    for text in (script or style for script, style in inside):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"&#x27;sha256-{digest}&#x27;" in page


def test_values_from_files_are_escaped(tmp_path):
    facts = {"data": HOSTILE, "split": {"x": HOSTILE}, "gpu": HOSTILE, HOSTILE: HOSTILE}
    write_run(tmp_path / "a", HOSTILE, facts={**facts, "parameters": {HOSTILE: HOSTILE}})
    page = render(read_runs([tmp_path]), [HOSTILE], lambda run: None)
    assert "<script>alert" not in page
    assert "<img" not in page
    document = Document(page)
    assert document.open == []
    assert len(document.all("script")) == 3
    assert data_of(page)["runs"][0]["label"] == HOSTILE


def test_numbers_are_packed_in_the_order_of_the_script(comparison):
    data = data_of(render(comparison))
    numbers = zlib.decompress(base64.b64decode(data["numbers"]))
    columns = 1 + len(data["costs"]) + len(data["charts"])
    sizes = [
        4 * r["points"] * columns + r["map_devices"] * r["map_rounds"] + 4 * r["map_devices"]
        for r in data["runs"]
    ]
    assert len(numbers) == sum(sizes)
    first = np.frombuffer(numbers[: 4 * 12 * columns], "<f4").reshape(columns, 12)
    run = comparison.runs[0]
    assert first[0].tolist() == list(range(12))
    assert first[1] == pytest.approx(run.cumulative_uplink)
    assert data["charts"][0]["column"] == "loss"
    assert first[1 + len(data["costs"])] == pytest.approx([r.loss for r in run.records])
    cells = np.frombuffer(numbers[4 * 12 * columns :][: 4 * 12], np.uint8).reshape(4, 12)
    assert cells[0].tolist() == [run.records[n].levels.get(0, 0) for n in range(12)]


def test_missing_reply_differs_from_skip(tmp_path):
    folder = write_run(tmp_path / "run", devices=3, uplink={0: 5029, 2: 29}, levels={0: 5})
    (run,) = read_runs([folder]).runs
    assert level_map(run)[:, 0].tolist() == [5, NO_REPLY, 0]


def test_page_of_large_run_stays_small(tmp_path):
    write_run(tmp_path / "aquila", rounds=1000, devices=100)
    write_run(tmp_path / "qsgd", "qsgd", rounds=1000, devices=100)
    page = render(read_runs([tmp_path]))
    assert len(page.encode()) < 1_000_000
    assert data_of(page)["runs"][0]["map_rounds"] == 1000


def test_huge_run_shows_evenly_spaced_rounds():
    for count in (0, 1, 7, MAX_POINTS, MAX_POINTS + 1, 10**6):
        shown = shown_rounds(count, MAX_POINTS)
        assert len(shown) <= MAX_POINTS
        assert shown.step == 1 or count > MAX_POINTS
    assert len(shown_rounds(1000, MAX_CELLS // 500)) == 200


@pytest.mark.parametrize("rounds", [1, 2])
def test_shortest_runs_have_a_page(tmp_path, rounds):
    write_run(tmp_path / "run", rounds=rounds, devices=1)
    assert Document(render(read_runs([tmp_path / "run"]))).open == []


def test_records_without_measures_have_a_page(tmp_path):
    write_run(tmp_path / "run", loss=None, metrics={}, error_ratio=None, levels={}, uplink={},
              uplink_bytes=0)  # fmt: skip
    (tmp_path / "run" / "run.json").unlink()
    (tmp_path / "run" / "split.json").unlink()
    page = render(read_runs([tmp_path / "run"]))
    assert "12 rounds used" in page
    assert 'id="quality"' not in page
    assert "no split.json" in page


def test_stopped_run_is_labelled(tmp_path):
    write_run(tmp_path / "run", rounds=5, facts={"rounds": 40})
    assert "stopped after 5 of 40 rounds" in render(read_runs([tmp_path]))


def test_runs_of_different_problems_get_a_warning(tmp_path):
    write_run(tmp_path / "a")
    assert "different problems" not in render(read_runs([tmp_path]))
    write_run(tmp_path / "b", "laq", facts={"model": "cnn"})
    assert "they differ in model" in render(read_runs([tmp_path]))


def test_class_map_is_drawn_if_classes_are_known(tmp_path):
    found = read_runs([write_run(tmp_path / "run")])
    page = render(found, (), lambda run: [[10, 0], [0, 10], [5, 5], [1, 9]])
    assert "Map of 4 devices by 2 classes" in page
    assert "Map of" not in render(found)


def test_page_replaces_older_page(tmp_path, comparison):
    path = tmp_path / "new" / "report.html"
    for _ in range(2):
        assert write_page(comparison, path, (), lambda run: None) == path
    assert path.read_text().startswith("<!DOCTYPE html>")
    assert [p.name for p in path.parent.iterdir()] == ["report.html"]


def test_rendering_is_deterministic(comparison):
    assert render(comparison) == render(comparison)


def test_lost_replies_are_not_labelled_skips(tmp_path):
    for name, lost, label in (("sound", 0, "skip"), ("lossy", 1, "skip or lost")):
        found = read_runs([write_run(tmp_path / name, lost=lost)])
        assert data_of(render(found))["runs"][0]["no_upload_label"] == label
