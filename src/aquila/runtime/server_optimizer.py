"""Server optimizers: how the server applies the step that a method gives.

Let D be the step of plain descent: the rate alpha of the round times the direction of the method.
For methods with local training D is the mean of θ - θ_m, so `sgd` with rate 1 averages models.

    sgd         θ <- θ - r D
    momentum    m <- β m + D;                θ <- θ - r m              (FedAvgM)
    nesterov    m <- β m + D;                θ <- θ - r (D + β m)
    adam        m <- β m + (1-β) D;          w <- β₂ w + (1-β₂) D²     (FedAdam)
    yogi        m as adam;                   w <- w - (1-β₂) D² sign(w - D²)
                adam and yogi:               θ <- θ - r m / (√w + τ)

`momentum` follows Hsu et al. (2019, arXiv 1909.06335), `adam` and `yogi` Reddi et al. (2021, arXiv
2003.00295), where w starts at τ². The moments are float64 and part of the server's saved state.

With `model_average` β the state also has an average of the models, A <- b A + (1-b) θ, which a run
evaluates and saves. In round k, b is the smaller of β and (k+1)/(k+10), so that the average forgets
the first models quickly.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from aquila.core.vector import Vector, subtract
from aquila.runtime.lr_schedule import schedule_function
from aquila.runtime.options import RunOptions


@dataclass(frozen=True, eq=False)
class NoMoments:
    """State of an optimizer that keeps nothing."""


@dataclass(frozen=True, eq=False)
class Momentum:
    """State of an optimizer with momentum."""

    m: Vector


@dataclass(frozen=True, eq=False)
class Moments:
    """State of an adaptive optimizer: mean and mean square of the steps."""

    m: Vector
    w: Vector


@dataclass(frozen=True, eq=False)
class Averaged:
    """State of an optimizer, with the average of the models."""

    moments: Any
    average: Vector


class ServerOptimizer(Protocol):
    """Turns the steps of a method into changes of the model. Its state is part of the server's."""

    def init(self, theta: Vector) -> Any:
        """Return the state before the first round."""
        ...

    def change(self, state: Any, step: Vector) -> tuple[Any, Vector]:
        """Return the new state, and what is subtracted from the model at rate 1."""
        ...


@dataclass(frozen=True)
class PlainDescent:
    """Applies the step as it is."""

    def init(self, theta: Vector) -> NoMoments:
        """Start without state."""
        return NoMoments()

    def change(self, state: NoMoments, step: Vector) -> tuple[NoMoments, Vector]:
        """Return the step."""
        return state, step


@dataclass(frozen=True)
class MomentumDescent:
    """Adds up past steps that decay by `beta` per round."""

    beta: float
    nesterov: bool

    def init(self, theta: Vector) -> Momentum:
        """Start without momentum."""
        return Momentum(torch.zeros_like(theta, dtype=torch.float64))

    def change(self, state: Momentum, step: Vector) -> tuple[Momentum, Vector]:
        """Return the momentum, or the step ahead of it."""
        m = self.beta * state.m + step
        return Momentum(m), step + self.beta * m if self.nesterov else m


@dataclass(frozen=True)
class AdaptiveDescent:
    """Divides the mean step by the root mean square of the steps, per coordinate."""

    beta: float
    beta2: float
    tau: float
    yogi: bool

    def init(self, theta: Vector) -> Moments:
        """Start with m = 0 and w = τ²."""
        m = torch.zeros_like(theta, dtype=torch.float64)
        return Moments(m, torch.full_like(m, self.tau**2))

    def change(self, state: Moments, step: Vector) -> tuple[Moments, Vector]:
        """Return m / (√w + τ) with the new moments."""
        m = self.beta * state.m + (1 - self.beta) * step
        squared = step * step
        if self.yogi:
            w = state.w - (1 - self.beta2) * squared * torch.sign(state.w - squared)
        else:
            w = self.beta2 * state.w + (1 - self.beta2) * squared
        return Moments(m, w), m / (w.sqrt() + self.tau)


@dataclass(frozen=True)
class Descent:
    """The server optimizer of a run, with the rates of its rounds.

    Args:
        optimizer: Turns steps into changes of the model.
        rate: The server's rate before its schedule.
        lr_factor: Factor on the method's alpha per round, for local and server steps.
        server_lr_factor: Factor on `rate` per round.
        average: Decay β of the average of the models; 0: no average.
    """

    optimizer: ServerOptimizer
    rate: float
    lr_factor: Callable[[int], float]
    server_lr_factor: Callable[[int], float]
    average: float

    @classmethod
    def of(cls, options: RunOptions) -> "Descent":
        """Return the descent that the options of a run describe."""
        return cls(
            _optimizer(options),
            options.server_lr,
            schedule_function(options.schedule),
            schedule_function(options.server_schedule),
            options.model_average,
        )

    def init(self, theta: Vector) -> Any:
        """Return the state before the first round."""
        moments = self.optimizer.init(theta)
        return Averaged(moments, theta.double()) if self.average else moments

    def evaluated_model(self, state: Any, theta: Vector) -> Vector:
        """Return the model that a run evaluates and saves: the average, or else the last one."""
        return state.average.to(theta.dtype) if self.average else theta

    def apply(
        self, state: Any, theta: Vector, step: Vector | None, round_number: int
    ) -> tuple[Any, Vector]:
        """Return the state and the model after a step of the method in a round, if it took one."""
        if step is None:
            return state, theta
        moments = state.moments if self.average else state
        lr_factor = self.lr_factor(round_number)
        rate = self.rate * self.server_lr_factor(round_number)
        # multiplying by 1 changes no bits, but takes a pass over the model
        scaled = step if lr_factor == 1 else lr_factor * step
        moments, change = self.optimizer.change(moments, scaled)
        change = change if rate == 1 else rate * change
        theta = subtract(theta, change)
        if not self.average:
            return moments, theta
        decay = min(self.average, (round_number + 1) / (round_number + 10))
        return Averaged(moments, state.average.lerp(theta.double(), 1 - decay)), theta


def _optimizer(options: RunOptions) -> ServerOptimizer:
    name, beta = options.server_optimizer, options.server_momentum
    if name == "sgd":
        return PlainDescent()
    if name in ("momentum", "nesterov"):
        return MomentumDescent(beta, nesterov=name == "nesterov")
    return AdaptiveDescent(beta, options.server_beta2, options.server_tau, yogi=name == "yogi")
