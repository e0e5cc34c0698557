"""Packs the orders of a round: a model frame and a control frame per device."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aquila.core.fleet import DeviceId, Fleet
from aquila.core.packet import Packet
from aquila.core.wire import pack
from aquila.runtime.messages import Ack, Order
from aquila.runtime.model_downlink import DownlinkCoder, ModelRound, References, pack_models
from aquila.runtime.nan_guard import NonFiniteError
from aquila.runtime.relay import Relay

Packets = Mapping[DeviceId, Packet]
"""Model and scalars per device"""


@dataclass(frozen=True)
class OrderPacker:
    """Packs orders with whole models, or with differences of models if there is a coder."""

    fleet: Fleet
    coder: DownlinkCoder | None

    def pack(
        self,
        packets: Packets,
        acks: Sequence[Ack],
        references: References,
        model_round: ModelRound,
        relay: Relay | None = None,
    ) -> tuple[dict[DeviceId, Order], References]:
        """Return the order per device, and the reference models after the round.

        Args:
            packets: Model and scalars per device.
            acks: Acknowledgement per device of the fleet.
            references: Reference models before the round.
            model_round: The round whose model a device holds.
            relay: Passes the uploads of the last round on, None if the run does not.
        """
        if self.coder is None:
            return pack_orders(packets, pack_models(packets), acks), {}
        models, references = self.coder.encode(packets, self.fleet, references, model_round, relay)
        return pack_orders(packets, models, acks), references

    def pack_late(
        self,
        packets: Packets,
        acks: Sequence[Ack],
        references: References,
        model_round: ModelRound,
    ) -> tuple[dict[DeviceId, Order], References]:
        """Return the orders of devices that join an open round with these reference models."""
        if self.coder is None:
            return pack_orders(packets, pack_models(packets), acks), references
        models, references = self.coder.encode_late(packets, self.fleet, references, model_round)
        return pack_orders(packets, models, acks), references


def pack_orders(
    packets: Packets, models: Mapping[DeviceId, bytes], acks: Sequence[Ack]
) -> dict[DeviceId, Order]:
    """Return the order per device. Devices with the same content share one order."""
    shared: dict[tuple[int, Ack], Order] = {}
    orders: dict[DeviceId, Order] = {}
    for device, packet in packets.items():
        ack = acks[device]
        content = id(packet), ack
        if content not in shared:
            control = Packet(packet.round, None, packet.scalars, ack.round, refers_to=ack.checksum)
            shared[content] = Order(models[device], pack(control))
        orders[device] = shared[content]
    return orders


def require_finite(packets: Packets, round_number: int) -> None:
    """Raise NonFiniteError if a scalar of an order is not finite."""
    numbers = (value for packet in packets.values() for value in packet.scalars.values())
    if not all(map(math.isfinite, numbers)):
        raise NonFiniteError(
            f"the norm of the last step before round {round_number} is not finite; "
            "try a smaller alpha"
        )
