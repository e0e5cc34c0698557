"""Keys: randomness as an argument, so that any round of any device can be replayed alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import torch

from aquila.core.vector import Vector


class Purpose(IntEnum):
    """Last integer of a key's path. It separates the streams of one round."""

    DEVICE = 0
    DATA = 1
    SERVER = 2
    LINK = 3
    SPLIT = 4
    HOLD_OUT = 5
    SYNTHETIC = 6
    PARTICIPATION = 7
    NOISE = 8


@dataclass(frozen=True)
class Key:
    """The name of a stream of random numbers: a path such as (seed, round, device, purpose)."""

    path: tuple[int, ...]

    def child(self, *path: int) -> "Key":
        """Return the key whose path extends this one."""
        return Key(self.path + path)

    def numpy(self) -> np.random.Generator:
        """Return a NumPy generator at the start of the stream."""
        return np.random.Generator(np.random.PCG64(self._seed()))

    def torch(self, device: torch.device | str = "cpu") -> torch.Generator:
        """Return a torch generator at the start of the stream."""
        state = self._seed().generate_state(1, np.uint64)
        return torch.Generator(device=device).manual_seed(int(state[0] >> np.uint64(1)))

    def uniform(self, like: Vector) -> Vector:
        """Return uniform numbers in [0, 1) with the shape, type and device of a vector."""
        generator = self.torch(like.device)
        return torch.rand(like.shape, generator=generator, dtype=like.dtype, device=like.device)

    def normal(self, like: Vector) -> Vector:
        """Return standard normal numbers in float64 with the shape and device of a vector."""
        numbers = self.numpy().standard_normal(tuple(like.shape))
        return torch.from_numpy(numbers).to(like.device)

    def uint32(self) -> int:
        """Return an integer below 2**32."""
        return int(self._seed().generate_state(1, np.uint32)[0])

    def bernoulli(self, probability: float) -> bool:
        """Return True with the given probability."""
        return bool(self.numpy().random() < probability)

    def sample(self, items: Sequence[int], count: int) -> tuple[int, ...]:
        """Return `count` distinct items, in their original order."""
        chosen = self.numpy().choice(len(items), size=count, replace=False)
        return tuple(items[i] for i in sorted(chosen))

    def _seed(self) -> np.random.SeedSequence:
        # not as plain entropy: then (1, 2) and (1, 2, 0) would name the same stream
        return np.random.SeedSequence(self.path[0], spawn_key=self.path[1:])
