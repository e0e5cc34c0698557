"""Progress on a terminal, in a file, and on a real pseudo-terminal."""

import fcntl
import io
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time

import pytest
from rich.console import Console

from aquila.report.progress import ProgressDisplay
from helpers.fake_records import fake_record

COLUMNS = 80
HIDE, SHOW = b"\x1b[?25l", b"\x1b[?25h"
COLOR = re.compile(rb"\x1b\[[0-9;]*3[0-7]m")


def watched(width: int = 120, **options: object) -> str:
    text = io.StringIO()
    display = ProgressDisplay(Console(file=text, width=width, **options), rounds=8, label_width=6)
    for label in ("laq", "aquila"):
        with display.show_run(label) as (_, show):
            for round_number in range(8):
                show(fake_record(round_number))
    display.print_message("aquila", "done [at last]")
    return text.getvalue()


def test_files_get_plain_lines():
    lines = watched(force_terminal=False).splitlines()
    assert lines[0].startswith("laq     round 2/8  loss 0.5000   50.0%  2.10 MB up")
    assert "2 sent    2 skipped  0:00 left" in lines[0]
    assert len(lines) == 9
    assert lines[3].endswith("8 sent    8 skipped")
    assert lines[-1] == "aquila: done [at last]"
    assert "\x1b" not in "".join(lines)


def test_dumb_terminals_get_plain_lines(monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    assert "\x1b" not in watched(force_terminal=True)


@pytest.mark.parametrize("width", [120, 80, 60])
def test_finished_runs_keep_one_line_each(width):
    text = watched(width, force_terminal=True, color_system=None, legacy_windows=False)
    rows = [row for row in re.split(r"\n", re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)) if row]
    last = [row.rpartition("\r")[2] for row in rows]
    assert [row.split()[0] for row in last] == ["laq", "aquila", "aquila:"]
    assert all("8/8" in row and len(row) <= width for row in last[:2])


def test_no_color_is_respected(monkeypatch):
    assert "\x1b[36m" in watched(force_terminal=True, color_system="standard")
    monkeypatch.setenv("NO_COLOR", "1")
    text = watched(force_terminal=True, color_system="standard")
    assert "36m" not in text
    assert "8/8" in text


def test_failed_run_restores_the_cursor():
    text = io.StringIO()
    display = ProgressDisplay(
        Console(file=text, force_terminal=True, width=80), rounds=8, label_width=3
    )

    def interrupted() -> None:
        with display.show_run("laq") as (_, show):
            show(fake_record(0))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert text.getvalue().rindex(SHOW.decode()) > text.getvalue().rindex(HIDE.decode())
    assert "left" not in text.getvalue().splitlines()[-1]


def on_a_terminal(*arguments: str, stop_at: bytes | None = None) -> tuple[int, bytes]:
    """Run a command on a pseudo-terminal of 80 columns; press Ctrl-C when it shows `stop_at`."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", 30, COLUMNS, 0, 0))

    def own_terminal() -> None:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    environment = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "COLUMNS")}
    process = subprocess.Popen(
        [sys.executable, "-m", "aquila", *arguments],
        stdin=theirs, stdout=theirs, stderr=theirs, preexec_fn=own_terminal,
        env={**environment, "TERM": "xterm-256color"},
    )  # fmt: skip
    os.close(theirs)
    seen, deadline = b"", time.monotonic() + 300
    while time.monotonic() < deadline:
        if select.select([ours], [], [], 0.1)[0]:
            try:
                part = os.read(ours, 65536)
            except OSError:  # the other end was closed
                break
            seen += part
        if stop_at and stop_at in seen:
            os.write(ours, b"\x03")
            stop_at = None
    os.close(ours)
    return process.wait(timeout=120), seen


def last_shown(seen: bytes) -> list[str]:
    """Return the final content of each line."""
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen.decode())
    return [line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n")]


def test_real_terminal_shows_one_line_per_method(tmp_path):
    status, seen = on_a_terminal(
        "compare", "-m", "laq", "-m", "qsgd", "--rounds", "3", "--out", str(tmp_path / "runs")
    )
    lines = last_shown(seen)
    assert status == 0
    for method in ("laq", "qsgd"):
        (line,) = [line for line in lines if line.startswith(method) and "3/3" in line]
        assert "KB up" in line
        assert len(line) <= COLUMNS
    assert COLOR.search(seen)
    assert seen.rindex(SHOW) > seen.rindex(HIDE)


def test_ctrl_c_restores_a_real_terminal(tmp_path):
    status, seen = on_a_terminal(
        "run", "-m", "qsgd", "--rounds", "100000", "--out", str(tmp_path), stop_at=b"/100000"
    )
    assert status == 130
    assert b"can be continued with --resume" in seen
    assert b"Traceback" not in seen
    assert seen.rindex(SHOW) > seen.rindex(HIDE)
