"""LENA: self-triggered gradient memory (Ghadikolaei, Stich and Jaggi, AISTATS 2021).

`lena` is the published idea: a device adds up how its gradient differs from the one the server
knows, and uploads that sum when a significance filter fires. `lena_tables` is what the numbers in
AQUILA's tables show was run there under the name: a quantized gradient every round, and the
gradient itself when the filter fires; it never stays silent.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated

import torch

from aquila.core.fleet import DeviceId, Fleet
from aquila.core.method import (
    Method,
    Oracle,
    Turn,
    Work,
    local_work,
    model_orders,
    theta_of,
    uploads,
)
from aquila.core.packet import Dense, Packet, WireError
from aquila.core.parameter import Bounds
from aquila.core.quantize import midrise_or_dense
from aquila.core.random import Key
from aquila.core.vector import Vector, error_ratio, squared_norm
from aquila.methods.parts.factory import Alpha, UploadBits, WorkOption, method_factory
from aquila.methods.parts.mean import MeanServer
from aquila.methods.parts.memory import Memory, MemoryState, descend, subtract_device

PAPER = (
    "Ghadikolaei, Stich and Jaggi, LENA: Communication-Efficient Distributed Learning with "
    "Self-Triggered Gradient Uploads, AISTATS 2021"
)
ZetaOption = Annotated[float, Bounds("share of the gradient's energy that fires the filter", 0)]


@dataclass(frozen=True, eq=False)
class LenaState:
    """Gradient the server knows, error added up since, rounds it took, and whether one was sent."""

    q: Vector
    error: Vector
    age: int
    has_uploaded: bool


@dataclass(frozen=True)
class LenaDevice:
    """Error memory and significance filter of a device."""

    alpha: float
    zeta: float
    bits: int
    work: Work

    def init(self, like: Vector) -> LenaState:
        """Start with empty memories."""
        return LenaState(torch.zeros_like(like), torch.zeros_like(like), 0, False)

    def step(self, state: LenaState, order: Packet, oracle: Oracle, key: Key) -> Turn[LenaState]:
        """Add up the error; upload it once ||e||² > ζ ||g||²."""
        loss, gradient = local_work(oracle, theta_of(order), self.work, self.alpha)
        error, age = state.error + (gradient - state.q), state.age + 1
        upload = midrise_or_dense(error, self.bits)
        fires = not state.has_uploaded or squared_norm(error) > self.zeta * squared_norm(gradient)
        if upload is None or not fires:
            waiting = LenaState(state.q, error, age, state.has_uploaded)
            return Turn(waiting, Packet(order.round), {"loss": loss})
        u = upload.decode()
        notes = {"loss": loss, "error_ratio": error_ratio(error, u)}
        reply = Packet(order.round, upload, {"age": float(age)})
        return Turn(LenaState(state.q + u / age, error - u, 0, True), reply, notes)


@dataclass(frozen=True)
class LenaServer:
    """Steps along the known gradients plus the errors uploaded in this round.

    The error was added up over `age` rounds, so the gradient itself moved by u / age.
    """

    alpha: float

    @property
    def remembers(self) -> bool:
        """Yes: q̄ holds a share of every device's known gradient."""
        return True

    def init(self, theta: Vector, fleet: Fleet) -> MemoryState:
        """Start from the given model and empty memories."""
        return MemoryState(theta, torch.zeros_like(theta, dtype=torch.float64))

    def model(self, state: MemoryState) -> Vector:
        """Return the current model."""
        return state.theta

    def orders(
        self, state: MemoryState, fleet: Fleet, round_number: int, key: Key
    ) -> tuple[MemoryState, dict[DeviceId, Packet]]:
        """Send the model to every device."""
        return state, model_orders(fleet, state.theta, round_number)

    def check(self, reply: Packet) -> None:
        """Take uploads that say how many rounds they add up."""
        if reply.vector is not None and reply.scalar("age") < 1:
            raise WireError(f"reply adds up {reply.scalars['age']:g} rounds")

    def update(
        self, state: MemoryState, fleet: Fleet, replies: Mapping[DeviceId, Packet]
    ) -> MemoryState:
        """Step along q̄ + (1/M) Σ u_m, then keep q̄ + (1/M) Σ u_m / age_m."""
        direction = state.q_bar + fleet.mean_over_holders(uploads(replies))
        moved = ((device, u / replies[device].scalar("age")) for device, u in uploads(replies))
        q_bar = state.q_bar + fleet.mean_over_holders(moved)
        return descend(state, fleet, self.alpha, 1, q_bar, direction)

    def forget(
        self, state: MemoryState, fleet: Fleet, device: DeviceId, replies: Iterable[Packet]
    ) -> MemoryState:
        """Take the device's share out of q̄."""
        sent = (r.vector.decode() / r.scalar("age") for r in replies if r.vector is not None)
        return subtract_device(state, fleet, device, sent)


@dataclass(frozen=True)
class LenaTablesDevice:
    """Quantized gradient every round, the gradient itself when the filter fires."""

    alpha: float
    zeta: float
    bits: int
    work: Work

    def init(self, like: Vector) -> Memory:
        """Start with no gradient sent in full."""
        return Memory(torch.zeros_like(like))

    def step(self, state: Memory, order: Packet, oracle: Oracle, key: Key) -> Turn[Memory]:
        """Send in full once ||g - q||² > ζ ||q||², q being the last gradient sent in full."""
        loss, gradient = local_work(oracle, theta_of(order), self.work, self.alpha)
        fires = squared_norm(gradient - state.q) > self.zeta * squared_norm(state.q)
        upload = Dense(gradient) if fires else midrise_or_dense(gradient, self.bits)
        notes = {"loss": loss}
        if upload is not None:
            notes["error_ratio"] = error_ratio(gradient, upload.decode())
        return Turn(Memory(gradient, True) if fires else state, Packet(order.round, upload), notes)


@method_factory(
    paper=PAPER,
    lost_reply="counts as a round in which the device took no part: memory and error go back to "
    "what they were, and the gradient of that round is not added up",
    reconstruction="rebuilt from the abstract; the update of the known gradient by u / age is ours",
)
def lena(
    alpha: Alpha = 0.1,
    zeta: ZetaOption = 0.1,
    bits: Annotated[int, Bounds("bits a coordinate of an upload; 32 sends floats", 2, 32)] = 32,
    work: WorkOption = "gradient",
) -> Method:
    """Errors added up on the device, uploaded when a significance filter fires."""
    return Method("lena", LenaDevice(alpha, zeta, bits, work), LenaServer(alpha))


@method_factory(
    paper=PAPER + ", as run for the tables of AQUILA (arXiv 2308.00258)",
    lost_reply="the round's average is taken over the replies that arrived; a lost full gradient "
    "does not reset the filter",
    reconstruction="the schedule is read off the costs in AQUILA's tables; the filter is ours",
)
def lena_tables(
    alpha: Alpha = 0.1,
    zeta: ZetaOption = 1.0,
    bits: UploadBits = 6,
    work: WorkOption = "gradient",
) -> Method:
    """Quantized gradients every round, whole ones when a significance filter fires."""
    return Method("lena_tables", LenaTablesDevice(alpha, zeta, bits, work), MeanServer(alpha))
