"""`aquila advise`: which method to use, and what to expect."""

from __future__ import annotations

import json
import shlex
import shutil
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from aquila.cli.option_sections import CommandWithSections
from aquila.cli.setting_options import field_options, load_experiment
from aquila.sim.setting import Setting

if TYPE_CHECKING:
    from aquila.advice.advise import Advice
    from aquila.advice.facts import Facts
    from aquila.advice.situation import Situation
    from aquila.sim.experiment import Experiment


MAX_WIDTH = 100
TEXTS, IMAGES = "wikitext2", "cifar10"
"""Data of a model that is named without data."""


class InputError(click.ClickException):
    """Wrong input: one sentence, and the exit status of wrong usage."""

    exit_code = 2


@click.command(cls=CommandWithSections)
@field_options
@click.option(
    "--parameters", type=int, metavar="COUNT", help="Size of your model, instead of --model."
)
@click.option(
    "--max-mb", type=float, metavar="NUMBER",
    help="Limit of megabytes per device, in both directions, for the whole training.",
)  # fmt: skip
@click.option(
    "--max-hours", type=float, metavar="NUMBER", help="Limit of simulated time; needs --link."
)
@click.option(
    "--tolerance", type=float, default=0.5, show_default=True, metavar="POINTS",
    help="Loss of accuracy that still counts as the quality of dense uploads.",
)  # fmt: skip
@click.option(
    "--try", "try_it", is_flag=True, help="Check the advice by short runs on the data and model."
)
@click.option(
    "--try-rounds", type=int, default=0, metavar="COUNT",
    help="Rounds of the short runs.  [default: a quarter of --rounds, at most 50]",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def advise(
    experiment: Path | None,
    parameters: int | None,
    tolerance: float,
    try_it: bool,
    try_rounds: int,
    as_json: bool,
    max_mb: float | None,
    max_hours: float | None,
    **options: str | None,
) -> None:
    """Say which method to use, and what to expect.

    The advice keeps the quality of dense uploads, within --tolerance, at the least cost on the
    --link. --max-mb and --max-hours set limits. It is based on committed results and arithmetic.
    EXPERIMENT is a TOML file with settings; options override it. Without it, the defaults below
    apply.
    """
    from aquila.advice.advise import advise as find_advice
    from aquila.advice.facts import read_facts
    from aquila.advice.trial import try_methods

    facts = read_facts()
    with _input_errors():
        _check_model(parameters, options, try_it)
        options = _with_data(experiment, options, facts)
        chosen = load_experiment(experiment, False, options)
        situation = replace(
            _situation(chosen, parameters, facts),
            max_mb=max_mb, max_hours=max_hours, tolerance=tolerance,
            alpha=chosen.setting.alpha if experiment or options["alpha"] else None,
            settings={
                name: value for name, value in chosen.setting.to_dict().items()
                if experiment or options[name] is not None
            },
        )  # fmt: skip
        advice = find_advice(situation, facts)
        if try_it:
            advice = try_methods(advice, chosen, try_rounds, _announce)
    _print(advice, "" if parameters else run_command(advice, experiment, options), as_json)


def run_command(advice: Advice, experiment: Path | None, options: dict[str, str | None]) -> str:
    """Return the command that trains as advised.

    It has the given options. Without an experiment file, it also has the local work of the
    comparison, and all its settings if it trained the same model.
    """
    choice, situation = advice.choice, advice.situation
    study = choice.match.study
    given = {name: value for name, value in options.items() if value is not None}
    advised: dict[str, object] = {**given}
    if experiment is None and not advice.trials:
        same = study.model == situation.model
        settings = study.settings if same else {"work": study.settings["work"]}
        advised = {**given, **settings, **given}
    if advice.alpha is not None:
        advised["alpha"] = f"{advice.alpha:g}"
    if choice.downlink.error:
        advised["downlink_error"] = f"{choice.downlink.error:g}"
    advised["relay_uploads"] = choice.downlink.relays
    words = ["aquila", "run", *([str(experiment)] if experiment else [])]
    words += ["-m", choice.result.spec]
    defaults = Setting().to_dict()
    for name, value in advised.items():
        if value != defaults[name] or (name in given and name != "relay_uploads"):
            words += ["--" + name.replace("_", "-"), _option_text(value)]
    if experiment and situation.options.relay_uploads and not choice.downlink.relays:
        words += ["--relay-uploads", "false"]
    return shlex.join(words)


def _option_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@contextmanager
def _input_errors() -> Iterator[None]:
    """Report a ValueError in one sentence, with the exit status of wrong usage."""
    try:
        yield
    except ValueError as error:
        raise InputError(str(error)) from error


def _check_model(parameters: int | None, options: dict[str, str | None], try_it: bool) -> None:
    if parameters is None:
        return
    if options["model"] is not None:
        raise ValueError("--model and --parameters both state the size of the model: give only one")
    if try_it:
        raise ValueError("--try trains a model: name it with --model instead of --parameters")


def _with_data(
    experiment: Path | None, options: dict[str, str | None], facts: Facts
) -> dict[str, str | None]:
    """Return the options, with the usual data of a model that is named without data."""
    from aquila.core.parameter import parameters
    from aquila.tasks.models import MODELS

    model = options["model"]
    if experiment is not None or model is None or options["data"] is not None:
        return options
    known = parameters(MODELS[model]) if model in MODELS else {}
    if "vocabulary" in known:
        return {**options, "data": TEXTS, "split": options["split"] or "iid"}
    measured = (name.partition("/") for name in facts.sizes)
    data = next((data for data, _, name in measured if name == model), None)
    return {**options, "data": data or (IMAGES if "channels" in known else None)}


def _situation(experiment: Experiment, parameters: int | None, facts: Facts) -> Situation:
    from aquila.advice.situation import Situation

    setting = experiment.setting
    known = facts.sizes.get(f"{setting.data}/{setting.model}") if setting.widths == "1" else None
    return Situation(
        parameters=parameters if parameters is not None else known or setting.model_size(),
        model="" if parameters is not None else setting.model,
        data="" if parameters is not None else setting.data,
        devices=setting.devices,
        split=setting.split,
        rounds=setting.rounds,
        options=setting.options,
        seed=setting.seed,
    )


def _announce(method: str, rounds: int) -> None:
    click.echo(f"Trying {method}: {rounds} rounds", err=True)


def _python_calls(advice: Advice) -> str:
    """Return the calls that create the method and the options of the run."""
    result, downlink = advice.choice.result, advice.choice.downlink
    arguments = "".join(f", {name}={value!r}" for name, value in result.options.items())
    options = [f"downlink_error={downlink.error:g}"] * bool(downlink.error)
    options += ["relay_uploads=True"] * downlink.relays
    with_options = f", with aquila.RunOptions({', '.join(options)})" if options else ""
    return f'aquila.create("{result.method}", alpha=...{arguments}){with_options}'


def _wrap(paragraph: str, width: int) -> str:
    return textwrap.fill(
        paragraph, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )


def _print(advice: Advice, command: str, as_json: bool) -> None:
    from aquila.advice.text import describe
    from aquila.advice.to_json import to_dict

    if as_json:
        click.echo(json.dumps({**to_dict(advice), "command": command}, indent=2))
        return
    width = min(MAX_WIDTH, shutil.get_terminal_size((MAX_WIDTH, 0)).columns)
    for paragraph in describe(advice):
        is_row = paragraph.startswith(" ")
        click.echo(paragraph if is_row else _wrap(paragraph, width))
    if not command:
        click.echo(f"In Python: {_python_calls(advice)}")
    else:
        click.echo(f"Train: {command}")
        if not advice.trials:
            click.echo("Check it by short runs: repeat `aquila advise` with --try.")
