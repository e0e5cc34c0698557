"""The real time of rounds, next to the records."""

import pytest
import torch

import aquila
from aquila.sim.times import TIMES_FILE, append_time, read_times, write_times

DEVICES = [lambda theta: (float(theta @ theta), 2 * theta)]


def train(out, rounds: int, **options: object) -> None:
    chosen = aquila.RunOptions(out=out, checkpoint_every=1, **options)
    aquila.simulate(aquila.create("fedsgd"), torch.ones(3), DEVICES, rounds, options=chosen)


def test_every_round_has_a_time_also_after_a_resume(tmp_path):
    train(tmp_path, 2)
    first = read_times(tmp_path, 2)
    train(tmp_path, 4, resume=True)
    times = read_times(tmp_path, 4)
    assert times[:2] == first
    assert [time.round for time in times] == [0, 1, 2, 3]
    assert all(0 <= time.seconds < 60 for time in times)


def test_times_are_unknown_unless_all_are_known(tmp_path):
    assert read_times(tmp_path, 1) == []
    write_times(tmp_path, [])
    append_time(tmp_path, 0, 1.5)
    append_time(tmp_path, 2, 1.5)
    assert [time.seconds for time in read_times(tmp_path, 1)] == [1.5]
    assert read_times(tmp_path, 2) == []


@pytest.mark.parametrize(
    "line",
    ["nonsense", '{"round": 0}', '{"round": 0, "seconds": -1, "ended": "2026-01-01T00:00+00:00"}',
     '{"round": 0, "seconds": 1, "ended": "today"}', '{"round": 0, "seconds": 1, "ended": 5}'],
)  # fmt: skip
def test_invalid_times_are_unknown(tmp_path, line):
    (tmp_path / TIMES_FILE).write_text(line + "\n")
    assert read_times(tmp_path, 1) == []
