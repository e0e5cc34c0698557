"""Keys: randomness as an argument, so that any device's round can be replayed alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import torch

from aquila.core.vector import Vector


class Purpose(IntEnum):
    """Last word of a key; keeps the streams of one round apart."""

    DEVICE = 0
    DATA = 1
    SERVER = 2
    LINK = 3
    SPLIT = 4
    HOLD_OUT = 5
    SYNTHETIC = 6
    PARTICIPATION = 7


@dataclass(frozen=True)
class Key:
    """Words that name one stream of random numbers, such as (seed, round, device, purpose)."""

    path: tuple[int, ...]

    def child(self, *path: int) -> "Key":
        """Return the key of a stream below this one."""
        return Key(self.path + path)

    def numpy(self) -> np.random.Generator:
        """Return the stream as a NumPy generator, from its beginning."""
        return np.random.Generator(np.random.PCG64(self._seed()))

    def torch(self, device: torch.device | str = "cpu") -> torch.Generator:
        """Return the stream as a torch generator, from its beginning."""
        state = self._seed().generate_state(1, np.uint64)
        return torch.Generator(device=device).manual_seed(int(state[0] >> np.uint64(1)))

    def uniform(self, like: Vector) -> Vector:
        """Return numbers uniform in [0, 1), shaped and placed like the given vector."""
        generator = self.torch(like.device)
        return torch.rand(like.shape, generator=generator, dtype=like.dtype, device=like.device)

    def uint32(self) -> int:
        """Return a whole number below 2**32."""
        return int(self._seed().generate_state(1, np.uint32)[0])

    def bernoulli(self, probability: float) -> bool:
        """Return True with the given probability."""
        return bool(self.numpy().random() < probability)

    def sample(self, items: Sequence[int], count: int) -> tuple[int, ...]:
        """Return `count` distinct items, in their original order."""
        chosen = self.numpy().choice(len(items), size=count, replace=False)
        return tuple(items[i] for i in sorted(chosen))

    def _seed(self) -> np.random.SeedSequence:
        # as plain entropy, (1, 2) and (1, 2, 0) would name the same stream
        return np.random.SeedSequence(self.path[0], spawn_key=self.path[1:])
