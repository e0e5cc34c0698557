"""Trained vectors as modules that work without this package."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from aquila.core.fleet import Fleet
from aquila.core.vector import Vector
from aquila.sim.evaluator import STATISTICS_BATCH
from aquila.sim.flat_module import FlatModule
from aquila.sim.model_files import StateDict
from aquila.tasks.models import with_batch_norm_statistics


@dataclass(frozen=True)
class ModuleBuilder:
    """Makes modules in eval mode from trained vectors.

    Args:
        models: The models of the problem, widest first.
        fleet: Which coordinates the devices of each model hold.
        train_inputs: Inputs for the statistics of batch norms.
    """

    models: Sequence[FlatModule]
    fleet: Fleet
    train_inputs: torch.Tensor

    def build(
        self, theta: Vector, device: torch.device | str | None = None, group: int = 0
    ) -> nn.Module:
        """Return a copy of a module in eval mode with the trained parameters.

        Frozen parameters and buffers are those of the user's module. Batch norms have statistics
        of the training inputs.

        Args:
            theta: The trained parameters of the widest module, one flat vector.
            device: Where the copy is stored. Default: where the problem is computed.
            group: Which module, as in `ProblemOptions.groups`. 0 is the widest.
        """
        self._check(theta, group)
        model = self.models[group]
        model.load(self.fleet.restrict(theta.to(model.theta.device))[group])
        batch_count = -(-len(self.train_inputs) // STATISTICS_BATCH)
        batches = torch.tensor_split(self.train_inputs, batch_count)  # of nearly equal size
        with model.autocast():
            module = with_batch_norm_statistics(model.module, batches)
        return module if device is None else module.to(device)

    def trained_vector(self, state: StateDict) -> Vector:
        """Return the trained parameters in a state dict of the widest module."""
        model = self.models[0]
        names = model.parameter_views(model.theta)
        return torch.cat([state[name].reshape(-1) for name in names]).to(model.theta)

    def _check(self, theta: object, group: int) -> None:
        if not isinstance(theta, torch.Tensor) or theta.shape != (self.fleet.dimension,):
            given = tuple(theta.shape) if isinstance(theta, torch.Tensor) else type(theta).__name__
            raise ValueError(
                f"theta must be a vector of the {self.fleet.dimension} trained parameters, such as "
                f"run.theta, not {given}"
            )
        if not 0 <= group < len(self.models):
            raise ValueError(f"group must be from 0 to {len(self.models) - 1}, not {group}")
