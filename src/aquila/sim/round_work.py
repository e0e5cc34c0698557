"""The part of a simulated round that executors run: devices answer, and replies are delivered."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from aquila.core.fleet import DeviceId
from aquila.core.packet import Packet
from aquila.core.random import Key, Purpose
from aquila.core.vector import Vector
from aquila.runtime.messages import Order
from aquila.runtime.nan_guard import NonFiniteError
from aquila.runtime.traffic import Traffic, cost_of
from aquila.sim.network import RoundClock

if TYPE_CHECKING:
    from aquila.sim.loop import Simulation


class RoundWork:
    """Sends orders, and runs the devices that they reach, possibly on several threads."""

    def __init__(
        self,
        simulation: "Simulation",
        orders: Mapping[DeviceId, Order],
        traffic: Traffic,
        clock: RoundClock | None,
    ) -> None:
        self._seed, self._round = simulation.seed, simulation.server.round
        self._link = simulation.link
        for device, order in orders.items():
            traffic.add_downlink(device, simulation.order_cost(order))
        reached = [d for d in orders if self._link.order_arrives(self._link_key(d))]
        self.devices: Sequence[DeviceId] = reached if clock is None else clock.start(reached)
        self._sessions, self._server = simulation.devices, simulation.server
        self._orders, self._traffic, self._clock = orders, traffic, clock
        self._quarantines = simulation.on_nan == "quarantine"

    def prefetch(self, devices: Sequence[DeviceId]) -> None:
        """Announce the devices of each batched shard together with their model."""
        by_model: dict[tuple[int, int], tuple[Vector, list[Any]]] = {}
        for device in devices:
            shard: Any = self._sessions[device].shard
            batched = getattr(shard, "batched", None)
            if batched is None:
                continue
            model = self._sessions[device].model_of(self._orders[device])
            if model is not None:
                key = id(batched), id(model.theta)
                by_model.setdefault(key, (model.theta, []))[1].append(shard)
        for theta, shards in by_model.values():
            shards[0].batched.prefetch(theta, shards)

    def answer(self, device: DeviceId) -> Packet | None:
        """Compute the device's reply, None if its results are not finite."""
        try:
            return self._sessions[device].answer(self._orders[device])
        except NonFiniteError as error:
            if not self._quarantines:
                raise
            self._server.report_failure(device, str(error))
            return None

    def deliver(self, device: DeviceId, reply: Packet | None) -> bool:
        """Pack and count a reply, and pass it to the server unless the link loses it."""
        if reply is None:
            return False
        frame = self._sessions[device].pack(reply)
        self._traffic.add_uplink(device, cost_of(frame))
        in_time = self._clock is None or self._clock.add_reply(device, self._traffic)
        arrives = self._link.reply_arrives(self._link_key(device)) and in_time
        if arrives:
            self._server.receive(device, frame)
        return arrives

    def _link_key(self, device: DeviceId) -> Key:
        return Key((self._seed, self._round, device, Purpose.LINK))
