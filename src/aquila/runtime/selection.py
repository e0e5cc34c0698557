"""Device selection: which devices take part in a round, for any method.

`participation` sets how many devices a round selects, m of M. The rules:

    random      m devices, all equally likely
    weighted    m devices, with probability in proportion to their weights
    pow_d       d candidates, drawn as in `weighted`; of them the m with the largest loss
    cpow_d      the same, with the loss on one minibatch
    rpow_d      the same, with the loss that a device reported when it last took part

The last three are power-of-choice (Cho, Wang and Joshi 2020, arXiv 2010.01243). With `pow_d` and
`cpow_d` the server sends the model to the candidates and asks for their losses, before it sends
its orders. With `rpow_d` replies carry the loss. A device that never took part comes first.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from aquila.core.fleet import DeviceId, Fleet
from aquila.core.random import Key, Purpose
from aquila.runtime.options import RunOptions, Selection
from aquila.runtime.services import SecretKey, same_key

QUERY_LOSS = "query_loss"
"""Scalar of a query: 1 asks for the loss over all samples of a device, 0 for one minibatch."""
REPORT_LOSS = "report_loss"
"""Scalar of an order that asks the device to add its loss to the reply."""
LOSS = "loss"
"""Scalar of a reply: the loss."""

UNKNOWN_LOSS = math.inf
"""Loss of a device that never took part, so that it is preferred."""


@dataclass(frozen=True)
class Selector:
    """Selects devices by the rule of a run."""

    rule: Selection
    participation: float
    candidates: int
    seed: int
    secret_key: SecretKey = same_key

    @classmethod
    def of(
        cls, options: RunOptions, devices: int, seed: int, secret_key: SecretKey = same_key
    ) -> "Selector":
        """Return the selector of a run; ValueError if its options do not fit together.

        With differential privacy, `secret_key` replaces the keys of the draws.
        """
        secret_key = secret_key if options.is_private else same_key
        selector = cls(
            options.selection, options.participation, options.candidates, seed, secret_key
        )
        selector._check(devices, options.downlink_error != 0 or options.relay_uploads)
        return selector

    @property
    def query(self) -> Mapping[str, float] | None:
        """Scalars of the query that candidates answer with their loss; None if there is none."""
        wanted = {"pow_d": 1.0, "cpow_d": 0.0}
        return {QUERY_LOSS: wanted[self.rule]} if self.rule in wanted else None

    @property
    def order_scalars(self) -> Mapping[str, float]:
        """Scalars that every order carries."""
        return {REPORT_LOSS: 1.0} if self.rule == "rpow_d" else {}

    def candidates_of(
        self,
        devices: Sequence[DeviceId],
        fleet: Fleet,
        round_number: int,
        excluded: Collection[DeviceId] = (),
    ) -> tuple[DeviceId, ...]:
        """Return the candidates of a round, in order of their numbers."""
        count, available = self._count(len(devices)), _without(devices, excluded)
        wanted = min(len(available), max(count, self.candidates or 2 * count))
        return self._draw(available, wanted, fleet, round_number)

    def choose(
        self,
        devices: Sequence[DeviceId],
        fleet: Fleet,
        losses: Mapping[DeviceId, float],
        round_number: int,
        excluded: Collection[DeviceId] = (),
    ) -> tuple[DeviceId, ...]:
        """Return the devices that take part in a round.

        Args:
            devices: Devices for which the method has an order.
            fleet: The fleet; its weights are sampling weights.
            losses: Known losses. Candidates that did not answer a query come last.
            round_number: The round.
            excluded: Devices that may not take part. Others are drawn in their place.
        """
        available = _without(devices, excluded)
        if self.participation == 1:
            return tuple(available)
        count = min(self._count(len(devices)), len(available))
        if self.rule == "random":
            return self._key(round_number).sample(available, count)
        if self.rule == "weighted":
            return self._draw(available, count, fleet, round_number)
        candidates = self.candidates_of(devices, fleet, round_number, excluded)
        unknown = UNKNOWN_LOSS if self.rule == "rpow_d" else -math.inf
        by_loss = sorted(candidates, key=lambda device: -losses.get(device, unknown))
        return tuple(sorted(by_loss[:count]))

    def replacements(
        self, spare: Sequence[DeviceId], count: int, round_number: int, draw: int
    ) -> tuple[DeviceId, ...]:
        """Return up to `count` of the spare devices; `draw` numbers the draws of a round from 1."""
        return self._key(round_number).child(draw).sample(spare, min(count, len(spare)))

    def _count(self, devices: int) -> int:
        return max(1, round(self.participation * devices))

    def _key(self, round_number: int) -> Key:
        return self.secret_key(Key((self.seed, round_number, Purpose.PARTICIPATION)))

    def _draw(
        self, devices: Sequence[DeviceId], count: int, fleet: Fleet, round_number: int
    ) -> tuple[DeviceId, ...]:
        weights = np.array([fleet.weights[device] for device in devices])
        generator = self._key(round_number).numpy()
        chosen = generator.choice(
            len(devices), size=count, replace=False, p=weights / weights.sum()
        )
        return tuple(devices[i] for i in sorted(chosen))

    def _check(self, devices: int, sends_differences: bool) -> None:
        if self.rule == "random":
            if self.candidates:
                raise ValueError("candidates needs selection pow_d, cpow_d or rpow_d")
            return
        if self.participation == 1:
            raise ValueError(
                f"selection {self.rule} needs participation below 1: at 1 every device takes part"
            )
        if self.rule == "weighted" and self.candidates:
            raise ValueError("candidates needs selection pow_d, cpow_d or rpow_d")
        if self.candidates and not self._count(devices) <= self.candidates <= devices:
            raise ValueError(
                f"candidates must be from {self._count(devices)}, the devices per round, to "
                f"{devices}, not {self.candidates}"
            )
        if self.query is not None and sends_differences:
            raise ValueError(
                f"selection {self.rule} sends whole models to its candidates: set "
                "downlink_error=0 and relay_uploads=false, or choose rpow_d"
            )


def _without(devices: Sequence[DeviceId], excluded: Collection[DeviceId]) -> list[DeviceId]:
    return [device for device in devices if device not in excluded]
