"""All models by name, and the batch norm statistics for testing.

Batch norm is static, as in HeteroFL (Diao, Ding, Tarokh, ICLR 2021, arXiv 2010.01264). Devices
train on batch statistics and keep no running statistics, so none are sent. The statistics are
computed before a model is tested.
"""

import copy
from collections.abc import Callable, Iterable

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


def build_model(name: str, width: float = 1.0, **options: object) -> nn.Module:
    """Return a model by name. An unknown name or option raises ValueError with the known ones.

    Initial values come from torch's global generator; call `torch.manual_seed` to reproduce them.
    """
    if name not in MODELS:
        raise ValueError(f"there is no model {name!r}{spelling_hint(name, MODELS)}")
    factory = MODELS[name]
    return factory(**check_arguments(name, factory, {"width": width, **options}))


def has_batch_norm(module: nn.Module) -> bool:
    """Whether the module has a batch norm layer."""
    return any(isinstance(part, BATCH_NORMS) for part in module.modules())


@torch.no_grad()
def with_batch_norm_statistics(module: nn.Module, batches: Iterable[torch.Tensor]) -> nn.Module:
    """Return a copy in eval mode whose batch norms hold the mean statistics of the batches.

    All other layers run in eval mode while the statistics are computed. A narrow model does not
    divide by its width in eval mode, so its statistics must not include that division.
    """
    tested = copy.deepcopy(module).eval()
    norms = [part for part in tested.modules() if isinstance(part, BATCH_NORMS)]
    if not norms:
        return tested
    like = next(tested.parameters())
    for norm in norms:
        _start_statistics(norm, like)
    for batch in batches:
        tested(batch)
    if int(norms[0].num_batches_tracked or 0) == 0:
        raise ValueError("batch norm statistics need at least one batch of inputs")
    return tested.eval()


def _start_statistics(
    norm: nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d, like: torch.Tensor
) -> None:
    norm.train()
    norm.track_running_stats = True
    norm.momentum = None  # cumulative average: every batch has the same weight
    norm.running_mean = like.new_zeros(norm.num_features)
    norm.running_var = like.new_ones(norm.num_features)
    norm.num_batches_tracked = torch.zeros((), dtype=torch.long, device=like.device)
