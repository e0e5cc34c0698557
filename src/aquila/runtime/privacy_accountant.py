"""The privacy accountant: epsilon after a number of rounds, computed by `dp-accounting`.

Neighbouring fleets differ in the data of one device (`REPLACE_ONE`), so the sensitivity of a sum of
clipped vectors is 2 · dp_clip, and the noise multiplier is dp_noise / 2. Rounds are composed as
Rényi divergences.

Sampling lowers epsilon only if it is the sampling that the bound assumes: a fixed number of devices
per round, all equally likely, without replacement (`selection=random`). Noise from the devices gets
no such credit, because the server sees who sent what. The rounding of quantizers counts as nothing.
"""

from functools import cache
from typing import Any

from aquila.runtime.install_hint import install_hint
from aquila.runtime.options import RunOptions

ORDERS = (*range(2, 65), 80, 96, 128, 192, 256, 512)
"""Orders of the Rényi divergences. Fewer orders are faster and give a slightly larger epsilon."""


class PrivacyAccountant:
    """Computes epsilon at the delta of a run; ValueError if `dp-accounting` is not installed."""

    def __init__(self, options: RunOptions, devices: int) -> None:
        try:
            import dp_accounting.rdp
        except ImportError:
            raise ValueError(
                f"differential privacy needs the package dp-accounting: {install_hint('privacy')}"
            ) from None
        self.delta = options.dp_delta
        self._library: Any = dp_accounting
        sampled = max(1, round(options.participation * devices))
        is_amplified = options.dp_noise_by == "server" and options.selection == "random"
        self._per_round = _divergences(
            options.dp_noise / 2, devices, sampled if is_amplified else devices
        )

    def epsilon(self, rounds: int) -> float:
        """Return epsilon after this many rounds."""
        if rounds == 0:
            return 0.0
        divergences = [rounds * value for value in self._per_round]
        epsilon, _ = self._library.rdp.compute_epsilon(ORDERS, divergences, self.delta)
        return float(epsilon)


@cache
def _divergences(multiplier: float, devices: int, sampled: int) -> tuple[float, ...]:
    """Return the Rényi divergences of one round with `sampled` of the devices, one per order."""
    import dp_accounting.rdp

    library: Any = dp_accounting
    event = library.GaussianDpEvent(multiplier)
    if sampled < devices:
        event = library.SampledWithoutReplacementDpEvent(devices, sampled, event)
    relation = library.NeighboringRelation.REPLACE_ONE
    accountant = library.rdp.RdpAccountant(ORDERS, relation).compose(event)
    return tuple(float(value) for value in accountant.rdp)
