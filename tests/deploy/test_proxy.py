"""The proxy forwards devices' requests unchanged and refuses all others."""

import asyncio
import os
import time

import pytest

pytest.importorskip("h11", reason="not installed: pip install -e '.[flower]'")
import httpx

from aquila.deploy import device_keys
from aquila.deploy.certificates import make_key_pair
from aquila.deploy.device_keys import DeviceKeys
from aquila.deploy.http_server import Answer, Request
from aquila.deploy.proxy import Proxy
from helpers.signed_requests import signed_headers

PULL = "/v1/fleet/pull-messages"


def ask(method="POST", path=PULL, content=b"abc", headers=None, answer=None, keys=None):
    """Send a request to a proxy, and return the reply and the requests that the SuperLink saw."""
    seen = []

    def superlink(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        if isinstance(answer, Exception):
            raise answer
        return answer or httpx.Response(200, content=b"fine")

    async def talk() -> Answer:
        transport = httpx.MockTransport(superlink)
        async with httpx.AsyncClient(transport=transport, base_url="https://superlink") as inner:
            proxy = Proxy(inner, keys)
            given = [(k.encode(), v.encode()) for k, v in (headers or {}).items()]
            request = Request(method, path, given, "203.0.113.9")
            sender = proxy.identify(request)
            return sender if isinstance(sender, Answer) else await proxy.answer(request, content)

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
    assert (reply.status, reply.content, reply.is_accepted) == (418, b"\0\1", False)
    assert dict(reply.headers)[b"content-type"] == b"application/x-protobuf"
    assert dict(reply.headers)[b"flwr-x"] == b"2"


@pytest.mark.parametrize(
    "path",
    ["/", "/docs", "/health", "/v1/control/start-run", "/v1/control/register-node",
     "/v1/runtime/acquire-task", "/v1/fleet/", "/v1/fleet/../control/start-run",
     "/v1/fleet/%2e%2e/control/start-run", "/v1/fleet/..%2fcontrol%2fstart-run",
     "/v1/fleet/pull-messages/", "//v1/fleet/pull-messages", "/v1/fleet/pull-messages%0a"],
)  # fmt: skip
def test_other_paths_are_refused(path):
    reply, seen = ask(path=path)
    assert reply.status == 403
    assert not seen


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "OPTIONS", "HEAD"])
def test_other_http_methods_are_refused(method):
    reply, seen = ask(method=method)
    assert reply.status == 403
    assert not seen


def test_unreachable_superlink_gives_status_502():
    for error in (httpx.ConnectError("refused"), httpx.ReadTimeout("slow")):
        assert ask(answer=error)[0].status == 502


def test_only_requests_signed_by_a_device_are_forwarded(tmp_path, monkeypatch):
    device, stranger = make_key_pair(), make_key_pair()
    (tmp_path / "device-0.pub").write_bytes(device.public)
    keys = DeviceKeys(tmp_path)
    good = signed_headers(device.private)
    assert ask(keys=keys, headers=good)[0].status == 200
    for headers in (
        {}, signed_headers(stranger.private), {**good, "flwr-timestamp": "2026-11-01T12:00:01"},
        {**good, "flwr-signature": "!"}, {**good, "flwr-public-key": "AAAA"},
    ):  # fmt: skip
        reply, seen = ask(keys=keys, headers=headers)
        assert reply.status == 401
        assert not seen


def test_new_and_replaced_keys_are_noticed(tmp_path, monkeypatch):
    monkeypatch.setattr(device_keys, "RELOAD_SECONDS", 0.0)
    first, second = make_key_pair(), make_key_pair()
    (tmp_path / "device-0.pub").write_bytes(first.public)
    keys = DeviceKeys(tmp_path)
    (tmp_path / "device-0.pub").unlink()
    (tmp_path / "device-0.pub").write_bytes(second.public)
    os.utime(tmp_path, ns=(time.time_ns(), time.time_ns()))
    assert ask(keys=keys, headers=signed_headers(first.private))[0].status == 401
    assert ask(keys=keys, headers=signed_headers(second.private))[0].status == 200


def test_folder_without_keys_is_refused(tmp_path):
    with pytest.raises(ValueError, match="holds no public key of a device"):
        DeviceKeys(tmp_path)
