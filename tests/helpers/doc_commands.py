"""Checks the `aquila` commands of a shell block, and runs those that are fast enough for a test."""

import shlex
from collections.abc import Iterator

import click
from click.testing import CliRunner

from aquila.cli import main
from aquila.cli.method_spec import parse_method_spec
from aquila.cli.setting_options import load_experiment
from aquila.sim.setting import Setting

TRAINING = ("run", "compare")
SHORT_RUN = ["--smoke", "--rounds", "2"]
SHORT_TRIAL = ["--try-rounds", "2"]
# they need the network or keys, draw many figures, or trigger warnings of MLflow's drivers
NOT_RUN = {"fetch", "deploy", "results", "--mlflow"}
ACCEPTED_FAILURES = ("pip install", "aquila data fetch")  # optional packages or data are missing


def parse_commands(text: str) -> Iterator[list[str]]:
    """Yield the words after `aquila` of each such line, without comments and redirections."""
    for line in text.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if words[:1] == ["aquila"]:
            end = words.index(">") if ">" in words else None
            yield words[1:end]


def check_command(words: list[str]) -> None:
    """Check the name, options, files, setting and methods of a command."""
    context, command = click.Context(main), main
    while isinstance(command, click.Group) and words:
        _, command, words = command.resolve_command(context, words)
    params = command.make_context(command.name, list(words), parent=context).params
    if command.name in TRAINING:
        setting = {name: params[name] for name in Setting().to_dict()}
        chosen = load_experiment(params["experiment"], params["smoke"], setting)
        for method in params["methods"] if command.name == "compare" else [params["method"]]:
            parse_method_spec(method).create(chosen)


def run_command(words: list[str]) -> None:
    """Check a command and run it; training is cut to two rounds on a few samples.

    An experiment file is run only if the document itself uses --smoke.
    """
    check_command(words)
    whole_experiment = any(word.endswith(".toml") for word in words) and "--smoke" not in words
    if whole_experiment or NOT_RUN & set(words):
        return
    short = SHORT_RUN if words[0] in TRAINING else SHORT_TRIAL if "--try" in words else []
    result = CliRunner().invoke(main, words + short)
    accepted = any(failure in result.output for failure in ACCEPTED_FAILURES)
    assert result.exit_code == 0 or accepted, f"aquila {shlex.join(words)}: {result.output}"
