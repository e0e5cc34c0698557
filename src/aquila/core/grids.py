"""Checks of the uniform grids that codes are on."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from aquila.core.envelope import require
from aquila.core.packet import WireError

SAFE_LIMIT = 1e38
"""A grid whose ends are below this is finite in float32 and float64, with any rounding."""


def require_grid(low: NDArray[Any], step: NDArray[Any], count: int, bucket: int, bits: int) -> None:
    """Require that every code of every grid decodes to a finite number."""
    grids = -(-count // bucket)
    if not len(low) == len(step) == grids:
        raise WireError(f"{len(low)} low ends, {len(step)} steps; {grids} buckets need one each")
    if grids == 1 and step[0] >= 0 and abs(float(low[0])) + float(step[0]) * 2.0**bits < SAFE_LIMIT:
        return  # the common case, without arrays
    with np.errstate(over="ignore", invalid="ignore"):
        top = low + step * (2.0**bits - 1)
    valid = np.isfinite(low) & np.isfinite(top) & (step >= 0)
    require(bool(valid.all()), "a grid of the codes is not finite or has a negative step")
