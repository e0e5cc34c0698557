import pytest

from aquila.report.progress_line import BARS, MIN_BARS, RunProgress, format_line, sparkline
from helpers.fake_records import fake_record


class Clock:
    """A clock that only tests advance."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def run_progress(rounds: int = 20, done: int = 10, label: str = "aquila") -> RunProgress:
    clock = Clock()
    made = RunProgress(label, rounds, clock)
    for round_number in range(done):
        clock.now += 2
        made.add_record(fake_record(round_number))
    return made


def test_wide_line_shows_all_fields():
    text = format_line(run_progress(), 6, 120).plain
    for part in ("aquila", "10/20", "loss 0.1000", "50.0%", "10.5 MB up", "0:20 left"):
        assert part in text
    assert "10 sent   10 skipped" in text
    assert text.count("·") == text.index("10/20") // 2 - 5  # half of the rounds are in the future
    assert len(text) <= 120


@pytest.mark.parametrize("label", ["laq", "aquila level_rule=tight"])
@pytest.mark.parametrize("width", [10, 30, 40, 60, 80, 100, 120, 300])
def test_lines_never_wrap(width, label):
    assert len(format_line(run_progress(label=label), len(label), width).plain) <= width


@pytest.mark.parametrize(
    ("width", "kept", "dropped"),
    [
        (80, ("0:20 left", "MB up", "50.0%", "█"), "skipped"),
        (60, ("MB up", "50.0%", "10/20"), "█"),
        (44, ("aquila", "loss", "MB up"), "50.0%"),
        (28, ("aquila", "loss"), "MB"),
    ],
)
def test_narrow_terminals_show_fewer_fields(width, kept, dropped):
    text = format_line(run_progress(), 6, width).plain
    assert all(part in text for part in kept)
    assert dropped not in text


def test_simulated_time_is_shown_with_a_link_model():
    made = run_progress(done=0)
    for number in range(3):
        made.add_record(fake_record(number, seconds=3600.0))
    assert "3.00 h simulated" in format_line(made, 6, 140).plain
    assert "3.00 h simulated" in format_line(made, 6, 80).plain
    assert "simulated" not in format_line(run_progress(), 6, 140).plain


def test_ascii_terminals_show_no_bars():
    text = format_line(run_progress(), 6, 120, bars=False).plain
    assert text.isascii()
    assert "10/20" in text


def test_time_left_decreases_between_rounds():
    made = run_progress()
    made.clock.now += 3
    assert made.time == "0:17 left"
    made.clock.now += 300
    assert made.time == "0:00 left"
    made.finished = True
    assert made.time == "in 0:20"


def test_resumed_rounds_do_not_count_for_the_speed():
    clock = Clock()
    made = RunProgress("laq", 4000, clock)
    made.add_resumed([fake_record(round_number) for round_number in range(100)])
    assert made.time == ""
    assert made.done == 100
    assert made.uplink_bytes == 100 * 2**20
    clock.now += 2
    made.add_record(fake_record(100))
    assert made.time == "2:09:58 left"


def test_perplexity_takes_precedence_over_accuracy():
    made = RunProgress("laq", 5, Clock())
    made.add_record(fake_record(0, metrics={"perplexity": 3.14159, "test_accuracy": 0.1}))
    made.add_record(fake_record(1, metrics={}, loss=None))
    assert made.fields()["quality"] == "ppl    3.14"
    assert made.fields()["loss"] == "loss 1.0000"


def test_large_numbers_stay_short():
    made = RunProgress("laq", 5, Clock())
    made.add_record(fake_record(0, loss=123456.0, uplink_bytes=5 * 2**30))
    assert "1.235e+05" in made.fields()["loss"]
    assert "5.37 GB up" in made.fields()["uplink"]


def test_sparkline_follows_the_loss():
    falling = sparkline([2.0**-n for n in range(8)], 8, 8)
    assert falling == BARS[::-1]
    assert sparkline([1.0, 1.0], 4, 4) == "▁▁··"
    assert sparkline([], 6, MIN_BARS) == "······"
    assert len(sparkline([1.0] * 500, 1000, 24)) == 24
    assert sparkline([3.0, -1.0], 2, 2) == "█▁"  # negative values: linear scale
