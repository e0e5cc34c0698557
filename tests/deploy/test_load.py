"""Hostile connections without a key do not keep a device from the server, and cost no memory."""

import asyncio
import socket
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from datetime import timedelta

import pytest

pytest.importorskip("h11", reason="not installed: pip install -e '.[flower]'")
import httpx

from aquila.deploy import certificates
from aquila.deploy.federation import create
from aquila.deploy.http_server import Answer, HttpServer
from aquila.deploy.plan import Plan
from aquila.deploy.proxy import Tls, server_context
from aquila.flower.local_processes import free_port
from helpers.hostile_clients import (
    Attack,
    allow_open_files,
    open_files,
    peak_memory,
    send_honest_requests,
)
from helpers.real_federation import tls_context
from helpers.signed_requests import signed_headers

CONNECTIONS = 160
LIMIT = 100
PULL = "/v1/fleet/pull-messages"


class SuperLink:
    """Accepts every request."""

    authenticates = False

    async def answer(self, request, body):
        return Answer(200, [], b"fine", is_accepted=True)

    def identify(self, request):
        return request.address


@contextmanager
def proxy_process(folder, port, superlink, log=None):
    """A proxy in a process of its own; yields its process id."""
    server = folder / "server"
    command = (
        f"{sys.executable} -m aquila deploy proxy --listen 127.0.0.1 --port {port} "
        f"--superlink 127.0.0.1:{superlink} --ssl-ca-certfile {server}/ca.crt --ssl-certfile "
        f"{server}/server.crt --ssl-keyfile {server}/server.key --keys {server}/keys "
        f"--max-connections {LIMIT} --max-connections-per-address {LIMIT}"
    )
    process = subprocess.Popen(command.split(), stderr=log)
    end = time.monotonic() + 120
    try:
        while time.monotonic() < end:
            with suppress(ConnectionError), socket.create_connection(("127.0.0.1", port)):
                break
            time.sleep(0.1)
        yield process.pid
    finally:
        process.terminate()
        process.wait(60)


async def attack(folder, port, listener, process_id):
    """Attack the proxy while a device sends requests; return how long these take."""
    files = (folder / "server" / name for name in ("ca.crt", "server.crt", "server.key"))
    server = HttpServer(SuperLink(), tls=server_context(Tls(*files)))
    superlink = asyncio.create_task(server.serve(listener))
    hostile = Attack(port, tls_context(folder))
    task = asyncio.create_task(hostile.run(CONNECTIONS))
    await asyncio.sleep(0.5)
    headers = signed_headers((folder / "device-0" / "device.key").read_bytes())

    async def send():  # a new connection each time, the worst case
        transport = httpx.AsyncHTTPTransport(verify=tls_context(folder))
        address = f"https://127.0.0.1:{port}"
        async with httpx.AsyncClient(transport=transport, base_url=address, timeout=60) as client:
            reply = await client.post(PULL, content=b"abc", headers=headers)
            assert (reply.status_code, reply.content) == (200, b"fine")

    try:
        return await send_honest_requests(send, 1.0), open_files(process_id)
    finally:
        for job in (task, superlink):
            job.cancel()
            with suppress(asyncio.CancelledError):
                await job


def test_start_warns_about_an_expired_certificate(tmp_path, monkeypatch):
    monkeypatch.setattr(certificates, "SERVER_DAYS", -1)
    monkeypatch.setattr(certificates, "CLOCK_SKEW", timedelta(days=9))
    create(tmp_path / "fed", Plan(1))
    with (tmp_path / "log").open("w") as log, proxy_process(tmp_path / "fed", free_port(), 1, log):
        pass
    text = (tmp_path / "log").read_text()
    assert "server.crt: this certificate expired on 20" in text
    assert "ca.crt" not in text


def test_device_is_served_under_attack(tmp_path):
    folder, port = tmp_path / "fed", free_port()
    create(folder, Plan(1, port=8443))
    allow_open_files(2 * CONNECTIONS + 100)
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        proxy_process(folder, port, listener.getsockname()[1]) as process_id,
    ):
        before = peak_memory(process_id)
        durations, files = asyncio.run(attack(folder, port, listener, process_id))
        assert len(durations) >= 3
        assert files < 2 * LIMIT + 40
        assert peak_memory(process_id) - before < 80
