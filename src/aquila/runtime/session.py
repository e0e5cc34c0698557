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
from aquila.runtime.messages import NO_ACK, Ack, Order, PendingTurn, ack_of
from aquila.runtime.nan_guard import GuardedOracle, NanPolicy, NonFiniteError
from aquila.runtime.reference import UNNAMED, ReferenceModel, ResolveModel, resolve_model
from aquila.runtime.server import ServerSession

__all__ = ["Ack", "DeviceSession", "Order", "ServerSession", "StoreState"]

Snapshot = tuple[
    Any,
    int,
    Ack,
    PendingTurn | None,
    PendingTurn | None,
    ReferenceModel | None,
    ReferenceModel | None,
]
"""What a device must not lose: state, last round, acknowledgement, two turns and two models."""

_LOG = logging.getLogger("aquila")


class StoreState(Protocol):
    """Where the states of devices are kept."""

    def __call__(self, device: DeviceId, state: Any, *in_use: Any) -> Any:
        """Return an equal state to go on with; `in_use` are the device's other states."""
        ...


class DeviceSession:
    """A device: answers orders, and remembers its state and the turns not yet acknowledged.

    A turn is pending until the next order. An order from elsewhere in time, late or of a server
    that was put back, is answered by a stale turn: it becomes real only if an order
    acknowledges it, and until then leaves everything else as it is.

    Where models come as differences, the device holds the model of its last turn, and of the
    stale turn. A difference to another one it answers with a refusal, and computes nothing.

    An `initial_state` made by the method for vectors `like` these may be shared by many devices,
    since no state is ever written to.
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
        initial_state: Any = None,
        store_state: StoreState | None = None,
        resolve_model: ResolveModel = resolve_model,
    ) -> None:
        self.half = method.device
        self.device = device
        self.state: Any = self.half.init(like) if initial_state is None else initial_state
        self.last_round = NEVER
        self.last_ack = NO_ACK
        self.notes: dict[str, float] = {}
        self.shard = shard
        self._seed = seed
        self._on_nan = on_nan
        self._unpack = unpack_order
        self.dimension = like.numel()
        self._store_state = store_state
        self._resolve_model = resolve_model
        self.reference: ReferenceModel | None = None
        self._stale_reference: ReferenceModel | None = None
        self._pending: PendingTurn | None = None
        self._stale_turn: PendingTurn | None = None

    def handle(self, order: Order) -> bytes:
        """Answer an order with a frame; raise WireError, and change nothing, if it is unsound.

        Where the session is saved, it must be saved before the frame leaves.
        """
        reply = self.answer(order)
        for turn in self._pending_turns():
            if turn.reply is reply and turn.frame:
                return turn.frame
        frame = pack(reply)
        self.record_sent(reply, frame, keep_frame=True)
        return frame

    def record_sent(self, reply: Packet, frame: bytes, keep_frame: bool = False) -> None:
        """Note what a reply has become, so that its acknowledgement is recognised."""
        ack, kept_frame = ack_of(reply, frame), frame if keep_frame else b""
        if self._stale_turn is not None and self._stale_turn.reply is reply:
            self._stale_turn = PendingTurn(self._stale_turn.turn, ack, kept_frame)
        elif self._pending is not None and self._pending.reply is reply:
            self._pending = PendingTurn(self._pending.turn, ack, kept_frame)

    def answer(self, order: Order) -> Packet:
        """Answer an order with a reply that is still to be packed."""
        (control, frame), checksum = self._read(order), order.checksum
        for earlier in self._pending_turns():
            if earlier.reply.answers == checksum:
                return earlier.reply  # an order that came twice gets the same answer
        model = self._resolve_model(frame, self._references())
        if model is None:
            return self._refuse(control.round, checksum)
        ack, vector = Ack(control.ack, control.answers), Dense(model.theta)
        packet = Packet(control.round, vector, control.scalars, ack.round, answers=ack.checksum)
        state, ahead = self._state_for(ack), packet.round > self.last_round
        if state is None:
            self._warn_fresh_start(packet.round, ack)
            turn = self._turn(self.half.init(model.theta), packet)
        else:
            turn = self._turn(state, packet)
        fresh = state is None and ack != NO_ACK
        turn = Turn(turn.state, _answering(turn.reply, checksum, fresh), turn.notes, turn.fallback)
        if state is not None and (ahead or ack != self.last_ack):
            self.state, self.last_ack, self.last_round = state, ack, packet.round
            self._pending, self._stale_turn = PendingTurn(self._store_turn(turn, state)), None
            self.reference, self._stale_reference = _as_reference(model), None
        else:
            self._stale_turn, self._stale_reference = PendingTurn(turn), _as_reference(model)
        self.notes = dict(turn.notes)
        return turn.reply

    def model_of(self, order: Order) -> ReferenceModel | None:
        """Return the model of an order, None if it is a difference to one that is not held."""
        return self._resolve_model(self._unpack(order.model, self.dimension), self._references())

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

    def apply_ack(self, ack: Ack) -> None:
        """Keep the last turn if it was acknowledged, take it back otherwise."""
        state = self._state_for(ack)
        if state is None:
            raise WireError(f"device {self.device} knows of no reply acknowledged as {ack}")
        self.state, self.last_ack, self._pending, self._stale_turn = state, ack, None, None

    def discard_turn(self, round_number: int) -> None:
        """Forget the turn of a round that the server has not closed."""
        if self._pending is not None and self.last_round == round_number:
            self.last_round, self._pending = round_number - 1, None

    def snapshot(self) -> Snapshot:
        """Return what `restore` takes."""
        turns, models = (self._pending, self._stale_turn), (self.reference, self._stale_reference)
        return self.state, self.last_round, self.last_ack, *turns, *models

    def restore(
        self,
        state: Any,
        last_round: int,
        last_ack: Ack,
        pending: PendingTurn | None = None,
        stale_turn: PendingTurn | None = None,
        reference: ReferenceModel | None = None,
        stale_reference: ReferenceModel | None = None,
    ) -> None:
        """Continue from a saved state."""
        self.state = state if self._store_state is None else self._store_state(self.device, state)
        self.last_round, self.last_ack = last_round, last_ack
        self._pending, self._stale_turn = pending, stale_turn
        self.reference, self._stale_reference = reference, stale_reference

    def _store_turn(self, turn: Turn[Any], before: Any) -> Turn[Any]:
        if self._store_state is None:
            return turn
        state, fallback = self._store_state(self.device, turn.state, before), turn.fallback
        if fallback is turn.state:
            fallback = state
        elif fallback is not None:
            fallback = self._store_state(self.device, fallback, before, state)
        return replace(turn, state=state, fallback=fallback)

    def _pending_turns(self) -> list[PendingTurn]:
        return [turn for turn in (self._pending, self._stale_turn) if turn is not None]

    def _state_for(self, ack: Ack) -> Any:
        """Return the state that an acknowledgement names, None if there is none here."""
        for pending in self._pending_turns():
            if pending.ack == ack:
                return pending.turn.state
        if ack != self.last_ack:
            return None
        fallback = None if self._pending is None else self._pending.turn.fallback
        return self.state if fallback is None else fallback

    def _references(self) -> list[ReferenceModel]:
        return [model for model in (self.reference, self._stale_reference) if model is not None]

    def _refuse(self, round_number: int, order: int) -> Packet:
        """Answer a difference to a model that is not held; the next order then brings a model."""
        _LOG.warning(
            "device %d sits out round %d: the order is a difference to a model that it does not "
            "hold", self.device, round_number,
        )  # fmt: skip
        self.notes = {}
        return Packet(round_number, refused=True, answers=order)

    def _warn_fresh_start(self, round_number: int, ack: Ack) -> None:
        reply = f"its reply to round {ack.round}, which it does not have"
        _LOG.warning(
            "device %d answers round %d from its initial state: the server acknowledges %s",
            self.device, round_number, "nothing of it" if ack == NO_ACK else reply,
        )  # fmt: skip

    def _read(self, order: Order) -> tuple[Packet, Packet]:
        control, model = self._unpack(order.control, 0), self._unpack(order.model, self.dimension)
        if control.round != model.round:
            raise WireError(f"model of round {model.round} in an order of round {control.round}")
        return control, model


def _as_reference(model: ReferenceModel) -> ReferenceModel | None:
    """Return a model that a difference may follow, None where none will."""
    return None if model.checksum == UNNAMED else model


def _answering(reply: Packet, order: int, fresh: bool) -> Packet:
    """Return a reply that says which order it answers."""
    r = reply
    return Packet(r.round, r.vector, r.scalars, refused=r.refused, answers=order, fresh=fresh)
