"""The rounds of one bucket of gradients: a copy of the server half, and the rank's device half.

A DDP hook has no model and no server optimizer, and every exchange is complete. So the halves run
without sessions. A frame that one rank cannot read is refused by all of them, and its sender rolls
its turn back.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from aquila.core.fleet import Fleet
from aquila.core.method import Method, Turn, check_reply
from aquila.core.packet import Dense, Packet, WireError
from aquila.core.random import Key, Purpose
from aquila.core.state import Arrays, from_arrays, to_arrays
from aquila.core.tensors import Shapes, total_size
from aquila.core.vector import Vector
from aquila.core.wire import checksum_of_vector, pack, unpack
from aquila.distributed.agreement import (
    Messages,
    check_means,
    check_rounds,
    check_settings,
    check_stopped,
)
from aquila.distributed.exchange import Exchange, ExchangeError, Kind, Message
from aquila.distributed.oracle import OTHER_MODELS, RankOracle
from aquila.native.checksum import crc32
from aquila.runtime.fleet_health import check_scalars
from aquila.runtime.nan_guard import GuardedOracle, NonFiniteError
from aquila.runtime.reply_reader import ReplyReader
from aquila.runtime.selection import LOSS

COUNTERS, SERVER, DEVICE = "counters.", "server.", "device."
"""Prefixes of the arrays of a bucket."""

_LOG = logging.getLogger("aquila")


@dataclass(frozen=True)
class HookSettings:
    """What the buckets of a rank share.

    Args:
        method: The method.
        exchange: The links to all ranks.
        seed: Seed of the method's random numbers.
        check_means: Whether the ranks compare a checksum of the last mean gradient.
        text: The settings that all ranks must share, one per line.
    """

    method: Method
    exchange: Exchange
    seed: int
    check_means: bool
    text: str


class BucketRounds:
    """Averages the gradients of one bucket over all ranks, through coded frames.

    Args:
        settings: What all buckets share.
        parameters: Numbers of the parameters in the bucket.
        shapes: Their shapes.
        like: A vector with the dtype and the device of the gradients.
    """

    def __init__(
        self, settings: HookSettings, parameters: tuple[int, ...], shapes: Shapes, like: Vector
    ) -> None:
        self._settings, self._shapes = settings, shapes
        exchange, method = settings.exchange, settings.method
        # the model of the orders: methods that run here only look at its length
        self._zero = torch.zeros(total_size(shapes), dtype=like.dtype, device=like.device)
        device = self._zero.device
        self.fleet = Fleet(
            self._zero.numel(), [0] * exchange.size, torch_device=device, shapes=[shapes]
        )
        self._replies = ReplyReader(self.fleet, method.reader, device)
        self._text = f"{settings.text}\nbucket of parameters {' '.join(map(str, parameters))}"
        self._number = crc32(repr(parameters).encode())
        self.round, self.last_checksum = 0, 0
        self.server: Any = method.server.init(self._zero, self.fleet)
        self.device: Any = method.device.init(self._zero)

    def average(self, gradient: Vector) -> tuple[Vector, int, int]:
        """Return the mean gradient, and the bytes of frames that were sent and received.

        If a gradient is not finite on one rank or more, the mean is NaN on all ranks, and nothing
        else changes. A gradient scaler then skips the step.
        """
        exchange, half = self._settings.exchange, self._settings.method.server
        key = Key((self._settings.seed, self.round, Purpose.SERVER)).child(self._number)
        server, scalars = half.orders(self.server, self.fleet, self.round, key)
        kind, body, turn = Kind.SILENT, b"", None
        if exchange.rank in scalars:
            order = Packet(self.round, Dense(self._zero), scalars[exchange.rank])
            kind, body, turn = self._answer(order, gradient)
        checksum = self.last_checksum if self._settings.check_means else 0
        message = Message(
            kind, self.round, crc32(self._text.encode()), checksum, self._number, body
        )
        messages = exchange.gather(message)
        check_stopped(messages)
        check_settings(exchange, messages, self._text)
        check_rounds(messages)
        check_means(messages)
        lengths = {r: len(m.body) for r, m in messages.items() if m.kind is Kind.FRAME}
        sent = lengths.pop(exchange.rank, 0)
        if any(message.kind is Kind.FAILED for message in messages.values()):
            mean = torch.full_like(self._zero, torch.nan)
        else:
            mean = self._apply(server, messages, turn)
        self.round += 1
        if self._settings.check_means:
            self.last_checksum = checksum_of_vector(mean)
        return mean, sent, sum(lengths.values())

    def to_arrays(self) -> Arrays:
        """Return the state of the bucket."""
        counters = torch.tensor([self.round, self.last_checksum])
        parts = {COUNTERS: counters, SERVER: self.server, DEVICE: self.device}
        return {
            name: array for p, part in parts.items() for name, array in to_arrays(part, p).items()
        }

    def restore(self, arrays: Arrays) -> None:
        """Continue from the result of `to_arrays`, or raise ValueError and change nothing."""
        device = from_arrays(self.device, arrays, DEVICE)
        self.join(arrays)
        self.device = device

    def join(self, arrays: Arrays) -> None:
        """Continue from the state of another rank, with the present memory of this one."""
        counters = from_arrays(torch.tensor([0, 0]), arrays, COUNTERS)
        self.server = from_arrays(self.server, arrays, SERVER)
        self.round, self.last_checksum = counters.tolist()

    def _answer(self, order: Packet, gradient: Vector) -> tuple[Kind, bytes, Turn[Any] | None]:
        """Run the device half; return what this rank sends, and its turn."""
        rank = self._settings.exchange.rank
        inner = RankOracle(_only_once(gradient), self._shapes, lambda: self._zero)
        oracle = GuardedOracle(inner, rank, self.round)
        key = Key((self._settings.seed, self.round, rank, Purpose.DEVICE)).child(self._number)
        try:
            turn = self._settings.method.device.step(self.device, order, oracle, key)
            if LOSS in turn.reply.scalars:
                raise ValueError("the method sends the loss, which a DDP hook does not know")
            return Kind.FRAME, pack(turn.reply), turn
        except NonFiniteError as error:
            return Kind.FAILED, str(error).encode(), None
        except (ValueError, TypeError) as error:
            return Kind.STOPPED, f"{self._settings.method.name}: {error}".encode(), None

    def _apply(self, server: Any, messages: Messages, turn: Turn[Any] | None) -> Vector:
        """Apply the frames of all ranks; return the mean gradient."""
        exchange, half = self._settings.exchange, self._settings.method.server
        replies, reasons = self._read(messages)
        refused = set().union(*exchange.gather_sets(reasons, self.round))
        for rank in sorted(refused):
            replies.pop(rank, None)
            reason = reasons.get(rank, "another rank cannot read it")
            _LOG.warning(
                "round %d: all ranks refuse the frame of rank %d: %s", self.round, rank, reason
            )
        if refused and not replies:
            raise ExchangeError(f"round {self.round}: the frames of all ranks are damaged")
        self.server, mean = half.update(server, self.fleet, replies)
        if turn is not None and exchange.rank in replies:
            self.device = turn.state
        elif turn is not None and turn.fallback is not None:
            self.device = turn.fallback
        return self._zero if mean is None else mean.to(self._zero.dtype)

    def _read(self, messages: Messages) -> tuple[dict[int, Packet], dict[int, str]]:
        """Return the replies, and why frames cannot be read."""
        replies: dict[int, Packet] = {}
        reasons: dict[int, str] = {}
        for rank, message in messages.items():
            if message.kind is not Kind.FRAME:
                continue
            try:
                reply = self._replies.read(rank, message.body, unpack)
                if reply.round != self.round:
                    raise WireError(f"a reply to round {reply.round}")
                check_scalars(rank, reply.scalars)
                check_reply(self._settings.method.server, reply)
                replies[rank] = reply
            except WireError as error:
                reasons[rank] = str(error)
        return replies, reasons


def _only_once(gradient: Vector) -> Callable[[Vector], Vector]:
    """Return a function that gives the gradient once, because those of other models are unknown."""
    left = [gradient]

    def take(theta: Vector) -> Vector:
        if not left:
            raise ValueError(OTHER_MODELS)
        return left.pop()

    return take
