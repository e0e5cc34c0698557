"""Static batch norm: statistics that are computed before a test."""

import copy

import pytest
import torch
from torch import nn

from aquila.tasks.models import build_model, with_batch_norm_statistics


def normalized(
    x: torch.Tensor, norm: nn.BatchNorm2d, mean: torch.Tensor, variance: torch.Tensor
) -> torch.Tensor:
    shape = (1, -1, 1, 1)
    unit = (x - mean.view(shape)) / (variance.view(shape) + norm.eps).sqrt()
    return unit * norm.weight.view(shape) + norm.bias.view(shape)


def pooled(x: torch.Tensor) -> torch.Tensor:
    return nn.functional.max_pool2d(x.relu(), 2)


def reference_statistics(
    first: nn.Conv2d, norm: nn.BatchNorm2d, second: nn.Conv2d, batches: list[torch.Tensor]
) -> list[torch.Tensor]:
    """Return means and variances after two convolutions, averaged over batches."""
    axes = (0, 2, 3)
    rows = []
    for batch in batches:
        one = first(batch)
        biased = one.var(axes, correction=0)
        two = second(pooled(normalized(one, norm, one.mean(axes), biased)))
        rows.append([one.mean(axes), one.var(axes), two.mean(axes), two.var(axes)])
    return [torch.stack(column).mean(0) for column in zip(*rows, strict=True)]


def small_cnn() -> tuple[nn.Module, list[torch.Tensor]]:
    torch.manual_seed(0)
    module = build_model("cnn", 0.5, channels=2, size=8, norm="static").double()
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.5)
    batches = [torch.randn(size, 2, 8, 8, dtype=torch.float64) + size for size in (3, 8, 5)]
    return module, batches


@torch.no_grad()
def test_statistics_equal_reference() -> None:
    module, batches = small_cnn()
    convs = [part for part in module.modules() if isinstance(part, nn.Conv2d)]
    norms = [part for part in module.modules() if isinstance(part, nn.BatchNorm2d)]
    expected = reference_statistics(convs[0], norms[0], convs[1], batches)

    tested = with_batch_norm_statistics(module, iter(batches))

    kept = [part for part in tested.modules() if isinstance(part, nn.BatchNorm2d)]
    got = [kept[0].running_mean, kept[0].running_var, kept[1].running_mean, kept[1].running_var]
    for actual, wanted in zip(got, expected, strict=True):
        torch.testing.assert_close(actual, wanted)
    one = pooled(normalized(convs[0](batches[0]), norms[0], expected[0], expected[1]))
    two = pooled(normalized(convs[1](one), norms[1], expected[2], expected[3]))
    linears = [part for part in module.modules() if isinstance(part, nn.Linear)]
    logits = linears[1](linears[0](two.flatten(1)).relu())
    torch.testing.assert_close(tested(batches[0]), logits)


@torch.no_grad()
def test_with_statistics_output_does_not_depend_on_batch() -> None:
    module, batches = small_cnn()
    tested = with_batch_norm_statistics(module, batches)
    assert not tested.training
    torch.testing.assert_close(tested(batches[1])[:1], tested(batches[1][:1]))
    assert not torch.allclose(module.eval()(batches[1])[:1], module(batches[1][:1]))


def test_with_statistics_does_not_change_the_given_model() -> None:
    module, batches = small_cnn()
    before = copy.deepcopy(module.state_dict())
    tested = with_batch_norm_statistics(module, batches)
    with torch.no_grad():
        for parameter in tested.parameters():
            parameter.zero_()
    assert module.training
    assert list(module.state_dict()) == list(before)
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())


def test_statistics_need_a_batch_only_with_batch_norm() -> None:
    module, _ = small_cnn()
    with pytest.raises(ValueError, match="at least one batch"):
        with_batch_norm_statistics(module, [])
    assert not with_batch_norm_statistics(build_model("mlp"), []).training
