"""Losses that devices report for the selection of devices: in answers to a query, or in replies."""

from collections.abc import Mapping

from aquila.core.fleet import DeviceId
from aquila.core.packet import Packet, WireError
from aquila.runtime.fleet_health import check_scalars
from aquila.runtime.messages import Order
from aquila.runtime.selection import LOSS, UNKNOWN_LOSS, Selector
from aquila.runtime.server_state import OpenQuery


class LossReports:
    """The latest loss of each device, and the open query for losses.

    Attributes:
        latest: Loss that each device last reported in a reply.
        query: The query of the round, None if there is none.
    """

    def __init__(self, selector: Selector, devices: int) -> None:
        self.latest = [UNKNOWN_LOSS] * devices
        self.query: OpenQuery | None = None
        self._reads_replies = bool(selector.order_scalars)

    @property
    def known(self) -> Mapping[DeviceId, float]:
        """The losses that the selection may use."""
        return dict(enumerate(self.latest)) if self.query is None else self.query.losses

    def order_of(self, device: DeviceId, round_number: int) -> Order:
        """Return the query that was sent to a device; raise WireError if there is none."""
        if self.query is None or device not in self.query.orders:
            raise WireError(f"device {device} was not asked for its loss in round {round_number}")
        return self.query.orders[device]

    def add_answer(self, device: DeviceId, answer: Packet, round_number: int) -> None:
        """Add the answer to a query; raise WireError if it is invalid."""
        if answer.refers_to != self.order_of(device, round_number).checksum:
            raise WireError(f"the answer is to another query than that of round {round_number}")
        if answer.vector is not None:
            raise WireError("the answer to a query must not contain a vector")
        check_scalars(device, answer.scalars)
        if self.query is not None and not answer.refused:
            self.query.losses[device] = answer.scalar(LOSS)

    def add_replies(self, replies: Mapping[DeviceId, Packet]) -> None:
        """Remember the losses in the replies of a round, if the selection asked for them."""
        if self._reads_replies:
            for device, reply in replies.items():
                self.latest[device] = reply.scalars.get(LOSS, self.latest[device])
