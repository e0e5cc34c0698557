"""`aquila advise`: sentences, JSON, the command to train, and mistakes."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from aquila.cli import main
from helpers.command_line import invoke, output

ROOT = Path(__file__).parents[2]
RESNET = ("advise", "--model", "resnet18", "--split", "iid", "--link", "lte")


def words(*arguments):
    return " ".join(output(*arguments).split())


def command_of(text):
    (line,) = [line for line in text.splitlines() if line.startswith("Train: ")]
    return line.removeprefix("Train: aquila ").split()


def test_advice_is_short_and_complete():
    text = output(*RESNET)
    lines = text.splitlines()
    assert len(lines) <= 20
    assert lines[0].startswith("For resnet18 on cifar10 with 11,172,170 parameters, 10 devices")
    starts = [line.partition(" ")[0] for line in lines if not line.startswith(" ")]
    assert starts == [
        "For", "Take", "Why:", "Arithmetic:", "How", "Runner-up:", "Train:", "Check",
    ]  # fmt: skip
    assert "results/recipes/cifar10_resnet18" in text
    (dense,) = [line for line in lines if line.startswith("  dense uploads")]
    assert "8.94 GB" in dense


def test_advised_command_runs():
    text = output("advise", "--rounds", "3", "--split", "dirichlet:0.3", "--link", "wifi")
    assert command_of(text)[0] == "run"
    assert "3 rounds" in words(*command_of(text))


def test_advised_command_has_the_work_of_the_comparison():
    command = command_of(output("advise", "--model", "transformer", "--split", "iid"))
    assert command[command.index("--work") + 1] == "epochs"
    chosen = output("advise", "--model", "transformer", "--split", "iid", "--work", "gradient")
    assert command_of(chosen).count("--work") == 1
    assert "epochs" not in command_of(chosen)


def test_size_of_a_model_is_enough():
    text = words("advise", "--parameters", "500000", "--devices", "100", "--split", "iid")
    assert text.startswith(
        "For a model with 500,000 parameters, 100 devices, split iid, 200 rounds"
    )
    assert "Train:" not in text


def test_settings_file_is_read(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text('[setting]\nmodel = "cnn"\ndata = "fashion_mnist"\ndevices = 20\nrounds = 30\n')
    text = output("advise", str(file), "--split", "iid")
    assert "cnn on fashion_mnist with 96,658 parameters, 20 devices" in text
    assert command_of(text)[:2] == ["run", str(file)]


def test_large_downlink_gets_a_hint():
    text = words("advise", "--model", "resnet18", "--split", "iid")
    assert "Downlink: if its bytes matter too, add downlink_error=0.5; it then takes about" in text
    assert "Downlink:" not in words(*RESNET)


def test_text_model_gets_texts_and_a_split_that_they_have():
    text = words("advise", "--model", "transformer")
    assert text.startswith("For transformer on wikitext2 with 19,263,999 parameters, 10 devices, ")
    assert "split iid" in text


def test_training_of_the_settings_chooses_between_comparisons():
    plain = output("advise", str(ROOT / "experiments" / "table2" / "cifar10_iid.toml"))
    recipe = output("advise", str(ROOT / "experiments" / "recipes" / "cifar10_resnet18.toml"))
    assert "results/table2/cifar10_iid (" in plain
    assert "results/recipes/cifar10_resnet18 (" in recipe
    assert "How sure: high" in plain


def test_limits_are_answered():
    assert "Limits: it takes" in words(*RESNET, "--max-hours", "10", "--max-mb", "1000")
    short = words(*RESNET, "--max-mb", "100")
    assert "Limits: no method fits 200 rounds in 100 MB per device;" in short


def test_relayed_uploads_are_advised_if_they_are_allowed():
    limited = (*RESNET, "--tolerance", "1", "--max-mb", "110")
    text = words(*limited)
    assert "Limits: no method fits" in text
    assert "if devices may see each other's uploads, add relay_uploads=true" in text
    asked = output(*limited, "--relay-uploads", "true")
    assert "Limits: it takes" in asked
    command = command_of(asked)
    assert command[command.index("--relay-uploads") + 1] == "true"
    assert command[command.index("--downlink-error") + 1] == "0.5"
    small = output("advise", "--model", "cnn", "--relay-uploads", "true")
    assert "--relay-uploads" not in command_of(small)


def test_json_has_the_same_numbers():
    found = json.loads(output(*RESNET, "--max-mb", "1000", "--json"))
    assert found["dense"]["up_bytes_per_device"] == 4 * 11_172_170 * 200
    choice = found["choice"]
    assert choice["up_bytes"] == pytest.approx(10 * choice["up_bytes_per_device"], rel=1e-6)
    assert choice["seconds"] < found["dense"]["seconds"]
    assert found["fits"] is True
    assert found["sureness"] in ("high", "medium", "low")
    assert found["command"].startswith("aquila run -m ")


def test_trials_are_reported():
    result = CliRunner().invoke(
        main, ["advise", "--try", "--rounds", "8", "--samples", "300", "--split", "iid", "--json"]
    )
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert [trial["rounds"] for trial in found["trials"]] == [2] * len(found["trials"])
    assert found["trials"][0]["spec"] == "fedsgd"
    assert "Trying fedsgd: 2 rounds" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--model", "resnet"), "there is no model 'resnet'; did you mean 'resnet18'?"),
        (("--model", "cnn", "--parameters", "5"), "give only one"),
        (("--parameters", "0"), "parameters must be a whole number >= 1, not 0"),
        (("--parameters", "5", "--try"), "--try trains a model: name it with --model"),
        (("--split", "iidd"), "there is no split 'iidd'"),
        (("--link", "5g"), "link must be a preset, csv:FILE or empty, not '5g'"),
        (("--link", "csv:missing.csv"), "there is no trace missing.csv"),
        (("--max-hours", "3"), "max_hours needs the links of the devices: set link"),
        (("--max-mb", "0"), "max_mb must be a number > 0, not 0"),
        (("--max-mb", "much"), "'much' is not a valid float"),
        (("--try", "--try-rounds", "-1"), "try_rounds must be a whole number >= 0, not -1"),
        (("--rounds", "0"), "rounds must be a whole number >= 1"),
        (("missing.toml",), "experiment file missing.toml does not exist"),
    ],
)
def test_mistakes_get_one_sentence(arguments, message):
    result = invoke("advise", *arguments)
    assert result.exit_code == 2
    (line,) = [line for line in result.output.splitlines() if line.startswith("Error:")]
    assert message in line
