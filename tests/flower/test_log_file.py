"""The log of a run as JSON lines in its folder."""

import json
import logging
import math

import pytest

pytest.importorskip("flwr", reason="not installed: pip install -e '.[flower]'")
import torch
from local_grid import local_grid

import aquila
import aquila.flower
from aquila.flower.log_file import log_file
from aquila.sim.rollback import start_over

METHOD = aquila.create("fedsgd", alpha=0.1)


def nan_on_1(device, context):
    return (lambda theta: (math.nan, theta)) if device == 1 else (lambda theta: (1.0, theta))


def lines_of(folder):
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


def start(folder, make, rounds):
    grid = local_grid(aquila.flower.client_app(METHOD, make), 3)
    options = aquila.RunOptions(out=folder)
    return aquila.flower.strategy(METHOD, torch.ones(4), 3, rounds, options=options).start(grid)


def test_log_has_rounds_and_bad_devices(tmp_path):
    start(tmp_path, nan_on_1, 1)
    start(tmp_path, nan_on_1, 2)
    lines = lines_of(tmp_path)
    assert all(line["time"].endswith("+00:00") for line in lines)
    messages = [(line["level"], line["message"]) for line in lines]
    quarantine = "device 1 is in quarantine for 1 round after round 0: device 1, round 0: the loss"
    assert ("WARNING", f"{quarantine} is nan") in messages
    rounds = [text for level, text in messages if level == "INFO" and text.startswith("round ")]
    assert [text[:8] for text in rounds] == ["round 0:", "round 1:"]
    start_over(tmp_path)
    assert not (tmp_path / "log.jsonl").exists()


def test_log_has_the_error_that_ends_a_run(tmp_path):
    with pytest.raises(RuntimeError, match="every device failed in round 0"):
        start(tmp_path, lambda device, context: lambda theta: (math.nan, theta), 1)
    last = lines_of(tmp_path)[-1]
    assert last["level"] == "ERROR"
    assert last["message"].startswith("the run ends: every device failed in round 0: ")


def test_log_has_a_bounded_size_and_one_line_per_message(tmp_path):
    with log_file(tmp_path, max_bytes=1000):
        for number in range(100):
            logging.getLogger("flwr.aquila").warning("message %d\nin two lines", number)
    sizes = {path.name: path.stat().st_size for path in tmp_path.iterdir()}
    assert set(sizes) == {"log.jsonl", "log.jsonl.1"}
    assert max(sizes.values()) <= 1000
    assert lines_of(tmp_path)[-1]["message"] == "message 99\nin two lines"
    start_over(tmp_path)
    assert not list(tmp_path.iterdir())
