"""The proxy's server keeps its limits: connections, bytes and times."""

import asyncio
import socket
from contextlib import asynccontextmanager

import pytest

pytest.importorskip("h11", reason="not installed: pip install -e '.[flower]'")
from aquila.deploy.federation import create
from aquila.deploy.http_server import Answer, Connection, HttpServer, text_answer
from aquila.deploy.limits import ByteBudget, ConnectionSlots, Limits
from aquila.deploy.plan import Plan
from aquila.deploy.proxy import Tls, server_context

POST = b"POST /x HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\n"


class Echo:
    """Answers a request with the length of its body, and refuses strangers before the body."""

    authenticates = False

    async def answer(self, request, body):
        if request.path == "/wait":
            await asyncio.sleep(0.3)
        return Answer(200, [], b"%d" % len(body), is_accepted=True)

    def identify(self, request):
        return text_answer(401, "no") if request.path == "/stranger" else request.address


@asynccontextmanager
async def running(tls=None, **limits):
    """A server on loopback and a function that opens a connection to it."""
    server = HttpServer(Echo(), Limits(**limits), tls)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        task = asyncio.create_task(server.serve(listener))
        address = listener.getsockname()
        writers = []

        async def connect(sent=b""):
            reader, writer = await asyncio.open_connection(*address)
            writers.append(writer)
            writer.write(sent)
            return reader, writer

        yield server, connect
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        for writer in writers:
            writer.close()


async def ended(reader) -> bytes:
    """Return what still arrives until the server closes the connection."""
    try:
        return await asyncio.wait_for(reader.read(), 3)
    except ConnectionError:
        return b""


def test_requests_of_one_connection_are_served():
    async def talk():
        async with running() as (server, connect):
            reader, writer = await connect(POST % 3 + b"abc")
            assert (await reader.readuntil(b"\r\n\r\n3")).startswith(b"HTTP/1.1 200")
            writer.write(POST % 5 + b"abcde")
            assert (await reader.readuntil(b"\r\n\r\n5")).startswith(b"HTTP/1.1 200")
            assert len(server.slots) == 1
            assert server.budget.used == 0
            writer.close()
            await asyncio.sleep(0.05)
            assert len(server.slots) == 0

    asyncio.run(talk())


@pytest.mark.parametrize(
    "sent",
    [b"", b"POST /x HT", b"POST /x HTTP/1.1\r\nhost: a\r\n", POST % 9 + b"abc"],
    ids=["nothing", "part of a line", "part of a header", "part of a body"],
)
def test_incomplete_request_is_closed_after_its_time(sent):
    async def talk():
        async with running(header_seconds=0.2, body_seconds=0.2) as (server, connect):
            reader, _ = await connect(sent)
            assert await ended(reader) == b""
            assert server.counts["timeouts"] == 1
            assert (len(server.slots), server.budget.used) == (0, 0)

    asyncio.run(talk())


def test_slow_body_is_closed_and_steady_body_is_not():
    async def talk():
        limits = {"body_seconds": 0.3, "bytes_per_second": 1000}
        async with running(**limits) as (_, connect):
            slow, slow_writer = await connect(POST % 1000)
            steady, steady_writer = await connect(POST % 1000)
            for _ in range(10):
                slow_writer.write(b"a")
                steady_writer.write(bytes(100))
                await asyncio.sleep(0.06)
            assert (await steady.readuntil(b"1000")).startswith(b"HTTP/1.1 200")
            assert await ended(slow) == b""

    asyncio.run(talk())


def test_large_header_and_large_body_are_refused():
    async def talk():
        async with running(header_bytes=200, body_bytes=100) as (_, connect):
            reader, _ = await connect(b"POST /x HTTP/1.1\r\nhost: " + b"a" * 300)
            assert await ended(reader) == b""
            reader, _ = await connect(POST % 101 + bytes(101))
            assert (await ended(reader)).startswith(b"HTTP/1.1 413")
            reader, _ = await connect(POST % 100 + bytes(100))
            assert (await reader.readuntil(b"100")).startswith(b"HTTP/1.1 200")

    asyncio.run(talk())


def test_buffered_bytes_are_bounded():
    async def talk():
        async with running(buffered_bytes_per_sender=150) as (server, connect):
            await connect(POST % 101 + bytes(100))
            await asyncio.sleep(0.05)
            assert server.budget.used == 100
            reader, _ = await connect(POST % 101 + bytes(101))
            assert (await ended(reader)).startswith(b"HTTP/1.1 503")
            assert server.budget.used == 100

    asyncio.run(talk())


def test_body_of_refused_sender_is_not_read():
    async def talk():
        async with running() as (server, connect):
            reader, _ = await connect(
                b"POST /stranger HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\n"
            )
            assert (await ended(reader)).startswith(b"HTTP/1.1 401")
            assert (len(server.slots), server.budget.used) == (0, 0)

    asyncio.run(talk())


def test_idle_connections_make_room_for_new_ones():
    async def talk():
        async with running(connections=3) as (server, connect):
            trusted, trusted_writer = await connect(POST % 1 + b"a")
            await trusted.readuntil(b"\r\n\r\n1")
            idle = [(await connect())[0] for _ in range(5)]
            await asyncio.sleep(0.05)
            assert len(server.slots) == 3
            assert [await ended(reader) for reader in idle[:3]] == [b""] * 3
            trusted_writer.write(POST % 2 + b"ab")
            assert (await trusted.readuntil(b"\r\n\r\n2")).startswith(b"HTTP/1.1 200")

    asyncio.run(talk())


@pytest.mark.parametrize("encrypted", [False, True])
def test_replaced_connection_is_reset(tmp_path, encrypted):
    """Flower's SuperNode gives up if a handshake ends without a reset."""
    context = None
    if encrypted:
        create(tmp_path / "fed", Plan(1))
        files = [tmp_path / "fed" / "server" / n for n in ("ca.crt", "server.crt", "server.key")]
        context = server_context(Tls(*files))

    async def talk():
        async with running(tls=context, connections=1) as (_, connect):
            first, _ = await connect()
            await asyncio.sleep(0.1)
            await connect()
            with pytest.raises(ConnectionResetError):
                await asyncio.wait_for(first.read(), 3)

    asyncio.run(talk())


def test_request_of_a_replaced_connection_has_no_effect(monkeypatch):
    """Flower's SuperNode fails if its first request has an effect, but no answer."""
    served = []

    async def answer(self, request, body):
        served.append(request)
        return Answer(200, [], b"", is_accepted=True)

    def identify(self, request):
        connections[0].abort()
        return request.address

    connections = []
    original = Connection.__init__
    monkeypatch.setattr(
        Connection, "__init__", lambda self, *a: connections.append(self) or original(self, *a)
    )
    monkeypatch.setattr(Echo, "answer", answer)
    monkeypatch.setattr(Echo, "identify", identify)

    async def talk():
        async with running() as (server, connect):
            reader, _ = await connect(POST % 1 + b"a")
            assert await ended(reader) == b""
            assert not served
            assert len(server.slots) == 0

    asyncio.run(talk())


def test_connections_per_address_and_in_all_are_counted():
    slots, closed = ConnectionSlots(Limits(3, 2)), []
    a1 = slots.open("a", lambda: closed.append("a1"))
    a2 = slots.open("a", lambda: closed.append("a2"))
    slots.open("b", lambda: closed.append("b1"))
    slots.trust(a1)
    assert slots.open("a", lambda: closed.append("a3"))
    assert closed == ["a2"]
    assert slots.open("c", lambda: closed.append("c1"))
    assert closed == ["a2", "b1"]
    slots.release(a2)
    assert len(slots) == 3


def test_trusted_connections_are_not_replaced():
    slots = ConnectionSlots(Limits(2, 2))
    for _ in range(2):
        slots.trust(slots.open("a", lambda: pytest.fail("closed")))
    assert slots.open("a", lambda: None) is None
    assert slots.open("b", lambda: None) is None


def test_budget_of_one_sender_leaves_room_for_others():
    budget = ByteBudget(Limits(buffered_bytes=100, buffered_bytes_per_sender=60))
    assert budget.take("a", 60)
    assert not budget.take("a", 1)
    assert budget.take("b", 40)
    assert not budget.take("c", 1)
    budget.give_back("a", 60)
    assert budget.take("c", 60)


def test_limits_must_allow_a_connection():
    with pytest.raises(ValueError, match="connections must be at least 1, not 0"):
        Limits(0)
