"""A killed server app leaves an error line within seconds; one that ends leaves none."""

import signal
import subprocess
import sys
import time

import pytest

pytest.importorskip("flwr", reason="not installed: pip install -e '.[flower]'")

from aquila.flower.death_notice import NOTICE, NOTICES_VARIABLE, death_notice

APP = """
import sys
from aquila.flower.death_notice import death_notice
with death_notice("run 7"):
    print("started", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def notices(tmp_path, monkeypatch):
    path = tmp_path / "notices"
    monkeypatch.setenv(NOTICES_VARIABLE, str(path))
    return path


def written_within(path, seconds):
    """Return what is in a file, after a wait for it if there is none."""
    end = time.monotonic() + seconds
    while not path.exists() and time.monotonic() < end:
        time.sleep(0.05)
    return path.read_text() if path.exists() else ""


def test_killed_app_leaves_a_line(notices):
    app = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", APP],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert app.stdout.readline() == b"started\n"
    app.send_signal(signal.SIGKILL)
    app.communicate()
    line = f"ERROR: {NOTICE}; start the run again to resume it: run 7\n"
    assert written_within(notices, 20) == line


def test_app_that_returns_leaves_no_line(notices):
    with death_notice("run 7"):
        pass
    assert written_within(notices, 0.5) == ""


def test_app_that_raises_leaves_no_line(notices):
    with pytest.raises(ValueError, match="failed"), death_notice("run 7"):
        raise ValueError("failed")
    assert written_within(notices, 0.5) == ""
