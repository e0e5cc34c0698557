"""The two ends of the protocol on one rank: a copy of the server, and the rank's own device.

Every rank applies the same replies to the same state, so all copies of the server stay equal to the
bit. A frame that one rank cannot read is refused by all of them. The round then goes on as if the
frame had been lost, and its sender rolls its turn back.
"""

import logging
from dataclasses import dataclass, replace
from functools import partial

from aquila.core.fleet import Fleet
from aquila.core.method import Method
from aquila.core.packet import Packet, WireError
from aquila.core.vector import Vector
from aquila.core.wire import unpack
from aquila.distributed.agreement import Messages
from aquila.distributed.exchange import Exchange, ExchangeError, Kind
from aquila.distributed.oracle import RankOracle
from aquila.runtime.device_session import DeviceSession
from aquila.runtime.fleet_health import FleetHealth
from aquila.runtime.messages import NO_ACK
from aquila.runtime.nan_guard import NonFiniteError
from aquila.runtime.options import RunOptions
from aquila.runtime.selection import LOSS
from aquila.runtime.server_session import ServerSession
from aquila.runtime.services import Services

_LOG = logging.getLogger("aquila")


@dataclass(frozen=True)
class Outcome:
    """Ranks whose replies have no vector, were refused, or were not sent because of a failure.

    `upload` is what all ranks applied of the frame of this rank, None if nothing.
    """

    skipped: tuple[int, ...]
    refused: tuple[int, ...]
    failed: tuple[int, ...]
    upload: Vector | None = None


class RankSessions:
    """A copy of the server and the device of this rank.

    Args:
        method: The method.
        theta: The initial model.
        rank: Number of this rank.
        ranks: Number of all ranks.
        seed: Seed of the run.
        options: Options of the run.
        oracle: The vector of this rank.
    """

    def __init__(
        self,
        method: Method,
        theta: Vector,
        rank: int,
        ranks: int,
        seed: int,
        options: RunOptions,
        oracle: RankOracle,
    ) -> None:
        self.rank, self.method = rank, method
        self._seed, self._options, self._oracle = seed, options, oracle
        self.server = self.make_server(theta, ranks)
        self.device = self._make_device()

    def make_server(self, theta: Vector, ranks: int) -> ServerSession:
        """Return a server at the start of a run with this many ranks."""
        shapes = [self._oracle.shapes]
        fleet = Fleet(theta.numel(), [0] * ranks, torch_device=theta.device, shapes=shapes)
        return ServerSession(self.method, theta, fleet, self._seed, self._options)

    def forget_memory(self) -> None:
        """Start all memories anew. The model, the moments and the round stay."""
        server, devices = self.server, len(self.server.acks)
        server.restore(
            replace(
                server.snapshot(),
                state=server.half.init(server.theta, server.fleet),
                acks=(NO_ACK,) * devices,
                health=FleetHealth.of(devices),
            )
        )
        self.device = self._make_device()

    def answer(self) -> tuple[Kind, bytes]:
        """Return what this rank sends in the round."""
        orders = self.server.open_round()
        if self.rank not in orders:
            return Kind.SILENT, b""
        try:
            reply = self.device.answer(orders[self.rank])
            self._check_loss(reply)
            return Kind.FRAME, self.device.pack(reply)
        except NonFiniteError as error:
            stops = self._options.on_nan == "stop"
            return Kind.STOPPED if stops else Kind.FAILED, str(error).encode()
        except (ValueError, TypeError) as error:
            return Kind.STOPPED, f"{self.method.name}: {error}".encode()

    def apply(self, exchange: Exchange, messages: Messages) -> Outcome:
        """Apply the messages of all ranks and advance to the next round."""
        round_number = self.server.round
        refused = self._receive(exchange, messages)
        failed = [rank for rank, message in messages.items() if message.kind is Kind.FAILED]
        for rank in failed:
            self.server.report_failure(rank, messages[rank].text)
        if reason := self.server.fatal_reason():
            raise ExchangeError(reason)
        sent = {rank for rank, message in messages.items() if message.kind is Kind.FRAME}
        if refused and refused == sent:
            raise ExchangeError(f"round {round_number}: the frames of all ranks are damaged")
        replies = self.server.close_round()
        rejected = refused.union(self.server.guard.rejected)
        own, upload = replies.get(self.rank), None
        if own is not None and not own.refused:
            self.device.apply_ack(self.server.acks[self.rank])
            if own.vector is not None and self.rank not in rejected:
                upload = own.vector.decode()
        skipped = [rank for rank, reply in replies.items() if reply.vector is None]
        return Outcome(tuple(skipped), tuple(sorted(rejected)), tuple(failed), upload)

    def _receive(self, exchange: Exchange, messages: Messages) -> set[int]:
        """Receive the frames; return the ranks whose frames one rank or more could not read."""
        reasons: dict[int, str] = {}
        for rank, message in messages.items():
            if message.kind is not Kind.FRAME:
                continue
            try:
                self.server.receive(rank, message.body)
            except WireError as error:
                reasons[rank] = str(error)
        refused = set().union(*exchange.gather_sets(reasons, self.server.round))
        for rank in sorted(refused):
            self.server.discard(rank)
            _LOG.warning(
                "round %d: all ranks refuse the frame of rank %d: %s",
                self.server.round, rank, reasons.get(rank, "another rank cannot read it"),
            )  # fmt: skip
        return refused

    def _make_device(self) -> DeviceSession:
        theta = self.server.theta
        # orders never leave this process, so their checksums need no check
        services = Services(unpack=partial(unpack, device=theta.device, trusted=True))
        return DeviceSession(
            self.method, self.rank, self._oracle, theta, self._seed, self._options,
            services=services,
        )  # fmt: skip

    def _check_loss(self, reply: Packet) -> None:
        if LOSS in reply.scalars and self._oracle.loss_value is None:
            raise ValueError("the method sends the loss; call outer.step(loss)")
