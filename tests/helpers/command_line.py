"""Calls of the command line as a user makes them."""

from click.testing import CliRunner, Result

from aquila.cli import main


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


def output(*arguments: str) -> str:
    """Return the output of a call that must succeed."""
    result = invoke(*arguments)
    assert result.exit_code == 0, result.output
    return result.output


def error_line(*arguments: str) -> str:
    """Return the error line of a call that must fail."""
    result = invoke(*arguments)
    assert result.exit_code != 0
    assert isinstance(result.exception, SystemExit)
    (line,) = [line for line in result.output.splitlines() if line.startswith("Error:")]
    return line
