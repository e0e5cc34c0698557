"""Both ends of the wire: sessions that exchange only bytes and run a method's halves between them.

A device may keep what a turn did to its state only once the server has applied the reply. The
server says so in its next order to the device: `ack` is the round of the last reply of this
device that it applied. On any other `ack` the device takes its last turn back. Lost, late,
doubled and reordered replies are thus all one case: a turn that never happened.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch

from aquila.core.fleet import DeviceId, Fleet
from aquila.core.method import Method, Shard, Turn
from aquila.core.packet import NEVER, Packet, WireError
from aquila.core.random import Key, Purpose
from aquila.core.vector import Vector
from aquila.core.wire import pack, unpack
from aquila.runtime.finite import GuardedOracle, NanPolicy, NonFiniteError


@dataclass(frozen=True)
class Order:
    """What the server sends a device: the model, the same bytes for all, and its own few words."""

    model: bytes
    words: bytes


class Keep(Protocol):
    """Where the states of devices are kept."""

    def __call__(self, device: DeviceId, state: Any, *held: Any) -> Any:
        """Return an equal state to go on with; `held` are the device's others still in use."""
        ...


class DeviceSession:
    """A device: answers orders, and remembers its state and the turn not yet acknowledged.

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
        self.acked = NEVER
        self.notes: dict[str, float] = {}
        self.shard = shard
        self._seed = seed
        self._on_nan = on_nan
        self._unpack = unpack_order
        self._dimension = like.numel()
        self._keep = keep
        self._pending: Turn[Any] | None = None

    def handle(self, order: Order) -> bytes:
        """Answer an order with a frame; raise WireError, and change nothing, if it is unsound."""
        return pack(self.answer(order))

    def answer(self, order: Order) -> Packet:
        """Answer an order with a reply that is still to be packed."""
        packet = self._read(order)
        if self._pending is not None and packet.round == self.last_round:
            return self._pending.reply  # an order that came twice gets the same answer
        state = self._settled(packet.ack)
        key = Key((self._seed, packet.round, self.device))
        oracle = self.shard.oracle(key.child(Purpose.DATA))
        guarded = GuardedOracle(oracle, self.device, packet.round)
        try:
            turn = self.half.step(state, packet, guarded, key.child(Purpose.DEVICE))
        except NonFiniteError:
            if self._on_nan == "stop":
                raise
            turn = Turn(state, Packet(packet.round, refused=True))
        self.state, self.acked, self._pending = state, packet.ack, self._kept(turn, state)
        self.last_round = packet.round
        self.notes = dict(turn.notes)
        return turn.reply

    def settle(self, ack: int) -> None:
        """Keep the last turn if its round was acknowledged, take it back otherwise."""
        self.state, self.acked, self._pending = self._settled(ack), ack, None

    def rewind(self, round: int) -> None:
        """Forget the turn of a round that the server has not closed."""
        if self._pending is not None and self.last_round == round:
            self.last_round, self._pending = round - 1, None

    def restore(self, state: Any, last_round: int, acked: int) -> None:
        """Continue from a saved, settled state."""
        self.state = state if self._keep is None else self._keep(self.device, state)
        self.last_round, self.acked, self._pending = last_round, acked, None

    def _kept(self, turn: Turn[Any], before: Any) -> Turn[Any]:
        if self._keep is None:
            return turn
        state, fallback = self._keep(self.device, turn.state, before), turn.fallback
        if fallback is turn.state:
            fallback = state
        elif fallback is not None:
            fallback = self._keep(self.device, fallback, before, state)
        return replace(turn, state=state, fallback=fallback)

    def _settled(self, ack: int) -> Any:
        turn = self._pending
        if turn is not None and ack == turn.reply.round:
            return turn.state
        if ack != self.acked:
            raise WireError(
                f"order acknowledges round {ack}, but the last round of device {self.device} "
                f"known to be acknowledged is {self.acked}"
            )
        return self.state if turn is None or turn.fallback is None else turn.fallback

    def _read(self, order: Order) -> Packet:
        words, model = self._unpack(order.words, 0), self._unpack(order.model, self._dimension)
        if model.vector is None:
            raise WireError("an order is a model frame and a frame of words; this one has no model")
        if words.round != model.round:
            raise WireError(f"model of round {model.round} in an order of round {words.round}")
        repeated = self._pending is not None and words.round == self.last_round
        if words.round <= self.last_round and not repeated:
            raise WireError(f"order of round {words.round} after one of round {self.last_round}")
        return replace(words, vector=model.vector)


class ServerSession:
    """The server: opens a round, takes replies one by one, closes the round.

    Where `participation` is below 1, that share of a round's orders is drawn and sent, at least
    one; to the method the other devices are ones whose replies were lost.
    """

    def __init__(
        self,
        method: Method,
        theta: Vector,
        fleet: Fleet,
        seed: int,
        unpack_reply: Callable[..., Packet] = unpack,
        participation: float = 1.0,
    ) -> None:
        if not 0 < participation <= 1:
            raise ValueError(f"participation must be above 0 and at most 1, not {participation}")
        self.half = method.server
        self.fleet = fleet
        self.round = 0
        self.acks = [NEVER] * len(fleet.devices)
        self.state: Any = self.half.init(theta, fleet)
        self._seed = seed
        self._unpack_reply = unpack_reply
        self._participation = participation
        self._orders: dict[DeviceId, Order] = {}
        self._opened: Any = None
        self._replies: dict[DeviceId, Packet] = {}

    @property
    def theta(self) -> Vector:
        """The current model."""
        return self.half.model(self.state)

    def open_round(self) -> dict[DeviceId, Order]:
        """Return the orders of the round; asked again, return the same ones."""
        if not self._orders:
            key = Key((self._seed, self.round, Purpose.SERVER))
            self._opened, packets = self.half.orders(self.state, self.fleet, self.round, key)
            packets = self._drawn(packets)
            self._demand_finite(packets)
            self._orders = self._packed(packets)
        return self._orders

    def _packed(self, packets: dict[DeviceId, Packet]) -> dict[DeviceId, Order]:
        """Turn orders into bytes; those that say the same to many devices are packed once."""
        models: dict[int, bytes] = {}
        same: dict[tuple[int, int], Order] = {}
        orders: dict[DeviceId, Order] = {}
        for device, packet in packets.items():
            wording = id(packet), self.acks[device]
            if wording not in same:
                if id(packet.vector) not in models:
                    models[id(packet.vector)] = pack(Packet(packet.round, packet.vector))
                words = pack(replace(packet, vector=None, ack=self.acks[device]))
                same[wording] = Order(models[id(packet.vector)], words)
            orders[device] = same[wording]
        return orders

    def _drawn(self, packets: dict[DeviceId, Packet]) -> dict[DeviceId, Packet]:
        """Return the orders of the devices that take part."""
        if self._participation == 1:
            return packets
        count = max(1, round(self._participation * len(packets)))
        key = Key((self._seed, self.round, Purpose.PARTICIPATION))
        return {device: packets[device] for device in key.sample(list(packets), count)}

    def receive(self, device: DeviceId, frame: bytes) -> None:
        """Take a reply to the open round; raise WireError, and change nothing, if it is unsound."""
        if device not in self._orders:
            raise WireError(f"device {device} has no order in round {self.round}")
        if device in self._replies:
            raise WireError(f"device {device} has already replied in round {self.round}")
        dimension = self.fleet.dimension_of(device)
        reply = self._unpack_reply(frame, dimension=dimension, device=self.theta.device)
        if reply.round != self.round:
            raise WireError(f"reply to round {reply.round} in round {self.round}")
        if not reply.refused:
            self.half.check(reply)
        self._replies[device] = reply

    def close_round(self) -> dict[DeviceId, Packet]:
        """Apply the replies that came, move on to the next round, and return them."""
        if not self._orders:
            raise RuntimeError(f"round {self.round} has not been opened")
        replies = {d: self._replies[d] for d in sorted(self._replies)}
        applied = {d: r for d, r in replies.items() if not r.refused}
        state = self.half.update(self._opened, self.fleet, applied)
        if not torch.isfinite(self.half.model(state)).all():
            raise NonFiniteError(
                f"the model is no longer finite after round {self.round}; a smaller alpha may help"
            )
        for device in applied:
            self.acks[device] = self.round
        self.state, self.round = state, self.round + 1
        self._orders, self._replies = {}, {}
        return replies

    def _demand_finite(self, packets: dict[DeviceId, Packet]) -> None:
        numbers = (value for packet in packets.values() for value in packet.scalars.values())
        if not all(map(math.isfinite, numbers)):
            raise NonFiniteError(
                f"the last step before round {self.round} is too large to be measured; "
                "a smaller alpha may help"
            )

    def restore(self, state: Any, round: int, acks: list[int]) -> None:
        """Continue from a saved round."""
        self.state, self.round, self.acks = state, round, acks
        self._orders, self._replies = {}, {}
