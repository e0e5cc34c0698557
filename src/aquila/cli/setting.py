"""Options shared by `run` and `compare`: an experiment file, and one option per field."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from aquila.core.parameter import Parameter
from aquila.sim.experiment import Experiment, read_experiment
from aquila.sim.setting import RUN_FILE, SPLIT_FILE, Setting, setting_parameters
from aquila.version import __version__

if TYPE_CHECKING:
    from aquila.cli.method_spec import MethodSpec
    from aquila.tasks.partition import Partition

METAVARS: dict[type, str] = {int: "COUNT", float: "NUMBER", bool: "true|false", str: "TEXT"}
F = TypeVar("F", bound=Callable[..., Any])


def setting_options(command: F) -> F:
    """Add the experiment file, one option per field of a setting, and --smoke."""
    command = click.option(
        "--smoke",
        is_flag=True,
        help="Run two rounds on few synthetic samples, to check that it works.",
    )(command)
    for parameter in reversed(setting_parameters().values()):
        name = "--" + parameter.name.replace("_", "-")
        metavar = "|".join(parameter.choices) or METAVARS[parameter.type]
        text = _help_text(parameter)
        command = click.option(name, parameter.name, metavar=metavar, help=text)(command)
    experiment = click.argument(
        "experiment", required=False, type=click.Path(dir_okay=False, path_type=Path)
    )
    return experiment(command)


def _help_text(parameter: Parameter) -> str:
    default = str(parameter.default)
    default = default.lower() if parameter.type is bool else default
    shown = f"  [default: {default}]" if default else ""
    return f"{parameter.help[0].upper()}{parameter.help[1:]}.{shown}"


def load_experiment(
    experiment: Path | None, smoke: bool, options: dict[str, str | None]
) -> Experiment:
    """Return the experiment of the file, or of the demo, with the given options applied."""
    given: dict[str, object] = {n: value for n, value in options.items() if value is not None}
    if experiment is None:
        chosen = Experiment(Setting.of(given))
    elif experiment.exists():
        chosen = read_experiment(experiment, given)
    elif experiment.suffix == ".toml":
        raise ValueError(f"experiment file {experiment} does not exist")
    else:
        raise ValueError(f"{experiment} is not an experiment file; name methods with --method")
    _check_methods(chosen)
    if not smoke:
        return chosen
    cut = Setting.of({**chosen.setting.smoke().to_dict(), **given})
    return replace(chosen, setting=cut)


def _check_methods(experiment: Experiment) -> None:
    from aquila.methods import create

    for name, parameters_ in experiment.methods.items():
        create(name, **parameters_)


def write_run_file(
    folder: Path, experiment: Experiment, spec: MethodSpec, parts: Partition
) -> None:
    """Write the method, setting, split and environment of a run to its folder."""
    from aquila.tasks.partition import save_partition

    content = {
        "method": spec.label,
        "parameters": spec.all_parameters(experiment),
        **experiment.setting.to_dict(),
        **_environment(experiment.setting),
    }
    (folder / RUN_FILE).write_text(json.dumps(content, indent=2) + "\n")
    save_partition(folder / SPLIT_FILE, parts)


def tracker_parameters(experiment: Experiment, spec: MethodSpec) -> dict[str, object]:
    """Return the same facts as a flat mapping, for trackers."""
    parameters_ = spec.all_parameters(experiment)
    return {
        "method": spec.label,
        **{f"method.{name}": value for name, value in parameters_.items()},
        **experiment.setting.to_dict(),
        **_environment(experiment.setting),
    }


def _environment(setting: Setting) -> dict[str, object]:
    import torch

    return {
        "aquila": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "gpu": torch.cuda.get_device_name() if setting.device == "cuda" else "none",
    }
