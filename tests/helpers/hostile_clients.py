"""Clients without a key that try to exhaust a server, and a client that counts on it."""

import asyncio
import resource
import ssl
import statistics
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx

CLIENT_HELLO = bytes.fromhex("16030100c8010000c40303")
"""The first bytes of a TLS handshake that never continues."""
HEADER = b"POST /v1/fleet/push-object HTTP/1.1\r\nhost: a\r\n"
LARGE = 60 * 2**20
PIECE = bytes(2**16)
PAUSE_SECONDS = 2.0
OPEN_SECONDS = 120.0
RETRIES = 5


@dataclass
class Attack:
    """Hostile connections to one address. Each is opened again when the server closes it."""

    port: int
    tls: ssl.SSLContext | None
    counts: Counter[str] = field(default_factory=Counter)

    async def run(self, connections: int) -> None:
        """Attack until the task is cancelled."""
        kinds = (self.idle, self.half_handshake, self.half_header, self.large_body, self.slow_body)
        async with asyncio.TaskGroup() as group:
            for number in range(connections):
                group.create_task(self._repeat(kinds[number % len(kinds)]))

    async def _repeat(self, kind) -> None:
        while True:
            with suppress(OSError, EOFError, TimeoutError):
                async with asyncio.timeout(OPEN_SECONDS):
                    await kind()
            self.counts[kind.__name__] += 1
            await asyncio.sleep(PAUSE_SECONDS)

    async def idle(self) -> None:
        async with connection(self.port) as (reader, _):
            await reader.read()

    async def half_handshake(self) -> None:
        async with connection(self.port) as (reader, writer):
            writer.write(CLIENT_HELLO)
            await reader.read()

    async def half_header(self) -> None:
        async with connection(self.port, self.tls) as (reader, writer):
            writer.write(HEADER)
            await reader.read()

    async def large_body(self) -> None:
        async with connection(self.port, self.tls) as (_, writer):
            writer.write(HEADER + b"content-length: %d\r\n\r\n" % LARGE)
            for _ in range(LARGE // len(PIECE)):
                if writer.transport.is_closing():
                    return
                writer.write(PIECE)
                await writer.drain()
                await asyncio.sleep(0)  # notices that the server has closed the connection

    async def slow_body(self) -> None:
        async with connection(self.port, self.tls) as (_, writer):
            writer.write(HEADER + b"content-length: %d\r\n\r\n" % LARGE)
            while not writer.transport.is_closing():
                writer.write(b"\0")
                await writer.drain()
                await asyncio.sleep(1.0)


@asynccontextmanager
async def connection(
    port: int, tls: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection to loopback that is closed at the end."""
    name = None if tls is None else "localhost"
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls, server_hostname=name)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def send_honest_requests(send, seconds: float, at_least: int = 3) -> list[float]:
    """Call `send` ten times per second for a while, and return how long each call took."""
    durations: list[float] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end or len(durations) < at_least:
        began = time.monotonic()
        await retry(send)
        durations.append(time.monotonic() - began)
        await asyncio.sleep(0.1)
    return durations


async def retry(send) -> None:
    """Call `send` until it works, as Flower's SuperNode does."""
    for _ in range(RETRIES):
        with suppress(httpx.TransportError):
            return await send()
        await asyncio.sleep(0.2)
    await send()


def summary(durations: list[float]) -> str:
    """Return number, median and maximum of durations as text."""
    return (
        f"{len(durations)} requests, median {statistics.median(durations) * 1000:.0f} ms, "
        f"maximum {max(durations) * 1000:.0f} ms"
    )


def peak_memory(process_id: int) -> int:
    """Return the largest memory that a process has used, in MiB."""
    status = Path(f"/proc/{process_id}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) // 1024


def open_files(process_id: int) -> int:
    """Return the number of open files of a process."""
    return len(list(Path(f"/proc/{process_id}/fd").iterdir()))


def allow_open_files(count: int) -> None:
    """Raise this process's limit on open files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, max(hard, count)))
