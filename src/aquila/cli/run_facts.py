"""The method, setting and environment of a run: for its folder, and for trackers."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aquila.cli.method_spec import MethodSpec
    from aquila.sim.experiment import Experiment


def run_facts(experiment: Experiment, spec: MethodSpec) -> dict[str, object]:
    """Return what `run.json` says about a run of the command line."""
    return {
        "method": spec.label,
        "parameters": spec.all_parameters(experiment),
        "started_from": "command line",
        **experiment.setting.to_dict(),
    }


def tracker_parameters(experiment: Experiment, spec: MethodSpec) -> dict[str, object]:
    """Return the method, setting and environment of a run as one flat mapping."""
    from aquila.sim.run_file import environment

    return {
        "method": spec.label,
        **{f"method.{name}": value for name, value in spec.all_parameters(experiment).items()},
        **experiment.setting.to_dict(),
        **environment(experiment.setting.device),
    }
