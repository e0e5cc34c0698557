"""What the server knows about the conduct of its devices: failures, quarantine and norms.

A device that fails takes no part in the next rounds: 1 after its first failure, then 2, 4 and so
on, up to `LONGEST_QUARANTINE`. A reply that the server applies ends the series.
"""

import logging
import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from aquila.core.fleet import DeviceId
from aquila.core.packet import WireError
from aquila.core.state import Arrays, from_arrays, to_arrays
from aquila.runtime.norm_limit import UPLOAD_DECAY, adaptive_limit, early_limit

LONGEST_QUARANTINE = 64
"""Most rounds that a device misses after one failure."""

MAX_SCALAR = 1e150
"""Largest absolute value of a scalar in a reply. Averages of such numbers stay finite."""

HEALTH_PREFIX = "health."
"""Prefix of the names of saved arrays."""

NormKind = Literal["norms", "coded_norms"]
"""Norms that are compared with each other."""

_LOG = logging.getLogger("aquila")


@dataclass(frozen=True)
class FleetHealth:
    """One entry per device, saved with the server.

    Args:
        failures: Failures since the last applied reply.
        until: The round from which the device may take part again.
        norms: Largest norm of recent uploads, 0 if there was none.
        coded_norms: The same of quantized uploads, for methods that also send whole vectors.
    """

    failures: tuple[int, ...]
    until: tuple[int, ...]
    norms: tuple[float, ...]
    coded_norms: tuple[float, ...]

    @classmethod
    def of(cls, devices: int) -> "FleetHealth":
        """Return the health of devices that have not taken part yet."""
        none = (0.0,) * devices
        return cls((0,) * devices, (0,) * devices, none, none)

    def quarantined(self, round_number: int) -> tuple[DeviceId, ...]:
        """Return the devices that may not take part in a round."""
        if (
            max(self.until, default=0) <= round_number
        ):  # twenty times faster than a loop over many devices
            return ()
        return tuple(device for device, end in enumerate(self.until) if round_number < end)

    def with_wait(self, device: DeviceId, until: int) -> "FleetHealth":
        """Return the health in which a device may not take part before a round."""
        rounds = list(self.until)
        rounds[device] = max(rounds[device], until)
        return replace(self, until=tuple(rounds))

    def with_norms(
        self, norms: Mapping[DeviceId, float], decays: bool, kind: NormKind
    ) -> "FleetHealth":
        """Return the health after uploads with these norms. Without decay, the largest counts."""
        values, factor = list(getattr(self, kind)), UPLOAD_DECAY if decays else 1.0
        for device, norm in norms.items():
            values[device] = max(norm, factor * values[device])
        return replace(self, **{kind: tuple(values)})

    def excessive(self, norms: Mapping[DeviceId, float], kind: NormKind) -> dict[DeviceId, str]:
        """Return the devices whose uploads are above the limit of the fleet, with the reason.

        If a method also sends whole vectors, its quantized uploads are differences. Their norms
        shrink faster than remembered norms decay, so those of the round count as well.
        """
        remembered = getattr(self, kind)
        limit = adaptive_limit(remembered)
        if kind == "coded_norms" and any(self.norms):
            limit = min(limit, adaptive_limit(list(norms.values())))
        else:
            limit = min(limit, early_limit(remembered))
        return {
            device: f"its upload has norm {norm:.3g}, but the limit of the fleet is {limit:.3g}"
            for device, norm in norms.items()
            if norm > limit
        }

    def after_round(
        self, round_number: int, failed: Mapping[DeviceId, str], succeeded: Iterable[DeviceId]
    ) -> "FleetHealth":
        """Return the health after a round, and log the devices that are now in quarantine."""
        failures, until = list(self.failures), list(self.until)
        for device in succeeded:
            failures[device] = 0
        for device in sorted(failed):
            missed = min(2 ** min(failures[device], 30), LONGEST_QUARANTINE)
            failures[device] += 1
            until[device] = round_number + 1 + missed
            _LOG.warning(
                "device %d is in quarantine for %d round%s after round %d: %s",
                device, missed, "s" * (missed > 1), round_number, failed[device],
            )  # fmt: skip
        return replace(self, failures=tuple(failures), until=tuple(until))


def health_from_arrays(arrays: Arrays, devices: int) -> FleetHealth:
    """Return the saved health; ValueError if it is of another fleet.

    What an earlier release did not save is that of new devices.
    """
    fresh = FleetHealth.of(devices)
    saved: FleetHealth = from_arrays(
        fresh, {**to_arrays(fresh, HEALTH_PREFIX), **arrays}, HEALTH_PREFIX
    )
    if {len(part) for part in vars(saved).values()} != {devices}:
        raise ValueError(f"it has the health of another number of devices than {devices}")
    return saved


def check_scalars(device: DeviceId, scalars: Mapping[str, float]) -> None:
    """Raise WireError if a scalar of a reply is so large that averages would overflow."""
    for name, value in scalars.items():
        if not abs(value) <= MAX_SCALAR or math.isnan(value):
            raise WireError(
                f"device {device} sent {name} = {value:g}; the largest allowed is {MAX_SCALAR:g}"
            )


def reason_of(failed: Mapping[DeviceId, str], tried: Collection[DeviceId]) -> str | None:
    """Return why the first device failed if every device that was tried failed, else None."""
    if not tried or not all(device in failed for device in tried):
        return None
    return failed[min(tried)]
