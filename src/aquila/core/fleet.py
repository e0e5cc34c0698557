"""The devices of a run, and the coordinates of the model that each of them holds."""

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from functools import cached_property

import torch

from aquila.core.vector import Vector, digest, squared_norm

DeviceId = int


class Fleet:
    """Devices 0 to M - 1. Devices of one group hold the same coordinates of the model.

    Sums and averages run per coordinate over the devices that hold it. Methods therefore need no
    code for heterogeneous fleets.

    Args:
        dimension: Number of coordinates of the whole model.
        groups: The group of each device.
        slices: The sorted coordinates that each group holds; None means all.
        torch_device: Where vectors are stored.
    """

    def __init__(
        self,
        dimension: int,
        groups: Sequence[int],
        slices: Sequence[torch.Tensor | None] = (None,),
        torch_device: torch.device | str = "cpu",
    ) -> None:
        self.dimension = dimension
        self.groups = tuple(groups)
        self.slices = tuple(
            None if indices is None else indices.to(torch_device) for indices in slices
        )
        self.torch_device = torch_device
        self.participation = 1.0

    @classmethod
    def uniform(
        cls, dimension: int, devices: int, torch_device: torch.device | str = "cpu"
    ) -> "Fleet":
        """Return a fleet in which every device holds the whole model."""
        return cls(dimension, [0] * devices, torch_device=torch_device)

    def with_participation(self, participation: float) -> "Fleet":
        """Return a copy of the fleet in which this fraction of the devices is sampled per round."""
        fleet = copy(self)
        fleet.participation = participation
        return fleet

    @property
    def slices_digest(self) -> str:
        """Text that identifies which coordinates each group holds."""
        return ", ".join("all" if indices is None else digest(indices) for indices in self.slices)

    @property
    def devices(self) -> range:
        """All devices."""
        return range(len(self.groups))

    def dimension_of(self, device: DeviceId) -> int:
        """Return the number of coordinates that a device holds, d_m."""
        return self.dimension_of_group(self.groups[device])

    def dimension_of_group(self, group: int) -> int:
        """Return the number of coordinates that each device of a group holds."""
        indices = self.slices[group]
        return self.dimension if indices is None else indices.numel()

    def restrict(self, vector: Vector) -> tuple[Vector, ...]:
        """Return the part of the vector that each group holds."""
        return tuple(vector if indices is None else vector[indices] for indices in self.slices)

    def squared_norms(self, vector: Vector) -> tuple[float, ...]:
        """Return the squared norm of the part that each group holds."""
        return tuple(squared_norm(part) for part in self.restrict(vector))

    def coordinate_mask(self, devices: Iterable[DeviceId]) -> torch.Tensor:
        """Return a mask of the coordinates that at least one of the devices holds."""
        return self._weight_of_holders(dict.fromkeys(devices, 1.0)) > 0

    def variance_factors(self, devices: Iterable[DeviceId]) -> tuple[float, ...]:
        """Return the factor by which one device's variance adds to the mean's variance, per group.

        A coordinate that n of the devices hold has the factor 1 / n². The result averages the
        factors over the coordinates of each group.
        """
        holders = self._weight_of_holders(dict.fromkeys(devices, 1.0)).clamp_min(1.0)
        parts = (part.reshape(-1) for part in self.restrict(1 / holders))
        return tuple(squared_norm(part) / part.numel() for part in parts)

    def mean_over_holders(self, vectors: Iterable[tuple[DeviceId, Vector]]) -> Vector:
        """Return the sum over the given devices ÷ the number of all holders, per coordinate."""
        return self._divide(self._sum(vectors), self._holders)

    def mean(
        self, vectors: Iterable[tuple[DeviceId, Vector]], weights: Mapping[DeviceId, float]
    ) -> Vector:
        """Return the weighted average over the devices in `weights`.

        A device with a weight but without a vector counts as zero. A coordinate that none of these
        devices holds has average zero.
        """
        weighted = ((device, vector * weights[device]) for device, vector in vectors)
        return self._divide(self._sum(weighted), self._weight_of_holders(weights))

    @cached_property
    def min_holders(self) -> int:
        """Smallest number of holders of any coordinate that has a holder."""
        return int(self._holders[self._holders > 0].min())

    @cached_property
    def _holders(self) -> torch.Tensor:
        return self._weight_of_holders(dict.fromkeys(self.devices, 1.0))

    def _sum(self, vectors: Iterable[tuple[DeviceId, Vector]]) -> Vector:
        """Sum in float64, so that the order of many small terms hardly affects the result."""
        total = torch.zeros(self.dimension, dtype=torch.float64, device=self.torch_device)
        for device, vector in vectors:
            indices = self.slices[self.groups[device]]
            if indices is None:
                total += vector
            else:
                total.index_add_(0, indices, vector.to(torch.float64))
        return total

    def _weight_of_holders(self, weights: Mapping[DeviceId, float]) -> torch.Tensor:
        """Return the total weight of each coordinate's holders; a scalar if all hold all."""
        by_group = [0.0] * len(self.slices)
        for device, weight in weights.items():
            by_group[self.groups[device]] += weight
        everywhere = sum(
            w for w, indices in zip(by_group, self.slices, strict=True) if indices is None
        )
        if all(indices is None for indices in self.slices):
            return torch.tensor(everywhere, dtype=torch.float64, device=self.torch_device)
        total = torch.full(
            (self.dimension,), everywhere, dtype=torch.float64, device=self.torch_device
        )
        for weight, indices in zip(by_group, self.slices, strict=True):
            if indices is not None:
                total[indices] += weight
        return total

    @staticmethod
    def _divide(total: Vector, weight: torch.Tensor) -> Vector:
        return torch.where(weight > 0, total / weight.clamp_min(torch.finfo(weight.dtype).tiny), 0)
