"""The module of a trained model, ready for plain `eval()`."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn

from aquila.core.fleet import DeviceId, Fleet
from aquila.core.vector import Vector
from aquila.tasks.models import BatchNorm, trained_batch_norms, with_batch_norm_statistics
from aquila.training.flat_module import FlatModule
from aquila.training.inputs import Inputs, run_module
from aquila.training.shard_data import ShardData, equal_batches

BatchNormStatistics = Literal["gathered", "averaged", "local"]
"""Statistics of the pooled training inputs, averaged over devices, or of each device alone."""

STATISTICS_BATCH = 500
"""Largest batch of training samples for the statistics of batch norms."""


@dataclass(frozen=True)
class ModuleBuilder:
    """Makes modules from flat vectors, with the batch norm statistics of the training inputs.

    Statistics are computed at the given model: `gathered` over the pooled inputs of all devices,
    `averaged` by each device, then averaged, `local` by each device for itself.

    The averaged variance follows the law of total variance with equal weights: the mean of the
    devices' variances, plus the variance of their means.
    """

    models: Sequence[FlatModule]
    fleet: Fleet
    data: Sequence[ShardData]
    statistics: BatchNormStatistics = "gathered"

    @property
    def trained_parameters(self) -> list[str]:
        """Names of the parameters in the vector of a model, in their order."""
        return list(self.models[0].parameter_views(self.models[0].theta))

    @property
    def evaluated_devices(self) -> Sequence[DeviceId | None]:
        """The devices whose own modules are evaluated; None stands for the common module."""
        local = self.statistics == "local" and bool(trained_batch_norms(self.models[0].module))
        return self.fleet.devices if local else [None]

    def module_for(self, theta: Vector, device: DeviceId | None = None) -> nn.Module:
        """Return a copy of the module in eval mode, with the parameters of a model.

        Args:
            theta: The whole model as a vector.
            device: Return the module of this device: of its width, and with its own statistics if
                they are `local`. None: the widest module, with averaged statistics if they are
                `local`.
        """
        group = 0 if device is None else self.fleet.groups[device]
        model = self.models[group]
        model.load(self.fleet.restrict(theta)[group])
        with torch.no_grad(), model.autocast():
            if self.statistics == "gathered":
                return _with_statistics(model.module, self.data)
            if self.statistics == "local" and device is not None:
                return _with_statistics(model.module, [self.data[device]])
            return self._with_averaged_statistics(model.module)

    def _with_averaged_statistics(self, module: nn.Module) -> nn.Module:
        if not trained_batch_norms(module):
            return _with_statistics(module, ())
        moments = []
        for data in self.data:
            averaged = _with_statistics(module, [data])
            moments.append([_moments(norm) for norm in _norms_like(module, averaged)])
        norms = _norms_like(module, averaged)
        for norm, own in zip(norms, zip(*moments, strict=True), strict=True):
            mean, square = torch.stack(own).mean(0)
            norm.get_buffer("running_mean").copy_(mean)
            norm.get_buffer("running_var").copy_((square - mean**2).clamp_min(0))
        return averaged


def _with_statistics(module: nn.Module, pool: Sequence[ShardData]) -> nn.Module:
    batches: Iterator[Inputs] = equal_batches(pool, STATISTICS_BATCH)
    return with_batch_norm_statistics(module, batches, _run)


def _run(module: nn.Module, x: Inputs) -> object:
    return run_module(module, x)


def _norms_like(module: nn.Module, copied: nn.Module) -> list[BatchNorm]:
    """Return the batch norms of a copy that are trained ones in the module."""
    trained = {id(norm) for norm in trained_batch_norms(module)}
    pairs = zip(module.modules(), copied.modules(), strict=True)
    return [own for norm, own in pairs if id(norm) in trained]  # type: ignore[misc]


def _moments(norm: BatchNorm) -> torch.Tensor:
    """Return the mean and the mean square of each channel, in float64."""
    mean = norm.get_buffer("running_mean").double()
    return torch.stack([mean, norm.get_buffer("running_var").double() + mean**2])
