"""LENA: self-triggered gradient memory (Ghadikolaei, Stich and Jaggi, AISTATS 2021).

`lena` is the published idea. A device adds up the difference between its gradient and the gradient
that the server knows. It uploads the sum when a significance filter fires.

`lena_tables` is the variant that the numbers in AQUILA's tables imply. A device sends a quantized
gradient every round, and the whole gradient when the filter fires. It never skips. Its grid has no
zero, so coordinates below half a step become half a step: an enlarged sign step. `grid=midtread` is
a control with a zero at the same step.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

import torch

from aquila.core.fleet import DeviceId, Fleet
from aquila.core.method import (
    Method,
    Oracle,
    Scalars,
    Turn,
    Work,
    decode_upload,
    local_work,
    order_scalars,
    theta_of,
    uploads,
)
from aquila.core.packet import Dense, Packet, WireError
from aquila.core.parameter import Bounds
from aquila.core.quantize import midrise, midrise_or_dense, midtread
from aquila.core.random import Key
from aquila.core.vector import Vector, error_ratio, squared_norm
from aquila.methods.parts.factory import Alpha, UploadBits, WorkOption, method_factory
from aquila.methods.parts.mean import MeanServer
from aquila.methods.parts.memory import Memory, MemoryState, step_along, subtract_device

PAPER = (
    "Ghadikolaei, Stich and Jaggi, LENA: Communication-Efficient Distributed Learning with "
    "Self-Triggered Gradient Uploads, AISTATS 2021"
)
ZetaOption = Annotated[float, Bounds("squared error ÷ squared gradient that fires the filter", 0)]
GridChoice = Literal["midrise", "midtread"]


@dataclass(frozen=True, eq=False)
class LenaState:
    """State of a device.

    q is the gradient that the server knows, `error` the sum of the differences since the last
    upload, and `age` the number of rounds in that sum.
    """

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
        """Add g - q to the error; upload the error once ||e||² > ζ ||g||²."""
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

    def memory(self, state: LenaState) -> Vector:
        """Return the gradient that the server knows."""
        return state.q


def change_of_q(upload: Packet) -> Vector:
    """Return the change of the known gradient that an upload causes, u / age."""
    return decode_upload(upload) / upload.scalar("age")


@dataclass(frozen=True)
class LenaServer:
    """Steps along the average known gradient plus the errors uploaded in this round.

    An error is a sum over `age` rounds, so the known gradient changes by u / age.
    """

    alpha: float

    @property
    def remembers(self) -> bool:
        """True: q̄ averages the known gradients of the devices."""
        return True

    def init(self, theta: Vector, fleet: Fleet) -> MemoryState:
        """Start with empty memories."""
        return MemoryState(torch.zeros_like(theta, dtype=torch.float64))

    def orders(
        self, state: MemoryState, fleet: Fleet, round_number: int, key: Key
    ) -> tuple[MemoryState, dict[DeviceId, Scalars]]:
        """Send the model to every device."""
        return state, order_scalars(fleet)

    def check(self, reply: Packet) -> None:
        """Accept uploads with an age of at least one round."""
        if reply.vector is not None and reply.scalar("age") < 1:
            raise WireError(f"an upload must have age >= 1, not {reply.scalars['age']:g}")

    def update(
        self, state: MemoryState, fleet: Fleet, replies: Mapping[DeviceId, Packet]
    ) -> tuple[MemoryState, Vector]:
        """Step along q̄ + (1/M) Σ u_m, and set q̄ to q̄ + (1/M) Σ u_m / age_m."""
        direction = state.q_bar + fleet.mean_over_holders(uploads(replies))
        q_bar = state.q_bar + fleet.mean_over_holders(uploads(replies, change_of_q))
        return step_along(direction, state, fleet, self.alpha, 1, q_bar)

    def memory(self, state: MemoryState) -> Vector:
        """Return q̄."""
        return state.q_bar

    def contribution(self, reply: Packet) -> Vector | None:
        """Return the change of the device's known gradient."""
        return None if reply.vector is None else change_of_q(reply)

    def forget(
        self, state: MemoryState, fleet: Fleet, device: DeviceId, contributions: Iterable[Vector]
    ) -> MemoryState:
        """Subtract the device's known gradient from q̄."""
        return subtract_device(state, fleet, device, contributions)


@dataclass(frozen=True)
class LenaTablesDevice:
    """Sends a quantized gradient every round, and the whole gradient when the filter fires."""

    alpha: float
    zeta: float
    bits: int
    work: Work
    grid: GridChoice = "midrise"

    def init(self, like: Vector) -> Memory:
        """Start with q = 0."""
        return Memory(torch.zeros_like(like))

    def step(self, state: Memory, order: Packet, oracle: Oracle, key: Key) -> Turn[Memory]:
        """Send the whole gradient if ||g - q||² > ζ ||q||²; q is the last gradient sent whole."""
        loss, gradient = local_work(oracle, theta_of(order), self.work, self.alpha)
        fires = squared_norm(gradient - state.q) > self.zeta * squared_norm(state.q)
        quantize = midrise if self.grid == "midrise" else midtread
        upload = Dense(gradient) if fires else quantize(gradient, self.bits)
        notes = {"loss": loss}
        if upload is not None:
            notes["error_ratio"] = error_ratio(gradient, upload.decode())
        return Turn(Memory(gradient, True) if fires else state, Packet(order.round, upload), notes)


@method_factory(
    paper=PAPER,
    lost_reply="The device counts as absent from the round: it rolls its memory and its error "
    "back, without the gradient of that round.",
    reconstruction="Implemented from the abstract. The update of the known gradient by u / age is "
    "this project's choice.",
)
def lena(
    alpha: Alpha = 0.1,
    zeta: ZetaOption = 0.1,
    bits: Annotated[int, Bounds("bits per coordinate of an upload; 32 sends floats", 2, 32)] = 32,
    work: WorkOption = "gradient",
) -> Method:
    """Errors that accumulate on the device until a significance filter fires."""
    return Method("lena", LenaDevice(alpha, zeta, bits, work), LenaServer(alpha))


@method_factory(
    paper=PAPER + ", as run for the tables of AQUILA (arXiv 2308.00258)",
    lost_reply="The server averages the replies that arrived. A lost whole gradient does not reset "
    "the filter.",
    reconstruction="The schedule is inferred from the costs in AQUILA's tables. The filter is this "
    "project's choice.",
)
def lena_tables(
    alpha: Alpha = 0.1,
    zeta: ZetaOption = 1.0,
    bits: UploadBits = 6,
    work: WorkOption = "gradient",
    grid: Annotated[GridChoice, "grid of quantized gradients, without or with a zero"] = "midrise",
) -> Method:
    """Quantized gradients every round, whole gradients when a significance filter fires."""
    device = LenaTablesDevice(alpha, zeta, bits, work, grid)
    return Method("lena_tables", device, MeanServer(alpha))
