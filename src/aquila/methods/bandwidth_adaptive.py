"""Bits in proportion to the rate of a device (Qu, Wang and Xiao, HPCC 2020).

Device m uploads b_m = round(b_max r_m / max_j r_j) bits per coordinate, from b_min to b_max. The
rates r_m are those of the round, so the bits follow the fading of the channel. The device with the
best link sends b_max bits, and all uploads take about the same time.

The quantizer is QSGD's stochastic rounding with the maximum norm; 32 bits are float32.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from aquila.core.fleet import DeviceId, Fleet
from aquila.core.method import Method
from aquila.core.parameter import Bounds
from aquila.methods.parts.factory import Alpha, WorkOption, method_factory
from aquila.methods.parts.link_bits import link_bits_method, upload_rates


@dataclass(frozen=True)
class ProportionalBits:
    """Bits in proportion to the rate."""

    b_min: int
    b_max: int

    def __call__(self, fleet: Fleet) -> Mapping[DeviceId, int]:
        """Return the bits of each device of the round."""
        rates = upload_rates(fleet)
        best = max(rates.values(), default=0.0)
        share = {d: rate / best if best > 0 else 0.0 for d, rate in rates.items()}
        return {d: max(self.b_min, round(self.b_max * part)) for d, part in share.items()}


@method_factory(
    paper="Qu, Wang and Xiao, Quantization and knowledge distillation for efficient federated "
    "learning on edge devices, HPCC 2020",
    lost_reply="The server averages the replies that arrived.",
    reconstruction="AQUILA's paper says only that the bits are in proportion to the bandwidth. The "
    "rounding, the limits and the quantizer are ours. The knowledge distillation is left out.",
)
def bandwidth_adaptive(
    alpha: Alpha = 0.1,
    b_min: Annotated[int, Bounds("smallest bits per coordinate", 2, 32)] = 2,
    b_max: Annotated[int, Bounds("bits per coordinate of the best link", 2, 32)] = 8,
    work: WorkOption = "gradient",
) -> Method:
    """Gradients with bits in proportion to the uplink rate; needs a link model."""
    if b_max < b_min:
        raise ValueError(f"bandwidth_adaptive: b_max must be at least b_min, {b_min}, not {b_max}")
    return link_bits_method("bandwidth_adaptive", alpha, work, ProportionalBits(b_min, b_max))
