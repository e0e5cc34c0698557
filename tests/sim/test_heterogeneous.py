"""Fleets of several widths against a slow reference with one dictionary entry per coordinate."""

import math

import pytest
import torch
from torch import nn

import aquila
from aquila.core.random import Key
from aquila.tasks import build_model
from aquila.tasks.widths import submodel_coordinates

ALPHA, BETA = 0.2, 0.3


def quantize(v: list[float], b_min: int) -> tuple[list[float], int]:
    """The paper's level and quantizer, one number at a time."""
    R, norm = max(map(abs, v)), math.sqrt(sum(x * x for x in v))
    if R == 0:
        return [0.0] * len(v), 0
    b = max(math.floor(math.log2(R * math.sqrt(len(v)) / norm + 1)), 1, b_min)
    step = 2 * R / (2**b - 1)
    return [step * math.floor((x + R) / step + 0.5) - R for x in v], b


class Reference:
    """AQUILA on slices: every sum is a loop over devices and coordinates."""

    def __init__(self, theta: torch.Tensor, held: list[list[int]], gradients) -> None:
        self.theta = dict(enumerate(theta.tolist()))
        self.held, self.gradients = held, gradients
        self.q = [dict.fromkeys(coordinates, 0.0) for coordinates in held]
        self.q_bar = dict.fromkeys(self.theta, 0.0)

    def round(self, k: int) -> dict[int, int]:
        added = dict.fromkeys(self.theta, 0.0)
        levels = {}
        for m, coordinates in enumerate(self.held):
            theta = torch.tensor([self.theta[i] for i in coordinates], dtype=torch.float64)
            gradient = self.gradients[m](theta)[1].tolist()
            v = [g - self.q[m][i] for g, i in zip(gradient, coordinates, strict=True)]
            dq, level = quantize(v, b_min=2)
            size = sum(x * x for x in dq) + sum((x - y) ** 2 for x, y in zip(v, dq, strict=True))
            last_step = sum((ALPHA * self.q_bar[i]) ** 2 for i in coordinates)
            if k > 0 and size <= BETA / ALPHA**2 * last_step:
                continue
            levels[m] = level
            for i, x in zip(coordinates, dq, strict=True):
                self.q[m][i] += x
                added[i] += x
        for i in self.theta:
            holders = sum(i in coordinates for coordinates in self.held)
            if holders:
                self.q_bar[i] += added[i] / holders
            self.theta[i] -= ALPHA * self.q_bar[i]
        return levels


def problem(groups: list[int]):
    torch.manual_seed(0)
    full = build_model("mlp", inputs=5, hidden=6, classes=3).double()
    part = build_model("mlp", width=0.5, inputs=5, hidden=6, classes=3).double()
    generator = torch.Generator().manual_seed(1)
    shards = [
        (
            torch.randn(12, 5, generator=generator, dtype=torch.float64),
            torch.randint(0, 3, (12,), generator=generator),
        )
        for _ in groups
    ]
    made = aquila.problem(
        full, shards, options=aquila.ProblemOptions(narrower=[part], groups=groups)
    )
    held = [list(range(len(made.theta0))), submodel_coordinates(full, part).tolist()]
    return made, [held[group] for group in groups]


@pytest.mark.parametrize("groups", [[0, 0, 1, 1], [0, 1, 1, 1, 1], [1, 1, 1]])
def test_aquila_follows_the_reference(groups):
    """In the last fleet no device holds half of the model."""
    made, held = problem(groups)
    functions = [shard.oracle(Key((0,))).gradient for shard in made.devices]
    reference = Reference(made.theta0, held, functions)
    method = aquila.create("aquila", alpha=ALPHA, beta=BETA, b_min=2)
    run = aquila.Simulation(
        method, made.theta0, made.devices, options=aquila.RunOptions(fleet=made.fleet)
    )
    silent = 0
    for k in range(25):
        record = run.advance()
        assert record.levels == reference.round(k)
        silent += record.skips
        expected = torch.tensor(list(reference.theta.values()), dtype=torch.float64)
        torch.testing.assert_close(run.theta, expected, rtol=1e-9, atol=1e-12)
        assert record.paper_bits == sum(len(held[m]) * b for m, b in record.levels.items())
    assert silent > 0


def test_coordinates_that_no_device_holds_do_not_change():
    made, held = problem([1, 1, 1])
    method = aquila.create("aquila", alpha=ALPHA, b_min=2)
    run = aquila.simulate(
        method, made.theta0, made.devices, rounds=5, options=aquila.RunOptions(fleet=made.fleet)
    )
    nobodys = sorted(set(range(len(made.theta0))) - set(held[0]))
    assert nobodys
    assert torch.equal(run.theta[nobodys], made.theta0[nobodys])
    assert not torch.equal(run.theta[held[0]], made.theta0[held[0]])


def test_coordinates_that_no_selected_device_holds_do_not_change():
    """FedAvg selects some devices; if all are narrow, the other coordinates must not change."""
    made, held = problem([0, 1, 1, 1])
    method = aquila.create("fedavg", alpha=ALPHA, fraction=0.25)
    run = aquila.Simulation(
        method, made.theta0, made.devices, options=aquila.RunOptions(fleet=made.fleet)
    )
    wide_only = sorted(set(held[0]) - set(held[1]))
    seen = set()
    for _ in range(12):
        before = run.theta
        record = run.advance()
        moved = not torch.equal(run.theta[wide_only], before[wide_only])
        assert moved == (0 in record.uplink)
        seen.add(moved)
    assert seen == {True, False}


def test_module_that_is_not_a_part_of_the_first_is_an_error():
    x, y = torch.randn(4, 5), torch.zeros(4).long()
    with pytest.raises(ValueError, match="is not a prefix of"):
        aquila.problem(
            nn.Linear(5, 3),
            [(x, y)],
            options=aquila.ProblemOptions(narrower=[nn.Linear(6, 3)], groups=[1]),
        )
    with pytest.raises(
        ValueError, match="each entry of groups must be a module number from 0 to 0"
    ):
        aquila.problem(nn.Linear(5, 3), [(x, y)], options=aquila.ProblemOptions(groups=[1]))
    with pytest.raises(ValueError, match="groups has 2 entries, but there are 1"):
        aquila.problem(nn.Linear(5, 3), [(x, y)], options=aquila.ProblemOptions(groups=[0, 0]))


def test_resumed_run_must_have_the_same_slices():
    def simulation(held):
        fleet = aquila.Fleet(4, [0, 1], [None, torch.tensor(held)])
        devices = [lambda theta: (0.0, theta)] * 2
        return aquila.Simulation(
            aquila.create("fedsgd"), torch.ones(4), devices, options=aquila.RunOptions(fleet=fleet)
        )

    assert simulation([0, 1]).fingerprint == simulation([0, 1]).fingerprint
    assert simulation([0, 1]).fingerprint != simulation([0, 2]).fingerprint
