"""The protocol that every method follows: a device half and a server half of pure functions."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Literal, Protocol, TypeVar, cast, runtime_checkable

from aquila.core.fleet import DeviceId, Fleet, Summand
from aquila.core.packet import Codes, Packet, SparseCodes, StoredUpload, WireError
from aquila.core.peaks import PeakUpload
from aquila.core.random import Key
from aquila.core.tensors import Shapes, UploadReader, check_tensors
from aquila.core.vector import Vector

Work = Literal["gradient", "epochs"]
"""What a device computes in a round: one gradient, or local epochs of gradient descent."""

Scalars = Mapping[str, float]
"""Numbers, by name, that an order or a reply carries."""

LR_FACTOR = "lr_factor"
"""Scalar of an order: the factor on the local rate in this round. Without it the factor is 1."""

State = TypeVar("State")


@runtime_checkable
class Oracle(Protocol):
    """Loss and gradients on a device's own data, with fixed minibatches for one round."""

    @property
    def samples(self) -> int:
        """Number of samples that the loss averages over."""
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
        """Draw the minibatches of one round and return the oracle that uses them."""
        ...


@dataclass(frozen=True)
class Turn(Generic[State]):
    """The result of one round on a device.

    The runtime commits `state` once the server has applied the reply. If the reply is lost or late,
    the runtime rolls the device back to `fallback`. The default fallback is the state before the
    turn. `notes` go into the records and are never sent.
    """

    state: State
    reply: Packet
    notes: Mapping[str, float] = field(default_factory=dict)
    fallback: State | None = None


class DeviceHalf(Protocol[State]):
    """The part of a method that runs on a device.

    One more member is optional:
        needs_other_models: Whether `step` asks for gradients or losses at other models than that of
            the order. Default: False.
    """

    def init(self, like: Vector) -> State:
        """Return the state before the first round, with vectors shaped like the given one."""
        ...

    def step(self, state: State, order: Packet, oracle: Oracle, key: Key) -> Turn[State]:
        """Answer one order."""
        ...


class DeviceMemory(Protocol):
    """Optional for a device half: access to the device's memory.

    A method whose server half implements `ServerMemory` implements this one too.
    """

    def memory(self, state: Any) -> Vector:
        """Return q_m, the sum of the changes that the server has applied for this device."""
        ...


class ServerHalf(Protocol[State]):
    """The part of a method that runs on the server. Its state holds no vector per device.

    The model belongs to the runtime. The server half says which step to take, and the server
    optimizer of the run applies it.

    Three more members are optional:
        check(reply): Raise WireError if the method cannot use a reply. Default: accept all replies.
        needs_links: Whether `orders` and `update` read `fleet.links`. Default: False. The links are
            those of the devices that may take part in the round, and only they get orders.
        steps_along_mean: Whether every device gets an order, and `update` depends on the replies
            only through the mean of their decoded vectors. Default: False. The server can then add
            noise for differential privacy.

    Methods with memory also implement `ServerMemory`. Use the optional members through
    `check_reply`, `needs_links`, `steps_along_mean`, `has_memory` and `server_memory`, which apply
    the defaults.
    """

    def init(self, theta: Vector, fleet: Fleet) -> State:
        """Return the state before the first round."""
        ...

    def orders(
        self, state: State, fleet: Fleet, round_number: int, key: Key
    ) -> tuple[State, dict[DeviceId, Scalars]]:
        """Return the scalars for each device that takes part; the runtime adds the model."""
        ...

    def update(
        self, state: State, fleet: Fleet, replies: Mapping[DeviceId, Packet]
    ) -> tuple[State, Vector | None]:
        """Return the state after the replies that arrived, and the step of the model.

        The replies are uploads and skips, not lost replies. Plain descent subtracts the step, alpha
        times the direction of the method, from the model. With None the model and the state of the
        server optimizer stay the same.
        """
        ...


class ServerMemory(Protocol[State]):
    """Optional for a server half: the average q̄ of the devices' memories q_m.

    Later replies of a device build on the ones that q̄ contains. Before a device restarts from its
    initial state, the runtime subtracts its earlier replies from q̄.
    """

    @property
    def remembers(self) -> bool:
        """Whether this server has a memory; a wrapper returns the answer of the wrapped server."""
        ...

    def memory(self, state: State) -> Vector:
        """Return q̄, the average of the devices' memories."""
        ...

    def contribution(self, reply: Packet) -> Vector | None:
        """Return what a reply adds to the sum that `forget` subtracts, None for a skip."""
        ...

    def forget(
        self, state: State, fleet: Fleet, device: DeviceId, contributions: Iterable[Vector]
    ) -> State:
        """Subtract a device, given the contributions of its replies since it started.

        The runtime may pass partial sums of contributions instead of single ones.
        """
        ...


@dataclass(frozen=True)
class Method:
    """A method with its parameters set. It can be printed, compared and pickled.

    A `reader` turns uploads that depend on the tensors of the model into vectors of the model,
    before the server half gets them. Without one, an upload is a vector of the model.
    """

    name: str
    device: DeviceHalf[Any]
    server: ServerHalf[Any]
    # repr=False: it follows from the device half
    reader: UploadReader | None = field(default=None, repr=False)


def check_reply(half: ServerHalf[Any], reply: Packet) -> None:
    """Raise WireError if the method cannot use a reply; without `half.check` it can use any."""
    check: Callable[[Packet], None] | None = getattr(half, "check", None)
    if check is not None:
        check(reply)


def read_upload(reader: UploadReader | None, reply: Packet, shapes: Shapes) -> Packet:
    """Return a reply whose upload decodes to a vector of the model with these tensors."""
    if reader is None or reply.vector is None:
        return reply
    check_tensors(reply, shapes)
    return replace(reply, vector=reader.read(reply, shapes))


def needs_links(half: ServerHalf[Any]) -> bool:
    """Return whether a server half reads the links of the devices."""
    return bool(getattr(half, "needs_links", False))


def steps_along_mean(half: ServerHalf[Any]) -> bool:
    """Return whether a step depends on the replies only through the mean of their vectors."""
    return bool(getattr(half, "steps_along_mean", False))


def check_links(method: Method, available: bool) -> None:
    """Raise ValueError if a method needs a link model and none is available."""
    if needs_links(method.server) and not available:
        raise ValueError(f"{method.name} needs a link model: set link, for example link=lte")


def has_memory(half: ServerHalf[Any]) -> bool:
    """Return whether a server half keeps the average of the devices' memories."""
    return bool(getattr(half, "remembers", False))


def server_memory(half: ServerHalf[Any]) -> ServerMemory[Any]:
    """Return a server half as a `ServerMemory`, or raise TypeError if it has no memory."""
    if not has_memory(half):
        raise TypeError(f"{type(half).__name__} has no memory")
    return cast(ServerMemory[Any], half)


def check_method(method: object) -> None:
    """Raise TypeError unless the object is a method."""
    if not isinstance(method, Method):
        raise TypeError(f"method must be the result of aquila.create(...), not {method!r}")


def order_scalars(
    fleet: Fleet,
    devices: Iterable[DeviceId] | None = None,
    scalars: Scalars | None = None,
    by_group: Mapping[str, Sequence[float]] | None = None,
) -> dict[DeviceId, Scalars]:
    """Return the scalars of the orders to devices. Devices of a group share one mapping.

    Args:
        fleet: The devices and the coordinates that they hold.
        devices: Receivers. Default: all devices.
        scalars: Scalars by name, the same for every device.
        by_group: Scalars by name, one value per group of the fleet.
    """
    of_groups = [
        {**(scalars or {}), **{name: values[group] for name, values in (by_group or {}).items()}}
        for group in range(len(fleet.slices))
    ]
    chosen = fleet.devices if devices is None else devices
    return {device: of_groups[fleet.groups[device]] for device in chosen}


def theta_of(order: Packet) -> Vector:
    """Return the model that an order carries."""
    if order.vector is None:
        raise WireError(f"the order of round {order.round} carries no model")
    return order.vector.decode()


def scheduled_alpha(order: Packet, alpha: float) -> float:
    """Return the step size of a round: alpha times the factor of the run's schedule."""
    return alpha * order.scalars.get(LR_FACTOR, 1.0)


def local_work(oracle: Oracle, theta: Vector, work: Work, alpha: float) -> tuple[float, Vector]:
    """Return the loss and the gradient, or the equivalent of a gradient after local epochs."""
    return oracle.train(theta, alpha) if work == "epochs" else oracle.gradient(theta)


def loss_at(oracle: Oracle, theta: Vector) -> float:
    """Return the loss of the round's minibatch; an oracle without `loss` computes a gradient."""
    compute: Callable[..., float] | None = getattr(oracle, "loss", None)
    return oracle.gradient(theta)[0] if compute is None else compute(theta, all_samples=False)


def decode_upload(reply: Packet) -> Vector:
    """Return the vector of a reply that carries one."""
    if reply.vector is None:
        raise WireError(f"the reply of round {reply.round} carries no vector")
    return reply.vector.decode()


def decode_summand(reply: Packet) -> Summand:
    """Return the vector of a reply for an average, decoded no further than the average needs."""
    vector = reply.vector
    while isinstance(vector, StoredUpload):
        vector = vector.load()
    if isinstance(vector, SparseCodes | PeakUpload):
        return vector.decode_sparse()
    return vector if isinstance(vector, Codes) else decode_upload(replace(reply, vector=vector))


def uploads(
    replies: Mapping[DeviceId, Packet], decode: Callable[[Packet], Summand] = decode_summand
) -> Iterable[tuple[DeviceId, Summand]]:
    """Yield the vectors of the replies that carry one, one at a time and basis by basis."""
    bases = {m: getattr(reply.vector, "basis_number", 0) for m, reply in replies.items()}
    for device in sorted(replies, key=bases.__getitem__):
        if replies[device].vector is not None:
            yield device, decode(replies[device])
