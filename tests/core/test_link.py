"""Links of devices, fading and NOMA against hand-computed numbers."""

import math

import numpy as np
import pytest

from aquila.core.fading import faded_rate, mean_log, noma_rates
from aquila.core.link import DeviceLink, LinkState


def state(link, **changes):
    values = {
        "link": link, "present": True, "uplink_rate": link.uplink_rate,
        "downlink_rate": link.downlink_rate, "uplink_delay": 0.5, "downlink_delay": 0.25,
        "gain": 1.0,
    }  # fmt: skip
    return LinkState(**{**values, **changes})


def test_time_and_energy_by_hand():
    link = DeviceLink(
        1000, 4000, compute_time=3, transmit_power=2, receive_power=0.5, compute_power=10
    )
    # down 500 bytes: 1 s; up 250 bytes: 2 s; delays 0.75 s; work 3 s
    assert state(link).seconds(500, 250) == 1 + 0.25 + 3 + 0.5 + 2
    assert state(link).joules(500, 250) == 0.5 * 1 + 10 * 3 + 2 * 2


def test_duty_cycle_stretches_the_upload_but_not_its_energy():
    link = DeviceLink(1000, 1000, duty_cycle=0.1, transmit_power=2)
    assert state(link).seconds(0, 125) == pytest.approx(0.75 + 10)
    assert state(link).joules(0, 125) == 2


def test_rates_of_the_round_replace_those_of_the_link():
    link = DeviceLink(1000, 1000)
    assert state(link, uplink_rate=2000.0).seconds(125, 250) == 1 + 0.75 + 1


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("uplink_rate", -1), ("downlink_rate", math.nan), ("latency", "1"), ("jitter", math.inf),
        ("drop_out", 1.1), ("duty_cycle", 0), ("snr_db", True), ("compute_time", None),
    ],
)  # fmt: skip
def test_invalid_number_is_named(field, value):
    with pytest.raises(ValueError, match=f"^{field} of a link must be a number .*{value!r}"):
        DeviceLink(**{"uplink_rate": 1, "downlink_rate": 1, field: value})


@pytest.mark.parametrize("snr", [0.05, 0.9, 1.0, 1.1, 10.0, 1000.0])
def test_mean_of_the_faded_rate_is_the_stated_rate(snr):
    gains = np.random.default_rng(0).exponential(size=200_000)
    rates = [faded_rate(5e6, snr, gain) for gain in gains]
    assert np.mean(rates) == pytest.approx(5e6, rel=0.01)
    assert mean_log(snr) == pytest.approx(np.log1p(snr * gains).mean(), rel=0.01)


def test_faded_rate_follows_the_formula():
    assert faded_rate(1e6, 3.0, 1.0) == pytest.approx(1e6 * math.log(4) / mean_log(3.0))
    assert faded_rate(1e6, 3.0, 0.0) == 0


def test_noma_decodes_the_strongest_signal_first():
    # band of 3 Hz; powers 8, 4 and 2 over the noise of the band
    bandwidth = dict.fromkeys(range(3), 1.0)
    rates = noma_rates([0, 1, 2], bandwidth, {0: 6.0, 1: 24.0, 2: 12.0})
    expected = {0: math.log2(1 + 2), 1: math.log2(1 + 8 / (4 + 2 + 1)), 2: math.log2(1 + 4 / 3)}
    assert rates == pytest.approx({device: 3 * rate for device, rate in expected.items()})


def test_noma_uses_the_capacity_of_the_band():
    bandwidth, snr = {0: 1e6, 1: 2e6}, {0: 10.0, 1: 3.0}
    total = sum(noma_rates([0, 1], bandwidth, snr).values())
    assert total == pytest.approx(3e6 * math.log2(1 + (10e6 + 6e6) / 3e6))
    orthogonal = 1e6 * math.log2(11) + 2e6 * math.log2(4)
    assert total > orthogonal
    assert noma_rates([0], bandwidth, snr)[0] == pytest.approx(1e6 * math.log2(11))
