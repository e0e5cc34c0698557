"""Models that a device holds, and what a difference makes of them."""

from pathlib import Path

import pytest
import torch

from aquila.core.coarse import coarsest
from aquila.core.packet import Codes, Dense, Packet, WireError
from aquila.core.wire import pack, unpack
from aquila.runtime.held import NAMELESS, follow, named

GOLDEN = Path(__file__).parents[1] / "golden"
THETA = torch.linspace(-1, 1, 32)


def difference(answers, by=THETA, dtype=torch.float32):
    return Packet(3, coarsest(by.to(dtype), 0.5), answers=answers)


def test_a_model_is_named_by_its_bits():
    assert named(THETA).name == named(THETA.clone()).name
    assert named(THETA).name != named(THETA + 1e-6).name
    assert named(torch.zeros(4)).name != named(-torch.zeros(4)).name
    assert named(THETA).name != NAMELESS


def test_a_whole_model_is_taken_as_it_is():
    model = follow(Packet(3, Dense(THETA), answers=77), [])
    assert model.name == 77
    assert model.theta is THETA


def test_a_difference_is_added_to_the_model_that_it_names():
    other, base = named(THETA + 1), named(THETA)
    packet = unpack(pack(difference(base.name)))
    model = follow(packet, [other, base])
    assert torch.equal(model.theta, THETA + packet.vector.decode())
    assert model.name == named(model.theta).name
    assert torch.equal(base.theta, torch.linspace(-1, 1, 32))


def test_a_difference_to_nothing_that_is_held_leads_nowhere():
    assert follow(difference(12345), [named(THETA)]) is None
    assert follow(difference(NAMELESS), []) is None


def test_unsound_differences_are_refused():
    base = named(THETA)
    with pytest.raises(WireError, match=r"float64 to a model in torch\.float32"):
        follow(difference(base.name, dtype=torch.float64), [base])
    with pytest.raises(WireError, match="has no model"):
        follow(Packet(3, answers=base.name), [base])
    huge = named(torch.full((2,), 3e38))
    step = Codes(torch.ones(2, dtype=torch.uint8), 1, torch.zeros(1), torch.tensor([3e38]), 2)
    with pytest.raises(WireError, match="not finite"):
        follow(Packet(3, step, answers=huge.name), [huge])


def test_the_golden_difference_follows_the_golden_model():
    model, change = (
        unpack((GOLDEN / f"model_{name}.frame").read_bytes()) for name in ("to_hold", "difference")
    )
    held = follow(model, [])
    assert held.name == named(held.theta).name == change.answers
    assert follow(change, [held]).theta.tolist() == [1.0, -2.5, 0.5, 0.75]
