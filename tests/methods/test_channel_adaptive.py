"""The bits of `channel_adaptive` against numbers by hand and against all allocations."""

import itertools
import math

import pytest
import torch

import aquila
from aquila.core.packet import Dense, Packet, WireError
from aquila.core.random import Key
from aquila.methods.channel_adaptive import ChannelState
from aquila.sim.oracle import FunctionOracle
from helpers.links import link_state, linked_fleet


def server_of(**parameters):
    return aquila.create("channel_adaptive", **parameters).server


def objective(bits, crests, snrs, weights):
    """Weighted sum of the logarithms of the signal-to-noise ratios."""
    return -sum(
        w * math.log(c**2 / 3 / (2**b - 1) ** 2 + 1 / snr)
        for b, c, snr, w in zip(bits, crests, snrs, weights, strict=True)
    )


def test_bad_channel_gets_fewer_bits_by_hand():
    """crest² = 3, so the noise is 1 / (2^b - 1)² + 1 / SNR with SNRs of 1 and 10^4.

    Ratio of the noise before and after one more bit, at SNR 1: 1 to 2 bits 2 / (10/9) = 1.8. At SNR
    10^4: 1 to 2 bits 8.99, 2 to 3 bits 5.43, 3 to 4 bits 4.51. So three bits go to device 1.
    """
    fleet = linked_fleet([link_state(1e6, snr_db=0), link_state(1e6, snr_db=40)])
    server = server_of(budget=2.5, b_min=1)
    assert server.bits(ChannelState((math.sqrt(3),) * 2), fleet) == {0: 1, 1: 4}


@pytest.mark.parametrize("budget", [2, 3, 4.5])
def test_greedy_choice_is_the_best_allocation(budget):
    """The gain of a bit falls with every bit, so greedy is optimal for devices of one size."""
    crests, dbs, weights = (2.0, 4.0, 3.0), (-5, 8, 25), (1.0, 2.0, 1.0)
    fleet = linked_fleet([link_state(1e6, snr_db=db) for db in dbs]).with_weights(weights)
    fleet = fleet.with_links({m: link_state(1e6, snr_db=db) for m, db in enumerate(dbs)})
    bits = server_of(budget=budget, b_min=2, b_max=8).bits(ChannelState(crests), fleet)
    snrs = [10 ** (db / 10) for db in dbs]
    total = math.floor(budget * 3)
    assert sum(bits.values()) == total
    best = max(
        (c for c in itertools.product(range(2, 9), repeat=3) if sum(c) == total),
        key=lambda c: objective(c, crests, snrs, weights),
    )
    assert tuple(bits.values()) == best


def test_budget_counts_the_coordinates_of_each_device():
    """Ten devices with 100 and ten with 50 coordinates: 4 bits each are 6000 bits."""
    fleet = linked_fleet([link_state(1e6)] * 20, dimension=100, narrow=10)
    bits = server_of(budget=4, b_max=6).bits(ChannelState((3.0,) * 20), fleet)
    spent = sum(b * fleet.dimension_of(m) for m, b in bits.items())
    assert 6000 - 50 < spent <= 6000
    assert min(bits[m] for m in range(10, 20)) >= max(bits[m] for m in range(10))


def test_limits_of_the_bits():
    fleet = linked_fleet([link_state(1e6, snr_db=90), link_state(1e6, snr_db=-50)])
    bits = server_of(budget=6, b_max=7).bits(ChannelState((3.0, 3.0)), fleet)
    assert bits == {0: 7, 1: 5}


def test_devices_report_the_crest_factor_of_their_upload():
    method = aquila.create("channel_adaptive")
    gradient = torch.tensor([2.0, 0.0, 0.0, 0.0])
    oracle = FunctionOracle(lambda theta: (1.0, gradient))
    order = Packet(0, Dense(torch.zeros(4)), {"bits": 31.0})
    reply = method.device.step(method.device.init(gradient), order, oracle, Key((0,))).reply
    assert reply.scalar("crest") == pytest.approx(2)  # 2 / sqrt(4 / 4)
    fleet = aquila.Fleet.uniform(4, 2)
    state, step = method.server.update(method.server.init(gradient, fleet), fleet, {1: reply})
    assert state.crests == pytest.approx((3.0, 2.0))
    torch.testing.assert_close(step.float(), 0.1 * gradient)


@pytest.mark.parametrize("crest", [0.0, -1.0, math.inf, math.nan])
def test_invalid_crest_factor_is_refused(crest):
    upload = Dense(torch.ones(2))
    with pytest.raises(WireError, match="crest"):
        server_of().check(Packet(0, upload, {"crest": crest}))
    with pytest.raises(WireError, match="lacks the scalar 'crest'"):
        server_of().check(Packet(0, upload))
    server_of().check(Packet(0))


def test_budget_outside_the_bits_is_refused():
    with pytest.raises(ValueError, match="budget must be from b_min to b_max, 2 to 16, not 1"):
        aquila.create("channel_adaptive", budget=1)
