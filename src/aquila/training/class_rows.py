"""The rows of a module's parameters that belong to classes or words."""

import torch
from torch import nn

from aquila.training.flat_module import FlatModule
from aquila.training.shard_data import ShardData, TensorData
from aquila.training.target_checks import seen_classes

SPECIAL_TOKENS = 1
"""Token embeddings may have one more row than there are words, such as that of a mask token."""


def owned_rows(model: FlatModule, data: ShardData) -> dict[int, torch.Tensor]:
    """Return which rows of class tensors a device owns: those of the classes of its targets.

    Class tensors are the weight and bias of the output layer, which is the last `nn.Linear`. If the
    targets are tokens, the weights of `nn.Embedding` layers with a row per word are class tensors
    too. All devices own the row of a mask token. The keys are the numbers of the trained tensors.
    """
    x, y = data.batch if isinstance(data, TensorData) else (None, None)
    if y is None or y.is_floating_point():
        raise ValueError(
            f"rows=owners needs the classes of every device, but {data.name} is not a pair of "
            "tensors with classes as targets; set rows=all"
        )
    trained = [p for p in model.module.parameters() if p.requires_grad]
    numbers = {id(parameter): number for number, parameter in enumerate(trained)}
    output = _output_layer(model.module)
    classes = output.out_features
    seen = seen_classes([data], None, classes, model.objective.class_layout)[0]
    with_special = torch.cat((seen, seen.new_ones(SPECIAL_TOKENS)))
    found = [output.weight, *([] if output.bias is None else [output.bias])]
    if isinstance(x, torch.Tensor) and not x.is_floating_point() and x.shape == y.shape:
        found += [layer.weight for layer in _word_embeddings(model.module, classes)]
    rows = {numbers[id(p)]: with_special[: len(p)] for p in found if id(p) in numbers}
    if not rows:
        raise ValueError("rows=owners needs an output layer that is trained; set rows=all")
    return dict(sorted(rows.items()))


def _output_layer(module: nn.Module) -> nn.Linear:
    layers = [layer for layer in module.modules() if isinstance(layer, nn.Linear)]
    if not layers:
        raise ValueError(
            "rows=owners needs an nn.Linear as output layer, but the module has none; set rows=all"
        )
    return layers[-1]


def _word_embeddings(module: nn.Module, words: int) -> list[nn.Embedding]:
    layers = [layer for layer in module.modules() if isinstance(layer, nn.Embedding)]
    return [layer for layer in layers if 0 <= layer.num_embeddings - words <= SPECIAL_TOKENS]
