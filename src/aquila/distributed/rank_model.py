"""The model of a rank: what it gives a method after its own steps, and its weights after a round.

A rank either takes over the shared weights, or keeps the part of its change that it has not sent.
Let θ be the shared weights, x the weights of a rank after its own steps, and x₀ those before.

    shared      the method codes θ - x, with x₀ = θ; then x₀ <- θ
    unsent      the rank applies the server optimizer to its own step, y = x₀ - step(x₀ - x);
                the method codes v = θ - y as u; then x₀ <- θ - (v - u)

In the second case, v - u is error feedback that lives in the weights. No rank loses what it has
learnt while its change waits to be sent. With dense frames both cases give the same weights, up to
rounding. Models that are kept beside a public copy, to which compressed differences are added, are
from CHOCO-SGD (Koloskova et al. 2019, arXiv 1902.00340).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch

from aquila.core.method import Method, has_memory
from aquila.core.state import from_arrays, tensors_of, to_arrays
from aquila.core.vector import Vector
from aquila.distributed.parameters import FlatParameters
from aquila.distributed.saved_state import saved_bytes
from aquila.runtime.options import RunOptions
from aquila.runtime.server_optimizer import Descent
from aquila.runtime.state_file import read_state, state_to_bytes

UNSENT = "unsent"
"""Name of the unsent part in the state of a rank."""


class RankModel(Protocol):
    """What a rank codes, and which weights it has after a round."""

    def difference(self, theta: Vector, round_number: int) -> Vector:
        """Return what the method codes, given the shared weights."""
        ...

    def finish_round(self, theta: Vector, upload: Vector | None, answered: bool) -> None:
        """Set the weights after a round.

        Args:
            theta: The new shared weights.
            upload: What all ranks applied of the frame of this rank, None if nothing.
            answered: Whether this rank computed a frame.
        """
        ...

    def unsent(self, theta: Vector) -> Vector:
        """Return what this rank has not sent."""
        ...

    def join(self, theta: Vector) -> None:
        """Set the weights to the shared ones, and start without an unsent part."""
        ...

    def to_saved(self) -> dict[str, bytes]:
        """Return what a saved state needs besides the shared weights."""
        ...

    def read_saved(self, part: Mapping[str, Any]) -> Any:
        """Return the saved part for `resume`; ValueError if it is damaged."""
        ...

    def resume(self, saved: Any, theta: Vector, write: bool) -> None:
        """Continue from a saved part; set the weights if `write`."""
        ...


class SharedModel:
    """All ranks have the same weights after each round."""

    def __init__(self, parameters: FlatParameters) -> None:
        self._parameters = parameters

    def difference(self, theta: Vector, round_number: int) -> Vector:
        """Return the shared weights minus those of this rank."""
        return self._parameters.rounded(theta) - self._parameters.read()

    def finish_round(self, theta: Vector, upload: Vector | None, answered: bool) -> None:
        """Take over the shared weights."""
        self._parameters.write(theta)

    def unsent(self, theta: Vector) -> Vector:
        """Return zeros, because nothing stays unsent here."""
        return torch.zeros_like(theta)

    def join(self, theta: Vector) -> None:
        """Take over the shared weights."""
        self._parameters.write(theta)

    def to_saved(self) -> dict[str, bytes]:
        """Return nothing."""
        return {}

    def read_saved(self, part: Mapping[str, Any]) -> None:
        """Read nothing."""

    def resume(self, saved: None, theta: Vector, write: bool) -> None:
        """Take over the shared weights if `write`."""
        if write:
            self._parameters.write(theta)


@dataclass(frozen=True, eq=False)
class UnsentState:
    """The unsent part of a rank's change, and the moments of its optimizer."""

    unsent: Vector
    moments: Any


class UnsentModel:
    """A rank keeps the part of its change that it has not sent."""

    def __init__(self, parameters: FlatParameters, theta: Vector, options: RunOptions) -> None:
        self._parameters, self._descent = parameters, Descent.of(options)
        self._start = theta
        self._state = self._new_state(theta)
        self._next = self._state

    def difference(self, theta: Vector, round_number: int) -> Vector:
        """Return the shared weights minus those after the optimizer's step of this rank."""
        step = self._parameters.rounded(self._start) - self._parameters.read()
        moments, own = self._descent.apply(self._state.moments, self._start, step, round_number)
        self._next = UnsentState(theta - own, moments)
        return self._next.unsent.clone()

    def finish_round(self, theta: Vector, upload: Vector | None, answered: bool) -> None:
        """Set the weights to the shared ones minus the unsent part."""
        state = self._next if answered else self._state
        if upload is not None:
            state = replace(state, unsent=state.unsent - upload.to(state.unsent.dtype))
        self._set(state, theta, write=True)

    def unsent(self, theta: Vector) -> Vector:
        """Return what this rank has not sent."""
        return self._state.unsent.clone()

    def join(self, theta: Vector) -> None:
        """Take over the shared weights, and start without an unsent part."""
        self._set(self._new_state(theta), theta, write=True)

    def to_saved(self) -> dict[str, bytes]:
        """Return the unsent part and the moments."""
        return {UNSENT: state_to_bytes(to_arrays(self._state, f"{UNSENT}."))}

    def read_saved(self, part: Mapping[str, Any]) -> UnsentState:
        """Return the unsent part and the moments."""
        arrays = read_state(saved_bytes(part, UNSENT))
        state: UnsentState = from_arrays(self._state, arrays, f"{UNSENT}.")
        return state

    def resume(self, saved: UnsentState, theta: Vector, write: bool) -> None:
        """Continue with a saved part."""
        self._set(saved, theta, write)

    def _new_state(self, theta: Vector) -> UnsentState:
        return UnsentState(torch.zeros_like(theta), self._descent.optimizer.init(theta))

    def _set(self, state: UnsentState, theta: Vector, write: bool) -> None:
        self._state = self._next = state
        self._start = theta - state.unsent
        if write:
            self._parameters.write(self._start)


def check_keeps_nothing(method: Method, like: Vector) -> None:
    """Raise ValueError if a method has its own memory of what it did not send."""
    device = method.device
    forgets = getattr(device, "decay", None) == 0
    has_vectors = next(tensors_of(device.init(like[:1])), None) is not None
    if has_memory(method.server) or (has_vectors and not forgets):
        raise ValueError(
            f"{method.name} has a memory of its own; keep_unsent needs a method without one, for "
            "example sparseloco:beta=0 or qsgd"
        )
