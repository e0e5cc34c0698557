"""Replies become bytes beside the next device's work, where a GPU does that work."""

from concurrent.futures import Future, ThreadPoolExecutor

import torch

from aquila.core.packet import Packet
from aquila.core.wire import pack

WORKERS = 2


class Packer:
    """Packs replies: at once on the CPU, on threads with streams of their own for a GPU."""

    def __init__(self, device: torch.device) -> None:
        self._threads: ThreadPoolExecutor | None = None
        if device.type == "cuda":
            self._threads = ThreadPoolExecutor(WORKERS, "pack")

    def submit(self, reply: Packet) -> "Future[bytes]":
        """Start to pack a reply."""
        if self._threads is not None:
            ready = torch.cuda.Event()  # type: ignore[no-untyped-call]
            ready.record()  # the codes are ready once the work queued so far is done
            return self._threads.submit(_pack_on_own_stream, reply, ready)
        done: Future[bytes] = Future()
        done.set_result(pack(reply))
        return done


def _pack_on_own_stream(reply: Packet, ready: torch.cuda.Event) -> bytes:
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_event(ready)
    with torch.cuda.stream(stream):
        return pack(reply)
