"""Samples of wrong types and shapes raise errors that name them, or are converted."""

from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional

import aquila
from aquila.core.random import Key

X = torch.randn(8, 5, generator=torch.Generator().manual_seed(0))
CLASSES = torch.arange(8) % 3
NUMBERS = X[:, :1].clone()


def gradient(module, y, **options):
    made = aquila.problem(module, [(X, y)], **options)
    return made.devices[0].oracle(Key((0,))).gradient(made.theta0)[1]


@pytest.mark.parametrize(
    ("inputs", "module"),
    [(X.double(), "float32"), (X.byte(), "float32"), (X.half(), "float32"), (X, "float64")],
)
def test_inputs_of_another_type_than_the_module_are_errors(inputs, module):
    found = f"shard 0 has {str(inputs.dtype)[6:]} inputs .*module of {module} does not take: .*type"
    with pytest.raises(ValueError, match=found):
        aquila.problem(nn.Linear(5, 3).to(getattr(torch, module)), [(inputs, CLASSES)])


def test_inputs_of_the_wrong_shape_are_errors():
    with pytest.raises(ValueError, match=r"shard 0 has float32 inputs of shape \(8, 4\).*shapes"):
        aquila.problem(nn.Linear(5, 3), [(X[:, :4], CLASSES)])


def test_module_may_convert_its_inputs():
    class Converts(nn.Linear):
        def forward(self, x):
            return super().forward(x.float())

    aquila.problem(Converts(5, 3), [(X.double(), CLASSES)])


def test_all_inputs_have_the_same_type():
    right, wrong = (X, CLASSES), (X.double(), CLASSES)
    with pytest.raises(ValueError, match="shard 1 has float64 inputs, but shard 0 has float32"):
        aquila.problem(nn.Linear(5, 3), [right, wrong])
    with pytest.raises(ValueError, match="test has float64 inputs, but shard 0 has float32"):
        aquila.problem(nn.Linear(5, 3), [right], test=wrong)


def test_test_samples_must_be_a_pair():
    with pytest.raises(ValueError, match="test must be a pair of tensors"):
        aquila.problem(nn.Linear(5, 3), [(X, CLASSES)], test=X)
    with pytest.raises(ValueError, match="test has 8 inputs and 7 targets"):
        aquila.problem(nn.Linear(5, 3), [(X, CLASSES)], test=(X, CLASSES[:7]))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32])
@pytest.mark.parametrize(
    "loss",
    [functional.cross_entropy, nn.CrossEntropyLoss(), partial(functional.cross_entropy)],
)
def test_classes_may_be_integers_of_any_type(dtype, loss):
    module = nn.Linear(5, 3)
    options = aquila.ProblemOptions(classes=3)
    narrow = gradient(module, CLASSES.to(dtype), loss=loss, options=options)
    assert torch.equal(narrow, gradient(module, CLASSES, options=options))


def test_float_targets_are_not_classes():
    module, right = nn.Linear(5, 3), (X, CLASSES)
    with pytest.raises(ValueError, match="shard 1 has float32 targets, which are numbers, not"):
        aquila.problem(module, [right, (X, CLASSES.float())])
    with pytest.raises(ValueError, match="test has float32 targets, which are numbers, not"):
        aquila.problem(module, [right], test=(X, CLASSES.float()))


@pytest.mark.parametrize("loss", [functional.mse_loss, nn.MSELoss()])
def test_regression_targets_may_have_any_type(loss):
    module, whole = nn.Linear(5, 1), NUMBERS.round()
    expected = gradient(module, whole, loss=loss)
    for other in (whole.double(), whole.int()):
        assert torch.equal(gradient(module, other, loss=loss), expected)


@pytest.mark.parametrize(
    ("loss", "width", "targets", "right"),
    [
        (functional.mse_loss, 1, NUMBERS[:, 0], r"\(8, 1\)"),
        (nn.MSELoss(), 1, X, r"\(8, 1\)"),
        (functional.cross_entropy, 3, CLASSES[:, None], r"\(8,\)"),
        (partial(functional.huber_loss, delta=0.5), 1, NUMBERS[:, 0], r"\(8, 1\)"),
        (type("Mine", (nn.MSELoss,), {})(), 1, NUMBERS[:, 0], r"\(8, 1\)"),
        (nn.PoissonNLLLoss(), 1, NUMBERS[:, 0], r"\(8, 1\)"),
        (nn.NLLLoss(), 3, CLASSES[:, None], r"\(8,\)"),
        (nn.CrossEntropyLoss(), 3, NUMBERS[:, 0], r"\(8, 3\), or integers of shape \(8,\)"),
    ],
)
def test_targets_of_the_wrong_shape_are_errors(loss, width, targets, right):
    found = rf"has targets of shape .* for outputs of shape \(8, {width}\) the loss takes {right}"
    with pytest.raises(ValueError, match="shard 0 " + found):
        aquila.problem(nn.Linear(5, width), [(X, targets)], loss=loss)


def test_targets_of_a_custom_loss_are_not_checked():
    def squeezed(outputs, targets):
        return functional.mse_loss(outputs[:, 0], targets)

    assert gradient(nn.Linear(5, 1), NUMBERS[:, 0], loss=squeezed).any()


def test_probabilities_need_a_loss_object():
    probabilities = functional.one_hot(CLASSES).float()
    with pytest.raises(ValueError, match=r"nn\.CrossEntropyLoss\(\) for probabilities"):
        gradient(nn.Linear(5, 3), probabilities)
    assert gradient(nn.Linear(5, 3), probabilities, loss=nn.CrossEntropyLoss()).any()


def test_every_new_input_shape_is_checked():
    module, right, wrong = nn.Linear(5, 3), (X, CLASSES), (X[:, :4], CLASSES)
    with pytest.raises(ValueError, match=r"shard 1 has float32 inputs of shape \(8, 4\), which"):
        aquila.problem(module, [right, wrong])
    with pytest.raises(ValueError, match=r"test has float32 inputs of shape \(8, 4\), which"):
        aquila.problem(module, [right], test=wrong)


class Returns(nn.Linear):
    """Applies a function to its outputs."""

    def __init__(self, change):
        super().__init__(5, 3)
        self.change = change

    def forward(self, x):
        return self.change(super().forward(x))


@pytest.mark.parametrize(
    ("module", "shard", "options", "found"),
    [
        (Returns(lambda out: {"a": out}), (X, CLASSES), {}, "or a dict with logits, not a dict"),
        (Returns(torch.sum), (X, CLASSES), {}, "an axis of samples and one of classes"),
        (nn.Embedding(1, 3), (CLASSES, CLASSES), {}, "shard 0 has int64 inputs .*out of range"),
        (nn.Linear(5, 3), (X[0], CLASSES[0]), {}, r"shard 0 has .* of shape \(\); the first axis"),
        (nn.Linear(5, 3), (X, CLASSES), {"loss": nn.MSELoss}, r"class MSELoss; .* MSELoss\(\)"),
        (nn.Linear(5, 3), (X, CLASSES), {"loss": "mse"}, "loss must be a function of .* 'mse'"),
        (
            nn.Linear(5, 4),
            (X, CLASSES + 1),
            {"options": aquila.ProblemOptions(classes=3)},
            "shard 0 has target 3; .* from 0 to 2",
        ),
        (
            nn.Linear(5, 3),
            (X, CLASSES - 1),
            {"options": aquila.ProblemOptions(classes=3)},
            "shard 0 has target -1, but the module has outputs for the classes 0 to 2",
        ),
        (nn.Linear(5, 3), (X, CLASSES + 0j), {}, "shard 0 has complex64 targets; .* real"),
    ],
)
def test_errors_name_the_problem(module, shard, options, found):
    with pytest.raises((ValueError, TypeError), match=found):
        aquila.problem(module, [shard], **options)


def test_devices_may_have_images_of_several_sizes():
    shards = [(torch.ones(2, 1, n, n), torch.ones(2, n, n).long()) for n in (3, 4)]
    made = aquila.problem(nn.Conv2d(1, 2, 1), shards)
    assert made.devices[1].oracle(Key((0,))).gradient(made.theta0)[1].any()
