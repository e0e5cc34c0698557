"""Trained vectors as modules that work without this package."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from aquila.core.fleet import Fleet
from aquila.core.vector import Vector
from aquila.sim.evaluator import STATISTICS_BATCH
from aquila.sim.flat_module import FlatModule
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

    def module_for(self, theta: Vector, device: int | None = None) -> nn.Module:
        """Return a copy in eval mode of the widest module, or of the module that a device trains.

        Frozen parameters and buffers are those of the user's module. Batch norms have statistics
        of the training inputs. `theta` is the vector of the whole model.
        """
        group = 0 if device is None else self.fleet.groups[device]
        model = self.models[group]
        model.load(self.fleet.restrict(theta.to(model.theta.device))[group])
        batch_count = -(-len(self.train_inputs) // STATISTICS_BATCH)
        batches = torch.tensor_split(self.train_inputs, batch_count)  # of nearly equal size
        with model.autocast():
            return with_batch_norm_statistics(model.module, batches)
