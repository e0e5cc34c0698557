"""Expected bytes, time and energy of training with a method, by arithmetic."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from aquila.advice.situation import Situation
from aquila.core.link import LinkState

MAX_DRAWS = 20_000
"""Links to draw at most, for the mean time of a round."""
MAX_ROUNDS = 50
DENSE_BYTES = 4.0
"""Bytes per parameter of dense uploads and of whole models."""


@dataclass(frozen=True)
class Expectation:
    """What training is expected to cost. Bytes are per device and for the whole training."""

    up: float
    down: float
    devices: int
    seconds: float | None = None
    joules: float | None = None

    @property
    def megabytes(self) -> float:
        """Megabytes of a device in both directions."""
        return (self.up + self.down) / 1e6

    def fits(self, situation: Situation) -> bool:
        """Return whether the expectation is within the limits."""
        if situation.max_mb is not None and self.megabytes > situation.max_mb:
            return False
        return situation.max_hours is None or (self.seconds or 0) <= 3600 * situation.max_hours


class Calculator:
    """Computes expectations for one situation. It draws the links of some rounds once."""

    def __init__(self, situation: Situation) -> None:
        self._situation = situation
        self._per_round = max(1, round(situation.participation * situation.devices))
        self._rounds = _draw_links(situation, self._per_round)

    def expect(
        self, up: float, down: float, measured: tuple[float, float] | None = None
    ) -> Expectation:
        """Return the expectation for these bytes per parameter, device and round.

        `measured` has the seconds per round and the joules per device and round, if they are known.
        """
        situation = self._situation
        turns = situation.rounds * self._per_round / situation.devices
        up_bytes, down_bytes = up * situation.parameters, down * situation.parameters
        seconds = joules = None
        if situation.network is not None:
            per_round = measured or self._round_cost(math.ceil(down_bytes), math.ceil(up_bytes))
            seconds = situation.rounds * per_round[0]
            joules = situation.rounds * self._per_round * per_round[1]
        return Expectation(turns * up_bytes, turns * down_bytes, situation.devices, seconds, joules)

    def dense(self) -> Expectation:
        """Return the expectation for dense uploads and whole models."""
        return self.expect(DENSE_BYTES, DENSE_BYTES)

    def _round_cost(self, down: int, up: int) -> tuple[float, float]:
        """Return the mean seconds of a round, and the mean joules of a device."""
        seconds = [max(s.seconds(down, up) for s in states) for states in self._rounds]
        joules = [state.joules(down, up) for states in self._rounds for state in states]
        return statistics.fmean(seconds), statistics.fmean(joules)


def _draw_links(situation: Situation, per_round: int) -> list[Sequence[LinkState]]:
    """Return the links of the devices that take part, for some rounds."""
    network = situation.network
    if network is None:
        return []
    count = max(1, min(situation.rounds, MAX_ROUNDS, MAX_DRAWS // per_round))
    drawn: list[Sequence[LinkState]] = []
    for number in range(count):
        first = number * per_round
        devices = [(first + place) % situation.devices for place in range(per_round)]
        states = network.states(number, devices).values()
        drawn.append([state for state in states if state.present])
    drawn = [states for states in drawn if states]
    if not drawn:
        raise ValueError("no device takes part with these links: all have a rate of 0 or drop out")
    return drawn
