"""Part: devices that upload in every n-th round and continue their local training in between.

A device that trains for n rounds sends the sum of n local updates. What devices have in common adds
up in it, and the noise of minibatches partly cancels. At the same bytes per round the noise of a
quantizer then falls, too: n times the bytes for one upload instead of n noisy uploads. The price is
that devices see each other's progress later. Stich (2019, arXiv 1805.09767) and McMahan et al.
(2017, arXiv 1602.05629) study such local training.

The server sends the model and n in every round. In rounds without uploads a device replies with a
skip, and the model stays the same.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from aquila.core.fleet import DeviceId, Fleet
from aquila.core.method import (
    Method,
    Scalars,
    ServerHalf,
    Work,
    check_reply,
    has_memory,
    needs_links,
    order_scalars,
    server_memory,
    steps_along_mean,
)
from aquila.core.packet import Packet
from aquila.core.parameter import Bounds
from aquila.core.random import Key
from aquila.core.vector import Vector
from aquila.methods.parts.periodic_device import (
    MAX_ROUNDS_PER_UPLOAD,
    ROUNDS_PER_UPLOAD,
    PeriodicDevice,
)

LARGE_MODEL = 1_000_000
"""Number of parameters. Larger models send so few coordinates that less noise is worth a delay."""


UploadEvery = Annotated[
    int,
    Bounds(
        "rounds per upload, between which devices train on; 0: 2 for large models with local "
        "epochs and full participation, 1 otherwise",
        0,
        MAX_ROUNDS_PER_UPLOAD,
    ),
]


def rounds_per_upload(every: int, fleet: Fleet) -> int:
    """Return `every`; for 0, 2 for a large model if all devices take part, and 1 otherwise."""
    if every:
        return every
    return 2 if fleet.participation == 1 and fleet.dimension > LARGE_MODEL else 1


@dataclass(frozen=True, eq=False)
class PeriodicServerState:
    """State of the method's server, and whether devices upload in the open round."""

    inner: Any
    has_uploads: bool = False


@dataclass(frozen=True)
class PeriodicServer:
    """A server that asks for uploads in every n-th round and keeps the model in the others.

    Args:
        inner: The server of the method. Its rounds are those with uploads.
        every: Rounds per upload; 0: automatic.
    """

    inner: ServerHalf[Any]
    every: int

    @property
    def remembers(self) -> bool:
        """Whether the method has a memory."""
        return has_memory(self.inner)

    @property
    def needs_links(self) -> bool:
        """Whether the method reads the links of the devices."""
        return needs_links(self.inner)

    @property
    def steps_along_mean(self) -> bool:
        """Whether the steps of the method follow from the mean of the uploads."""
        return steps_along_mean(self.inner)

    def init(self, theta: Vector, fleet: Fleet) -> PeriodicServerState:
        """Return the state before the first round."""
        return PeriodicServerState(self.inner.init(theta, fleet))

    def check(self, reply: Packet) -> None:
        """Raise WireError if the method cannot use a reply."""
        check_reply(self.inner, reply)

    def orders(
        self, state: PeriodicServerState, fleet: Fleet, round_number: int, key: Key
    ) -> tuple[PeriodicServerState, dict[DeviceId, Scalars]]:
        """Ask for local training, or for uploads in the last round of a period."""
        rounds = rounds_per_upload(self.every, fleet)
        period, position = divmod(round_number, rounds)
        period_scalars = {ROUNDS_PER_UPLOAD: float(rounds)} if rounds > 1 else {}
        if position < rounds - 1:
            return PeriodicServerState(state.inner), order_scalars(fleet, scalars=period_scalars)
        inner, orders = self.inner.orders(state.inner, fleet, period, key)
        orders = {device: {**scalars, **period_scalars} for device, scalars in orders.items()}
        return PeriodicServerState(inner, has_uploads=True), orders

    def update(
        self, state: PeriodicServerState, fleet: Fleet, replies: Mapping[DeviceId, Packet]
    ) -> tuple[PeriodicServerState, Vector | None]:
        """Return the step of the method, None in a round without uploads."""
        if not state.has_uploads:
            return state, None
        inner, step = self.inner.update(state.inner, fleet, replies)
        return PeriodicServerState(inner), step

    def memory(self, state: PeriodicServerState) -> Vector:
        """Return q̄ of the method."""
        return server_memory(self.inner).memory(state.inner)

    def contribution(self, reply: Packet) -> Vector | None:
        """Return what a reply adds to the memory of the method."""
        return server_memory(self.inner).contribution(reply)

    def forget(
        self,
        state: PeriodicServerState,
        fleet: Fleet,
        device: DeviceId,
        contributions: Iterable[Vector],
    ) -> PeriodicServerState:
        """Subtract a device from the memory of the method."""
        inner = server_memory(self.inner).forget(state.inner, fleet, device, contributions)
        return PeriodicServerState(inner, state.has_uploads)


def resolve_upload_every(every: int, work: Work) -> int:
    """Return the rounds per upload, 0 if they depend on the fleet.

    Devices that send single gradients upload in every round unless `every` says otherwise.
    """
    return 1 if every == 0 and work == "gradient" else every


def with_periodic_uploads(method: Method, every: int, alpha: float, work: Work) -> Method:
    """Return a method whose devices upload in every n-th round.

    Args:
        method: The method.
        every: Result of `resolve_upload_every`.
        alpha: Step size of the method.
        work: What a device computes per round.
    """
    if every == 1:
        return method
    device = PeriodicDevice(method.device, alpha, work)
    return Method(method.name, device, PeriodicServer(method.server, every), method.reader)
