"""Batches are split only for means over samples, and classes are read from the right axis."""

from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional

import aquila
from aquila.core.random import Key
from aquila.tasks.transformer import token_loss

X = torch.randn(10, 5, generator=torch.Generator().manual_seed(0))
CLASSES = torch.arange(10) * 3 // 10
IGNORING = CLASSES.index_fill(0, torch.arange(4), -100)
NUMBERS = X[:, :3].square()
WEIGHT = torch.tensor([1.0, 5.0, 20.0])
UNEVEN = {
    "weight": (nn.CrossEntropyLoss(weight=WEIGHT), CLASSES),
    "weight by name": (partial(functional.cross_entropy, weight=WEIGHT), CLASSES),
    "ignored": (functional.cross_entropy, IGNORING),
    "ignored by a module": (nn.CrossEntropyLoss(), IGNORING),
    "ignored by number": (partial(functional.cross_entropy, ignore_index=0), CLASSES),
    "sum": (nn.MSELoss(reduction="sum"), NUMBERS),
    "sum by name": (partial(functional.mse_loss, reduction="sum"), NUMBERS),
    "of one's own": (lambda outputs, y: functional.mse_loss(outputs, y).sqrt(), NUMBERS),
    "own forward": (type("Root", (nn.MSELoss,), {"forward": torch.dist})(), NUMBERS),
}
EVEN = {
    "classes": (functional.cross_entropy, CLASSES),
    "smoothed": (partial(functional.cross_entropy, label_smoothing=0.1), CLASSES),
    "probabilities": (nn.CrossEntropyLoss(), NUMBERS.softmax(1)),
    "nothing ignored": (nn.CrossEntropyLoss(ignore_index=7), CLASSES),
    "numbers": (type("Mine", (nn.MSELoss,), {})(), NUMBERS),
    "counts": (nn.PoissonNLLLoss(), NUMBERS),
}


@pytest.fixture(autouse=True)
def small_passes(monkeypatch):
    """Limit a pass to four targets."""
    monkeypatch.setattr("aquila.training.flat_module.MAX_PASS_TARGETS", 4)
    monkeypatch.setattr("aquila.training.evaluator.MAX_PASS_TARGETS", 4)


def network(*layers: nn.Module) -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(5, 3), *layers)


def agrees_with_autograd(module, x, y, loss) -> int:
    """Check loss, gradient and test loss; return the number of passes of the gradient."""
    made, passes = aquila.problem(module, [(x, y)], test=(x, y), loss=loss), []
    first = made.devices[0].models.original.module
    first.register_forward_pre_hook(lambda *_: passes.append(1))
    value, gradient = made.devices[0].oracle(Key((0,))).gradient(made.theta0)
    expected = loss(module(x), y)
    by_parameter = torch.autograd.grad(expected, list(module.parameters()))
    torch.testing.assert_close(gradient, torch.cat([part.flatten() for part in by_parameter]))
    assert value == pytest.approx(expected.item(), rel=1e-5)
    taken = len(passes)
    assert made.evaluate(made.theta0)["test_loss"] == pytest.approx(expected.item(), rel=1e-5)
    return taken


@pytest.mark.parametrize(("loss", "y"), UNEVEN.values(), ids=UNEVEN)
def test_batches_of_other_losses_are_not_split(loss, y):
    assert agrees_with_autograd(network(), X, y, loss) == 1


@pytest.mark.parametrize(("loss", "y"), EVEN.values(), ids=EVEN)
def test_batches_of_means_over_samples_are_split(loss, y):
    assert agrees_with_autograd(network(), X, y, loss) > 1


def test_texts_are_split_unless_tokens_are_ignored():
    x = torch.stack([X, -X], dim=1)
    y = torch.stack([CLASSES, CLASSES.flip(0)], dim=1)
    assert agrees_with_autograd(network(), x, y, token_loss) == 5
    y[:2] = -100
    assert agrees_with_autograd(network(), x, y, token_loss) == 1


class ClassesSecond(nn.Module):
    """Predicts correctly from inputs (sample, place, class), with classes in axis 1."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3))

    def forward(self, x):
        return (self.scale * x).transpose(1, 2)


@pytest.mark.parametrize("places", [3, 4])
def test_classes_may_be_in_the_second_axis(places):
    y = torch.arange(6 * places).view(6, places) // 2 % 3
    y[:3] %= 2
    x = functional.one_hot(y, 3).float()
    shards = [(x[:3], y[:3]), (x[3:], y[3:])]
    made = aquila.problem(
        ClassesSecond(), shards, test=(x, y), options=aquila.ProblemOptions(classes=3)
    )
    unseen = made.devices[0].oracle(Key((0, 0, 0))).gradient(made.theta0)[1]
    assert unseen.ne(0).tolist() == [True, True, False]
    metrics = made.evaluate(made.theta0)
    assert metrics["test_accuracy"] == metrics["local_accuracy"] == 1
    assert metrics["last_minibatch_train_accuracy"] == 1


def test_ignored_targets_do_not_count_for_the_accuracy():
    x = functional.one_hot(CLASSES, 3).float()
    x[6:] = x[6:].roll(1, dims=1)  # four of six predictions are wrong
    module = nn.Linear(3, 3, bias=False)
    nn.init.eye_(module.weight)
    made = aquila.problem(
        module, [(x, IGNORING)], test=(x, IGNORING), options=aquila.ProblemOptions(classes=3)
    )
    made.devices[0].oracle(Key((0, 0, 0))).gradient(made.theta0)
    metrics = made.evaluate(made.theta0)
    assert made.devices[0].classes.tolist() == [False, True, True]
    assert metrics["test_accuracy"] == pytest.approx(2 / 6)
    assert metrics["last_minibatch_train_accuracy"] == pytest.approx(2 / 6)


def test_unknown_loss_with_other_shapes_has_no_accuracy():
    x, y = torch.randn(6, 4, 3), torch.zeros(6, 4).long()
    made = aquila.problem(
        ClassesSecond(), [(x, y)], test=(x, y), loss=lambda *pair: functional.cross_entropy(*pair)
    )
    assert set(made.evaluate(made.theta0)) == {"test_loss"}
