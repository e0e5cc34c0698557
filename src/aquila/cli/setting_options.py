"""Options shared by `run` and `compare`: an experiment file, and one option per field."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import click

from aquila.cli.named_path import NamedPath
from aquila.core.parameter import Parameter
from aquila.sim.experiment import Experiment, read_experiment
from aquila.sim.setting import Setting, setting_parameters

METAVARS: dict[type, str] = {int: "COUNT", float: "NUMBER", bool: "true|false", str: "TEXT"}
F = TypeVar("F", bound=Callable[..., Any])


def setting_options(command: F) -> F:
    """Add the experiment file, one option per field of a setting, and --smoke."""
    return field_options(
        click.option(
            "--smoke",
            is_flag=True,
            help="Run two rounds on few synthetic samples, to check that it works.",
        )(command)
    )


def field_options(command: F) -> F:
    """Add the experiment file, and one option per field of a setting."""
    for parameter in reversed(setting_parameters().values()):
        name = "--" + parameter.name.replace("_", "-")
        metavar = "|".join(parameter.choices) or METAVARS[parameter.type]
        text = _help_text(parameter)
        command = click.option(name, parameter.name, metavar=metavar, help=text)(command)
    experiment = click.argument(
        "experiment", required=False, type=NamedPath(dir_okay=False, path_type=Path)
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
        chosen = read_experiment(experiment, given, _method_tables())
    elif experiment.suffix == ".toml":
        raise ValueError(f"experiment file {experiment} does not exist")
    else:
        raise ValueError(f"{experiment} is not an experiment file; name methods with --method")
    _check_methods(chosen)
    if not smoke:
        return chosen
    setting = Setting.of({**chosen.setting.smoke().to_dict(), **given})
    return replace(chosen, setting=setting)


def _method_tables() -> dict[str, str]:
    """Return the table of an experiment file for each method and each parameter of methods."""
    from aquila.methods import METHODS

    tables: dict[str, str] = {}
    for name, entry in METHODS.items():
        for parameter in entry.parameters:
            tables.setdefault(parameter, f"[methods.NAME], for example [methods.{name}]")
    return tables | {name: f"[methods.{name}]" for name in METHODS}


def _check_methods(experiment: Experiment) -> None:
    from aquila.methods import create

    for name, parameters in experiment.methods.items():
        create(name, **parameters)
