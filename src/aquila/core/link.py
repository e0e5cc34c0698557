"""The link of a device: rates, delays, powers and drop-out. Importing it does not import torch."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from numbers import Real

from aquila.core.parameter import Bounds

_BOUNDS = {
    "uplink_rate": Bounds("", 0),
    "downlink_rate": Bounds("", 0),
    "latency": Bounds("", 0),
    "jitter": Bounds("", 0),
    "compute_time": Bounds("", 0),
    "transmit_power": Bounds("", 0),
    "receive_power": Bounds("", 0),
    "compute_power": Bounds("", 0),
    "drop_out": Bounds("", 0, 1),
    "duty_cycle": Bounds("", above=0, high=1),
    "snr_db": Bounds("", -60, 100),
}


@dataclass(frozen=True)
class DeviceLink:
    """The link of one device, as means over time.

    Args:
        uplink_rate: Mean rate from the device to the server, in bit/s. 0: no coverage.
        downlink_rate: Mean rate from the server to the device, in bit/s. 0: no coverage.
        latency: Delay of a message in one direction, in seconds.
        jitter: Mean of a random delay that each message has in addition, in seconds.
        compute_time: Time of the local work per round, in seconds.
        transmit_power: Power while the device transmits, in watts.
        receive_power: Power while the device receives, in watts.
        compute_power: Power while the device computes, in watts.
        drop_out: Probability that the device takes no part in a round.
        duty_cycle: Fraction of the time in which the device may transmit.
        snr_db: Mean signal-to-noise ratio, in dB. Only fading and NOMA use it.
    """

    uplink_rate: float
    downlink_rate: float
    latency: float = 0.0
    jitter: float = 0.0
    compute_time: float = 0.0
    transmit_power: float = 0.0
    receive_power: float = 0.0
    compute_power: float = 0.0
    drop_out: float = 0.0
    duty_cycle: float = 1.0
    snr_db: float = 10.0

    def __post_init__(self) -> None:
        for name, bounds in _BOUNDS.items():
            value: object = getattr(self, name)
            valid = isinstance(value, Real) and not isinstance(value, bool)
            if not valid or not bounds.allows(float(value)):  # type: ignore[arg-type]
                raise ValueError(f"{name} of a link must be a number {bounds}, not {value!r}")
            object.__setattr__(self, name, float(value))  # type: ignore[arg-type]

    @property
    def snr(self) -> float:
        """The mean signal-to-noise ratio as a factor."""
        return float(10 ** (self.snr_db / 10))


LINK_FIELDS = tuple(field.name for field in fields(DeviceLink))
"""Names of the numbers that describe a link."""


@dataclass(frozen=True)
class LinkState:
    """The link of one device in one round, with the random parts drawn.

    Args:
        link: The means of the link.
        present: Whether the device takes part in the round.
        uplink_rate: Rate of this round from the device to the server, in bit/s.
        downlink_rate: Rate of this round from the server to the device, in bit/s.
        uplink_delay: Latency and jitter of the reply, in seconds.
        downlink_delay: Latency and jitter of the order, in seconds.
        gain: Power gain of the uplink channel, 1 without fading.
    """

    link: DeviceLink
    present: bool
    uplink_rate: float
    downlink_rate: float
    uplink_delay: float
    downlink_delay: float
    gain: float

    @property
    def snr(self) -> float:
        """The signal-to-noise ratio of the uplink in this round, as a factor."""
        return self.link.snr * self.gain

    def seconds(self, downlink_bytes: int, uplink_bytes: int) -> float:
        """Return the time from the start of the round until the reply has arrived."""
        upload = self._transfer(uplink_bytes, self.uplink_rate) / self.link.duty_cycle
        download = self._transfer(downlink_bytes, self.downlink_rate)
        waiting = self.downlink_delay + self.link.compute_time + self.uplink_delay
        return download + waiting + upload

    def joules(self, downlink_bytes: int, uplink_bytes: int) -> float:
        """Return the energy that the device spends in the round."""
        receiving = self._transfer(downlink_bytes, self.downlink_rate) * self.link.receive_power
        sending = self._transfer(uplink_bytes, self.uplink_rate) * self.link.transmit_power
        return receiving + self.link.compute_time * self.link.compute_power + sending

    @staticmethod
    def _transfer(count: int, rate: float) -> float:
        return 8 * count / rate if rate > 0 else math.inf
