"""The command line as a person meets it."""

import json
import subprocess
import sys

import pytest
import torch

from aquila.cli.spec import parse_spec
from aquila.core.packet import Packet
from aquila.core.quantize import midrise
from aquila.core.wire import pack
from aquila.methods import METHODS
from terminal import mistake, output


def test_help_does_not_wait_for_torch():
    code = (
        "import sys; from aquila.cli import main; main(['--help'], standalone_mode=False);"
        "sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "compare" in done.stdout


@pytest.mark.parametrize("command", ["compare", "run", "methods", "data", "frame"])
def test_every_command_explains_itself(command):
    assert "Usage:" in output(command, "--help")
    assert command in output("--help")


def test_methods_lists_all_of_them():
    text = output("methods")
    assert all(name in text for name in METHODS)


@pytest.mark.parametrize("name", METHODS)
def test_methods_tells_all_about_one(name):
    text = output("methods", name)
    assert "a lost reply" in text
    assert all(parameter in text for parameter in METHODS[name].parameters)
    assert ("reconstruction" in text) == bool(METHODS[name].reconstruction)


def test_run_trains_records_and_resumes(tmp_path):
    out = str(tmp_path / "run")
    text = output("run", "-m", "laq:bits=5", "--rounds", "8", "--out", out)
    assert "laq bits=5" in text
    assert "8/8" in text
    settings = json.loads((tmp_path / "run" / "run.json").read_text())
    assert settings["method"] == "laq bits=5"
    assert settings["seed"] == 0
    output("run", "-m", "laq:bits=5", "--rounds", "12", "--out", out, "--resume")
    assert len((tmp_path / "run" / "records.jsonl").read_text().splitlines()) == 12


def test_compare_ends_with_a_table_and_a_figure(tmp_path):
    text = output(
        "compare", "-m", "aquila:b_min=2", "-m", "fedsgd", "--rounds", "5", "--out", str(tmp_path)
    )
    table = text[text.index("accuracy   ") :]
    assert "aquila b_min=2" in table
    assert "1.0 x" in table
    assert "saving" in table
    assert (tmp_path / "loss_against_uplink.png").stat().st_size > 5000
    assert (tmp_path / "aquila_b_min=2" / "records.jsonl").exists()


def test_compare_runs_every_method_by_default(tmp_path):
    text = output("compare", "--rounds", "2", "--out", str(tmp_path))
    assert all(f"\n {name} " in text for name in METHODS)


def test_compare_goes_on_when_a_method_diverges(tmp_path):
    text = output(
        "compare", "-m", "fedsgd:alpha=1e30", "-m", "qsgd", "--rounds", "6", "--out", str(tmp_path)
    )
    assert "stopped:" in text
    assert "fedsgd alpha=1e30 (stopped)" in text
    assert "qsgd" in text[text.index("(stopped)") :]


def test_compare_keeps_old_runs_unless_told(tmp_path):
    arguments = ("compare", "-m", "fedsgd", "--rounds", "2", "--out", str(tmp_path))
    output(*arguments)
    assert "already holds a run" in mistake(*arguments)
    output(*arguments, "--overwrite")
    output(*arguments, "--resume")


def test_a_refused_command_leaves_the_folder_as_it_was(tmp_path):
    first = ("run", "--rounds", "2", "--batch-size", "20", "--out", str(tmp_path))
    output(*first)
    before = (tmp_path / "run.json").read_text(), (tmp_path / "split.json").read_text()
    other = (*first, "--split", "iid", "--seed", "4")
    assert "already holds a run" in mistake(*other)
    assert "of another run" in mistake(*other, "--resume")
    assert before == ((tmp_path / "run.json").read_text(), (tmp_path / "split.json").read_text())


def test_options_reach_the_run(tmp_path):
    text = output(
        "run", "--rounds", "4", "--work", "epochs", "--batch-size", "16", "--epochs", "2",
        "--loss-rate", "0.5", "--devices", "5", "--seed", "3", "--out", str(tmp_path),
    )  # fmt: skip
    assert "5 devices" in text
    records = [json.loads(line) for line in (tmp_path / "records.jsonl").read_text().splitlines()]
    assert sum(record["lost"] for record in records) > 0


def test_experiments_come_from_files(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text("[setting]\nrounds = 3\nalpha = 0.2\n[methods.laq]\nbits = 4\n")
    out = tmp_path / "run"
    text = output("run", str(file), "-m", "laq", "--rounds", "2", "--out", str(out))
    assert "2/2" in text
    assert "alpha 0.2" in text
    assert "4.00" in text  # the level the file asks for
    assert json.loads((out / "split.json").read_text())["device_of_sample"]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("[setting]\nround = 3\n", "no parameter 'round'; did you mean 'rounds'"),
        ("[settings]\nrounds = 3\n", "no use for 'settings'; did you mean 'setting'"),
        ("[setting]\nrounds = 'many'\n", "rounds must be a whole number"),
        ("rounds = ", "is not a TOML file"),
        ("setting = 3", "must be tables, not 3"),
        ("[methods]\nlaq = 3", "must be tables, not 3"),
        ("[methods.laqq]\nbits = 3", "no method 'laqq'"),
        ("[methods.laq]\nbitz = 3", "no parameter 'bitz'"),
        ("compare = 'aquila'", "must be a list of methods"),
    ],
)
def test_mistakes_in_files_are_named(tmp_path, content, problem):
    file = tmp_path / "mine.toml"
    file.write_text(content)
    assert problem in mistake("run", str(file))


def test_frame_prints_what_a_frame_holds(tmp_path):
    codes = midrise(torch.linspace(-1, 1, 50), 4)
    file = tmp_path / "some.frame"
    file.write_bytes(pack(Packet(12, codes, {"loss": 0.5}, ack=11)))
    text = output("frame", str(file))
    for part in ("fixed", "12", "round 11", "scalar loss", "0.5", "200 bits", "entropy"):
        assert part in text


def test_frame_of_a_skip(tmp_path):
    file = tmp_path / "skip.frame"
    file.write_bytes(pack(Packet(3)))
    assert "nothing" in output("frame", str(file))


def test_mistakes_get_one_clear_sentence(tmp_path):
    assert "did you mean 'aquila'" in mistake("run", "-m", "aqila")
    assert "no parameter 'bitz'; did you mean 'bits'" in mistake("run", "-m", "laq:bitz=3")
    assert "bits must be a whole number from 2 to 31, not '99'" in mistake(
        "run", "-m", "laq:bits=99"
    )
    assert "level_rule must be one of paper, tight" in mistake(
        "run", "-m", "aquila:level_rule=best"
    )
    assert "not of the form parameter=value" in mistake("run", "-m", "laq:bits")
    assert "do not share out" in mistake("run", "--devices", "7")
    assert "no method 'x'" in mistake("methods", "x")
    assert "no method 'x'" in mistake("compare", "-m", "x")
    assert "laq is given twice" in mistake("compare", "-m", "laq", "-m", "laq")
    assert "rounds must be a whole number >= 1, not '0'" in mistake("run", "--rounds", "0")
    assert "on_nan must be one of stop, skip" in mistake("run", "--on-nan", "pray")
    assert "no data set 'digit'; did you mean 'digits'" in mistake("run", "--data", "digit")
    assert "no model 'mpl'; did you mean 'mlp'" in mistake("run", "--model", "mpl")
    assert "no experiment file laq; a method is named by --method laq" in mistake("run", "laq")
    assert "widths must be numbers" in mistake("run", "--widths", "wide")
    assert "does not exist" in mistake("frame", str(tmp_path / "none"))
    garbage = tmp_path / "garbage"
    garbage.write_bytes(b"hello" * 20)
    assert "not a frame" in mistake("frame", str(garbage))
    assert "device 0, round" in mistake("run", "-m", "fedsgd:alpha=1e30", "--rounds", "9")


def test_specs():
    spec = parse_spec("laq: bits=5, xi=0.1")
    assert (spec.name, spec.parameters) == ("laq", {"bits": "5", "xi": "0.1"})
    assert spec.label == "laq bits=5 xi=0.1"
    assert parse_spec("fedsgd").label == "fedsgd"
