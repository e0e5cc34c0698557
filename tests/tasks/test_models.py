import subprocess
import sys
from collections.abc import Callable

import pytest
import torch
from torch import nn

from aquila.tasks.models import MODELS, build_model
from aquila.training.flat_module import FlatModule

COUNTS = [
    ("resnet18", 1.0, 11_172_170),
    ("resnet18", 0.5, 2_796_714),
    ("mobilenetv2", 1.0, 2_370_148),
    ("mobilenetv2", 0.5, 653_700),
    ("transformer", 1.0, 19_263_999),
    ("transformer", 0.5, 9_107_967),
    ("transformer_small", 1.0, 331_472),
    ("cnn", 1.0, 96_658),
    ("mlp", 1.0, 64 * 128 + 128 + 128 * 10 + 10),
]

SMALL: dict[str, dict[str, object]] = {
    "resnet18": {},
    "mobilenetv2": {},
    "transformer": {"vocabulary": 50, "length": 6},
    "transformer_small": {"vocabulary": 50, "length": 6},
    "cnn": {"channels": 3, "size": 8, "norm": "static"},
    "mlp": {"inputs": 192},
}
OUTPUTS = {
    "resnet18": (4, 10),
    "mobilenetv2": (4, 100),
    "transformer": (4, 6, 50),
    "transformer_small": (4, 6, 50),
    "cnn": (4, 10),
    "mlp": (4, 10),
}


def inputs_of(name: str) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    if name.startswith("transformer"):
        return torch.randint(0, 50, (4, 6), generator=generator)
    return torch.randn(4, 3, 8, 8, generator=generator)


def small_model(name: str, width: float = 1.0) -> nn.Module:
    torch.manual_seed(0)
    return build_model(name, width, **SMALL[name])


@pytest.mark.parametrize(("name", "width", "count"), COUNTS)
def test_number_of_parameters(name: str, width: float, count: int) -> None:
    with torch.device("meta"):
        module = build_model(name, width)
    assert sum(p.numel() for p in module.parameters()) == count


def test_all_models_are_covered() -> None:
    assert set(SMALL) == set(OUTPUTS) == set(MODELS)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("width", [1.0, 0.5])
def test_shapes_and_gradients(name: str, width: float) -> None:
    module = small_model(name, width)
    out = module(inputs_of(name))
    assert out.shape == OUTPUTS[name]
    (out * torch.randn(out.shape)).sum().backward()
    for path, parameter in module.named_parameters():
        assert parameter.grad is not None, path
        assert parameter.grad.isfinite().all(), path
        # a bias before batch norm, or of an attention key, has no gradient; a weight always has
        assert path.endswith("bias") or parameter.grad.abs().max() > 0, path


@pytest.mark.parametrize("name", MODELS)
def test_seed_determines_initial_values_and_training_draws(name: str) -> None:
    outputs = []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        module = build_model(name, 0.25, **SMALL[name])
        outputs.append(module(inputs_of(name)))
    assert torch.equal(outputs[0], outputs[1])
    assert not torch.equal(outputs[0], outputs[2])


@pytest.mark.parametrize("name", MODELS)
def test_models_have_no_running_statistics_by_default(name: str) -> None:
    module = small_model(name, 0.25)
    assert not list(module.buffers())
    FlatModule(module, nn.functional.cross_entropy)


@pytest.mark.parametrize("name", ["resnet18", "mobilenetv2", "cnn"])
def test_running_statistics_can_be_enabled(name: str) -> None:
    module = build_model(name, 0.1, norm="running")
    norms = [part for part in module.modules() if isinstance(part, nn.BatchNorm2d)]
    assert norms
    assert all(norm.track_running_stats for norm in norms)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: build_model("resnet"), ["'resnet18'?", "mobilenetv2", "transformer_small", "mlp"]),
        (lambda: build_model("cnn", clases=3), ["cnn", "'classes'?", "filters", "norm"]),
        (lambda: build_model("mlp", width=0), ["width", "> 0 and <= 1"]),
        (lambda: build_model("mlp", 1.5), ["width", "> 0 and <= 1"]),
        (lambda: build_model("resnet18", norm="none"), ["norm", "static, running"]),
    ],
)
def test_invalid_name_or_option_lists_valid_ones(
    call: Callable[[], nn.Module], words: list[str]
) -> None:
    with pytest.raises(ValueError, match=r"width|norm|no model|no parameter") as error:
        call()
    assert all(word in str(error.value) for word in words)


def test_models_are_found_after_import_aquila_alone() -> None:
    code = "import aquila; print(len(aquila.tasks.build_model('mlp')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.stdout.strip() == "5"
