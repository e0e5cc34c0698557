from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from aquila.tasks.models import build_model
from aquila.tasks.transformer import PAPER_SIZES, HeadProjection, OutputProjection
from aquila.tasks.widths import Scaler, narrow, submodel_coordinates


def reference_coordinates(full: nn.Module, part: nn.Module) -> list[int]:
    """Look up every index of every narrower parameter in the full parameter."""
    coordinates, start = [], 0
    for whole, prefix in zip(full.parameters(), part.parameters(), strict=True):
        for index in np.ndindex(*prefix.shape):
            coordinates.append(start + int(np.ravel_multi_index(index, tuple(whole.shape))))
        start += whole.numel()
    return coordinates


@pytest.mark.parametrize(
    ("count", "width", "kept"),
    [(64, 1.0, 64), (64, 0.5, 32), (5, 0.5, 3), (100, 0.07, 7), (3, 0.01, 1), (512, 0.0625, 32)],
)
def test_narrow_rounds_up(count: int, width: float, kept: int) -> None:
    assert narrow(count, width) == kept


def test_scaler_divides_in_training_only() -> None:
    x = torch.tensor([1.0, -3.0])
    assert torch.equal(Scaler(0.25).train()(x), torch.tensor([4.0, -12.0]))
    assert torch.equal(Scaler(0.25).eval()(x), x)
    assert torch.equal(Scaler(1.0).train()(x), x)


@pytest.mark.parametrize("width", [0.3, 0.5, 1.0])
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("cnn", {"filters": 3, "hidden": 7, "size": 8, "norm": "static"}),
        ("transformer_small", {"vocabulary": 11, "length": 5}),
    ],
)
def test_submodel_coordinates_equal_reference(
    name: str, options: dict[str, object], width: float
) -> None:
    full, part = build_model(name, **options), build_model(name, width, **options)
    coordinates = submodel_coordinates(full, part)
    assert coordinates.dtype == torch.int64
    assert coordinates.tolist() == reference_coordinates(full, part)
    assert coordinates.tolist() == sorted(set(coordinates.tolist()))


def test_submodel_values_are_prefixes_of_parameters() -> None:
    full, part = build_model("cnn"), build_model("cnn", 0.5)
    values = parameters_to_vector(full.parameters())[submodel_coordinates(full, part)]
    vector_to_parameters(values, part.parameters())
    for whole, prefix in zip(full.parameters(), part.parameters(), strict=True):
        assert torch.equal(prefix, whole[tuple(slice(size) for size in prefix.shape)])


@pytest.mark.parametrize("width", [0.5, 0.25, 0.0625])
def test_attention_is_cut_per_head_as_in_heterofl(width: float) -> None:
    size, heads = PAPER_SIZES.embedding, PAPER_SIZES.heads
    columns = torch.arange(int(size * width))
    # a square matrix has its rows grouped by head, and each head keeps its first rows
    rows = torch.arange(size).view(heads, -1)[:, : int(size / heads * width)].reshape(-1)
    with torch.device("meta"):
        into = HeadProjection(PAPER_SIZES), HeadProjection(PAPER_SIZES.narrow(width))
        back = OutputProjection(PAPER_SIZES), OutputProjection(PAPER_SIZES.narrow(width))
    expected = (rows[:, None] * size + columns).reshape(-1)
    coordinates = submodel_coordinates(*into)
    assert torch.equal(coordinates, torch.cat([expected, size**2 + rows]))
    expected = (columns[:, None] * size + rows).reshape(-1)
    coordinates = submodel_coordinates(*back)
    assert torch.equal(coordinates, torch.cat([expected, size**2 + columns]))


@pytest.mark.parametrize("name", ["resnet18", "mobilenetv2", "transformer"])
def test_models_on_meta_device_work(name: str) -> None:
    with torch.device("meta"):
        full, part = build_model(name), build_model(name, 0.5)
    coordinates = submodel_coordinates(full, part)
    assert len(coordinates) == sum(p.numel() for p in part.parameters())
    assert coordinates[0] == 0
    last = sum(p.numel() for p in full.parameters()) - 1  # no class is cut
    assert coordinates[-1] == last
    assert bool((coordinates.diff() > 0).all())


def test_frozen_parameters_are_ignored() -> None:
    full, part = build_model("mlp", hidden=32), build_model("mlp", 0.5, hidden=32)
    for module in (full, part):
        next(module.parameters()).requires_grad_(False)
    row = list(range(16))  # the second weight has ten rows of 32, after 32 biases
    weights = [32 + 32 * unit + column for unit in range(10) for column in row]
    assert submodel_coordinates(full, part).tolist() == row + weights + list(range(352, 362))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("mlp", {"inputs": 27, "hidden": 9}),
        ("cnn", {"channels": 3, "size": 8, "filters": 5}),
        ("cnn", {"channels": 3, "size": 8, "norm": "static"}),
        ("mobilenetv2", {"classes": 7}),
        ("resnet18", {"classes": 7}),
    ],
)
@torch.no_grad()
def test_narrow_model_equals_full_model_with_other_weights_zero(
    name: str, options: dict[str, object]
) -> None:
    torch.manual_seed(0)
    full = build_model(name, **options).double().eval()
    part = build_model(name, 0.3, **options).double().eval()
    coordinates = submodel_coordinates(full, part)
    values = parameters_to_vector(full.parameters())
    kept = torch.zeros_like(values)
    kept[coordinates] = values[coordinates]
    vector_to_parameters(kept, full.parameters())
    vector_to_parameters(values[coordinates], part.parameters())
    x = torch.randn(4, 3, 3, 3) if name == "mlp" else torch.randn(4, 3, 8, 8)
    torch.testing.assert_close(part(x.double()), full(x.double()))
    assert part(x.double()).abs().max() > 0


@pytest.mark.parametrize(
    ("full", "part", "words"),
    [
        (lambda: nn.Linear(2, 2), lambda: nn.Linear(2, 2, bias=False), "2 parameters, .* has 1"),
        (lambda: nn.Linear(2, 2), lambda: nn.Linear(3, 2), r"weight of shape \(2, 3\) .* \(2, 2\)"),
        (lambda: nn.Linear(2, 2), lambda: nn.Conv2d(2, 2, 1), r"weight of shape \(2, 2, 1, 1\)"),
        (lambda: nn.Linear(2, 2), lambda: nn.Sequential(nn.Linear(2, 2)), "weight .* 0.weight"),
    ],
)
def test_models_with_different_structure_are_refused(
    full: Callable[[], nn.Module], part: Callable[[], nn.Module], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        submodel_coordinates(full(), part())
