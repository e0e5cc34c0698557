"""Rates of radio channels: Rayleigh fading, and NOMA with successive interference cancellation."""

import math
from collections.abc import Mapping, Sequence
from functools import cache

from aquila.core.fleet import DeviceId

EULER_GAMMA = 0.5772156649015329
SMALL_ARGUMENT = 1.0
TERMS = 200


def faded_rate(mean_rate: float, snr: float, gain: float) -> float:
    """Return the rate of a channel with a power gain, so that its mean over fading is `mean_rate`.

    The rate is proportional to log2(1 + snr gain). Under Rayleigh fading, the gain is exponential
    with mean 1.
    """
    return mean_rate * math.log1p(snr * gain) / mean_log(snr)


@cache
def mean_log(snr: float) -> float:
    """Return the mean of log(1 + snr X), where X is exponential with mean 1.

    It is exp(1/snr) E1(1/snr), with the exponential integral E1.
    """
    argument = 1 / snr
    if argument < SMALL_ARGUMENT:
        return math.exp(argument) * _exponential_integral(argument)
    fraction = 0.0
    for number in range(TERMS, 0, -1):  # the continued fraction converges for large arguments
        fraction = number / (1 + number / (argument + fraction))
    return 1 / (argument + fraction)


def _exponential_integral(argument: float) -> float:
    total, term = -EULER_GAMMA - math.log(argument), 1.0
    for number in range(1, 40):
        term *= -argument / number
        total -= term / number
    return total


def noma_rates(
    devices: Sequence[DeviceId],
    bandwidth: Mapping[DeviceId, float],
    received: Mapping[DeviceId, float],
) -> dict[DeviceId, float]:
    """Return the uplink rates of devices that share one band, in bit/s.

    The server decodes the strongest signal first and subtracts it. A device is therefore disturbed
    by the weaker ones only.

    Args:
        devices: The devices that transmit at the same time.
        bandwidth: The share of the band of each device, in Hz. All of them use the whole band.
        received: The received power of each device, in units of the noise in its share.
    """
    band = sum(bandwidth[device] for device in devices)
    power = {d: received[d] * bandwidth[d] / band for d in devices}
    rates, interference = {}, 0.0
    for device in sorted(devices, key=lambda d: (power[d], d)):  # the weakest is decoded last
        rates[device] = band * math.log1p(power[device] / (interference + 1)) / math.log(2)
        interference += power[device]
    return rates
