import torch
from torch import nn

from aquila.tasks.mlp import mlp


def test_scaler_divides_hidden_layer_in_training_only() -> None:
    torch.manual_seed(0)
    module = mlp(inputs=6, hidden=5, classes=3, width=0.5)
    first, second = (part for part in module.modules() if isinstance(part, nn.Linear))
    x = torch.randn(4, 6)
    torch.testing.assert_close(module.train()(x), second((first(x) / 0.5).relu()))
    torch.testing.assert_close(module.eval()(x), second(first(x).relu()))


def test_width_cuts_only_the_hidden_layer() -> None:
    shapes = [tuple(p.shape) for p in mlp(inputs=7, hidden=5, classes=3, width=0.5).parameters()]
    assert shapes == [(3, 7), (3,), (3, 3), (3,)]


def test_images_are_flattened() -> None:
    module = mlp(inputs=12, hidden=5, classes=3)
    x = torch.randn(2, 3, 2, 2)
    assert torch.equal(module(x), module(x.reshape(2, 12)))
