"""The proxy forwards devices' requests unchanged and refuses all others."""

import asyncio

import pytest

pytest.importorskip("uvicorn", reason="not installed: pip install -e '.[flower]'")
import httpx

from aquila.deploy import proxy
from aquila.deploy.proxy import Proxy


def ask(method="POST", path="/v1/fleet/pull-messages", content=b"abc", headers=None, answer=None):
    """Send a request to a proxy, and return the reply and the requests that the SuperLink saw."""
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


def test_request_of_device_is_forwarded_unchanged():
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
def test_other_paths_are_refused(path):
    reply, seen = ask(path=path)
    assert reply.status_code == 403
    assert not seen


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "OPTIONS", "HEAD"])
def test_other_http_methods_are_refused(method):
    reply, seen = ask(method=method)
    assert reply.status_code == 403
    assert not seen


def test_large_request_is_refused(monkeypatch):
    monkeypatch.setattr(proxy, "MAX_BODY_BYTES", 1000)
    assert ask(content=bytes(1000))[0].status_code == 200
    reply, seen = ask(content=bytes(1001))
    assert reply.status_code == 413
    assert not seen


def test_unreachable_superlink_gives_status_502():
    for error in (httpx.ConnectError("refused"), httpx.ReadTimeout("slow")):
        assert ask(answer=error)[0].status_code == 502
