"""Creates matplotlib figures; matplotlib is an optional dependency."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aquila.runtime.install_hint import install_hint

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class MissingMatplotlibError(ValueError):
    """Matplotlib is not installed; the message says how to install it."""


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure of this size in inches.

    Raises MissingMatplotlibError, naming the extra to install, if matplotlib is missing.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingMatplotlibError(
            f"figures need matplotlib: {install_hint('report')}"
        ) from error
    return Figure(figsize=(width, height), layout="constrained")
