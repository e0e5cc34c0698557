"""The proxy between the network and the SuperLink. It forwards only the requests of devices.

Flower's SuperLink serves devices and administrators on one port, and does not authenticate
administrators. Anyone who reaches that port can register a key or start a run, and so execute code
on the server and on every device. The SuperLink therefore listens on loopback, where
administrators work, and the proxy forwards devices' requests to it.
"""

import re
import ssl
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any

import httpx
import uvicorn

ALLOWED_PATHS = re.compile(r"/v1/fleet/[a-z-]+")
"""Paths that a SuperNode requests. No path with dots or further slashes matches."""

MAX_BODY_BYTES = 2**26
"""Size of the largest request. Flower sends a large frame in parts of a few megabytes."""

TIMEOUT_SECONDS = 60.0
_KEEPALIVE_SECONDS = 2.0  # shorter than the SuperLink keeps an idle connection open

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
    """An ASGI application that forwards devices' requests to a SuperLink."""

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
                403, "this port accepts only devices; run administration on the server's machine"
            )
        body = await _read_body(receive)
        if body is None:
            return _text_response(413, f"the request is larger than {MAX_BODY_BYTES} bytes")
        try:
            reply = await self._superlink.post(
                scope["path"], content=body, headers=_end_to_end_headers(scope["headers"])
            )
        except httpx.HTTPError:
            return _text_response(502, "the SuperLink does not answer")  # SuperNodes retry
        return reply.status_code, _end_to_end_headers(reply.headers.raw), reply.content


def serve(host: str, port: int, superlink: str, tls: tuple[Path, Path, Path] | None) -> None:
    """Run the proxy until it is stopped.

    Args:
        host: Address to listen on.
        port: Port to listen on.
        superlink: Address and port of the SuperLink.
        tls: Files of the authority's certificate, the server's certificate and the server's key.
            None turns encryption off.
    """
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
    """Return the body of a request, or None if it is too large or incomplete."""
    body = bytearray()
    while True:
        event = await receive()
        body += event.get("body", b"")
        if len(body) > MAX_BODY_BYTES or event["type"] == "http.disconnect":
            return None
        if not event.get("more_body", False):
            return bytes(body)
