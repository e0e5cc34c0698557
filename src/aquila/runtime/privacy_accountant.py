"""The privacy accountant: epsilon after a number of rounds, computed by `dp-accounting`.

Neighbouring fleets differ in the data of one device (`REPLACE_ONE`), so the sensitivity of a sum of
clipped vectors is 2 · dp_clip, and the noise multiplier is dp_noise / 2. Rounds are composed as
Rényi divergences.

Sampling lowers epsilon only if it is the sampling that the bound assumes: a fixed number of devices
per round, all equally likely, without replacement (`selection=random`). Noise from the devices gets
no such credit, because the server sees who sent what. The rounding of quantizers counts as nothing.
"""

from functools import cached_property
from typing import Any

from aquila.runtime.install_hint import install_hint
from aquila.runtime.options import RunOptions

ORDERS = (*range(2, 65), 80, 96, 128, 192, 256, 512, 1024)
"""Orders of the Rényi divergences. Fewer orders are faster and give a slightly larger epsilon."""


class PrivacyAccountant:
    """Computes epsilon at the delta of a run."""

    def __init__(self, options: RunOptions, devices: int) -> None:
        try:
            import dp_accounting
            from dp_accounting import rdp
        except ImportError:
            raise ValueError(
                f"differential privacy needs the package dp-accounting: {install_hint('privacy')}"
            ) from None
        self.delta = options.dp_delta
        self._library: Any = dp_accounting
        self._rdp: Any = rdp
        self._multiplier = options.dp_noise / 2
        self._devices = devices
        self._sampled = max(1, round(options.participation * devices))
        self._is_amplified = options.dp_noise_by == "server" and options.selection == "random"

    def epsilon(self, rounds: int) -> float:
        """Return epsilon after this many rounds."""
        if rounds == 0:
            return 0.0
        divergences = [rounds * value for value in self._per_round]
        epsilon, _ = self._rdp.compute_epsilon(ORDERS, divergences, self.delta)
        return float(epsilon)

    @cached_property
    def _per_round(self) -> list[float]:
        """Rényi divergences of one round, one per order."""
        accountant = self._rdp.RdpAccountant(ORDERS, self._library.NeighboringRelation.REPLACE_ONE)
        accountant.compose(self._event)
        return [float(value) for value in accountant.rdp]

    @property
    def _event(self) -> Any:
        """What one round releases, in the words of the library."""
        gaussian = self._library.GaussianDpEvent(self._multiplier)
        if not self._is_amplified or self._sampled == self._devices:
            return gaussian
        return self._library.SampledWithoutReplacementDpEvent(
            self._devices, self._sampled, gaussian
        )
