"""The proxy: the one port of a server that the network sees. Only devices' requests pass it.

Flower's SuperLink answers devices and administrators on one port, and asks administrators for no
proof of who they are. Whoever reaches that port can register a key of their own, or start a run:
code of their choice on the server and on every device. So the SuperLink listens on loopback, where
administrators are, and the proxy hands on to it what devices ask.
"""

import re
import ssl
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any

import httpx
import uvicorn

ALLOWED_PATHS = re.compile(r"/v1/fleet/[a-z-]+")
"""Paths of the requests that a SuperNode makes; nothing that could lead out of them."""

MAX_BODY_BYTES = 2**26
"""Bytes of the largest request: a large frame comes in parts of a few megabytes."""

TIMEOUT_SECONDS = 60.0
_KEEPALIVE_SECONDS = 2.0  # less than the SuperLink keeps a connection that is not used

HOP_BY_HOP_HEADERS = {
    b"accept-encoding", b"connection", b"content-encoding", b"content-length", b"date", b"expect",
    b"host", b"keep-alive", b"proxy-authorization", b"proxy-connection", b"server", b"te",
    b"trailer", b"transfer-encoding", b"upgrade",
}  # fmt: skip

Event = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Event]]
Send = Callable[[Event], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]


class Proxy:
    """An ASGI application that hands devices' requests on to a SuperLink."""

    def __init__(self, superlink: httpx.AsyncClient) -> None:
        self._superlink = superlink

    async def __call__(self, scope: Event, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        status, headers, content = await self._answer(scope, receive)
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": content})

    async def _answer(self, scope: Event, receive: Receive) -> tuple[int, Headers, bytes]:
        if scope["method"] != "POST" or not ALLOWED_PATHS.fullmatch(scope["path"]):
            return _text_response(
                403, "this port is for devices; administer the server on its own machine"
            )
        body = await _read_body(receive)
        if body is None:
            return _text_response(413, f"a request has at most {MAX_BODY_BYTES} bytes")
        try:
            reply = await self._superlink.post(
                scope["path"], content=body, headers=_end_to_end_headers(scope["headers"])
            )
        except httpx.HTTPError:
            return _text_response(502, "the SuperLink does not answer")  # a SuperNode tries again
        return reply.status_code, _end_to_end_headers(reply.headers.raw), reply.content


def serve(host: str, port: int, superlink: str, tls: tuple[Path, Path, Path] | None) -> None:
    """Serve until stopped; `tls` are the files of the authority, the certificate and its key."""
    scheme = "http" if tls is None else "https"
    client = httpx.AsyncClient(
        base_url=f"{scheme}://{superlink}",
        verify=True if tls is None else ssl.create_default_context(cafile=tls[0]),
        timeout=TIMEOUT_SECONDS,
        limits=httpx.Limits(keepalive_expiry=_KEEPALIVE_SECONDS),
        headers={"accept-encoding": "identity"},
        trust_env=False,
    )
    uvicorn.run(
        Proxy(client),
        host=host,
        port=port,
        ssl_certfile=None if tls is None else tls[1],
        ssl_keyfile=None if tls is None else str(tls[2]),
        lifespan="off",
        ws="none",
        log_level="warning",
        server_header=False,
    )


def _text_response(status: int, text: str) -> tuple[int, Headers, bytes]:
    return status, [(b"content-type", b"text/plain; charset=utf-8")], text.encode()


def _end_to_end_headers(headers: Headers) -> Headers:
    return [(name, value) for name, value in headers if name.lower() not in HOP_BY_HOP_HEADERS]


async def _read_body(receive: Receive) -> bytes | None:
    """Return the body of a request, None if it is too large or broke off."""
    body = bytearray()
    while True:
        event = await receive()
        body += event.get("body", b"")
        if len(body) > MAX_BODY_BYTES or event["type"] == "http.disconnect":
            return None
        if not event.get("more_body", False):
            return bytes(body)
