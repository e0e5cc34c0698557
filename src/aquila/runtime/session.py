"""Both ends of the wire: sessions that exchange only bytes and run a method's halves between them.

A device may keep what a turn did to its state only once the server has applied the reply. The
server says so in its next order to the device: `ack` and `answers` name, by its content, the last
reply of this device that it applied. The device goes on from the state behind that reply; where it
has none, it starts from the initial state and says so, and the server first takes back what the
device had sent before. The rules and why they suffice are in docs/consistency.md.
"""

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

from aquila.core.fleet import DeviceId
from aquila.core.method import Method, Shard, Turn, theta_of
from aquila.core.packet import NEVER, Packet, WireError
from aquila.core.random import Key, Purpose
from aquila.core.vector import Vector
from aquila.core.wire import pack, unpack
from aquila.runtime.finite import GuardedOracle, NanPolicy, NonFiniteError
from aquila.runtime.messages import NOTHING, Ack, Order, Pending, ack_of
from aquila.runtime.server import ServerSession

__all__ = ["Ack", "DeviceSession", "Keep", "Order", "ServerSession"]

_LOG = logging.getLogger("aquila")


class Keep(Protocol):
    """Where the states of devices are kept."""

    def __call__(self, device: DeviceId, state: Any, *held: Any) -> Any:
        """Return an equal state to go on with; `held` are the device's others still in use."""
        ...


class DeviceSession:
    """A device: answers orders, and remembers its state and the turns not yet acknowledged.

    A turn is pending until the next order. An order from elsewhere in time, late or of a server
    that was put back, is answered aside: that turn becomes real only if an order acknowledges it,
    and until then leaves everything else as it is.

    A `start` made by the method for vectors `like` these may be shared by many devices, since no
    state is ever written to.
    """

    def __init__(
        self,
        method: Method,
        device: DeviceId,
        shard: Shard,
        like: Vector,
        seed: int,
        on_nan: NanPolicy = "stop",
        unpack_order: Callable[[bytes, int], Packet] = unpack,
        start: Any = None,
        keep: Keep | None = None,
    ) -> None:
        self.half = method.device
        self.device = device
        self.state: Any = self.half.init(like) if start is None else start
        self.last_round = NEVER
        self.acked = NOTHING
        self.notes: dict[str, float] = {}
        self.shard = shard
        self._seed = seed
        self._on_nan = on_nan
        self._unpack = unpack_order
        self.dimension = like.numel()
        self._keep = keep
        self._pending: Pending | None = None
        self._aside: Pending | None = None

    def handle(self, order: Order) -> bytes:
        """Answer an order with a frame; raise WireError, and change nothing, if it is unsound.

        Where the session is saved, it must be saved before the frame leaves.
        """
        reply = self.answer(order)
        for turn in self._turns():
            if turn.reply is reply and turn.frame:
                return turn.frame
        frame = pack(reply)
        self.sent(reply, frame, keep=True)
        return frame

    def sent(self, reply: Packet, frame: bytes, keep: bool = False) -> None:
        """Note what a reply has become, so that its acknowledgement is recognised."""
        name, kept = ack_of(reply, frame), frame if keep else b""
        if self._aside is not None and self._aside.reply is reply:
            self._aside = Pending(self._aside.turn, name, kept)
        elif self._pending is not None and self._pending.reply is reply:
            self._pending = Pending(self._pending.turn, name, kept)

    def answer(self, order: Order) -> Packet:
        """Answer an order with a reply that is still to be packed."""
        packet, checksum = self._read(order), order.checksum
        for earlier in self._turns():
            if earlier.reply.answers == checksum:
                return earlier.reply  # an order that came twice gets the same answer
        ack = Ack(packet.ack, packet.answers)
        state, ahead = self._state_behind(ack), packet.round > self.last_round
        if state is None:
            self._say_start(packet.round, ack)
            turn = self._turn(self.half.init(theta_of(packet)), packet)
        else:
            turn = self._turn(state, packet)
        fresh = state is None and ack != NOTHING
        turn = Turn(turn.state, _tied(turn.reply, checksum, fresh), turn.notes, turn.fallback)
        if state is not None and (ahead or ack != self.acked):
            self.state, self.acked, self.last_round = state, ack, packet.round
            self._pending, self._aside = Pending(self._kept(turn, state)), None
        else:
            self._aside = Pending(turn)
        self.notes = dict(turn.notes)
        return turn.reply

    def _turn(self, state: Any, packet: Packet) -> Turn[Any]:
        key = Key((self._seed, packet.round, self.device))
        oracle = self.shard.oracle(key.child(Purpose.DATA))
        guarded = GuardedOracle(oracle, self.device, packet.round)
        try:
            return self.half.step(state, packet, guarded, key.child(Purpose.DEVICE))
        except NonFiniteError:
            if self._on_nan == "stop":
                raise
            return Turn(state, Packet(packet.round, refused=True))

    def settle(self, ack: Ack) -> None:
        """Keep the last turn if it was acknowledged, take it back otherwise."""
        state = self._state_behind(ack)
        if state is None:
            raise WireError(f"device {self.device} knows of no reply acknowledged as {ack}")
        self.state, self.acked, self._pending, self._aside = state, ack, None, None

    def rewind(self, round: int) -> None:
        """Forget the turn of a round that the server has not closed."""
        if self._pending is not None and self.last_round == round:
            self.last_round, self._pending = round - 1, None

    def saved(self) -> tuple[Any, int, Ack, Pending | None, Pending | None]:
        """Return what `restore` takes."""
        return self.state, self.last_round, self.acked, self._pending, self._aside

    def restore(
        self,
        state: Any,
        last_round: int,
        acked: Ack,
        pending: Pending | None = None,
        aside: Pending | None = None,
    ) -> None:
        """Continue from a saved state."""
        self.state = state if self._keep is None else self._keep(self.device, state)
        self.last_round, self.acked = last_round, acked
        self._pending, self._aside = pending, aside

    def _kept(self, turn: Turn[Any], before: Any) -> Turn[Any]:
        if self._keep is None:
            return turn
        state, fallback = self._keep(self.device, turn.state, before), turn.fallback
        if fallback is turn.state:
            fallback = state
        elif fallback is not None:
            fallback = self._keep(self.device, fallback, before, state)
        return replace(turn, state=state, fallback=fallback)

    def _turns(self) -> list[Pending]:
        return [turn for turn in (self._pending, self._aside) if turn is not None]

    def _state_behind(self, ack: Ack) -> Any:
        """Return the state that an acknowledgement names, None if there is none here."""
        for pending in self._turns():
            if pending.name == ack:
                return pending.turn.state
        if ack != self.acked:
            return None
        fallback = None if self._pending is None else self._pending.turn.fallback
        return self.state if fallback is None else fallback

    def _say_start(self, round: int, ack: Ack) -> None:
        named = f"its reply to round {ack.round}, which it does not have"
        _LOG.warning(
            "device %d answers round %d from its initial state: the server acknowledges %s",
            self.device, round, "nothing of it" if ack == NOTHING else named,
        )  # fmt: skip

    def _read(self, order: Order) -> Packet:
        words, model = self._unpack(order.words, 0), self._unpack(order.model, self.dimension)
        if model.vector is None:
            raise WireError("an order is a model frame and a frame of words; this one has no model")
        if words.round != model.round:
            raise WireError(f"model of round {model.round} in an order of round {words.round}")
        return Packet(words.round, model.vector, words.scalars, words.ack, answers=words.answers)


def _tied(reply: Packet, order: int, fresh: bool) -> Packet:
    """Return a reply that says which order it answers."""
    r = reply
    return Packet(r.round, r.vector, r.scalars, refused=r.refused, answers=order, fresh=fresh)
