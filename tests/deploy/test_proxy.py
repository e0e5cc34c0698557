"""The proxy: devices' requests pass unchanged, nothing else does."""

import asyncio

import pytest

pytest.importorskip("uvicorn", reason="not installed: pip install 'aquila-fl[flower]'")
import httpx

from aquila.deploy import proxy
from aquila.deploy.proxy import Proxy


def ask(method="POST", path="/v1/fleet/pull-messages", content=b"abc", headers=None, answer=None):
    """Ask a proxy before a SuperLink that answers as told; return the reply and what it saw."""
    seen = []

    def superlink(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        if isinstance(answer, Exception):
            raise answer
        return answer or httpx.Response(200, content=b"fine")

    async def talk() -> httpx.Response:
        inner = httpx.AsyncClient(
            transport=httpx.MockTransport(superlink), base_url="https://superlink"
        )
        outer = httpx.ASGITransport(app=Proxy(inner))
        async with inner, httpx.AsyncClient(transport=outer, base_url="https://proxy") as client:
            return await client.request(method, path, content=content, headers=headers)

    return asyncio.run(talk()), seen


def test_a_devices_request_passes_unchanged():
    answer = httpx.Response(
        418, headers={"content-type": "application/x-protobuf", "flwr-x": "2"}, content=b"\0\1"
    )
    headers = {"flwr-signature": "c2ln", "content-type": "application/x-protobuf"}
    reply, (request,) = ask(headers=headers, answer=answer)
    assert request.url == "https://superlink/v1/fleet/pull-messages"
    assert request.content == b"abc"
    assert request.headers["flwr-signature"] == "c2ln"
    assert request.headers["host"] == "superlink"
    assert (reply.status_code, reply.content) == (418, b"\0\1")
    assert reply.headers["content-type"] == "application/x-protobuf"
    assert reply.headers["flwr-x"] == "2"


@pytest.mark.parametrize(
    "path",
    ["/", "/docs", "/health", "/v1/control/start-run", "/v1/control/register-node",
     "/v1/runtime/acquire-task", "/v1/fleet/", "/v1/fleet/../control/start-run",
     "/v1/fleet/%2e%2e/control/start-run", "/v1/fleet/..%2fcontrol%2fstart-run",
     "/v1/fleet/pull-messages/", "//v1/fleet/pull-messages", "/v1/fleet/pull-messages%0a"],
)  # fmt: skip
def test_nothing_else_passes(path):
    reply, seen = ask(path=path)
    assert reply.status_code == 403
    assert not seen


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "OPTIONS", "HEAD"])
def test_devices_only_post(method):
    reply, seen = ask(method=method)
    assert reply.status_code == 403
    assert not seen


def test_a_request_has_a_limit(monkeypatch):
    monkeypatch.setattr(proxy, "MAX_BODY_BYTES", 1000)
    assert ask(content=bytes(1000))[0].status_code == 200
    reply, seen = ask(content=bytes(1001))
    assert reply.status_code == 413
    assert not seen


def test_a_superlink_that_is_away_is_said_so_that_devices_try_again():
    for error in (httpx.ConnectError("refused"), httpx.ReadTimeout("slow")):
        assert ask(answer=error)[0].status_code == 502
