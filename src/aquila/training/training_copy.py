"""The copy of a module that trains: modes of its parts, batch norms and buffers."""

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import nn

from aquila.tasks.models import BATCH_NORMS, drop_statistics, keeps_statistics


def training_copy(module: nn.Module, device: torch.device | str) -> nn.Module:
    """Return a copy in train mode whose batch norms use the statistics of each batch.

    A part that is in eval mode, within a module in train mode, stays in eval mode. Frozen batch
    norms use their running statistics.
    """
    copied = copy.deepcopy(module).to(device)
    if not copied.training:
        copied.train()
    for name, part in copied.named_modules():
        if isinstance(part, BATCH_NORMS):
            part.eval() if keeps_statistics(part) else drop_statistics(part)
        elif getattr(part, "track_running_stats", False) and part.training:
            raise ValueError(
                f"{name or 'the module'} is of type {type(part).__name__} with running "
                "statistics, which differ between devices and are never sent; build it with "
                "track_running_stats=False"
            )
    return copied


class ChangingBuffers:
    """The buffers that a forward pass changes. They start every round with their first values."""

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self._first = {name: buffer.clone() for name, buffer in module.named_buffers()}

    def __bool__(self) -> bool:
        return bool(self._first)

    def forget_unchanged(self) -> None:
        """Keep only the buffers that have changed since the first values were recorded."""
        now = dict(self._module.named_buffers())
        self._first = {
            name: first for name, first in self._first.items() if not first.equal(now[name])
        }
        self.reset()

    def reset(self) -> None:
        """Give the buffers their first values."""
        self._set(self._first)

    @contextmanager
    def preserved(self) -> Iterator[None]:
        """Give the buffers their present values again at the end of a block."""
        now = dict(self._module.named_buffers())
        before = {name: now[name].clone() for name in self._first}
        try:
            yield
        finally:
            self._set(before)

    def copy_for(self, module: nn.Module) -> "ChangingBuffers":
        """Return the same for a copy of the module, and reset its buffers."""
        copied = ChangingBuffers(module)
        copied._first = self._first
        copied.reset()
        return copied

    def _set(self, values: Mapping[str, torch.Tensor]) -> None:
        if not values:
            return
        now = dict(self._module.named_buffers())
        with torch.no_grad():
            for name, value in values.items():
                now[name].copy_(value)
