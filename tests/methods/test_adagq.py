"""AdaGQ's levels against numbers by hand."""

import math

import pytest
import torch

import aquila
from aquila.core.method import LR_FACTOR
from aquila.core.packet import Dense, Packet, WireError
from aquila.core.quantize import stochastic_round
from aquila.core.random import Key
from aquila.methods.adagq import AdagqState, level_factor, levels_by_time, round_seconds
from aquila.sim.oracle import FunctionOracle
from helpers.links import link_state, linked_fleet


def reply(levels, before=1.0, after=0.5, after_half=0.5, dimension=100):
    codes = stochastic_round(torch.ones(dimension), levels, Key((0,)))
    return Packet(0, codes, {"before": before, "after": after, "after_half": after_half})


def test_equal_links_get_equal_levels():
    fleet = linked_fleet([link_state(1e6, compute_time=1.0)] * 3)
    for levels in (2, 100, 255):
        assert levels_by_time(fleet, levels) == dict.fromkeys(range(3), levels)


def test_compute_and_upload_end_together():
    """100 coordinates take 0.1 s per bit on device 0, and 0.2 s on device 1, which computes 0.1 s.

    0.8 s: b = 8 and (0.8 - 0.1) / 0.2 = 3.5, so 255 and 2^3.5 - 1 = 10.3 levels, 132.7 on average.
    """
    fleet = linked_fleet([link_state(1e3), link_state(500, compute_time=0.1)])
    assert levels_by_time(fleet, (255 + 2**3.5 - 1) / 2) == {0: 255, 1: 10}


def test_device_without_coverage_gets_one_level():
    assert levels_by_time(linked_fleet([link_state(0.0)] * 2), 255) == {0: 1, 1: 1}
    assert levels_by_time(linked_fleet([link_state(0.0), link_state(1e3)]), 128) == {0: 1, 1: 255}


def test_time_of_a_round_by_hand():
    """The order has 400 bytes at 1 Mbit/s. 127 levels are 8 bits with the sign, 63 are 7."""
    fleet = linked_fleet([link_state(1e3, compute_time=2.0), link_state(1e4)])
    replies = {0: reply(127), 1: reply(127)}
    down = 3200 / 1e6
    assert round_seconds(fleet, replies, halved=False) == pytest.approx(down + 2 + 800 / 1e3)
    # 700 bits are 87.5 bytes, and frames have whole bytes
    assert round_seconds(fleet, replies, halved=True) == pytest.approx(down + 2 + 704 / 1e3)
    replies = {1: reply(1)}
    seconds = [round_seconds(fleet, replies, halved) for halved in (False, True)]
    assert seconds[0] == seconds[1] == pytest.approx(down + 200 / 1e4)


@pytest.mark.parametrize(("after_half", "factor"), [(0.5, 0.5), (0.57, 2.0), (0.55, 0.5)])
def test_levels_follow_the_decrease_of_the_loss_per_second(after_half, factor):
    """0.5 in 0.8032 s are 0.623 per second. Half of the levels take 0.7072 s.

    They are faster above 0.623 * 0.7072 = 0.440, that is, for a loss below 0.560.
    """
    fleet = linked_fleet([link_state(1e3)])
    assert level_factor(fleet, {0: reply(127, after_half=after_half)}) == factor


def test_levels_stay_if_the_loss_does_not_change():
    fleet = linked_fleet([link_state(1e3)])
    assert level_factor(fleet, {0: reply(127, after=1.0, after_half=1.0)}) == 1


def test_update_adds_the_change_of_the_gradients_norm():
    server = aquila.create("adagq", alpha=0.5, lambda_g=3.0).server
    fleet = linked_fleet([link_state(1e3)])
    replies = {0: reply(127)}  # the gradient is all ones: its norm is 10
    state, step = server.update(AdagqState(100.0, 2.5), fleet, replies)
    assert torch.equal(step, torch.full((100,), 0.5, dtype=torch.float64))
    assert state.norm == pytest.approx(10)
    assert state.levels == pytest.approx(50 + 3 * math.log2(10 / 2.5))
    first, _ = server.update(AdagqState(100.0), fleet, replies)
    assert first.levels == 50
    lowest, _ = server.update(AdagqState(2.0), fleet, replies)
    assert lowest.levels == 2
    same, _ = server.update(AdagqState(7.0, 1.0), fleet, {})
    assert same.levels == 7


@pytest.mark.parametrize(("factor", "after"), [({}, 0.5), ({LR_FACTOR: 0.5}, 1.125)])
def test_device_measures_the_losses_of_both_steps(factor, after):
    """The loss is the sum of squares. Gradients of one magnitude are rounded exactly.

    At α = 0.25 the model is halved. At half of that it is multiplied by 0.75: 2 · 0.75² = 1.125.
    """
    theta = torch.tensor([1.0, -1.0])
    oracle = FunctionOracle(lambda at: (float(at @ at), 2 * at))
    method = aquila.create("adagq", alpha=0.25)
    order = Packet(0, Dense(theta), {"levels": 4.0, **factor})
    answer = method.device.step(method.device.init(theta), order, oracle, Key((0,))).reply
    expected = {"before": 2.0, "after": after, "after_half": after}
    assert answer.scalars == pytest.approx(expected)
    assert answer.vector.bits == 4  # four levels, zero and a sign


def test_losses_that_are_not_finite_are_refused():
    with pytest.raises(WireError, match="must be finite"):
        aquila.create("adagq").server.check(reply(3, after=math.nan))


def test_levels_change_during_a_run():
    options = aquila.RunOptions(link="lte", fading="rayleigh")
    devices = [lambda theta, m=m: (float((theta - m).square().sum()), theta - m) for m in range(3)]
    run = aquila.Simulation(aquila.create("adagq"), torch.zeros(50), devices, options=options)
    levels = []
    for _ in range(6):
        run.advance()
        levels.append(run.server.state.levels)
    assert len(set(levels)) > 3
    assert all(2 <= level < 2**15 for level in levels)
