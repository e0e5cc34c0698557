"""How the proxy's server sets up accepted connections: reading, closing, and buffers."""

import asyncio
import socket
import struct
from asyncio import sslproto
from contextlib import suppress

READ_BYTES = 2**15
"""Bytes that are read at once from a connection."""


class PausedProtocol(asyncio.StreamReaderProtocol):
    """Reads nothing before the TLS handshake has taken over the connection."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Stop reading."""
        super().connection_made(transport)
        if isinstance(transport, asyncio.ReadTransport):
            transport.pause_reading()

    def eof_received(self) -> bool:
        """Close the connection when the sender has ended it."""
        super().eof_received()
        return False


def set_reset_on_close(connection: socket.socket, reset: bool) -> None:
    """Choose whether closing resets the connection, or ends it in order.

    Flower's SuperNode connects again after a reset. If a handshake ends in order, it gives up.
    """
    with suppress(OSError):
        linger = struct.pack("ii", int(reset), 0)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)


def use_small_tls_buffers() -> None:
    """Let each TLS connection buffer 32 KiB instead of asyncio's 256 KiB."""
    if hasattr(sslproto.SSLProtocol, "max_size"):
        sslproto.SSLProtocol.max_size = READ_BYTES
