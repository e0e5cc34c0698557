"""Calls of the command line, as a person would make them."""

from click.testing import CliRunner, Result

from aquila.cli import main


def call(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


def output(*arguments: str) -> str:
    """Return what a call prints that must not fail."""
    result = call(*arguments)
    assert result.exit_code == 0, result.output
    return result.output


def mistake(*arguments: str) -> str:
    """Return the one sentence a mistake is answered with."""
    result = call(*arguments)
    assert result.exit_code != 0
    assert isinstance(result.exception, SystemExit)
    (line,) = [line for line in result.output.splitlines() if line.startswith("Error:")]
    return line
