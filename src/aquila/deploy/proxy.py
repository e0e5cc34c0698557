"""The proxy between the network and the SuperLink. It forwards only the requests of devices.

Flower's SuperLink serves devices and administrators on one port, and does not authenticate
administrators. Anyone who reaches that port can register a key or start a run, and so execute code
on the server and on every device. The SuperLink therefore listens on loopback, where
administrators work, and the proxy forwards devices' requests to it.
"""

import asyncio
import re
import resource
import signal
import socket
import ssl
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from logging import getLogger
from pathlib import Path

import httpx

from aquila.deploy.certificates import expiry_warning
from aquila.deploy.connection_setup import use_small_tls_buffers
from aquila.deploy.device_keys import DeviceKeys
from aquila.deploy.fleet_request import PUSH_PATH, ForgedRequestError, check_push
from aquila.deploy.http_server import (
    BACKLOG,
    FILES_PER_CONNECTION,
    Answer,
    Headers,
    HttpServer,
    Request,
    text_answer,
)
from aquila.deploy.limits import Limits
from aquila.deploy.status import StatusPage

ALLOWED_PATHS = re.compile(r"/v1/fleet/[a-z-]+")
"""Paths that a SuperNode requests. No path with dots or further slashes matches."""

TIMEOUT_SECONDS = 60.0
STATUS_LIMITS = Limits(connections=32, connections_per_address=32)
CERTIFICATE_CHECK_SECONDS = 24 * 3600.0
RESERVED_FILES = 128
"""Files that are not connections: libraries, logs, connections to the SuperLink."""
_KEEPALIVE_SECONDS = 2.0  # shorter than the SuperLink keeps an idle connection open

HOP_BY_HOP_HEADERS = {
    b"accept-encoding", b"connection", b"content-encoding", b"content-length", b"date", b"expect",
    b"host", b"keep-alive", b"proxy-authorization", b"proxy-connection", b"server", b"te",
    b"trailer", b"transfer-encoding", b"upgrade",
}  # fmt: skip

LOG = getLogger("aquila.proxy")


@dataclass(frozen=True)
class Tls:
    """Files of the authority's certificate, the server's certificate and the server's key."""

    authority: Path
    certificate: Path
    key: Path


class Proxy:
    """Forwards devices' requests to a SuperLink.

    With `keys`, a request must be signed by a device, or its body is not even read.
    """

    def __init__(self, superlink: httpx.AsyncClient, keys: DeviceKeys | None = None) -> None:
        self._superlink = superlink
        self._keys = keys
        self.authenticates = keys is not None

    def identify(self, request: Request) -> str | Answer:
        """Return the device that signed a request, or its address if there are no keys."""
        if request.method != "POST" or not ALLOWED_PATHS.fullmatch(request.path):
            return text_answer(
                403, "this port accepts only devices; run administration on the server's machine"
            )
        if self._keys is None:
            return request.address
        return self._keys.signer(request) or text_answer(
            401, "the request is not signed by a device of this federation"
        )

    async def answer(self, request: Request, body: bytes) -> Answer:
        """Forward a request, and return the SuperLink's answer."""
        if request.path == PUSH_PATH:
            try:
                check_push(body)
            except ForgedRequestError as error:
                LOG.warning("refused a request from %s: %s", request.address, error)
                return text_answer(400, str(error))
        try:
            reply = await self._superlink.post(
                request.path, content=body, headers=_end_to_end_headers(request.headers)
            )
        except httpx.HTTPError:
            return text_answer(502, "the SuperLink does not answer")  # SuperNodes retry
        headers = _end_to_end_headers(reply.headers.raw)
        return Answer(reply.status_code, headers, reply.content, reply.is_success)


def serve(
    listen: tuple[str, int],
    superlink: str,
    tls: Tls | None,
    keys_folder: Path | None = None,
    limits: Limits | None = None,
    status: tuple[int, Path | None] | None = None,
) -> None:
    """Run the proxy until SIGTERM or SIGINT.

    Args:
        listen: Address and port to listen on.
        superlink: Address and port of the SuperLink.
        tls: Files of the certificates. None turns encryption off.
        keys_folder: Folder of the devices' public keys. None accepts every sender.
        limits: Limits on connections, bytes and times.
        status: Port of the status page on loopback, and the folder of runs that it shows.
    """
    if tls is not None:
        _warn_about_expiry(tls)
    keys = None if keys_folder is None else DeviceKeys(keys_folder)
    limits = _within_open_files(limits or Limits())
    use_small_tls_buffers()
    family = socket.AF_INET6 if ":" in listen[0] else socket.AF_INET
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(listen, family=family, backlog=BACKLOG))
        page = None
        if status is not None:
            page = stack.enter_context(socket.create_server(("127.0.0.1", status[0])))
        runs = None if status is None else status[1]
        asyncio.run(_serve((listener, page), superlink, tls, keys, limits, runs))


async def _serve(
    listeners: tuple[socket.socket, socket.socket | None],
    superlink: str,
    tls: Tls | None,
    keys: DeviceKeys | None,
    limits: Limits,
    runs: Path | None,
) -> None:
    listener, page = listeners
    client = httpx.AsyncClient(
        base_url=f"{'http' if tls is None else 'https'}://{superlink}",
        verify=True if tls is None else ssl.create_default_context(cafile=tls.authority),
        timeout=TIMEOUT_SECONDS,
        limits=httpx.Limits(keepalive_expiry=_KEEPALIVE_SECONDS),
        headers={"accept-encoding": "identity"},
        trust_env=False,
    )
    server = HttpServer(Proxy(client, keys), limits, None if tls is None else server_context(tls))
    tasks = [asyncio.create_task(server.serve(listener))]
    if page is not None:
        certificate = None if tls is None else tls.certificate
        status = HttpServer(StatusPage(server, client, certificate, runs), STATUS_LIMITS)
        tasks.append(asyncio.create_task(status.serve(page)))
    if tls is not None:
        tasks.append(asyncio.create_task(_watch_certificates(tls)))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, tasks[0].cancel)
    async with client:
        with suppress(asyncio.CancelledError):
            await tasks[0]
        for task in tasks:
            task.cancel()


async def _watch_certificates(tls: Tls) -> None:
    """Warn every day while a certificate is about to expire."""
    while True:
        await asyncio.sleep(CERTIFICATE_CHECK_SECONDS)
        _warn_about_expiry(tls)


def _warn_about_expiry(tls: Tls) -> None:
    for path in (tls.certificate, tls.authority):
        if warning := expiry_warning(path.read_bytes()):
            LOG.warning("%s: %s", path, warning)


def server_context(tls: Tls) -> ssl.SSLContext:
    """Return the TLS settings of a server with this certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tls.certificate, tls.key)
    return context


def _within_open_files(limits: Limits) -> Limits:
    """Raise the limit on open files as far as allowed, and fit the connections into it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = FILES_PER_CONNECTION * limits.connections + RESERVED_FILES
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return limits
    soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft == needed:
        return limits
    LOG.warning(
        "the system allows %d open files, which is too few for %d connections; set LimitNOFILE",
        soft, limits.connections,
    )  # fmt: skip
    return replace(limits, connections=max(1, (soft - RESERVED_FILES) // FILES_PER_CONNECTION))


def _end_to_end_headers(headers: Headers) -> Headers:
    return [(name, value) for name, value in headers if name.lower() not in HOP_BY_HOP_HEADERS]
