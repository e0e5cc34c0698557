"""The bits of `bandwidth_adaptive`, `noma_adaptive` and `aqed`, against numbers by hand."""

import math

import pytest
import torch

import aquila
from aquila.core.fading import noma_rates
from aquila.core.packet import Codes, Dense, Packet
from aquila.core.quantize import midrise, stochastic_round
from aquila.core.random import Key
from aquila.sim.oracle import FunctionOracle
from helpers.links import link_state, linked_fleet


def bits_of(name, fleet, **parameters):
    server = aquila.create(name, **parameters).server
    _, orders = server.orders(server.init(torch.zeros(fleet.dimension), fleet), fleet, 0, Key((0,)))
    return [orders[device]["bits"] for device in sorted(orders)]


@pytest.mark.parametrize(
    ("rates", "expected"),
    [
        ((1e6, 5e5, 3e5, 1e4), [8, 4, 2, 2]),  # 8 * 0.3 = 2.4; 8 * 0.01 = 0.08 is below b_min
        ((5e3, 5e3), [8, 8]),  # only the ratio counts
        ((0.0, 2e3), [2, 8]),
        ((0.0, 0.0), [2, 2]),
    ],
)
def test_bits_are_in_proportion_to_the_rate(rates, expected):
    fleet = linked_fleet([link_state(rate) for rate in rates])
    assert bits_of("bandwidth_adaptive", fleet) == expected


def test_duty_cycle_reduces_the_rate():
    fleet = linked_fleet([link_state(1e6), link_state(1e6, duty_cycle=0.5)])
    assert bits_of("bandwidth_adaptive", fleet, b_max=16) == [16, 8]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # 100 coordinates in 0.01 s: 3.7, 0.5, 17, 100 bits; the last holds 50: 6 bits
        ("noma_adaptive", [3, 2, 17, 32, 6]),
        ("aqed", [2, 2, 16, 16, 4]),
    ],
)
def test_uploads_end_within_the_time(name, expected):
    states = [link_state(rate) for rate in (3.7e4, 5e3, 1.7e5, 1e6, 3e4)]
    fleet = linked_fleet(states, dimension=100, narrow=1)
    assert bits_of(name, fleet, upload_time=0.01) == expected


@pytest.mark.parametrize(
    ("name", "expected"), [("noma_adaptive", [16, 8, 4, 2]), ("aqed", [16, 8, 4, 2])]
)
def test_median_device_gets_eight_bits_by_default(name, expected):
    rates = (2e6, 1e6, 5e5, 0.0)
    assert bits_of(name, linked_fleet([link_state(rate) for rate in rates])) == expected


@pytest.mark.parametrize("name", ["noma_adaptive", "aqed"])
def test_fleet_without_coverage_gets_the_fewest_bits(name):
    assert bits_of(name, linked_fleet([link_state(0.0)] * 2)) == [2, 2]


def test_noma_rates_are_those_of_the_devices_of_the_round():
    """Two of four devices take part, so only these two share the band."""
    links = [
        aquila.DeviceLink(uplink_rate=1e4 * (m + 1), downlink_rate=1e6, snr_db=10) for m in range(4)
    ]
    options = aquila.RunOptions(
        link=aquila.LinkModel.constant(links), access="noma", participation=0.5
    )
    devices = [lambda theta: (1.0, theta + 1)] * 4
    method = aquila.create("noma_adaptive", upload_time=0.1)
    run = aquila.Simulation(method, torch.zeros(200), devices, options=options)
    for _ in range(4):
        orders = run.server.open_round()
        assert len(orders) == 2
        band = {m: 1e4 * (m + 1) * math.log(2) / math.log1p(10) for m in orders}
        rates = noma_rates(list(orders), band, dict.fromkeys(orders, 10.0))
        for device, order in orders.items():
            expected = min(max(math.floor(rates[device] * 0.1 / 200), 2), 32)
            reply = run.devices[device].answer(order)
            assert reply.vector.bits == expected
        run.advance()


@pytest.mark.parametrize("name", ["bandwidth_adaptive", "channel_adaptive"])
def test_device_quantizes_with_the_bits_of_the_order(name):
    method, gradient = aquila.create(name), torch.tensor([1.0, -0.4, 0.1])
    oracle, state = FunctionOracle(lambda theta: (1.0, gradient)), method.device.init(gradient)

    def upload(bits):
        order = Packet(0, Dense(torch.zeros(3)), {"bits": float(bits)})
        return method.device.step(state, order, oracle, Key((0,))).reply.vector

    assert isinstance(upload(3), Codes)
    rounded = stochastic_round(gradient, 3, Key((0,)))  # three bits: three levels and a sign
    expected = rounded if name == "bandwidth_adaptive" else midrise(gradient, 3)
    assert torch.equal(upload(3).decode(), expected.decode())
    assert torch.equal(upload(32).decode(), gradient)
    assert isinstance(upload(32), Dense)


@pytest.mark.parametrize(
    "name", ["bandwidth_adaptive", "channel_adaptive", "noma_adaptive", "aqed", "adagq"]
)
def test_run_without_a_link_model_is_refused(name):
    message = f"{name} needs a link model: set link, for example link=lte"
    with pytest.raises(ValueError, match=message):
        aquila.simulate(aquila.create(name), torch.zeros(3), [lambda theta: (1.0, theta)])


def test_other_methods_get_no_links():
    run = aquila.Simulation(
        aquila.create("qsgd"), torch.zeros(3), [lambda theta: (1.0, theta + 1)],
        options=aquila.RunOptions(link="lte"),
    )  # fmt: skip
    run.advance()
    assert run.server.fleet.links is None
    fleet = linked_fleet([link_state(1e6)])
    assert fleet.with_participation(0.5).links is fleet.links


def test_largest_bits_below_the_smallest_are_refused():
    with pytest.raises(ValueError, match="b_max must be at least b_min, 4, not 3"):
        aquila.create("bandwidth_adaptive", b_min=4, b_max=3)
