"""The command line as users see it."""

import json
import re
import subprocess
import sys

import pytest
import torch

from aquila.cli import main
from aquila.cli.compare import DEFAULT_METHODS
from aquila.cli.method_spec import parse_method_spec
from aquila.core.packet import Packet
from aquila.core.quantize import midrise
from aquila.core.wire import pack
from aquila.methods import METHODS
from helpers.command_line import error_line, output, press_ctrl_c


def test_help_does_not_import_torch():
    code = (
        "import sys; from aquila.cli import main; main(['--help'], standalone_mode=False);"
        "sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "compare" in done.stdout


@pytest.mark.parametrize("command", main.commands)
def test_every_command_has_help(command):
    assert "Usage:" in output(command, "--help")
    assert command in output("--help")


def test_methods_lists_all_methods():
    text = output("methods")
    assert all(name in text for name in METHODS)


@pytest.mark.parametrize("name", METHODS)
def test_methods_describes_one_method(name):
    text = output("methods", name)
    assert "if a reply is lost" in text
    assert all(parameter in text for parameter in METHODS[name].parameters)
    assert ("reconstruction" in text) == bool(METHODS[name].reconstruction)


def test_run_trains_records_and_resumes(tmp_path):
    out = str(tmp_path / "run")
    text = output("run", "-m", "laq:bits=5", "--rounds", "8", "--out", out, "--resume")
    assert "no run in" in text
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
    table = text[text.index("up/skip") :]
    assert "aquila b_min=2" in table
    assert "1.0 x" in table
    assert "saving" in table
    assert (tmp_path / "loss_against_uplink.png").stat().st_size > 5000
    assert (tmp_path / "aquila_b_min=2" / "records.jsonl").exists()


def test_compare_runs_a_dozen_methods_by_default(tmp_path):
    text = output("compare", "--rounds", "1", "--out", str(tmp_path))
    labels = [parse_method_spec(spec).label for spec in DEFAULT_METHODS]
    assert 10 <= len(labels) <= 14
    assert all(f"\n {label} " in text for label in labels)
    assert len([path for path in tmp_path.iterdir() if path.is_dir()]) == len(labels)


def test_compare_all_runs_every_method(tmp_path):
    text = output("compare", "--all", "--rounds", "1", "--link", "lte", "--out", str(tmp_path))
    assert all(f"\n {name} " in text for name in METHODS)
    assert "\n eden density=0.1 " in text


def test_compare_all_takes_no_methods():
    line = error_line("compare", "--all", "-m", "laq")
    assert line == "Error: --all compares all methods; leave out --all or --method"


def test_compare_continues_when_a_method_diverges(tmp_path):
    text = output(
        "compare", "-m", "fedsgd:alpha=1e9", "-m", "qsgd", "--rounds", "6", "--out", str(tmp_path)
    )
    assert "stopped:" in text
    assert "fedsgd alpha=1e9 (stopped)" in text
    assert "qsgd" in text[text.index("(stopped)") :]


def test_compare_checks_all_folders_before_training(tmp_path):
    output("compare", "-m", "laq", "--rounds", "2", "--out", str(tmp_path))
    both = ("compare", "-m", "qsgd", "-m", "laq", "--rounds", "2", "--out", str(tmp_path))
    assert "already holds a run" in error_line(*both)
    assert not (tmp_path / "qsgd").exists()


def test_resumed_run_counts_bytes_of_earlier_rounds(tmp_path):
    out = ("--out", str(tmp_path))
    whole = output("run", "-m", "qsgd", "--rounds", "8").splitlines()
    output("run", "-m", "qsgd", "--rounds", "4", *out)
    resumed = output("run", "-m", "qsgd", "--rounds", "8", *out, "--resume").splitlines()
    last = [[line for line in text if "round 8/8" in line] for text in (whole, resumed)]
    assert last[0] == last[1]
    assert "already holds 8 rounds" in error_line(
        "run", "-m", "qsgd", "--rounds", "4", *out, "--resume"
    )
    output("run", "-m", "laq", "--rounds", "2", *out, "--overwrite")


def test_run_file_has_all_parameters(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text("[methods.aquila]\nbeta = 0.7\n")
    output(
        "run", str(file), "-m", "aquila:b_min=2", "--rounds", "1", "--out", str(tmp_path / "run")
    )
    facts = json.loads((tmp_path / "run" / "run.json").read_text())
    assert facts["parameters"] == {
        "alpha": 0.5, "beta": 0.7, "b_min": 2, "level_rule": "paper", "work": "gradient",
    }  # fmt: skip


def test_smoke_keeps_given_options():
    text = output("run", "--smoke", "--rounds", "3", "--devices", "5")
    assert "3/3" in text
    assert "5 devices" in text


def test_participation_and_state_memory_options(tmp_path):
    output(
        "run", "--rounds", "2", "--devices", "10", "--participation", "0.3", "--state-memory", "1",
        "--out", str(tmp_path),
    )  # fmt: skip
    lines = (tmp_path / "records.jsonl").read_text().splitlines()
    assert [len(json.loads(line)["uplink"]) for line in lines] == [3, 3]
    assert "participation must be a number > 0 and <= 1, not '0'" in error_line(
        "run", "--participation", "0"
    )


def test_downlink_error_option(tmp_path):
    output("run", "--rounds", "3", "--downlink-error", "0.5", "--out", str(tmp_path))
    lines = (tmp_path / "records.jsonl").read_text().splitlines()
    first, *others = [json.loads(line)["downlink_bytes"] for line in lines]
    assert max(others) < 0.2 * first
    assert "downlink_error must be a number from 0 to 0.99, not '1'" in error_line(
        "run", "--downlink-error", "1"
    )


def test_run_can_be_resumed_after_ctrl_c(tmp_path):
    whole, part = tmp_path / "whole", tmp_path / "part"
    arguments = ("run", "-m", "marina:p=0.3", "--rounds")
    status, errors = press_ctrl_c(
        *arguments, "100000", "--out", str(part), when=(part / "records.jsonl").exists
    )
    assert status == 130
    assert "can be continued with --resume" in errors
    assert "Traceback" not in errors
    rounds = str(len((part / "records.jsonl").read_text().splitlines()) + 10)
    output(*arguments, rounds, "--out", str(part), "--resume")
    output(*arguments, rounds, "--out", str(whole))
    assert (part / "records.jsonl").read_bytes() == (whole / "records.jsonl").read_bytes()


def test_compare_does_not_overwrite_runs_by_default(tmp_path):
    arguments = ("compare", "-m", "fedsgd", "--rounds", "2", "--out", str(tmp_path))
    output(*arguments)
    message = error_line(*arguments)
    assert all(option in message for option in ("--resume", "--overwrite", "--out"))
    output(*arguments, "--overwrite")
    output(*arguments, "--resume")


def test_rejected_command_does_not_change_the_folder(tmp_path):
    first = ("run", "--rounds", "2", "--batch-size", "20", "--out", str(tmp_path))
    output(*first)
    before = (tmp_path / "run.json").read_text(), (tmp_path / "split.json").read_text()
    other = (*first, "--split", "iid", "--seed", "4")
    assert "already holds a run" in error_line(*other)
    assert "of another run" in error_line(*other, "--resume")
    message = error_line(*first, "--resume", "-m", "laq")
    assert message.endswith("method laq (saved: method aquila)")
    assert before == ((tmp_path / "run.json").read_text(), (tmp_path / "split.json").read_text())


def test_options_reach_the_run(tmp_path):
    text = output(
        "run", "--rounds", "4", "--work", "epochs", "--batch-size", "16", "--epochs", "2",
        "--uplink-loss", "0.5", "--devices", "5", "--seed", "3", "--out", str(tmp_path),
    )  # fmt: skip
    assert "5 devices" in text
    records = [json.loads(line) for line in (tmp_path / "records.jsonl").read_text().splitlines()]
    assert sum(record["lost"] for record in records) > 0


def test_run_reads_an_experiment_file(tmp_path):
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
        ("[settings]\nrounds = 3\n", "unknown table 'settings'; did you mean 'setting'"),
        ("rounds = 3\n", "'rounds' belongs in the table [setting]"),
        ("[setting]\nrounds = 'many'\n", "rounds must be a whole number"),
        ("rounds = ", "is not a TOML file"),
        ("setting = 3", "must be tables, not 3"),
        ("[methods]\nlaq = 3", "must be tables, not 3"),
        ("beta = 3\n", "'beta' belongs in the table [methods.NAME], for example [methods.aquila]"),
        ("[laq]\nbits = 3\n", "'laq' belongs in the table [methods.laq]"),
        ("[setting]\nbits = 3\n", "'bits' belongs in the table [methods.NAME], for example"),
        ("[methods.laqq]\nbits = 3", "no method 'laqq'"),
        ("[methods.laq]\nbitz = 3", "no parameter 'bitz'"),
        ("compare = 'aquila'", "must be a list of methods"),
    ],
)
def test_errors_in_experiment_files_are_named(tmp_path, content, problem):
    file = tmp_path / "mine.toml"
    file.write_text(content)
    assert problem in error_line("run", str(file))


def test_frame_prints_the_content(tmp_path):
    codes = midrise(torch.linspace(-1, 1, 50), 4)
    file = tmp_path / "some.frame"
    file.write_bytes(pack(Packet(12, codes, {"loss": 0.5}, ack=11)))
    text = output("frame", str(file))
    for part in ("fixed", "12", "round 11", "scalar loss", "0.5", "entropy"):
        assert part in text
    assert re.search(r"bits as papers count them +200 ", text)


def test_frame_prints_a_skip(tmp_path):
    file = tmp_path / "skip.frame"
    file.write_bytes(pack(Packet(3)))
    assert "nothing" in output("frame", str(file))


def test_invalid_arguments_give_one_sentence(tmp_path):
    assert "did you mean 'aquila'" in error_line("run", "-m", "aqila")
    assert "did you mean 'aquila_dither'" in error_line("run", "-m", "AQUILA_DITHER")
    assert "name it with --out" in error_line("run", "--resume")
    assert "give only one" in error_line("run", "--out", str(tmp_path), "--resume", "--overwrite")
    assert "uplink_loss must be a number from 0 to 1" in error_line("run", "--uplink-loss", "2")
    assert "no parameter 'bitz'; did you mean 'bits'" in error_line("run", "-m", "laq:bitz=3")
    assert "bits must be a whole number from 2 to 31, not '99'" in error_line(
        "run", "-m", "laq:bits=99"
    )
    assert "level_rule must be one of paper, tight" in error_line(
        "run", "-m", "aquila:level_rule=best"
    )
    assert "not of the form parameter=value" in error_line("run", "-m", "laq:bits")
    assert "cannot split 10 classes evenly" in error_line("run", "--devices", "7")
    assert "no method 'x'" in error_line("methods", "x")
    assert "no method 'x'" in error_line("compare", "-m", "x")
    assert "laq is given twice" in error_line("compare", "-m", "laq", "-m", "laq")
    assert "rounds must be a whole number >= 1, not '0'" in error_line("run", "--rounds", "0")
    assert "on_nan must be one of quarantine, stop, skip" in error_line("run", "--on-nan", "ignore")
    assert "no data set 'digit'; did you mean 'digits'" in error_line("run", "--data", "digit")
    assert "no model 'mpl'; did you mean 'mlp'" in error_line("run", "--model", "mpl")
    assert "laq is not an experiment file; name methods with --method" in error_line("run", "laq")
    assert "widths must be numbers" in error_line("run", "--widths", "wide")
    assert "experiment file no.toml does not exist" in error_line("run", "no.toml")
    assert "cnn needs images, but digits holds vectors of 64" in error_line("run", "--model", "cnn")
    assert "transformer needs texts" in error_line("run", "--model", "transformer")
    assert "augment needs images" in error_line("run", "--augment", "true")
    text = ("run", "--data", "synthetic_wikitext2", "--split", "iid")
    assert "mlp needs numbers, but synthetic_wikitext2 holds texts" in error_line(*text)
    assert "rounds must be a whole number" in error_line("run", "--rounds", "5-")
    assert "from 1e-09 to 1e+09" in error_line("run", "--alpha", "1e300")
    (tmp_path / "file").write_text("")
    assert "is a file, not a folder" in error_line("run", "--out", str(tmp_path / "file"))
    assert "does not exist" in error_line("frame", str(tmp_path / "none"))
    garbage = tmp_path / "garbage"
    garbage.write_bytes(b"hello" * 20)
    assert "not a frame" in error_line("frame", str(garbage))
    assert "device 0, round" in error_line("run", "-m", "fedsgd:alpha=1e9", "--rounds", "9")


def test_method_specs_are_parsed():
    spec = parse_method_spec("laq: bits=5, xi=0.1")
    assert (spec.name, spec.parameters) == ("laq", {"bits": "5", "xi": "0.1"})
    assert spec.label == "laq bits=5 xi=0.1"
    assert parse_method_spec("fedsgd").label == "fedsgd"
