"""The `aquila` commands of a shell block: checked, and run as far as a test can afford."""

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
# the network, keys, many figures, a tracker that warns of its own drivers; tested elsewhere
NOT_RUN = {"fetch", "deploy", "results", "--mlflow"}
ACCEPTED_FAILURES = ("pip install", "aquila data fetch")  # what this machine may lack


def parse_commands(text: str) -> Iterator[list[str]]:
    """Yield the words after `aquila` of each such line, without comments and redirections."""
    for line in text.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if words[:1] == ["aquila"]:
            end = words.index(">") if ">" in words else None
            yield words[1:end]


def check_command(words: list[str]) -> None:
    """Have a command's name, options, files, setting and methods checked."""
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

    Experiments of a file are run only where the document itself asks for a smoke run.
    """
    check_command(words)
    whole_experiment = any(word.endswith(".toml") for word in words) and "--smoke" not in words
    if whole_experiment or NOT_RUN & set(words):
        return
    short = SHORT_RUN if words[0] in TRAINING else []
    result = CliRunner().invoke(main, words + short)
    accepted = any(failure in result.output for failure in ACCEPTED_FAILURES)
    assert result.exit_code == 0 or accepted, f"aquila {shlex.join(words)}: {result.output}"
