"""Exchanges messages between all ranks of a process group.

A message is a header of six integers and a body of bytes. The headers are gathered first. They have
the lengths of the bodies, which are then padded to the longest one and gathered as byte tensors.
Frames are bytes on the host, so the default is a group on gloo, also for models on a GPU. With a
group on NCCL, the byte tensors are on the GPU.
"""

import math
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from enum import IntEnum

import torch
import torch.distributed as dist

from aquila.distributed.bandwidth import TokenBucket

HEADER_NUMBERS = 6
HEADER_BYTES = 8 * HEADER_NUMBERS

DEFAULT_TIMEOUT = 600.0


class ExchangeError(RuntimeError):
    """The ranks cannot go on. Every rank that is still alive raises it."""


class Kind(IntEnum):
    """What the body of a message is."""

    FRAME = 0
    """The frame of a reply."""
    SILENT = 1
    """Nothing: the rank has no order in this round."""
    FAILED = 2
    """Why the rank cannot take part in this round."""
    STOPPED = 3
    """Why the rank cannot go on."""
    TEXT = 4
    """Any other bytes."""


@dataclass(frozen=True)
class Message:
    """What one rank says to all ranks.

    Args:
        kind: What the body is.
        round: Number of the round.
        settings: Checksum of the settings.
        weights: Checksum of the weights, 0 if they are not compared.
        flag: A number whose meaning depends on the exchange.
        body: The bytes.
    """

    kind: Kind
    round: int = 0
    settings: int = 0
    weights: int = 0
    flag: int = 0
    body: bytes = b""

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode(errors="replace")


class Exchange:
    """The links of this rank to all others.

    Args:
        group: A process group. Default: a new group of all ranks on gloo.
        timeout: Seconds after which a rank that waits for others gives up. It includes the time
            that the others compute. A group that is passed keeps its own timeout.
        bandwidth: Bits per second that this rank may send, 0 for no limit. It is for trials of
            slow links on one machine.

    Attributes:
        link_bytes: Bytes that this rank has sent over its link. It includes headers, padding and
            the frames of other ranks that it forwards.
    """

    def __init__(
        self,
        group: dist.ProcessGroup | None = None,
        timeout: float = DEFAULT_TIMEOUT,
        bandwidth: float = 0.0,
    ) -> None:
        if not dist.is_available() or not dist.is_initialized():
            raise RuntimeError(
                "torch.distributed is not initialized: start the program with torchrun and call "
                "torch.distributed.init_process_group() first"
            )
        if not 0 < timeout < math.inf:
            raise ValueError(f"timeout must be a finite number of seconds above 0, not {timeout!r}")
        if not bandwidth >= 0:
            raise ValueError(f"bandwidth must be at least 0 bits per second, not {bandwidth!r}")
        self._waiting_time = "the timeout of the group"
        if group is None:
            self._waiting_time = f"{timeout:g} s"
            with self._errors("the start"):
                group = dist.new_group(backend="gloo", timeout=timedelta(seconds=timeout))
        self._group = group
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)
        self._torch_device = "cuda" if "nccl" in dist.get_backend(group) else "cpu"
        self._bucket = TokenBucket(bandwidth) if bandwidth else None
        self.link_bytes = 0

    def gather(self, message: Message) -> dict[int, Message]:
        """Send a message to all ranks; return the message of each rank, this one included."""
        own = [message.kind, message.round, message.settings, message.weights, message.flag]
        with self._errors(f"round {message.round}"):
            headers = self._gather_numbers([*own, len(message.body)])
            bodies = self.gather_bodies(message.body, [header[-1] for header in headers])
        return {
            rank: Message(Kind(kind), number, settings, weights, flag, body)
            for rank, ((kind, number, settings, weights, flag, _), body) in enumerate(
                zip(headers, bodies, strict=True)
            )
        }

    def gather_bodies(self, body: bytes, lengths: list[int]) -> list[bytes]:
        """Send bytes to all ranks, given the lengths of all bodies; return those of each rank."""
        longest = max(lengths)
        if longest == 0:
            return [b""] * self.size
        own = torch.zeros(longest, dtype=torch.uint8)
        if body:
            own[: len(body)] = torch.frombuffer(bytearray(body), dtype=torch.uint8)
        gathered = self._gather(own)
        return [
            tensor[:length].numpy().tobytes()
            for tensor, length in zip(gathered, lengths, strict=True)
        ]

    def gather_sets(self, ranks: Collection[int], round_number: int) -> list[set[int]]:
        """Send a set of ranks to all ranks; return the set of each rank."""
        own = torch.tensor([rank in ranks for rank in range(self.size)], dtype=torch.uint8)
        with self._errors(f"round {round_number}"):
            gathered = self._gather(own)
        return [set(tensor.nonzero().reshape(-1).tolist()) for tensor in gathered]

    def broadcast(self, content: bytes, source: int) -> bytes:
        """Return the content of the source rank on every rank."""
        with self._errors("the start"):
            lengths = self._gather_numbers([len(content)])
            length = lengths[source][0]
            tensor = torch.zeros(length, dtype=torch.uint8)
            if self.rank == source:
                tensor = torch.frombuffer(bytearray(content), dtype=torch.uint8)
                self._use_link(length * (self.size - 1))
            tensor = tensor.to(self._torch_device)
            dist.broadcast(tensor, dist.get_global_rank(self._group, source), self._group)
        return tensor.cpu().numpy().tobytes()

    def _gather_numbers(self, numbers: list[int]) -> list[list[int]]:
        gathered = self._gather(torch.tensor(numbers, dtype=torch.int64))
        return [[int(number) for number in tensor.tolist()] for tensor in gathered]

    def _gather(self, own: torch.Tensor) -> list[torch.Tensor]:
        """Gather tensors of one shape. On its link, a rank sends size - 1 of them."""
        self._use_link(own.nbytes * (self.size - 1))
        sent = own.to(self._torch_device)
        gathered = [torch.empty_like(sent) for _ in range(self.size)]
        dist.all_gather(gathered, sent, group=self._group)
        return [tensor.cpu() for tensor in gathered]

    def _use_link(self, size: int) -> None:
        self.link_bytes += size
        if self._bucket is not None:
            self._bucket.send(size)

    @contextmanager
    def _errors(self, where: str) -> Iterator[None]:
        """Turn the errors of torch.distributed into one sentence."""
        try:
            yield
        except RuntimeError as error:
            reason = str(error).partition("\n")[0]
            raise ExchangeError(
                f"{where}: another rank has ended, or has not answered within "
                f"{self._waiting_time}; restart all ranks from their last saved state ({reason})"
            ) from error
