"""All models by name, and the batch norm statistics for testing.

Batch norm is static, as in HeteroFL (Diao, Ding, Tarokh, ICLR 2021, arXiv 2010.01264). Devices
train on batch statistics and keep no running statistics, so none are sent. The statistics are
computed before a model is tested. Frozen batch norms keep the running statistics they came with.
"""

import copy
from collections.abc import Callable, Iterable
from typing import TypeVar

import torch
from torch import nn

from aquila.core.parameter import check_arguments, spelling_hint
from aquila.tasks.cnn import cnn
from aquila.tasks.mlp import mlp
from aquila.tasks.mobilenet import mobilenetv2
from aquila.tasks.resnet import resnet18
from aquila.tasks.transformer import transformer, transformer_small

MODELS: dict[str, Callable[..., nn.Module]] = {
    factory.__name__: factory
    for factory in (resnet18, mobilenetv2, transformer, transformer_small, cnn, mlp)
}

BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
BatchNorm = nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d

T = TypeVar("T")


def build_model(name: str, width: float = 1.0, **options: object) -> nn.Module:
    """Return a model by name. An unknown name or option raises ValueError with the known ones.

    Initial values come from torch's global generator; call `torch.manual_seed` to reproduce them.
    """
    if name not in MODELS:
        raise ValueError(f"there is no model {name!r}{spelling_hint(name, MODELS)}")
    factory = MODELS[name]
    return factory(**check_arguments(name, factory, {"width": width, **options}))


def keeps_statistics(norm: nn.Module) -> bool:
    """Whether a batch norm is frozen: it always uses the running statistics it came with.

    It is frozen if its weight and bias are, or if it is in eval mode.
    """
    parameters = list(norm.parameters())
    frozen = bool(parameters) and not any(p.requires_grad for p in parameters)
    return getattr(norm, "running_mean", None) is not None and (frozen or not norm.training)


def trained_batch_norms(module: nn.Module) -> list[BatchNorm]:
    """Return the batch norms of a module, without the frozen ones."""
    norms = (part for part in module.modules() if isinstance(part, BATCH_NORMS))
    return [norm for norm in norms if not keeps_statistics(norm)]


def drop_statistics(norm: BatchNorm) -> None:
    """Let a batch norm use the statistics of each batch, and keep no running ones."""
    norm.track_running_stats = False
    norm.running_mean = norm.running_var = norm.num_batches_tracked = None


@torch.no_grad()
def with_batch_norm_statistics(
    module: nn.Module,
    batches: Iterable[T],
    run_module: Callable[[nn.Module, T], object] = nn.Module.__call__,
) -> nn.Module:
    """Return a copy in eval mode whose batch norms hold the mean statistics of the batches.

    All other layers run in eval mode while the statistics are computed. A narrow model does not
    divide by its width in eval mode, so its statistics must not include that division.
    """
    tested = copy.deepcopy(module)
    norms = trained_batch_norms(tested)
    tested.eval()
    if not norms:
        return tested
    like, momenta = next(tested.parameters()), [norm.momentum for norm in norms]
    for norm in norms:
        _start_statistics(norm, like)
    for batch in batches:
        run_module(tested, batch)
    if int(norms[0].num_batches_tracked or 0) == 0:
        raise ValueError("batch norm statistics need at least one batch of inputs")
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
    return tested.eval()


def _start_statistics(norm: BatchNorm, like: torch.Tensor) -> None:
    norm.train()
    norm.track_running_stats = True
    norm.momentum = None  # cumulative average: every batch has the same weight
    norm.running_mean = like.new_zeros(norm.num_features)
    norm.running_var = like.new_ones(norm.num_features)
    norm.num_batches_tracked = torch.zeros((), dtype=torch.long, device=like.device)
