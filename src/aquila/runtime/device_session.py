"""The device's end of the protocol: answers orders and tracks which replies the server applied.

The server acknowledges replies in its orders: `ack` and `refers_to` name the last reply of this
device that it applied. The device continues from the state after that reply. If it does not have
that state, it restarts from its initial state and says so in its reply. The server then subtracts
what the device sent before. docs/consistency.md has the rules and the proof.
"""

import logging
import math
from dataclasses import dataclass, replace
from typing import Any

from aquila.core.fleet import DeviceId
from aquila.core.method import LR_FACTOR, Method, Shard, Turn
from aquila.core.packet import NEVER, Dense, Packet, WireError
from aquila.core.random import Key, Purpose
from aquila.core.vector import Vector
from aquila.core.wire import pack
from aquila.runtime.messages import NO_ACK, Ack, Order, PendingTurn, ack_of
from aquila.runtime.nan_guard import GuardedOracle, NonFiniteError
from aquila.runtime.options import RunOptions
from aquila.runtime.privacy import GaussianNoise, NoisyOracle, private_turn
from aquila.runtime.reference import ReferenceModel
from aquila.runtime.reply_reader import RelayReader
from aquila.runtime.selection import LOSS, QUERY_LOSS, REPORT_LOSS
from aquila.runtime.services import Services

_LOG = logging.getLogger("aquila")


@dataclass(frozen=True)
class DeviceSnapshot:
    """Everything that a device must save to continue after a restart.

    Args:
        state: State after the last acknowledged reply.
        last_round: Round of the last order that the device followed.
        last_ack: Acknowledgement that `state` belongs to.
        pending: Last turn, which the next order may acknowledge.
        stale_turn: Turn that answered an order out of sequence.
        reference: Model of the last turn, if the next model can be a difference to it.
        stale_reference: Model of the stale turn, on the same condition.
    """

    state: Any
    last_round: int
    last_ack: Ack
    pending: PendingTurn | None = None
    stale_turn: PendingTurn | None = None
    reference: ReferenceModel | None = None
    stale_reference: ReferenceModel | None = None


class DeviceSession:
    """A device that answers orders and rolls back turns that the server did not apply.

    A turn is pending until the next order. An order out of sequence is late, or comes from a server
    that was restored to an older round. The device answers it with a stale turn, which changes
    nothing else until an order acknowledges it.

    Args:
        method: The method; the session runs its device half.
        device: Number of this device.
        shard: The data of the device.
        like: A vector with the length and dtype of the device's model.
        seed: Seed of the run.
        options: `on_nan` and the noise of devices apply here.
        initial_state: The method's initial state, if the caller has it. Devices can share it.
        services: Functions that the caller replaces.
    """

    def __init__(
        self,
        method: Method,
        device: DeviceId,
        shard: Shard,
        like: Vector,
        seed: int,
        options: RunOptions = RunOptions(),
        *,
        initial_state: Any = None,
        services: Services = Services(),
    ) -> None:
        self.half = method.device
        self.device = device
        self.shard = shard
        self.dimension = like.numel()
        self.state: Any = self.half.init(like) if initial_state is None else initial_state
        if self.state is None:  # None means that a state is missing
            raise TypeError(
                f"{method.name}: the device's init returned None; a device that keeps nothing "
                "returns an empty dataclass, such as NoState()"
            )
        self.last_round = NEVER
        self.last_ack = NO_ACK
        self.notes: dict[str, float] = {}
        self.reference: ReferenceModel | None = None
        self._stale_reference: ReferenceModel | None = None
        self._earlier_reference: ReferenceModel | None = None
        self._pending: PendingTurn | None = None
        self._stale_turn: PendingTurn | None = None
        self._seed = seed
        self._refuses_nan = options.on_nan == "skip"
        by_devices = options.is_private and options.dp_noise_by == "devices"
        self._noise = GaussianNoise.of(options) if by_devices else None
        self._name = method.name
        self._services = services
        self._read_upload = RelayReader(method.reader, shard, self.dimension, like.device)

    def handle(self, order: Order) -> bytes:
        """Answer an order with a frame and keep the frame, so that a repeated order gets it again.

        Raises WireError and changes nothing if the order is malformed. A session that is saved to
        disk must be saved before the frame is sent.
        """
        reply = self.answer(order)
        for pending in self._pending_turns():
            if pending.reply is reply and pending.frame:
                return pending.frame
        return self.pack(reply, keep_frame=True)

    def answer(self, order: Order) -> Packet:
        """Answer an order with a reply, which `pack` turns into bytes."""
        control, model_packet = self._read(order)
        order_checksum = order.checksum
        for earlier in self._pending_turns():
            if earlier.reply.refers_to == order_checksum:
                return earlier.reply  # a repeated order gets the same reply
        model = self._resolve(model_packet)
        if model is None:
            return self._refuse(control.round, order_checksum)
        if QUERY_LOSS in control.scalars:
            return replace(self._answer_query(control, model.theta), refers_to=order_checksum)
        packet = Packet(
            control.round, Dense(model.theta), control.scalars, control.ack,
            control.refused, control.refers_to, control.fresh,
        )  # fmt: skip
        ack = Ack(control.ack, control.refers_to)
        state = self._state_for(ack)
        if state is None:
            self._warn_restart(packet.round, ack)
        turn = self._run_turn(self.half.init(model.theta) if state is None else state, packet)
        fresh, scalars = state is None and ack != NO_ACK, turn.reply.scalars
        if REPORT_LOSS in control.scalars and "loss" in turn.notes:
            scalars = {LOSS: turn.notes["loss"], **scalars}
        reply = Packet(
            turn.reply.round, turn.reply.vector, scalars, NEVER,
            turn.reply.refused, order_checksum, fresh,
        )  # fmt: skip
        turn = Turn(turn.state, reply, turn.notes, turn.fallback)
        is_in_sequence = packet.round > self.last_round or ack != self.last_ack
        if state is not None and is_in_sequence:
            self.state, self.last_ack, self.last_round = state, ack, packet.round
            self._pending, self._stale_turn = PendingTurn(self._store_turn(turn, state)), None
            self._earlier_reference = self.reference
            self.reference, self._stale_reference = model.if_named, None
        else:
            self._stale_turn, self._stale_reference = PendingTurn(turn), model.if_named
        self.notes = dict(turn.notes)
        return turn.reply

    def pack(self, reply: Packet, keep_frame: bool = False) -> bytes:
        """Turn a reply into bytes, and remember how the server would acknowledge them."""
        frame = pack(reply)
        ack, kept_frame = ack_of(reply, frame), frame if keep_frame else b""
        if self._stale_turn is not None and self._stale_turn.reply is reply:
            self._stale_turn = PendingTurn(self._stale_turn.turn, ack, kept_frame)
        elif self._pending is not None and self._pending.reply is reply:
            self._pending = PendingTurn(self._pending.turn, ack, kept_frame)
        return frame

    def model_of(self, order: Order) -> ReferenceModel | None:
        """Return the model of an order, None if it is a difference without its base."""
        return self._resolve(self._services.unpack(order.model, self.dimension))

    def apply_ack(self, ack: Ack) -> None:
        """Commit the last turn if the server acknowledged it, otherwise roll it back."""
        state = self._state_for(ack)
        if state is None:
            raise WireError(f"device {self.device} has no state for the acknowledgement {ack}")
        self.state, self.last_ack, self._pending, self._stale_turn = state, ack, None, None
        self._earlier_reference = None

    def discard_turn(self, round_number: int) -> None:
        """Drop the turn of a round that the server has not closed."""
        if self._pending is not None and self.last_round == round_number:
            self.last_round, self._pending = round_number - 1, None
            self.reference = self._earlier_reference

    def snapshot(self) -> DeviceSnapshot:
        """Return everything that `restore` needs."""
        return DeviceSnapshot(
            self.state,
            self.last_round,
            self.last_ack,
            self._pending,
            self._stale_turn,
            self.reference,
            self._stale_reference,
        )

    def restore(self, saved: DeviceSnapshot) -> None:
        """Continue from a snapshot."""
        self.state = self._services.store_state(self.device, saved.state)
        self.last_round, self.last_ack = saved.last_round, saved.last_ack
        self._pending, self._stale_turn = saved.pending, saved.stale_turn
        self.reference, self._stale_reference = saved.reference, saved.stale_reference

    def _answer_query(self, query: Packet, theta: Vector) -> Packet:
        """Return the loss at a model. This changes no state."""
        try:
            loss = self._oracle(query).loss(theta, all_samples=bool(query.scalar(QUERY_LOSS)))
        except NonFiniteError:
            if not self._refuses_nan:
                raise
            return Packet(query.round, refused=True)
        return Packet(query.round, None, {LOSS: loss})

    def _oracle(self, packet: Packet) -> GuardedOracle | NoisyOracle:
        key = Key((self._seed, packet.round, self.device, Purpose.DATA))
        lr_factor = packet.scalars.get(LR_FACTOR, 1.0)
        oracle = GuardedOracle(self.shard.oracle(key), self.device, packet.round, lr_factor)
        if self._noise is None:
            return oracle
        noise_key = Key((self._seed, packet.round, self.device, Purpose.NOISE))
        return NoisyOracle(oracle, self._noise, self._services.secret_key(noise_key), self._name)

    def _run_turn(self, state: Any, packet: Packet) -> Turn[Any]:
        key = Key((self._seed, packet.round, self.device, Purpose.DEVICE))
        try:
            turn = self.half.step(state, packet, self._oracle(packet), key)
            return turn if self._noise is None else private_turn(self._name, turn)
        except NonFiniteError:
            if not self._refuses_nan:
                raise
            return Turn(state, Packet(packet.round, refused=True))

    def _store_turn(self, turn: Turn[Any], before: Any) -> Turn[Any]:
        store = self._services.store_state
        state, fallback = store(self.device, turn.state, before), turn.fallback
        if fallback is turn.state:
            fallback = state
        elif fallback is not None:
            fallback = store(self.device, fallback, before, state)
        if state is turn.state and fallback is turn.fallback:
            return turn
        return replace(turn, state=state, fallback=fallback)

    def _pending_turns(self) -> list[PendingTurn]:
        if self._pending is None and self._stale_turn is None:
            return []  # the usual case, which takes a list less
        return [turn for turn in (self._pending, self._stale_turn) if turn is not None]

    def _state_for(self, ack: Ack) -> Any:
        """Return the state after the acknowledged reply, None if this device does not have it."""
        pending, stale = self._pending, self._stale_turn
        if pending is not None and pending.ack == ack:
            return pending.turn.state
        if stale is not None and stale.ack == ack:
            return stale.turn.state
        if ack != self.last_ack:
            return None
        fallback = None if pending is None else pending.turn.fallback
        return self.state if fallback is None else fallback

    def _resolve(self, model: Packet) -> ReferenceModel | None:
        return self._services.resolve_model(model, self._references(), self._read_upload)

    def _references(self) -> list[ReferenceModel]:
        return [model for model in (self.reference, self._stale_reference) if model is not None]

    def _refuse(self, round_number: int, order_checksum: int) -> Packet:
        """Refuse a difference without its base. The next order then brings a whole model."""
        _LOG.warning(
            "device %d refuses round %d: the order is a difference to a model that the device "
            "does not hold", self.device, round_number,
        )  # fmt: skip
        self.notes = {}
        return Packet(round_number, refused=True, refers_to=order_checksum)

    def _warn_restart(self, round_number: int, ack: Ack) -> None:
        reply = f"its reply to round {ack.round}, which the device does not have"
        _LOG.warning(
            "device %d answers round %d from its initial state: the server acknowledges %s",
            self.device, round_number, "no reply" if ack == NO_ACK else reply,
        )  # fmt: skip

    def _read(self, order: Order) -> tuple[Packet, Packet]:
        control = self._services.unpack(order.control, 0)  # refuses a frame with coordinates
        model = self._services.unpack(order.model, self.dimension)
        if control.round != model.round:
            raise WireError(
                f"the order holds a control frame of round {control.round} and a model of round "
                f"{model.round}; both must be of the same round"
            )
        lr_factor = control.scalars.get(LR_FACTOR, 1.0)
        if not 0 < lr_factor < math.inf:
            raise WireError(f"the order has {LR_FACTOR} = {lr_factor}; it must be above 0")
        return control, model
