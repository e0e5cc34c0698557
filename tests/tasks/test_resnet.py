import pytest
import torch
from torch import nn
from torch.nn.functional import batch_norm, conv2d

from aquila.tasks.resnet import Block, resnet18
from aquila.tasks.widths import Scaler


def reference(block: Block, x: torch.Tensor, stride: int, r: float) -> torch.Tensor:
    """Compute the block with plain functions: batch statistics, activations divided by r."""
    own = dict(block.named_parameters())

    def active(y: torch.Tensor, norm: str) -> torch.Tensor:
        weight, bias = own[f"{norm}.1.weight"], own[f"{norm}.1.bias"]
        return batch_norm(y / r, None, None, weight, bias, training=True).relu()

    first = active(x, "norm1")
    y = conv2d(first, own["conv1.weight"], stride=stride, padding=1)
    y = conv2d(active(y, "norm2"), own["conv2.weight"], padding=1)
    if stride == 1:
        return y + x
    return y + conv2d(first, own["shortcut.weight"], stride=stride)


@pytest.mark.parametrize(("outputs", "stride"), [(3, 1), (5, 2)])
def test_block_equals_plain_functions(outputs: int, stride: int) -> None:
    torch.manual_seed(0)
    width = 0.01
    block = Block(3, outputs, stride, width, "static")
    for name, parameter in block.named_parameters():
        if "norm" in name:
            nn.init.normal_(parameter)
    # so small that the epsilon of batch norm reveals a missing scaler
    x = torch.randn(4, 3, 6, 6) * 1e-3
    torch.testing.assert_close(block.train()(x), reference(block, x, stride, width))
    torch.testing.assert_close(block.eval()(x), reference(block, x, stride, 1.0))
    assert not torch.allclose(block.train()(x), block.eval()(x))


def test_every_batch_norm_follows_a_scaler() -> None:
    with torch.device("meta"):
        module = resnet18(width=0.25)
    pairs = [
        list(part.children())
        for part in module.modules()
        if isinstance(part, nn.Sequential) and isinstance(part[0], Scaler)
    ]
    norms = [part for part in module.modules() if isinstance(part, nn.BatchNorm2d)]
    assert [pair[1] for pair in pairs] == norms
    assert len(norms) == 17
    assert {pair[0].width for pair in pairs} == {0.25}


def test_stages_halve_image_three_times_and_classifier_bias_starts_at_zero() -> None:
    module = resnet18(width=0.05, classes=4)
    x = torch.randn(2, 3, 32, 32)
    *body, _, _, classifier = module.children()
    assert nn.Sequential(*body)(x).shape == (2, 26, 4, 4)
    assert isinstance(classifier, nn.Linear)
    assert classifier.bias.abs().max() == 0
