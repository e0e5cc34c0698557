"""Oracles for problems given as plain functions."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from aquila.core.fleet import DeviceId
from aquila.core.method import Oracle, Shard
from aquila.core.random import Key
from aquila.core.row_owners import OwnedRows
from aquila.core.vector import Vector

Function = Callable[[Vector], tuple[float, Vector]]
"""theta -> (loss, gradient)"""

Device = Shard | Oracle | Function


@dataclass(frozen=True)
class FunctionOracle:
    """A loss given as a function. Local training takes `local_steps` gradient steps."""

    function: Function
    samples: int = 1
    local_steps: int = 1

    def gradient(self, theta: Vector) -> tuple[float, Vector]:
        """Return loss and gradient at theta."""
        return self.function(theta)

    def train(self, theta: Vector, alpha: float) -> tuple[float, Vector]:
        """Return the first loss and (theta - model after the local steps) / alpha."""
        first, gradient = self.function(theta)
        update = gradient
        for _ in range(self.local_steps - 1):
            update = update + self.function(theta - alpha * update)[1]
        return first, update


@dataclass(frozen=True)
class FixedShard:
    """Data with the same oracle in every round; `samples` is None if their number is unknown."""

    inner: Oracle
    samples: int | None

    def oracle(self, key: Key) -> Oracle:
        """Return the oracle; no minibatches are drawn."""
        return self.inner


def as_shard(device: Device) -> Shard:
    """Return the shard of a device given as a shard, an oracle or a plain function."""
    if hasattr(device, "oracle"):  # ten times faster than isinstance with a protocol
        return cast(Shard, device)
    if hasattr(device, "gradient") and hasattr(device, "train") and hasattr(device, "samples"):
        oracle = cast(Oracle, device)
        return FixedShard(oracle, oracle.samples)
    if callable(device):
        return FixedShard(FunctionOracle(device), samples=None)
    raise TypeError(
        "a device is a function theta -> (loss, gradient), an oracle or a shard, "
        f"not {type(device).__name__}"
    )


def samples_of(number: DeviceId, shard: Shard) -> int:
    """Return the number of samples of a device; ValueError if it is unknown."""
    samples = getattr(shard, "samples", None)
    if isinstance(samples, int) and samples > 0:
        return samples
    raise ValueError(
        f"weights=samples needs the number of samples of every device, but device {number} does "
        "not have a positive attribute samples, like functions and streams without a length; set "
        "weights=uniform"
    )


def owned_rows_of(number: DeviceId, shard: Shard) -> OwnedRows:
    """Return the rows that a device owns; ValueError if it does not tell."""
    rows: OwnedRows | None = getattr(shard, "owned_rows", None)
    if rows is None:
        raise ValueError(
            f"rows=owners needs the classes of every device, but device {number} does not have "
            "the attribute owned_rows, like functions; set rows=all"
        )
    return rows
