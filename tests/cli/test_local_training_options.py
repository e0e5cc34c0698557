"""Local training from the command line, settings files and settings."""

import json

import pytest

from aquila.sim.setting import Setting
from aquila.training.local_training import LocalTraining, training_parameters
from helpers.command_line import error_line, output

SMALL = ("run", "-m", "fedavg", "--smoke", "--work", "epochs")
FEW = ("--rounds", "1", "--samples", "100", "--devices", "5")


def test_options_reach_the_run(tmp_path):
    out = str(tmp_path / "run")
    recipe = ("--local-optimizer", "adamw", "--weight-decay", "0.01", "--local-steps", "3")
    text = output(*SMALL, *recipe, "--clip", "1", "--prox", "0.1", "--out", out)
    shown = "3 local steps (local optimizer adamw, weight decay 0.01, clip 1, prox 0.1)"
    assert shown in " ".join(text.split())
    (path,) = tmp_path.rglob("run.json")
    saved = json.loads(path.read_text())
    assert {name: saved[name] for name in training_parameters()} == LocalTraining(
        local_optimizer="adamw", weight_decay=0.01, local_steps=3, clip=1, prox=0.1
    ).to_dict()


def test_settings_file_has_the_same_keys(tmp_path):
    file = tmp_path / "recipe.toml"
    file.write_text(
        'compare = ["fedavg"]\n[setting]\nwork = "epochs"\nmomentum = 0.9\nnesterov = true\n'
    )
    text = output("compare", str(file), "--smoke", "--out", str(tmp_path / "out"))
    assert "one local epoch (momentum 0.9, nesterov)" in " ".join(text.split())


def test_resume_with_another_recipe_is_refused(tmp_path):
    run = (*SMALL, "--out", str(tmp_path / "run"))
    output(*run, "--momentum", "0.9")
    for recipe in ((), ("--momentum", "0.5"), ("--local-optimizer", "adam")):
        assert "of another run" in error_line(*run, *recipe, "--resume")
    output(*run, "--momentum", "0.9", "--resume")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ("--work", "epochs", "--local-optimizer", "adamw", "--momentum", "0.9"),
            "momentum belongs to local_optimizer sgd, not adamw",
        ),
        (("--work", "epochs", "--nesterov", "true"), "nesterov needs momentum > 0"),
        (("--local-optimizer", "lion"), "local_optimizer must be one of sgd, adam, adamw"),
        (("--weight-decay", "-1"), "weight_decay must be a number >= 0"),
        (
            ("--momentum", "0.9"),
            "laq: momentum cannot apply to a gradient, which takes no local steps; set work to "
            "epochs",
        ),
        (
            ("--local-optimizer", "adam", "--local-steps", "4"),
            "local_optimizer adam and local_steps cannot apply to a gradient",
        ),
    ],
)
def test_invalid_combinations_give_one_sentence(options, message):
    assert message in error_line("run", "-m", "laq", *options)


def test_fedavg_takes_local_steps_without_being_told():
    shown = output("run", "-m", "fedavg", "--momentum", "0.9", "--local-steps", "3", *FEW)
    assert "3 local steps (momentum 0.9)" in shown


def test_comparing_all_methods_leaves_out_the_one_without_local_steps(tmp_path):
    recipe = ("--work", "epochs", "--momentum", "0.9", "--local-steps", "1")
    shown = output("compare", *recipe, *FEW, "--out", str(tmp_path))
    assert "fedsgd is left out, because it takes no local steps" in shown
    assert not (tmp_path / "fedsgd").exists()
    assert (tmp_path / "fedavg").is_dir()
    message = error_line("compare", "-m", "fedsgd", *recipe, *FEW, "--out", str(tmp_path))
    assert "takes no local steps; leave the method out" in message
    assert "laq: momentum cannot" in error_line("compare", "-m", "laq", "--momentum", "0.9")


def test_setting_gives_back_its_training():
    setting = Setting.of({"work": "epochs", "momentum": 0.9, "local_steps": 20})
    assert setting.training == LocalTraining(momentum=0.9, local_steps=20)
    assert Setting.of(setting.to_dict()) == setting
    assert setting.smoke().training == LocalTraining(momentum=0.9, local_steps=1)
    assert setting.identity() != Setting.of({"work": "epochs"}).identity()


def test_weight_decay_and_clipping_apply_to_gradients():
    setting = Setting.of({"weight_decay": 0.1, "clip": 1.0, "prox": 0.5})
    assert "(weight decay 0.1, clip 1, prox 0.5)" in setting.describe(10)
