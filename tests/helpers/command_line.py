"""Calls of the command line, as a person would make them."""

from click.testing import CliRunner, Result

from aquila.cli import main


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


def output(*arguments: str) -> str:
    """Return what a call prints that must not fail."""
    result = invoke(*arguments)
    assert result.exit_code == 0, result.output
    return result.output


def error_line(*arguments: str) -> str:
    """Return the one sentence a mistake is answered with."""
    result = invoke(*arguments)
    assert result.exit_code != 0
    assert isinstance(result.exception, SystemExit)
    (line,) = [line for line in result.output.splitlines() if line.startswith("Error:")]
    return line
