import pytest
import torch
from torch import nn

from aquila.tasks.mobilenet import InvertedResidual, Stage, mobilenetv2
from aquila.tasks.widths import Scaler


def test_first_block_of_stage_has_no_shortcut() -> None:
    torch.manual_seed(0)
    stage = Stage(blocks=2, outputs=4, stride=1, expansion=2)
    x = torch.randn(3, 4, 5, 5)
    for first in (True, False):
        block = InvertedResidual(4, stage, first, 1.0, "static")
        extra = 0 if first else x
        assert torch.equal(block(x), block.layers(x) + extra)


def test_only_first_block_of_stage_has_stride() -> None:
    stage = Stage(blocks=2, outputs=4, stride=2, expansion=2)
    x = torch.randn(3, 4, 6, 6)
    shapes = [InvertedResidual(4, stage, first, 1.0, "static")(x).shape for first in (True, False)]
    assert shapes == [(3, 4, 3, 3), (3, 4, 6, 6)]


@pytest.mark.parametrize("width", [1.0, 0.01])
def test_shortcuts_are_the_same_at_every_width(width: float) -> None:
    with torch.device("meta"):
        module = mobilenetv2(width=width)
    shortcuts = [
        part.has_shortcut for part in module.modules() if isinstance(part, InvertedResidual)
    ]
    blocks = [1, 2, 3, 4, 3, 3, 1]
    assert shortcuts == [position > 0 for count in blocks for position in range(count)]


def test_every_convolution_but_the_classifier_is_scaled_and_normalized() -> None:
    with torch.device("meta"):
        module = mobilenetv2(width=0.5)
    leaves = [part for part in module.modules() if not list(part.children())]
    after = {
        (type(leaves[position + 1]), type(leaves[position + 2]))
        for position, part in enumerate(leaves)
        if isinstance(part, nn.Conv2d) and part.out_channels != 100
    }
    assert after == {(Scaler, nn.BatchNorm2d)}
    assert all(part.bias is not None for part in leaves if isinstance(part, nn.Conv2d))


def test_stages_reduce_image_size_by_eight() -> None:
    module = mobilenetv2(width=0.05)
    *body, _, _, _ = module.children()
    assert nn.Sequential(*body)(torch.randn(2, 3, 32, 32)).shape == (2, 64, 4, 4)
