"""The status page of a server, on loopback: its health, and metrics for Prometheus.

GET /health returns JSON, with status 200 if the SuperLink answers and the certificate is valid, and
503 if not. GET /metrics returns numbers of the proxy and of the newest round of every run.
"""

import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from aquila.deploy.certificates import days_left
from aquila.deploy.http_server import Answer, HttpServer, Request, text_answer

RECORDS_FILES = ("records.jsonl", "*/records.jsonl", "*/*/records.jsonl")
"""Where the records of runs are, relative to the folder of all runs."""

GAUGES = {
    "round": "number of the newest closed round",
    "loss": "mean training loss in the newest round",
    "quarantined": "devices that may not take part in the next round",
    "epsilon": "privacy spent so far",
}
COUNTERS = {
    "uplink_bytes": "bytes of frames from devices",
    "downlink_bytes": "bytes of frames to devices",
    "uploads": "replies with an update",
    "skips": "replies without an update",
    "lost": "replies that did not arrive",
    "refused": "replies that were refused",
    "rejected": "uploads above the norm limit of the fleet",
}
"""Fields of a record that are shown per run: as they are, or added up. Lists count devices."""


@dataclass
class RunTotals:
    """The records of one run so far. It reads only what was appended since the last time."""

    path: Path
    position: int = 0
    inode: int = 0
    newest: dict[str, float] = field(default_factory=dict)
    totals: dict[str, float] = field(default_factory=dict)

    def update(self) -> None:
        """Read the new records. A line that is not a record is skipped."""
        with self.path.open("rb") as file:
            status = os.fstat(file.fileno())
            if status.st_ino != self.inode or status.st_size < self.position:
                # the run was resumed, rolled back or started again
                self.position, self.inode, self.newest, self.totals = 0, status.st_ino, {}, {}
            file.seek(self.position)
            for line in file:
                if not line.endswith(b"\n"):  # it is being written
                    break
                self.position += len(line)
                self._add(line)

    def _add(self, line: bytes) -> None:
        try:
            record: dict[str, Any] = dict(json.loads(line))
        except (ValueError, TypeError, RecursionError):
            return
        numbers: dict[str, float] = {"quarantined": 0}  # a record has no empty list
        for name, value in record.items():
            value = len(value) if isinstance(value, list) else value
            if isinstance(value, int | float):
                numbers[name] = value
        self.newest = {name: numbers[name] for name in GAUGES if name in numbers}
        for name in COUNTERS:
            self.totals[name] = self.totals.get(name, 0) + numbers.get(name, 0)


class StatusPage:
    """Answers GET /health and GET /metrics.

    Args:
        proxy: The server of the proxy, whose numbers are shown.
        superlink: A client of the SuperLink.
        certificate: File of the server's certificate; None without encryption.
        runs: Folder with the folders of runs, or None.
    """

    authenticates = False

    def __init__(
        self,
        proxy: HttpServer,
        superlink: httpx.AsyncClient,
        certificate: Path | None,
        runs: Path | None,
    ) -> None:
        self._proxy, self._superlink = proxy, superlink
        self._certificate, self._runs = certificate, runs
        self._totals: dict[Path, RunTotals] = {}

    def identify(self, request: Request) -> str | Answer:
        """Accept the two pages."""
        if request.method in ("GET", "HEAD") and request.path in ("/health", "/metrics"):
            return request.address
        return text_answer(404, "there are /health and /metrics")

    async def answer(self, request: Request, body: bytes) -> Answer:
        """Return a page."""
        if request.path == "/health":
            state = await self.health()
            content = json.dumps(state, indent=2).encode() + b"\n"
            status = 200 if state["status"] == "ok" else 503
            return Answer(status, [(b"content-type", b"application/json")], content)
        try:
            return _metrics_answer(self._collect(await self.health()))
        except ModuleNotFoundError:
            return text_answer(501, "metrics need prometheus_client: install the extra `metrics`")

    async def health(self) -> dict[str, Any]:
        """Return the state of the server. Its `status` is `ok` or `failing`."""
        try:
            answers = (await self._superlink.get("/health", timeout=5.0)).is_success
        except httpx.HTTPError:
            answers = False
        days = None if self._certificate is None else days_left(self._certificate.read_bytes())
        return {
            "status": "ok" if answers and (days is None or days >= 0) else "failing",
            "superlink": answers,
            "certificate_days_left": days,
            "connections": len(self._proxy.slots),
            "buffered_bytes": self._proxy.budget.used,
        }

    def _collect(self, health: Mapping[str, Any]) -> list[Any]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        events = CounterMetricFamily("aquila_proxy_events", "events of the proxy", labels=["kind"])
        for kind, number in self._proxy.counts.items():
            events.add_metric([kind], number)
        state = {
            "superlink_up": ("1 if the SuperLink answers", int(health["superlink"])),
            "certificate_days_left": ("days", health["certificate_days_left"]),
            "proxy_connections": ("open connections", health["connections"]),
            "proxy_buffered_bytes": ("bytes that the proxy holds", health["buffered_bytes"]),
        }
        families: list[Any] = [events]
        for name, (text, value) in state.items():
            if value is not None:
                families.append(GaugeMetricFamily(f"aquila_{name}", text, value))
        totals = self._run_totals()
        families += _families(GaugeMetricFamily, GAUGES, {n: t.newest for n, t in totals.items()})
        families += _families(
            CounterMetricFamily, COUNTERS, {n: t.totals for n, t in totals.items()}
        )
        return families

    def _run_totals(self) -> dict[str, RunTotals]:
        """Return the totals of every run by the path of its folder."""
        if self._runs is None:
            return {}
        found = {}
        for path in (path for pattern in RECORDS_FILES for path in self._runs.glob(pattern)):
            totals = self._totals.setdefault(path, RunTotals(path))
            totals.update()
            found[str(path.parent.relative_to(self._runs))] = totals
        return found


def _families(
    kind: Callable[..., Any], names: Mapping[str, str], runs: Mapping[str, Mapping[str, float]]
) -> Iterable[Any]:
    for name, text in names.items():
        family = kind(f"aquila_run_{name}", text, labels=["run"])
        for run, values in runs.items():
            if name in values:
                family.add_metric([run], values[name])
        yield family


def _metrics_answer(families: list[Any]) -> Answer:
    from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

    class Collector:
        def collect(self) -> list[Any]:
            return families

    registry = CollectorRegistry()
    registry.register(Collector())
    headers = [(b"content-type", CONTENT_TYPE_LATEST.encode())]
    return Answer(200, headers, generate_latest(registry))
