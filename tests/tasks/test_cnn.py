import pytest
import torch
from torch import nn
from torch.nn.functional import max_pool2d

from aquila.tasks.cnn import cnn


@pytest.mark.parametrize(("channels", "size"), [(1, 28), (3, 32), (1, 30)])
@pytest.mark.parametrize("width", [1.0, 0.5])
def test_accepts_common_image_sizes(channels: int, size: int, width: float) -> None:
    module = cnn(channels=channels, size=size, classes=7, width=width)
    assert module(torch.randn(2, channels, size, size)).shape == (2, 7)


def test_equals_its_layers_in_sequence() -> None:
    torch.manual_seed(0)
    module = cnn(size=8, filters=4, hidden=6, width=0.5)
    one, two = (part for part in module.modules() if isinstance(part, nn.Conv2d))
    three, four = (part for part in module.modules() if isinstance(part, nn.Linear))
    x = torch.randn(3, 1, 8, 8)
    for mode, r in [(True, 0.5), (False, 1.0)]:
        y = max_pool2d((one(x) / r).relu(), 2)
        y = max_pool2d((two(y) / r).relu(), 2)
        y = four((three(y.flatten(1)) / r).relu())
        torch.testing.assert_close(module.train(mode)(x), y)


def test_norm_is_an_option() -> None:
    parts = [list(cnn(norm=norm).modules()) for norm in ("none", "static")]
    counts = [sum(isinstance(part, nn.BatchNorm2d) for part in each) for each in parts]
    assert counts == [0, 2]
