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
from aquila.core.method import Method, Shard, Turn
from aquila.core.packet import NEVER, Dense, Packet, WireError
from aquila.core.random import Key, Purpose
from aquila.core.vector import Vector
from aquila.core.wire import pack, unpack
from aquila.runtime.finite import GuardedOracle, NanPolicy, NonFiniteError
from aquila.runtime.held import NAMELESS, Follow, Held, follow
from aquila.runtime.messages import NOTHING, Ack, Order, Pending, ack_of
from aquila.runtime.server import ServerSession

__all__ = ["Ack", "DeviceSession", "Keep", "Order", "ServerSession"]

Saved = tuple[Any, int, Ack, Pending | None, Pending | None, Held | None, Held | None]
"""What a device must not lose: state, last round, acknowledgement, two turns and two models."""

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

    Where models come as differences, the device holds the model of its last turn, and of the turn
    aside. A difference to another one it answers with a refusal, and computes nothing.

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
        follow: Follow = follow,
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
        self._follow = follow
        self.held: Held | None = None
        self._held_aside: Held | None = None
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
        (words, frame), checksum = self._read(order), order.checksum
        for earlier in self._turns():
            if earlier.reply.answers == checksum:
                return earlier.reply  # an order that came twice gets the same answer
        model = self._follow(frame, self._models())
        if model is None:
            return self._refusal(words.round, checksum)
        ack, vector = Ack(words.ack, words.answers), Dense(model.theta)
        packet = Packet(words.round, vector, words.scalars, ack.round, answers=ack.reply)
        state, ahead = self._state_behind(ack), packet.round > self.last_round
        if state is None:
            self._say_start(packet.round, ack)
            turn = self._turn(self.half.init(model.theta), packet)
        else:
            turn = self._turn(state, packet)
        fresh = state is None and ack != NOTHING
        turn = Turn(turn.state, _tied(turn.reply, checksum, fresh), turn.notes, turn.fallback)
        if state is not None and (ahead or ack != self.acked):
            self.state, self.acked, self.last_round = state, ack, packet.round
            self._pending, self._aside = Pending(self._kept(turn, state)), None
            self.held, self._held_aside = _worth_holding(model), None
        else:
            self._aside, self._held_aside = Pending(turn), _worth_holding(model)
        self.notes = dict(turn.notes)
        return turn.reply

    def model_of(self, order: Order) -> Held | None:
        """Return the model of an order, None if it is a difference to one that is not held."""
        return self._follow(self._unpack(order.model, self.dimension), self._models())

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

    def saved(self) -> Saved:
        """Return what `restore` takes."""
        turns, models = (self._pending, self._aside), (self.held, self._held_aside)
        return self.state, self.last_round, self.acked, *turns, *models

    def restore(
        self,
        state: Any,
        last_round: int,
        acked: Ack,
        pending: Pending | None = None,
        aside: Pending | None = None,
        held: Held | None = None,
        held_aside: Held | None = None,
    ) -> None:
        """Continue from a saved state."""
        self.state = state if self._keep is None else self._keep(self.device, state)
        self.last_round, self.acked = last_round, acked
        self._pending, self._aside = pending, aside
        self.held, self._held_aside = held, held_aside

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

    def _models(self) -> list[Held]:
        return [model for model in (self.held, self._held_aside) if model is not None]

    def _refusal(self, round: int, order: int) -> Packet:
        """Answer a difference to a model that is not held; the next order then brings a model."""
        _LOG.warning(
            "device %d sits out round %d: the order is a difference to a model that it does not "
            "hold", self.device, round,
        )  # fmt: skip
        self.notes = {}
        return Packet(round, refused=True, answers=order)

    def _say_start(self, round: int, ack: Ack) -> None:
        named = f"its reply to round {ack.round}, which it does not have"
        _LOG.warning(
            "device %d answers round %d from its initial state: the server acknowledges %s",
            self.device, round, "nothing of it" if ack == NOTHING else named,
        )  # fmt: skip

    def _read(self, order: Order) -> tuple[Packet, Packet]:
        words, model = self._unpack(order.words, 0), self._unpack(order.model, self.dimension)
        if words.round != model.round:
            raise WireError(f"model of round {model.round} in an order of round {words.round}")
        return words, model


def _worth_holding(model: Held) -> Held | None:
    """Return a model that a difference may follow, None where none will."""
    return None if model.name == NAMELESS else model


def _tied(reply: Packet, order: int, fresh: bool) -> Packet:
    """Return a reply that says which order it answers."""
    r = reply
    return Packet(r.round, r.vector, r.scalars, refused=r.refused, answers=order, fresh=fresh)
