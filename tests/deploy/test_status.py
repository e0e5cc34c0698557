"""The status page: health of the server, metrics of the proxy and of runs, logs as JSON."""

import asyncio
import json
import logging
import sys

import pytest

pytest.importorskip("h11", reason="not installed: pip install -e '.[flower]'")
import httpx

from aquila.deploy.certificates import issue_server_certificate, make_authority
from aquila.deploy.http_server import HttpServer, Request
from aquila.deploy.log_format import JsonFormatter
from aquila.deploy.proxy import Proxy
from aquila.deploy.status import RunTotals, StatusPage

RECORD = {"round": 0, "loss": 2.5, "uplink_bytes": 100, "uploads": 3, "lost": 1, "metrics": {}}
BAD_DEVICES = {"rejected": [4], "quarantined": [2, 4], "epsilon": 1.25, "delta": 1e-5}


@pytest.fixture
def ask(tmp_path):
    """A function that requests a page of a server with one run and one certificate."""
    certificate = tmp_path / "server.crt"
    certificate.write_bytes(issue_server_certificate(make_authority(), ("a.org",)).certificate)
    (tmp_path / "runs" / "digits").mkdir(parents=True)
    records = tmp_path / "runs" / "digits" / "records.jsonl"
    records.write_text(
        json.dumps(RECORD) + "\n" + json.dumps({**RECORD, "round": 1, **BAD_DEVICES}) + "\n"
    )

    def request(path, superlink_status=200, method="GET"):
        async def talk():
            transport = httpx.MockTransport(lambda _: httpx.Response(superlink_status))
            async with httpx.AsyncClient(transport=transport, base_url="http://a") as client:
                server = HttpServer(Proxy(client))
                server.counts["timeouts"] = 7
                page = StatusPage(server, client, certificate, tmp_path / "runs")
                query = Request(method, path, [], "127.0.0.1")
                refused = page.identify(query)
                if not isinstance(refused, str):
                    return refused
                return await page.answer(query, b"")

        return asyncio.run(talk())

    return request


def test_health_of_a_working_server(ask):
    answer = ask("/health")
    state = json.loads(answer.content)
    assert answer.status == 200
    assert state["status"] == "ok"
    assert 390 < state["certificate_days_left"] < 400
    assert state["connections"] == 0


def test_health_without_a_superlink(ask):
    answer = ask("/health", superlink_status=502)
    assert answer.status == 503
    assert json.loads(answer.content)["status"] == "failing"


def test_other_pages_are_refused(ask):
    assert ask("/").status == 404
    assert ask("/health", method="POST").status == 404


def test_metrics_of_proxy_and_runs(ask):
    pytest.importorskip("prometheus_client", reason="not installed: pip install -e '.[metrics]'")
    text = ask("/metrics").content.decode()
    for line in (
        'aquila_proxy_events_total{kind="timeouts"} 7.0', "aquila_superlink_up 1.0",
        "aquila_proxy_connections 0.0", 'aquila_run_round{run="digits"} 1.0',
        'aquila_run_loss{run="digits"} 2.5', 'aquila_run_uplink_bytes_total{run="digits"} 200.0',
        'aquila_run_uploads_total{run="digits"} 6.0', 'aquila_run_lost_total{run="digits"} 2.0',
        'aquila_run_rejected_total{run="digits"} 1.0', 'aquila_run_quarantined{run="digits"} 2.0',
        'aquila_run_epsilon{run="digits"} 1.25',
    ):  # fmt: skip
        assert line in text.splitlines()


def test_metrics_without_the_package_say_what_to_install(ask, monkeypatch):
    for name in ("prometheus_client", "prometheus_client.core"):
        monkeypatch.setitem(sys.modules, name, None)
    answer = ask("/metrics")
    assert answer.status == 501
    assert b"install the extra `metrics`" in answer.content


def test_records_are_read_once_and_damaged_lines_skipped(tmp_path):
    path = tmp_path / "records.jsonl"
    path.write_text(json.dumps(RECORD) + "\nnonsense\n[1]\n" + json.dumps(RECORD))
    totals = RunTotals(path)
    totals.update()
    totals.update()
    assert totals.totals["uplink_bytes"] == 100
    with path.open("a") as file:
        file.write("\n")
    totals.update()
    assert totals.totals["uplink_bytes"] == 200
    path.write_text(json.dumps({**RECORD, "uplink_bytes": 1}) + "\n")
    totals.update()
    assert totals.totals["uplink_bytes"] == 1


def test_records_of_a_run_that_was_rolled_back_are_read_again(tmp_path):
    path = tmp_path / "records.jsonl"
    path.write_text(2 * (json.dumps(RECORD) + "\n"))
    totals = RunTotals(path)
    totals.update()
    (tmp_path / "new").write_text(3 * (json.dumps({**RECORD, "uplink_bytes": 7}) + "      \n"))
    (tmp_path / "new").replace(path)  # longer than the file before
    totals.update()
    assert totals.totals["uplink_bytes"] == 21
    assert totals.newest["quarantined"] == 0


def test_log_lines_as_json():
    record = logging.LogRecord("aquila.proxy", logging.WARNING, "", 1, "a %s\nb", ("x",), None)
    line = JsonFormatter().format(record)
    assert "\n" not in line
    values = json.loads(line)
    assert values["time"].endswith("+00:00")
    assert {k: v for k, v in values.items() if k != "time"} == {
        "level": "WARNING", "logger": "aquila.proxy", "message": "a x\nb",
    }  # fmt: skip
