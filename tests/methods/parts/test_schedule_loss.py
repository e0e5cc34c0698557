"""The loss that devices report after local epochs, against widths computed by hand."""

import pytest
import torch

import aquila
from aquila.core.packet import Dense, Packet
from aquila.core.random import Key

ALPHA, FLOOR = 0.5, 4.0
START = (4.0, -4.0)


class TwoSteps:
    """The loss ½‖θ‖² + 4, and two local steps that each halve the model at α = 0.5."""

    samples = 1

    def __init__(self):
        self.forward_passes = []

    def at(self, theta):
        return float(theta @ theta) / 2 + FLOOR

    def loss(self, theta, all_samples):
        self.forward_passes.append(all_samples)
        return self.at(theta)

    def gradient(self, theta):
        return self.at(theta), theta.clone()

    def train(self, theta, alpha):
        middle = theta - alpha * theta
        last = middle - alpha * middle
        return (self.at(theta) + self.at(middle)) / 2, (theta - last) / alpha


def widths(spec, **parameters):
    """Return the widths of three rounds, the records' losses and the forward passes."""
    device = TwoSteps()
    method = aquila.create(spec, alpha=ALPHA, **parameters)
    theta = torch.tensor(START, dtype=torch.float64)
    records = aquila.simulate(method, theta, [device], rounds=3).records
    return [r.levels[0] for r in records], [r.loss for r in records], device.forward_passes


@pytest.mark.parametrize(("spec", "more"), [("adaquantfl", {}), ("ladaq", {"xi": 0.0})])
@pytest.mark.parametrize(
    ("loss", "width", "passes"),
    [("start", 12, [False] * 3), ("mean", 10, [])],
    ids=["start", "mean"],
)
def test_width_follows_the_reported_loss(spec, more, loss, width, passes):
    """The model starts at ±4 and is at ±1 in round 1.

    At the start of these rounds the loss is 16 + 4 = 20 and 1 + 4 = 5: 6 √(20/5) = 12 bits.
    The means are (20 + 8) / 2 = 14 and (5 + 4.25) / 2 = 4.625: 6 √(14/4.625) = 10.4 bits.
    """
    found, losses, made = widths(spec, work="epochs", loss=loss, **more)
    assert found == [6, 6, width]
    assert losses[:2] == [14, 4.625]  # the records have the loss of training
    assert made == passes


def test_levels_follow_the_loss_at_the_start():
    """2 √(20/5) = 4 levels take four bits with the sign and a zero; 2 levels take three."""
    assert widths("adaquantfl_levels", work="epochs")[0] == [3, 3, 4]


@pytest.mark.parametrize("spec", ["adaquantfl", "adaquantfl_levels", "ladaq"])
def test_default_is_the_loss_at_the_start(spec):
    device, theta = TwoSteps(), torch.tensor(START)
    method = aquila.create(spec, alpha=ALPHA, work="epochs")
    order = Packet(0, Dense(theta), {"size": 6.0, "drift": 0.0})
    turn = method.device.step(method.device.init(theta), order, device, Key((0,)))
    assert turn.reply.scalars == {"loss": 20}


@pytest.mark.parametrize("spec", ["adaquantfl", "ladaq"])
def test_a_gradient_needs_no_other_pass(spec):
    assert widths(spec, work="gradient", **({"xi": 0.0} if spec == "ladaq" else {}))[2] == []
