"""A small HTTP/1.1 server whose every step has a limit: connections, bytes and time.

The proxy faces the network. Servers for applications accept connections without bound, wait for
ever for half a header, and buffer as much as senders send. This one counts a connection before
its TLS handshake, and asks the application before it reads the body of a request.
"""

import asyncio
import socket
import ssl
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from logging import getLogger
from typing import Protocol

import h11

from aquila.deploy.connection_setup import READ_BYTES, PausedProtocol, set_reset_on_close
from aquila.deploy.limits import ByteBudget, ConnectionSlots, Limits, Slot

Headers = list[tuple[bytes, bytes]]

BACKLOG = 4096
ACCEPT_PAUSE_SECONDS = 0.05
"""Pause if there is no file for a new connection."""
FILES_PER_CONNECTION = 2
"""Replaced connections are open for a moment, so there are more files than connections."""

LOG = getLogger("aquila.proxy")


@dataclass(frozen=True)
class Request:
    """Method, path and headers of a request, and the address that it came from."""

    method: str
    path: str
    headers: Headers
    address: str

    def header(self, name: bytes) -> bytes | None:
        """Return the value of a header that occurs once; None if it is missing or repeated."""
        values = [value for key, value in self.headers if key == name]
        return values[0] if len(values) == 1 else None


@dataclass(frozen=True)
class Answer:
    """Status, headers and content of an answer. `is_accepted`: the sender may be trusted."""

    status: int
    headers: Headers
    content: bytes
    is_accepted: bool = False


class Application(Protocol):
    """What the server asks: who sent a request, and what to answer.

    `authenticates`: whether an identified sender is known to be one that may be trusted.
    """

    authenticates: bool

    def identify(self, request: Request) -> str | Answer:
        """Return the sender of a request, or refuse it before its body is read."""
        ...

    async def answer(self, request: Request, body: bytes) -> Answer:
        """Answer a request."""
        ...


@dataclass
class HttpServer:
    """Serves an application within limits. `counts` has the number of events of each kind."""

    application: Application
    limits: Limits = field(default_factory=Limits)
    tls: ssl.SSLContext | None = None
    counts: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.slots = ConnectionSlots(self.limits)
        self.budget = ByteBudget(self.limits)
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self, listener: socket.socket) -> None:
        """Accept connections until the task is cancelled."""
        listener.setblocking(False)
        loop = asyncio.get_running_loop()
        try:
            while True:
                try:
                    connection, address = await loop.sock_accept(listener)
                except OSError as error:  # no file is left, or the sender is gone already
                    LOG.warning("cannot accept a connection: %s", error)
                    await asyncio.sleep(ACCEPT_PAUSE_SECONDS)
                    continue
                self._start(connection, address[0])
                while len(self._tasks) >= FILES_PER_CONNECTION * self.limits.connections:
                    await asyncio.sleep(ACCEPT_PAUSE_SECONDS)
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _start(self, connection: socket.socket, address: str) -> None:
        self.counts["connections"] += 1
        set_reset_on_close(connection, True)
        served = Connection(self, connection)
        slot = self.slots.open(address, lambda: self._replace(served))
        if slot is None:
            self.counts["refused_connections"] += 1
            connection.close()
            return
        task = asyncio.create_task(served.run(slot))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _replace(self, connection: "Connection") -> None:
        self.counts["replaced_connections"] += 1
        connection.abort()


class Connection:
    """One connection: its handshake, then requests until one of the sides ends it."""

    def __init__(self, server: HttpServer, connection: socket.socket) -> None:
        self._server = server
        self._limits = server.limits
        self._socket = connection
        self._transport: asyncio.Transport | None = None
        self._is_aborted = False
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=self._limits.header_bytes)

    def abort(self) -> None:
        """Close the connection at once; its task then ends."""
        self._is_aborted = True
        if self._transport is not None:
            self._transport.abort()

    async def run(self, slot: Slot) -> None:
        """Serve the connection to its end. Only a cancellation is raised."""
        self._slot = slot
        try:
            await self._open()
            while await self._serve_request():
                self._http.start_next_cycle()
            await self._close()
        except TimeoutError:
            self._server.counts["timeouts"] += 1
        except (OSError, EOFError, h11.ProtocolError):
            self._server.counts["broken_connections"] += 1
        except Exception:
            self._server.counts["errors"] += 1
            LOG.exception("a connection failed")
        finally:
            self._server.slots.release(self._slot)
            self.abort()

    async def _open(self) -> None:
        loop, tls = asyncio.get_running_loop(), self._server.tls
        self._reader = asyncio.StreamReader(READ_BYTES)
        protocol = PausedProtocol(self._reader)
        self._transport, _ = await loop.connect_accepted_socket(lambda: protocol, self._socket)
        transport: asyncio.Transport | None = self._transport
        if self._is_aborted:
            raise ConnectionAbortedError
        if tls is None:
            self._transport.resume_reading()
        else:
            transport = await loop.start_tls(
                self._transport, protocol, tls, server_side=True,
                ssl_handshake_timeout=self._limits.header_seconds,
            )  # fmt: skip
        if transport is None:
            raise ConnectionAbortedError
        self._writer = asyncio.StreamWriter(transport, protocol, self._reader, loop)

    async def _close(self) -> None:
        """Close the connection so that the last answer still arrives."""
        set_reset_on_close(self._socket, False)
        self._writer.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                await self._writer.wait_closed()

    async def _serve_request(self) -> bool:
        """Serve one request; return whether the connection stays open."""
        limits = self._limits
        seconds = limits.idle_seconds if self._slot.is_trusted else limits.header_seconds
        async with asyncio.timeout(seconds):
            event = await self._next_event()
        if not isinstance(event, h11.Request):
            return False
        request = Request(
            event.method.decode(), event.target.decode(), list(event.headers), self._slot.address
        )
        sender = self._server.application.identify(request)
        if isinstance(sender, Answer):
            await self._send(request, sender)
            return False
        if self._is_aborted:  # its answer could not be sent, so it must have no effect
            raise ConnectionAbortedError
        if self._server.application.authenticates:
            self._server.slots.trust(self._slot)
        held = Held(self._server.budget, sender)
        try:
            answer = await self._answer(request, held)
            await self._send(request, answer)
        finally:
            held.release()
        if answer.is_accepted:
            self._server.slots.trust(self._slot)
        return self._http.our_state is h11.DONE and self._http.their_state is h11.DONE

    async def _answer(self, request: Request, held: "Held") -> Answer:
        try:
            body = await self._read_body(held)
            answer = await self._server.application.answer(request, body)
            held.take(len(answer.content))
            return answer
        except TooLargeError as error:
            self._server.counts[f"status_{error.status}"] += 1
            return text_answer(error.status, str(error))

    async def _read_body(self, held: "Held") -> bytes:
        body, limits = bytearray(), self._limits
        loop = asyncio.get_running_loop()
        began = loop.time()
        if self._http.they_are_waiting_for_100_continue:
            self._write(h11.InformationalResponse(status_code=100, headers=[]))
        while True:
            async with asyncio.timeout_at(began + limits.transfer_seconds(len(body))):
                event = await self._next_event()
            if isinstance(event, h11.EndOfMessage):
                return bytes(body)
            if not isinstance(event, h11.Data):
                raise EOFError
            if len(body) + len(event.data) > limits.body_bytes:
                raise TooLargeError(413, f"the request is larger than {limits.body_bytes} bytes")
            held.take(len(event.data))
            body += event.data

    async def _next_event(self) -> object:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            self._http.receive_data(await self._reader.read(READ_BYTES))
        return event

    async def _send(self, request: Request, answer: Answer) -> None:
        headers = [*answer.headers, (b"content-length", b"%d" % len(answer.content))]
        self._write(h11.Response(status_code=answer.status, headers=headers))
        if request.method != "HEAD":
            self._write(h11.Data(data=answer.content))
        self._write(h11.EndOfMessage())
        async with asyncio.timeout(self._limits.transfer_seconds(len(answer.content))):
            await self._writer.drain()

    def _write(self, event: h11.Event) -> None:
        self._writer.write(self._http.send(event) or b"")


class TooLargeError(Exception):
    """A request exceeds a limit; `status` is the HTTP status of the answer."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


@dataclass
class Held:
    """The bytes of one request that the proxy holds for a sender."""

    budget: ByteBudget
    sender: str
    size: int = 0

    def take(self, size: int) -> None:
        """Reserve bytes. TooLargeError if the sender, or the proxy, holds too many."""
        if not self.budget.take(self.sender, size):
            raise TooLargeError(503, "the proxy holds too many bytes; try again later")
        self.size += size

    def release(self) -> None:
        """Free all bytes of the request."""
        self.budget.give_back(self.sender, self.size)
        self.size = 0


def text_answer(status: int, text: str) -> Answer:
    """Return an answer of one line of text."""
    return Answer(status, [(b"content-type", b"text/plain; charset=utf-8")], text.encode())
