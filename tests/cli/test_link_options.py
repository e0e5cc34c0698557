"""The simulated network from the command line and settings files."""

import json

import pytest

from helpers.command_line import error_line, output

RUN = ("run", "-m", "qsgd", "--rounds", "2")
TRACE = "round,device,uplink_rate,downlink_rate\n" + "".join(
    f"0,{device},1e5,1e6\n" for device in range(10)
)


def test_results_show_time_and_energy(tmp_path):
    text = output(*RUN, "--link", "lte", "--deadline", "5", "--out", str(tmp_path / "run"))
    words = " ".join(text.split())
    assert "link lte, deadline 5" in words
    assert "simulated" in words
    assert "time energy" in words
    saved = json.loads((tmp_path / "run" / "run.json").read_text())
    assert (saved["link"], saved["deadline"], saved["access"]) == ("lte", 5.0, "orthogonal")
    first = json.loads((tmp_path / "run" / "records.jsonl").read_text().splitlines()[0])
    assert 1 < first["seconds"] < 5
    assert first["joules"] > 20
    assert first["late"] == 0


def test_runs_without_a_link_model_show_neither(tmp_path):
    text = output(*RUN, "--out", str(tmp_path / "run"))
    assert "energy" not in text
    assert "simulated" not in text
    assert '"seconds"' not in (tmp_path / "run" / "records.jsonl").read_text()


def test_trace_from_a_settings_file(tmp_path):
    (tmp_path / "trace.csv").write_text(TRACE)
    file = tmp_path / "links.toml"
    link = json.dumps(f"csv:{tmp_path / 'trace.csv'}")
    file.write_text(f'compare = ["qsgd"]\n[setting]\nrounds = 2\nlink = {link}\n')
    text = output("compare", str(file), "--out", str(tmp_path / "out"))
    assert "energy" in text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--link", "wify"), "link must be a preset, csv:FILE or empty, not 'wify'; did you mean"),
        (("--deadline", "3"), "deadline needs a link model: set link"),
        (("--link", "csv:absent.csv"), "there is no trace absent.csv"),
        (("--link", "mixed", "--access", "noma"), "access noma needs devices that share one band"),
    ],
)
def test_mistakes_get_one_sentence(options, message):
    assert message in error_line(*RUN, *options)


def test_methods_that_need_a_link_model():
    message = error_line("run", "-m", "noma_adaptive", "--rounds", "2")
    assert message == ("Error: noma_adaptive needs a link model: set link, for example link=lte")
    assert "noma_adaptive" in output("run", "-m", "noma_adaptive", "--rounds", "2", "--link", "lte")


def test_compare_leaves_them_out_without_a_link_model(tmp_path):
    text = output("compare", "--all", "--smoke", "--rounds", "1", "--out", str(tmp_path))
    assert "Warning: adagq is left out, because it needs a link model: set --link" in text
    assert (tmp_path / "qsgd").exists()
    assert not (tmp_path / "bandwidth_adaptive").exists()


def test_trace_of_too_few_devices(tmp_path):
    (tmp_path / "trace.csv").write_text(TRACE)
    message = error_line(*RUN, "--devices", "15", "--link", f"csv:{tmp_path / 'trace.csv'}")
    assert "has no row for device 10 in round 0" in message
