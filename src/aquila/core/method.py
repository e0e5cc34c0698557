"""The protocol every method follows: a device half and a server half, both without side effects."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, Protocol, TypeVar, runtime_checkable

from aquila.core.fleet import DeviceId, Fleet
from aquila.core.packet import Dense, Packet, WireError
from aquila.core.random import Key
from aquila.core.vector import Vector

Work = Literal["gradient", "epochs"]
"""What a device computes in a round: one gradient, or local epochs of gradient descent."""

State = TypeVar("State")


@runtime_checkable
class Oracle(Protocol):
    """What a device can ask of its own data; the same minibatches all round."""

    @property
    def samples(self) -> int:
        """Number of samples behind the device's loss."""
        ...

    def gradient(self, theta: Vector) -> tuple[float, Vector]:
        """Return the loss and its gradient at theta."""
        ...

    def train(self, theta: Vector, alpha: float) -> tuple[float, Vector]:
        """Return the loss and (theta - model after local steps of size alpha) / alpha."""
        ...


@runtime_checkable
class Shard(Protocol):
    """The data of one device."""

    def oracle(self, key: Key) -> Oracle:
        """Return what the device can ask of its data in one round, its minibatches drawn."""
        ...


@dataclass(frozen=True)
class Turn(Generic[State]):
    """What a device does in one round.

    The device moves on to `state` if the server applies the reply. If the server does not (the
    reply was lost, or came too late), the device falls back to `fallback`, or to its state before
    the turn where there is none. `notes` go into the records and are never sent.
    """

    state: State
    reply: Packet
    notes: Mapping[str, float] = field(default_factory=dict)
    fallback: State | None = None


class DeviceHalf(Protocol[State]):
    """What a method does on a device."""

    def init(self, like: Vector) -> State:
        """Return the state before the first round, its vectors shaped like the given one."""
        ...

    def step(self, state: State, order: Packet, oracle: Oracle, key: Key) -> Turn[State]:
        """Answer one order."""
        ...


class ServerHalf(Protocol[State]):
    """What a method does on the server, which keeps no vector of any single device."""

    @property
    def remembers(self) -> bool:
        """Whether replies leave something in the state that later replies of the device build on.

        Before such a device may start anew, what it left must be taken back.
        """
        ...

    def init(self, theta: Vector, fleet: Fleet) -> State:
        """Return the state before the first round."""
        ...

    def model(self, state: State) -> Vector:
        """Return the current model."""
        ...

    def orders(
        self, state: State, fleet: Fleet, round_number: int, key: Key
    ) -> tuple[State, dict[DeviceId, Packet]]:
        """Return an order for each device that takes part in the round."""
        ...

    def check(self, reply: Packet) -> None:
        """Raise WireError if the reply is not one this method can use."""
        ...

    def update(self, state: State, fleet: Fleet, replies: Mapping[DeviceId, Packet]) -> State:
        """Return the state after the replies that arrived: uploads and skips, not losses."""
        ...

    def forget(
        self, state: State, fleet: Fleet, device: DeviceId, replies: Iterable[Packet]
    ) -> State:
        """Take back what these replies of a device, all applied since it began, left in it."""
        ...


@dataclass(frozen=True)
class Method:
    """A method with its parameters set: prints, compares and pickles."""

    name: str
    device: DeviceHalf[Any]
    server: ServerHalf[Any]


def model_orders(
    fleet: Fleet,
    theta: Vector,
    round_number: int,
    devices: Iterable[DeviceId] | None = None,
    scalars: Mapping[str, float] | None = None,
    by_group: Mapping[str, Sequence[float]] | None = None,
) -> dict[DeviceId, Packet]:
    """Return orders that carry the model to the given devices (default: all).

    `scalars` are the same for everyone, `by_group` lists one value for each group of the fleet.
    """
    packets = [
        Packet(
            round_number,
            Dense(part),
            {**(scalars or {}), **{name: v[group] for name, v in (by_group or {}).items()}},
        )
        for group, part in enumerate(fleet.restrict(theta))
    ]
    chosen = fleet.devices if devices is None else devices
    return {device: packets[fleet.groups[device]] for device in chosen}


def theta_of(order: Packet) -> Vector:
    """Return the model that an order carries."""
    if order.vector is None:
        raise WireError(f"order of round {order.round} carries no model")
    return order.vector.decode()


def local_work(oracle: Oracle, theta: Vector, work: Work, alpha: float) -> tuple[float, Vector]:
    """Return the loss and the device's gradient, or what stands for one after local epochs."""
    return oracle.train(theta, alpha) if work == "epochs" else oracle.gradient(theta)


def uploads(replies: Mapping[DeviceId, Packet]) -> Iterable[tuple[DeviceId, Vector]]:
    """Yield the vectors of those replies that have one, decoded one at a time."""
    for device, reply in replies.items():
        if reply.vector is not None:
            yield device, reply.vector.decode()
