"""Calls of the command line as a user makes them."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial

from click.testing import CliRunner, Result

from aquila.cli import main

STOP_SECONDS = 300
"""Longest wait for a process that must end; an idle machine needs less than a second."""


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


def press_ctrl_c(*arguments: str, when: Callable[[], bool]) -> tuple[int, str]:
    """Run a call in a process and interrupt it; return its exit status and its errors."""
    # background jobs of a shell may inherit that Ctrl-C is ignored
    listen = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    with subprocess.Popen(
        [sys.executable, "-m", "aquila", *arguments],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, preexec_fn=listen,
    ) as process:  # fmt: skip
        try:
            while process.poll() is None and not when():
                time.sleep(0.02)
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=STOP_SECONDS)
        finally:
            process.kill()
    return process.returncode, errors
