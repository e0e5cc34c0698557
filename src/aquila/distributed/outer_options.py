"""The options of a run that apply to the outer loop."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from aquila.core.parameter import spelling_hint
from aquila.runtime.options import RunOptions

SERVER_OPTIONS = (
    "server_optimizer", "server_lr", "server_momentum", "server_beta2", "server_tau",
    "server_schedule",
)  # fmt: skip
"""Fields of `aquila.RunOptions` that describe the server optimizer."""
OPTIONS = (*SERVER_OPTIONS, "on_nan", "upload_limit")
"""Fields of `aquila.RunOptions` that apply here."""


def make_options(given: Mapping[str, Any]) -> RunOptions:
    """Return the options of a run; ValueError for one that the outer loop does not have."""
    for name in given:
        if name not in OPTIONS:
            raise ValueError(f"Outer has no option {name!r}{spelling_hint(name, OPTIONS)}")
    return RunOptions(**given)


def average_only(options: RunOptions) -> RunOptions:
    """Return the options of a server that averages, because the ranks run the optimizer.

    Raises ValueError for a limit that clips uploads: a rank does not know what was clipped.
    """
    if options.upload_limit == "median":
        raise ValueError("keep_unsent needs upload_limit adaptive or none, not median")
    plain = RunOptions()
    fields: dict[str, Any] = {name: getattr(plain, name) for name in SERVER_OPTIONS}
    return replace(options, **fields)
