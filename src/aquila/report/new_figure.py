"""Creates matplotlib figures; matplotlib is an optional dependency."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure of this size in inches.

    Raises ValueError, naming the extra to install, if matplotlib is missing.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ValueError("figures need matplotlib: pip install 'aquila-fl[report]'") from error
    return Figure(figsize=(width, height), layout="constrained")
