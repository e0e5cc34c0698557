"""Settings of the report: only active ones, with words instead of placeholders."""

from aquila.report.page import read_runs, render
from aquila.report.page.active_settings import active_parameters, active_settings
from aquila.sim.setting import Setting
from aquila.sim.times import append_time, write_times
from helpers.run_folders import write_run


def test_defaults_and_unused_settings_are_left_out():
    facts = {**Setting().to_dict(), "method": "laq", "data_digest": "12", "gpu": "none"}
    assert active_settings(facts) == {
        "data": "digits", "samples": "all", "test_samples": "all", "model": "mlp", "devices": 10,
        "split": "classes:2", "rounds": 200, "seed": 0, "alpha": 0.5, "work": "gradient",
        "batch_size": "all samples of the device", "device": "cpu",
    }  # fmt: skip


def test_changed_settings_are_shown():
    changed = {"epochs": 2, "work": "epochs", "participation": 0.5, "link": "lte", "momentum": 0.9}
    shown = active_settings({**Setting().to_dict(), **changed})
    assert {name: shown[name] for name in changed} == changed
    assert "epochs" not in active_settings({"work": "epochs", "epochs": 5, "local_steps": 3})
    assert "epochs" in active_settings({"parameters": {"work": "epochs"}, "epochs": 5})


def test_parameters_that_are_off_are_left_out():
    assert active_parameters({"parameters": {"alpha": 0.5, "density": 0.0, "range": ""}}) == {
        "alpha": 0.5
    }
    assert active_parameters({"parameters": 3}) == {}


def test_date_and_duration_are_shown_if_known(tmp_path):
    folder = write_run(tmp_path / "run", rounds=3)
    assert "<dt>date</dt>" not in render(read_runs([folder]))
    write_times(folder, [])
    for number in range(3):
        append_time(folder, number, 60.0)
    page = render(read_runs([folder]))
    assert "<dt>date</dt>" in page
    assert "<dd>3.00\u00a0min</dd>" in page
    assert 'data-axis="real"' in page
    assert "real time" in page
    append_time(folder, 7, 60.0)  # not the time of the next round: ignored
    assert read_runs([folder]).runs[0].round_seconds == [60.0] * 3
