"""Models on the command line: written by runs, exported, and used as a start."""

import pytest
import torch
from safetensors.torch import load_file, save_file

import aquila
from aquila.runtime.persist import save_server
from aquila.sim.records import read_records
from aquila.sim.setting import Setting
from aquila.tasks.models import build_model
from helpers.command_line import error_line, output, press_ctrl_c
from helpers.problems import ridge

RUN = ("run", "-m", "qsgd", "--model", "mlp", "--devices", "4", "--split", "iid")


@pytest.fixture
def folder(tmp_path):
    output(*RUN, "--rounds", "4", "--checkpoint-every", "2", "--out", str(tmp_path / "run"))
    return tmp_path / "run"


def same(first, second):
    return set(first) == set(second) and all(torch.equal(first[n], second[n]) for n in first)


def test_run_writes_models_that_plain_torch_loads(folder):
    problem, _ = Setting(devices=4, split="iid").problem()
    x, y = problem.evaluate.test.batch
    module = build_model("mlp", inputs=64, classes=10).eval()
    records = read_records(folder)
    best = max(records, key=lambda record: record.metrics["test_accuracy"])
    for name, record in (("model", records[-1]), ("best", best)):
        module.load_state_dict(load_file(folder / f"{name}.safetensors"))
        accuracy = float((module(x).argmax(1) == y).float().mean())
        assert accuracy == pytest.approx(record.metrics["test_accuracy"])


def test_export_of_the_final_model_the_checkpoint_and_the_best(folder, tmp_path):
    final = load_file(folder / "model.safetensors")
    text = output("export", str(folder), "-o", str(tmp_path / "a.pt"))
    accuracy = read_records(folder)[-1].metrics["test_accuracy"]
    assert text == f"{tmp_path / 'a.pt'}: qsgd, after 4 rounds, test_accuracy {accuracy:.4g}\n"
    assert same(torch.load(tmp_path / "a.pt", weights_only=True), final)
    output("export", str(folder), "--checkpoint", "-o", str(tmp_path / "b.safetensors"))
    assert same(load_file(tmp_path / "b.safetensors"), final)
    output("export", str(folder), "--best", "-o", str(tmp_path / "c.safetensors"))
    assert same(load_file(tmp_path / "c.safetensors"), load_file(folder / "best.safetensors"))


def test_export_takes_the_checkpoint_if_it_is_newer(folder, tmp_path):
    old = (folder / "model.safetensors").read_bytes()
    output(*RUN, "--rounds", "6", "--out", str(folder), "--resume")
    new = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()  # tensors of a loaded file share its memory
    (folder / "model.safetensors").write_bytes(old)
    assert "after 6 rounds" in output("export", str(folder), "-o", str(tmp_path / "a.safetensors"))
    assert same(load_file(tmp_path / "a.safetensors"), new)


def test_export_fills_the_statistics_of_batch_norms(tmp_path):
    run = (
        "run", "-m", "qsgd", "--data", "synthetic_cifar10", "--samples", "40", "--test-samples",
        "20", "--model", "resnet18", "--widths", "0.1", "--devices", "2", "--split", "iid",
        "--rounds", "1", "--out", str(tmp_path / "run"),
    )  # fmt: skip
    output(*run)
    output("export", str(tmp_path / "run"), "--checkpoint", "-o", str(tmp_path / "m.safetensors"))
    state = load_file(tmp_path / "m.safetensors")
    assert same(state, load_file(tmp_path / "run" / "model.safetensors"))
    module = build_model("resnet18", 0.1, norm="running").eval()
    module.load_state_dict(state)
    setting = Setting(
        data="synthetic_cifar10", model="resnet18", widths="0.1", samples=40, test_samples=20,
        devices=2, split="iid",
    )  # fmt: skip
    x, y = setting.problem()[0].evaluate.test.batch
    accuracy = float((module(x).argmax(1) == y).float().mean())
    (record,) = read_records(tmp_path / "run")
    assert accuracy == pytest.approx(record.metrics["test_accuracy"])


@pytest.mark.parametrize("average", [0, 0.9])
def test_checkpoint_of_a_python_run_gives_its_vector(tmp_path, average):
    facts = {"data": "my photos", "model": "mlp"}  # as a user describes them
    method = aquila.create("laq")
    options = aquila.RunOptions(out=tmp_path / "run", facts=facts, model_average=average)
    run = aquila.simulate(method, torch.zeros(20), ridge().devices, 3, options=options)
    output("export", str(tmp_path / "run"), "--checkpoint", "-o", str(tmp_path / "m.pt"))
    assert same(torch.load(tmp_path / "m.pt", weights_only=True), {"theta": run.theta})


@pytest.mark.parametrize("average", [0, 0.9])
def test_state_of_a_flower_server_gives_its_vector(tmp_path, average):
    options = aquila.RunOptions(model_average=average)
    simulation = aquila.Simulation(
        aquila.create("laq"), torch.zeros(20), ridge().devices, options=options
    )
    simulation.advance()
    simulation.advance()
    save_server(tmp_path / "server.state", simulation.server)
    (tmp_path / "run.json").write_text('{"run": "ab", "fingerprint": "method laq"}')
    text = output("export", str(tmp_path), "-o", str(tmp_path / "m.safetensors"))
    assert text.endswith("m.safetensors: after 2 rounds\n")
    assert same(load_file(tmp_path / "m.safetensors"), {"theta": simulation.evaluated_model})


def test_export_errors(folder, tmp_path):
    target = ("-o", str(tmp_path / "m.pt"))
    assert "there is no folder none" in error_line("export", "none", *target)
    assert "must end in .safetensors or .pt" in error_line("export", str(folder), "-o", "m.onnx")
    both = error_line("export", str(folder), "--best", "--checkpoint", *target)
    assert "name two models" in both
    (folder / "best.safetensors").unlink()
    assert "has no best model" in error_line("export", str(folder), "--best", *target)
    (folder / "checkpoint.npz").unlink()
    missing = error_line("export", str(folder), "--checkpoint", *target)
    assert f"{folder} has no checkpoint; a run writes one every --checkpoint-every" in missing
    (folder / "checkpoint.npz").write_bytes(b"damaged")
    assert "is not a checkpoint" in error_line("export", str(folder), "--checkpoint", *target)
    assert not (tmp_path / "m.pt").exists()


def test_init_from_starts_at_saved_weights(folder, tmp_path):
    problem, _ = Setting(init_from=str(folder / "model.safetensors")).problem()
    saved = build_model("mlp", inputs=64, classes=10)
    saved.load_state_dict(load_file(folder / "model.safetensors"))
    assert torch.equal(problem.theta0, torch.nn.utils.parameters_to_vector(saved.parameters()))
    output("export", str(folder), "-o", str(tmp_path / "m.pt"))
    out = ("--out", str(tmp_path / "second"))
    output(*RUN, "--rounds", "2", "--init-from", str(tmp_path / "m.pt"), *out)
    again = (*RUN, "--rounds", "3", "--resume", *out)
    (tmp_path / "m.pt").rename(tmp_path / "moved.pt")
    output(*again, "--init-from", str(tmp_path / "moved.pt"))
    assert "cannot be resumed: model" in error_line(*again)  # random weights
    output("export", str(tmp_path / "second"), "--checkpoint", "-o", str(tmp_path / "n.pt"))


def test_weights_that_do_not_fit_are_errors(folder, tmp_path):
    state = load_file(folder / "model.safetensors")
    path, name = tmp_path / "m.safetensors", min(state)
    save_file({**state, name: torch.zeros(3)}, path)
    message = error_line(*RUN, "--init-from", str(path))
    assert f"{path} has {name} of shape (3,), but the module has" in message
    assert "there is no model file none.pt" in error_line(*RUN, "--init-from", "none.pt")


def test_stop_at_and_patience_end_runs(tmp_path):
    arguments = (*RUN, "--rounds", "30", "--out", str(tmp_path / "run"))
    text = output(*arguments, "--stop-at", "0.3")
    rounds = len(read_records(tmp_path / "run"))
    assert rounds < 30
    assert f"qsgd: ended after {rounds} rounds: test_accuracy reached" in text
    assert (tmp_path / "run" / "model.safetensors").exists()
    output(*arguments, "--resume", "--rounds", str(rounds + 2))
    assert len(read_records(tmp_path / "run")) == rounds + 2
    text = output(*RUN, "--alpha", "1e-9", "--rounds", "30", "--patience", "2")
    assert "qsgd: ended after 3 rounds: test_accuracy has not improved in 2 evaluations" in text


def test_longer_run_equals_an_uninterrupted_one(folder, tmp_path):
    output(*RUN, "--rounds", "7", "--out", str(folder), "--resume")
    output(*RUN, "--rounds", "7", "--out", str(tmp_path / "whole"))
    assert read_records(folder) == read_records(tmp_path / "whole")
    models = [load_file(path / "model.safetensors") for path in (folder, tmp_path / "whole")]
    assert same(*models)


def test_interrupted_command_writes_its_model(tmp_path):
    # without evaluations: an interrupt during one falls back to the last checkpoint
    arguments = (
        *RUN, "--rounds", "100000", "--checkpoint-every", "0", "--evaluate-every", "100000",
        "--out", str(tmp_path),
    )  # fmt: skip
    status, _ = press_ctrl_c(*arguments, when=lambda: len(read_records(tmp_path)) >= 3)
    assert status == 130
    output("export", str(tmp_path), "--checkpoint", "-o", str(tmp_path / "m.safetensors"))
    final = load_file(tmp_path / "model.safetensors")
    assert same(final, load_file(tmp_path / "m.safetensors"))
