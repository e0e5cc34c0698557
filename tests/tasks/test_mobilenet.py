import pytest
import torch
from torch import nn

from aquila.tasks.mobilenet import InvertedResidual, Stage, mobilenetv2
from aquila.tasks.widths import Scaler


def test_a_block_adds_its_input_unless_it_is_the_first_of_its_stage() -> None:
    torch.manual_seed(0)
    stage = Stage(blocks=2, outputs=4, stride=1, expansion=2)
    x = torch.randn(3, 4, 5, 5)
    for first in (True, False):
        block = InvertedResidual(4, stage, first, 1.0, "static")
        extra = 0 if first else x
        assert torch.equal(block(x), block.layers(x) + extra)


def test_only_the_first_block_of_a_stage_strides() -> None:
    stage = Stage(blocks=2, outputs=4, stride=2, expansion=2)
    x = torch.randn(3, 4, 6, 6)
    shapes = [InvertedResidual(4, stage, first, 1.0, "static")(x).shape for first in (True, False)]
    assert shapes == [(3, 4, 3, 3), (3, 4, 6, 6)]


@pytest.mark.parametrize("width", [1.0, 0.01])
def test_blocks_add_at_the_same_places_at_every_width(width: float) -> None:
    with torch.device("meta"):
        module = mobilenetv2(width=width)
    adds = [part.has_shortcut for part in module.modules() if isinstance(part, InvertedResidual)]
    blocks = [1, 2, 3, 4, 3, 3, 1]
    assert adds == [place > 0 for count in blocks for place in range(count)]


def test_every_convolution_but_the_classifier_is_scaled_and_normalized() -> None:
    with torch.device("meta"):
        module = mobilenetv2(width=0.5)
    leaves = [part for part in module.modules() if not list(part.children())]
    after = {
        (type(leaves[place + 1]), type(leaves[place + 2]))
        for place, part in enumerate(leaves)
        if isinstance(part, nn.Conv2d) and part.out_channels != 100
    }
    assert after == {(Scaler, nn.BatchNorm2d)}
    assert all(part.bias is not None for part in leaves if isinstance(part, nn.Conv2d))


def test_the_stages_shrink_the_image_eightfold() -> None:
    module = mobilenetv2(width=0.05)
    *body, _, _, _ = module.children()
    assert nn.Sequential(*body)(torch.randn(2, 3, 32, 32)).shape == (2, 64, 4, 4)
