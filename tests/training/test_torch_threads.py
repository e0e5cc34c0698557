"""Small models train on one torch thread, because several wait for one another."""

from typing import ClassVar

import pytest
import torch
from torch import nn

import aquila
from aquila.core.random import Key
from aquila.training import flat_module
from aquila.training.torch_threads import torch_threads


class CountThreads(nn.Module):
    """Records the number of torch threads of every pass."""

    seen: ClassVar[set[int]] = set()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.add(torch.get_num_threads())
        return x


@pytest.fixture
def two_torch_threads():
    CountThreads.seen.clear()
    with torch_threads(2):
        yield
    assert CountThreads.seen


def problem_with(layer: nn.Module) -> aquila.Problem:
    x, y = torch.randn(20, 6), torch.randint(0, 3, (20,))
    module = nn.Sequential(nn.Linear(6, 3), layer, CountThreads())
    return aquila.problem(module, [(x[:10], y[:10]), (x[10:], y[10:])], batch_size=4)


def train(work: str, executor: str) -> None:
    made = problem_with(nn.Dropout(0.5))
    method = aquila.create("aquila", alpha=0.1, work=work)
    options = aquila.RunOptions(executor=executor)
    aquila.simulate(method, made.theta0, made.devices, rounds=2, options=options)


@pytest.mark.parametrize("executor", ["auto", "sequential"])
@pytest.mark.parametrize("work", ["gradient", "epochs"])
def test_dropout_uses_one_torch_thread(two_torch_threads, work, executor):
    train(work, executor)
    assert CountThreads.seen == {1}
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize("layer", [nn.ReLU(), nn.Dropout(0.5)], ids=str)
def test_oracles_without_a_simulation_use_one_torch_thread(two_torch_threads, layer):
    made = problem_with(layer)
    oracle = made.devices[0].oracle(Key((0, 0, 0)))
    oracle.gradient(made.theta0)
    oracle.train(made.theta0, 0.1)
    assert CountThreads.seen == {1}


def test_large_models_with_dropout_use_all_torch_threads(two_torch_threads, monkeypatch):
    monkeypatch.setattr(flat_module, "MIN_THREADED_PARAMETERS", 1)
    train("epochs", "auto")
    assert CountThreads.seen == {2}


def test_threads_are_restored_after_a_failure(two_torch_threads):
    CountThreads.seen.add(2)
    with pytest.raises(ValueError, match="failed"), torch_threads(1):
        raise ValueError("failed")
    assert torch.get_num_threads() == 2
