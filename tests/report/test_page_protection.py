"""The report and the progress line say which devices were bad and how much privacy was spent."""

import io

from rich.console import Console

from aquila.report.page import read_runs, render
from aquila.report.progress import ProgressDisplay
from aquila.report.progress_line import RunProgress, format_line
from helpers.fake_records import fake_record, write_fake_run

PRIVACY = {"epsilon": 3.14159, "delta": 1e-5}


def test_report_lists_bad_devices_and_spent_privacy(tmp_path):
    records = [
        fake_record(0, quarantined=[3], rejected=[7, 8], **PRIVACY),
        fake_record(1, quarantined=[3, 7], **PRIVACY),
        fake_record(2, **PRIVACY),
    ]
    write_fake_run(tmp_path / "run", "qsgd", records)
    page = render(read_runs([tmp_path]), ["aquila run"])
    assert "qsgd: devices 3, 7 failed and were in quarantine, after 2 of 3 rounds." in page
    assert "qsgd: 2 uploads of devices 7, 8 exceeded the norm limit of the fleet." in page
    assert "qsgd: differential privacy per device, epsilon 3.14 at delta 1e-05" in page


def test_report_of_an_honest_run_has_no_such_notes(tmp_path):
    write_fake_run(tmp_path / "run", "qsgd", [fake_record(0)])
    page = render(read_runs([tmp_path]), ["aquila run"])
    assert "quarantine" not in page
    assert "epsilon" not in page


def test_record_with_an_invalid_device_is_left_out(tmp_path):
    write_fake_run(tmp_path / "good", "qsgd", [fake_record(0)])
    write_fake_run(tmp_path / "bad", "lag", [fake_record(0, quarantined=["</script>"])])
    assert len(read_runs([tmp_path]).broken) == 1


def test_progress_line_shows_epsilon():
    progress = RunProgress("qsgd", 4, lambda: 0.0)
    progress.add_record(fake_record(0, **PRIVACY))
    assert "ε 3.14 at δ 1e-05" in format_line(progress, 4, 160).plain
    plain = RunProgress("qsgd", 4, lambda: 0.0)
    plain.add_record(fake_record(0))
    assert "ε" not in format_line(plain, 4, 160).plain


def test_lines_without_a_terminal_show_epsilon():
    text = io.StringIO()
    display = ProgressDisplay(Console(file=text, width=200), rounds=2, label_width=4)
    with display.show_run("qsgd") as (_, show):
        show(fake_record(0, **PRIVACY))
        show(fake_record(1))
    assert "epsilon 3.14 at delta 1e-05" in text.getvalue().splitlines()[0]
