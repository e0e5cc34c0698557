import io

from rich.console import Console

from aquila.cli.progress import Watch
from aquila.sim.records import Record


def record(round: int) -> Record:
    return Record(
        round=round, loss=1 / (round + 1), uplink_bytes=2**20, uplink_header_bytes=0,
        downlink_bytes=0, downlink_header_bytes=0, paper_bits=0, uploads=1, skips=0, lost=0,
        refused=0, levels={}, uplink={}, metrics={"test_accuracy": 0.5},
    )  # fmt: skip


def watched(terminal: bool) -> str:
    text = io.StringIO()
    console = Console(file=text, force_terminal=terminal, width=120)
    with Watch(console, rounds=8, label_width=6) as watch:
        watch.begin("laq")
        for round in range(8):
            watch.show(record(round))
        watch.say("done")
    return text.getvalue()


def test_plain_lines_where_there_is_no_terminal():
    lines = watched(terminal=False).splitlines()
    assert lines[0] == "laq     round 2/8  loss 0.5000   50.0%  2.00 MiB up"
    assert len(lines) == 5
    assert lines[-1] == "laq: done"


def test_a_live_row_on_a_terminal():
    text = watched(terminal=True)
    assert "8/8" in text
    assert "\x1b[" in text
    assert "8.00 MiB up" in text
