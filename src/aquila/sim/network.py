"""The simulated network: the links of a round, and the time and energy that they take."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from aquila.core.fading import faded_rate, mean_log, noma_rates
from aquila.core.fleet import DeviceId
from aquila.core.link import DeviceLink, LinkState
from aquila.core.random import Key, Purpose
from aquila.runtime.link_model import LinkModel
from aquila.runtime.link_presets import MIXED
from aquila.runtime.options import Access, Fading, RunOptions
from aquila.runtime.traffic import Traffic
from aquila.sim.link_source import resolve_link
from aquila.sim.records import SimulatedCost

STATE_DRAWS = 3
"""Child of the key of a link. The children 0 to 2 decide whether messages are lost."""


@dataclass(frozen=True)
class Network:
    """The network of a run. All random numbers follow from seed, round and device.

    Args:
        model: The links of the devices.
        seed: Seed of the run.
        fading: Whether rates vary from round to round, around those of the model.
        access: Whether each device has its own share of the band, or all share it (NOMA).
        compute_time: Seconds of local work per round, 0 for those of the links.
        deadline: Seconds after which replies are lost, infinite for none.
    """

    model: LinkModel
    seed: int
    fading: Fading = "none"
    access: Access = "orthogonal"
    compute_time: float = 0.0
    deadline: float = math.inf

    @classmethod
    def of(cls, options: RunOptions, devices: int, seed: int) -> "Network | None":
        """Return the network of the options, None without a link model."""
        if options.link == "":
            return None
        model = resolve_link(options.link, devices, seed)
        if options.access == "noma" and model.name == MIXED:
            raise ValueError(
                f"access noma needs devices that share one band; the fleet {MIXED} has several"
            )
        deadline = options.deadline or math.inf
        return cls(model, seed, options.fading, options.access, options.compute_time, deadline)

    @property
    def fingerprint(self) -> str:
        """The lines that a checkpoint must match."""
        return (
            f"link_model {self.model.digest}\nfading {self.fading}\naccess {self.access}\n"
            f"compute_time {self.compute_time}\ndeadline {self.deadline}\n"
        )

    def state(self, round_number: int, device: DeviceId) -> LinkState:
        """Return the link of a device in a round, as if it transmitted alone."""
        return self.states(round_number, [device])[device]

    def states(self, round_number: int, devices: Sequence[DeviceId]) -> dict[DeviceId, LinkState]:
        """Return the links of a round for devices that take part in it together."""
        links = self.model.links(round_number)
        states = {device: self._draw(links[device], round_number, device) for device in devices}
        if self.access == "noma":
            return self._share_band(states)
        return states

    def _draw(self, link: DeviceLink, round_number: int, device: DeviceId) -> LinkState:
        key = Key((self.seed, round_number, device, Purpose.LINK, STATE_DRAWS))
        generator = key.numpy()
        # always all draws, so that the delays do not depend on the fading
        uniform, (down, up) = generator.random(), generator.exponential(size=2)
        down_gain, up_gain = generator.exponential(size=2)
        if self.fading == "none":
            down_gain = up_gain = 1.0
            rates = link.uplink_rate, link.downlink_rate
        else:
            rates = (
                faded_rate(link.uplink_rate, link.snr, up_gain),
                faded_rate(link.downlink_rate, link.snr, down_gain),
            )
        if self.compute_time:
            link = replace(link, compute_time=self.compute_time)
        return LinkState(
            link=link,
            present=bool(uniform >= link.drop_out) and min(rates) > 0,
            uplink_rate=float(rates[0]),
            downlink_rate=float(rates[1]),
            uplink_delay=float(link.latency + link.jitter * up),
            downlink_delay=float(link.latency + link.jitter * down),
            gain=float(up_gain),
        )

    def _share_band(self, states: dict[DeviceId, LinkState]) -> dict[DeviceId, LinkState]:
        """Replace the uplink rates by those of devices that transmit at the same time."""
        present = [device for device, state in states.items() if state.present]
        bandwidth = {device: self._bandwidth(states[device].link) for device in present}
        received = {device: states[device].snr for device in present}
        rates = noma_rates(present, bandwidth, received)
        shared = {d: replace(states[d], uplink_rate=rate) for d, rate in rates.items()}
        return states | shared

    def _bandwidth(self, link: DeviceLink) -> float:
        """Return the share of the band that gives a device its mean rate under its mean SNR."""
        nats = math.log1p(link.snr) if self.fading == "none" else mean_log(link.snr)
        return link.uplink_rate * math.log(2) / nats


class RoundClock:
    """Time and energy of one round. `add_reply` is thread-safe."""

    def __init__(self, network: Network, round_number: int) -> None:
        self._network, self._number = network, round_number
        self._states: dict[DeviceId, LinkState] = {}
        self._answers: dict[DeviceId, tuple[int, int]] = {}
        self._answer_seconds = 0.0
        self._times: dict[DeviceId, float] = {}
        self._joules: list[float] = []

    def start(self, reached: Sequence[DeviceId]) -> list[DeviceId]:
        """Draw the links of the devices that messages reach; return those that take part."""
        drawn = self._network.states(self._number, reached)
        self._states = {device: state for device, state in drawn.items() if state.present}
        return list(self._states)

    def add_answer(self, device: DeviceId, traffic: Traffic) -> None:
        """Count a candidate's answer to a query. The orders follow after the last answer."""
        state = _without_work(self._states[device])
        count = self._answers[device] = _bytes_of(device, traffic)
        self._answer_seconds = max(self._answer_seconds, state.seconds(*count))
        self._joules.append(state.joules(*count))

    def add_reply(self, device: DeviceId, traffic: Traffic) -> bool:
        """Count the time and energy of a device that has replied; return whether it is in time."""
        state, (asked, answered) = self._states[device], self._answers.get(device, (0, 0))
        down, up = _bytes_of(device, traffic)
        count = down - asked, up - answered
        self._times[device] = self._answer_seconds + state.seconds(*count)
        self._joules.append(state.joules(*count))
        return self._times[device] <= self._network.deadline

    def cost(self, all_arrived: bool) -> SimulatedCost:
        """Return the cost of the round.

        It lasts until the last reply, or until the deadline if a reply does not arrive.
        """
        deadline, times = self._network.deadline, self._times.values()
        waits = not all_arrived and math.isfinite(deadline)
        return SimulatedCost(
            seconds=deadline if waits else max(times, default=self._answer_seconds),
            joules=math.fsum(self._joules),
            late=sum(time > deadline for time in times),
        )


def _without_work(state: LinkState) -> LinkState:
    """Return the link of a device that answers without training."""
    return replace(state, link=replace(state.link, compute_time=0.0))


def _bytes_of(device: DeviceId, traffic: Traffic) -> tuple[int, int]:
    """Return the bytes to and from a device so far."""
    return traffic.downlink[device].bytes, traffic.uplink[device].bytes
