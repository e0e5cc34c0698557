"""The devices of a run, and the coordinates of the model that each of them holds."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import copy
from functools import cached_property

import torch

from aquila.core.link import LinkState
from aquila.core.packet import Codes
from aquila.core.rotated import RotatedSum, RotatedVector
from aquila.core.row_owners import OwnedRows, RowOwners
from aquila.core.tensors import Shapes, one_tensor, total_size
from aquila.core.vector import SparseVector, Vector, digest, squared_norm

DeviceId = int

Summand = Vector | SparseVector | RotatedVector | Codes
"""What averages take: a vector, all or its nonzero or rotated coordinates, or its codes."""

SMALLEST = torch.finfo(torch.float64).tiny
"""Smallest divisor, which prevents division by zero."""


class Fleet:
    """Devices 0 to M - 1. Devices of one group hold the same coordinates of the model.

    Averages run per coordinate over the devices that hold it, with the weights of the devices.
    Methods therefore need no code for heterogeneous fleets or for weights.

    Args:
        dimension: Number of coordinates of the whole model.
        groups: The group of each device.
        slices: The sorted coordinates that each group holds; None means all.
        torch_device: Where vectors are stored.
        weights: The weight of each device in every average. Default: 1 for every device.
        shapes: The shapes of the tensors that each group holds, for methods that treat each tensor
            separately. Default: one tensor per group.

    `owners` is None unless some rows of tensors are averaged over their owners only. Then a device
    counts as a holder of its own rows alone, and what it sends for others is ignored.

    `links` has the link of each device that may take part in the current round. It is None unless
    the run simulates links and the method declares `needs_links`.
    """

    def __init__(
        self,
        dimension: int,
        groups: Sequence[int],
        slices: Sequence[torch.Tensor | None] = (None,),
        torch_device: torch.device | str = "cpu",
        weights: Sequence[float] | None = None,
        shapes: Sequence[Sequence[torch.Size]] | None = None,
    ) -> None:
        self.dimension = dimension
        self.groups = tuple(groups)
        self.slices = tuple(
            None if indices is None else indices.to(torch_device) for indices in slices
        )
        self.torch_device = torch_device
        self.weights = (1.0,) * len(self.groups) if weights is None else tuple(weights)
        self._check_weights()
        self.shapes = self._checked_shapes(shapes)
        self.participation = 1.0
        self.links: Mapping[DeviceId, LinkState] | None = None
        self.owners: RowOwners | None = None

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

    def with_links(self, links: Mapping[DeviceId, LinkState]) -> "Fleet":
        """Return a copy of the fleet in one round, in which devices have these links."""
        fleet = copy(self)
        fleet.links = links
        return fleet

    def with_weights(self, weights: Sequence[float]) -> "Fleet":
        """Return a copy of the fleet in which averages have these weights, one per device."""
        fleet = Fleet(
            self.dimension, self.groups, self.slices, self.torch_device, weights, self.shapes
        )
        fleet.participation, fleet.owners = self.participation, self.owners
        return fleet

    def with_owned_rows(self, owned: Sequence[OwnedRows]) -> "Fleet":
        """Return a copy of the fleet that averages rows over their owners.

        `owned` has the rows of each device. A row without owners has average zero.
        """
        fleet = self.with_weights(self.weights)
        shapes = [self.shapes_of(device) for device in self.devices]
        fleet.owners = RowOwners(owned, shapes, self.torch_device)
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

    def shapes_of(self, device: DeviceId) -> Shapes:
        """Return the shapes of the tensors that a device holds."""
        return self.shapes[self.groups[device]]

    def restrict(self, vector: Vector) -> tuple[Vector, ...]:
        """Return the part of the vector that each group holds."""
        return tuple(vector if indices is None else vector[indices] for indices in self.slices)

    def squared_norms(self, vector: Vector) -> tuple[float, ...]:
        """Return the squared norm of the part that each group holds."""
        return tuple(squared_norm(part) for part in self.restrict(vector))

    def coordinate_mask(self, devices: Iterable[DeviceId]) -> torch.Tensor:
        """Return a mask of the coordinates that at least one of the devices holds."""
        return self._weight_of_holders(devices) > 0

    def effective_count(self, devices: Iterable[DeviceId]) -> float:
        """Return the number of equally weighted devices whose mean is as noisy: (Σ w)² / Σ w²."""
        weights = [self.weights[device] for device in devices]
        return sum(weights) ** 2 / sum(w * w for w in weights) if weights else 0.0

    def mean_over_holders(self, vectors: Iterable[tuple[DeviceId, Summand]]) -> Vector:
        """Return the weighted sum of the vectors ÷ the weight of all holders, per coordinate."""
        return self._divide(self._sum(vectors, self.devices), self._total_weight)

    def mean(
        self, vectors: Iterable[tuple[DeviceId, Summand]], devices: Collection[DeviceId]
    ) -> Vector:
        """Return the weighted average over the given devices.

        A device without a vector counts as zero. A coordinate that none of the devices holds has
        average zero.
        """
        return self._divide(self._sum(vectors, devices), self._weight_of_holders(devices))

    def means(
        self, vectors: Iterable[tuple[DeviceId, Summand]], devices: Collection[DeviceId]
    ) -> tuple[Vector, Vector]:
        """Return `mean` and `mean_over_holders` of the vectors, which are added only once."""
        total = self._sum(vectors, devices)
        by_reply = self._divide(total.clone(), self._weight_of_holders(devices))
        return by_reply, self._divide(total, self._total_weight)

    def mean_number(self, numbers: Mapping[DeviceId, float]) -> float:
        """Return the weighted average of one number per device."""
        total = sum(self.weights[device] * number for device, number in numbers.items())
        return total / sum(self.weights[device] for device in numbers)

    @cached_property
    def _total_weight(self) -> torch.Tensor:
        return self._weight_of_holders(self.devices)

    def _sum(
        self, vectors: Iterable[tuple[DeviceId, Summand]], devices: Collection[DeviceId]
    ) -> Vector:
        """Return the weighted sum in float64, in which the order of the terms hardly matters."""
        total = torch.zeros(self.dimension, dtype=torch.float64, device=self.torch_device)
        rotated = RotatedSum(total)
        for device, vector in vectors:
            if device not in devices:
                raise KeyError(f"device {device} is not one of the averaged devices")
            weight, indices = self.weights[device], self.slices[self.groups[device]]
            vector = self._owned(device, vector)
            if indices is not None and not isinstance(vector, SparseVector):
                vector = _dense(vector)
            if isinstance(vector, RotatedVector):
                rotated.add(vector, weight)
            elif isinstance(vector, SparseVector):
                vector.at(indices).add_to(total, weight)
            elif isinstance(vector, Codes):
                vector.add_to(total, weight)
            elif indices is None:
                total.add_(vector, alpha=weight)
            else:
                total.index_add_(0, indices, vector.to(torch.float64), alpha=weight)
        rotated.finish()
        return total

    def _owned(self, device: DeviceId, vector: Summand) -> Summand:
        """Return a vector of a device with zeros in rows of other owners."""
        if self.owners is None:
            return vector
        if isinstance(vector, SparseVector):
            vector = vector.to_dense(self.dimension_of(device))
        return self.owners.keep_owned(device, _dense(vector))

    def _weight_of_owners(self, owners: RowOwners, weights: Mapping[DeviceId, float]) -> Vector:
        """Return the total weight of each coordinate's holders, where rows have owners."""
        total = torch.zeros(self.dimension, dtype=torch.float64, device=self.torch_device)
        for group, indices in enumerate(self.slices):
            of_group = {d: w for d, w in weights.items() if self.groups[d] == group}
            if of_group:
                own = slice(None) if indices is None else indices
                total[own] += owners.total_weights(of_group)
        return total

    def _weight_of_holders(self, devices: Iterable[DeviceId]) -> torch.Tensor:
        """Return the total weight of each coordinate's holders; a scalar if all hold all."""
        if self.owners is not None:
            weights = {device: self.weights[device] for device in devices}
            return self._weight_of_owners(self.owners, weights)
        by_group = [0.0] * len(self.slices)
        for device in devices:
            by_group[self.groups[device]] += self.weights[device]
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
        """Divide in place, because copies of a large model cost time and memory."""
        return total.div_(weight.clamp_min(SMALLEST)).masked_fill_(weight <= 0, 0)

    def _checked_shapes(self, shapes: Sequence[Sequence[torch.Size]] | None) -> tuple[Shapes, ...]:
        sizes = [self.dimension_of_group(group) for group in range(len(self.slices))]
        if shapes is None:
            return tuple(one_tensor(size) for size in sizes)
        if [total_size(of_group) for of_group in shapes] != sizes:
            raise ValueError(
                f"the tensors of the groups have {[total_size(s) for s in shapes]} coordinates, "
                f"but the groups hold {sizes}"
            )
        return tuple(tuple(of_group) for of_group in shapes)

    def _check_weights(self) -> None:
        if len(self.weights) != len(self.groups):
            raise ValueError(
                f"there are {len(self.weights)} weights for {len(self.groups)} devices"
            )
        for device, weight in enumerate(self.weights):
            if not 0 < weight < math.inf:
                raise ValueError(f"the weight of device {device} must be above 0, not {weight}")


def _dense(vector: Vector | RotatedVector | Codes) -> Vector:
    """Return a vector with all its coordinates."""
    if isinstance(vector, Codes):
        return vector.decode()
    return vector.to_dense() if isinstance(vector, RotatedVector) else vector
