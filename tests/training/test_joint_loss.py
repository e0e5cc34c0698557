import pytest
import torch
from torch import nn
from torch.nn import functional

from aquila.training.joint_loss import is_mean_cross_entropy, mean_losses, sample_losses
from aquila.training.objective import Objective

DEVICES, CLASSES = 60, 10


def drawn(samples, dtype=torch.float32):
    draw = torch.Generator().manual_seed(samples)
    outputs = torch.randn(DEVICES, samples, CLASSES, generator=draw, dtype=dtype)
    return outputs, torch.randint(0, CLASSES, (DEVICES, samples), generator=draw)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("samples", [1, 2, 15, 16, 17, 20, 33, 257, 300])
def test_means_have_the_bits_of_one_call_per_device(samples, dtype):
    outputs, targets = drawn(samples, dtype)
    expected = [
        float(functional.cross_entropy(o, y)) for o, y in zip(outputs, targets, strict=True)
    ]
    assert mean_losses(sample_losses(outputs, targets)) == expected


@pytest.mark.parametrize(
    ("loss", "change"),
    [
        (functional.nll_loss, {}),
        (nn.CrossEntropyLoss(weight=torch.ones(CLASSES)), {}),
        (functional.cross_entropy, {"outputs": torch.zeros(2, 3, CLASSES, 4)}),
        (functional.cross_entropy, {"targets": torch.zeros(3, CLASSES)}),
        (functional.cross_entropy, {"ignored": True}),
    ],
    ids=["another loss", "weights", "images", "probabilities", "ignored targets"],
)
def test_other_losses_are_computed_per_device(loss, change):
    outputs, targets = drawn(3)
    objective = Objective(loss)
    if "ignored" in change:
        layout = type(objective.class_layout)
        objective.class_layout = layout.of(loss, [torch.tensor([1, -100])])
    shown = change.get("outputs", outputs), change.get("targets", targets[0])
    assert not is_mean_cross_entropy(objective, *shown)
    assert is_mean_cross_entropy(Objective(functional.cross_entropy), outputs, targets[0])
