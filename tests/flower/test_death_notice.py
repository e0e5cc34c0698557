"""A killed server app leaves an error line within seconds; one that ends leaves none."""

import os
import signal
import subprocess
import sys
import time

import pytest

pytest.importorskip("flwr", reason="not installed: pip install -e '.[flower]'")

from aquila.flower.death_notice import NOTICE, NOTICES_VARIABLE

APP = """
import sys, time
from aquila.flower.death_notice import death_notice
with death_notice("run 7"):
    print("started", flush=True)
    sys.stdin.readline()
    if sys.argv[1] == "raise":
        raise ValueError("failed")
"""


def run_app(tmp_path, end):
    """Run an app that ends in some way; return the lines that its end wrote within seconds."""
    notices = tmp_path / "notices"
    app = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", APP, end],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, NOTICES_VARIABLE: str(notices)},
    )  # fmt: skip
    assert app.stdout.readline() == b"started\n"
    if end == "kill":
        app.send_signal(signal.SIGKILL)
    app.communicate(b"\n")
    patience = time.monotonic() + (5 if end == "kill" else 0.5)
    while not notices.exists() and time.monotonic() < patience:
        time.sleep(0.05)
    return notices.read_text() if notices.exists() else ""


def test_killed_app_leaves_a_line(tmp_path):
    assert run_app(tmp_path, "kill") == (
        f"ERROR: {NOTICE}; start the run again to resume it: run 7\n"
    )


@pytest.mark.parametrize("end", ["return", "raise"])
def test_app_that_ends_leaves_no_line(tmp_path, end):
    assert run_app(tmp_path, end) == ""
