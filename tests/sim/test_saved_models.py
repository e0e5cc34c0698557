"""Trained models: loaded, saved, kept in run folders, and used in plain torch."""

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import nn

import aquila
from aquila.sim.model_files import load_state, read_metadata, read_model, write_model
from aquila.sim.model_store import BEST_FILE, MODEL_FILE
from aquila.sim.records import read_records
from aquila.version import __version__
from helpers.problems import ridge

torch.manual_seed(0)
X = torch.randn(240, 6)
Y = (X @ torch.randn(6, 3)).argmax(1)
SHARDS = [(X[m:200:4], Y[m:200:4]) for m in range(4)]
TEST = (X[200:], Y[200:])
METHOD = aquila.create("qsgd", alpha=0.5)


def dense_net(hidden: int = 8) -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(6, hidden), nn.ReLU(), nn.Linear(hidden, 3))


def norm_net(running: bool) -> nn.Sequential:
    torch.manual_seed(2)
    norm = nn.BatchNorm1d(8, track_running_stats=running)
    return nn.Sequential(nn.Linear(6, 8), norm, nn.ReLU(), nn.Linear(8, 3))


class Frozen(nn.Module):
    """A frozen first layer, a trained second one, and a buffer."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.body, self.head = nn.Linear(6, 8), nn.Linear(8, 3)
        self.body.requires_grad_(False)
        self.register_buffer("scale", torch.full((), 2.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self.body(x)) * self.scale)


def accuracy(module: nn.Module) -> float:
    with torch.no_grad():
        return float((module(TEST[0]).argmax(1) == TEST[1]).float().mean())


def metadata(path) -> dict[str, str]:
    with safe_open(path, "pt") as file:
        return file.metadata()


def test_loaded_module_has_the_recorded_accuracy():
    problem = aquila.problem(dense_net(), SHARDS, TEST)
    run = problem.train(METHOD, rounds=5)
    module = problem.load(run.theta)
    assert not module.training
    assert accuracy(module) == pytest.approx(run.records[-1].metrics["test_accuracy"])
    with torch.no_grad():
        next(module.parameters()).zero_()  # a copy: the problem is not changed
    again = problem.load(run.theta)
    assert accuracy(again) == pytest.approx(run.records[-1].metrics["test_accuracy"])


def test_train_equals_simulate():
    problem = aquila.problem(dense_net(), SHARDS, TEST)
    run = problem.train(METHOD, 4, 7)
    same = aquila.simulate(METHOD, problem.theta0, problem.devices, 4, 7, evaluate=problem.evaluate)
    assert run.records == same.records
    assert torch.equal(run.theta, same.theta)


@pytest.mark.parametrize("suffix", ["pt", "safetensors"])
def test_saved_model_keeps_frozen_parameters_and_buffers(tmp_path, suffix):
    start, path = Frozen(), tmp_path / f"model.{suffix}"
    problem = aquila.problem(start, SHARDS, TEST)
    run = problem.train(METHOD, rounds=5)
    run.save(path)
    state = torch.load(path, weights_only=True) if suffix == "pt" else load_file(path)
    assert set(state) == set(start.state_dict())
    for name in ("body.weight", "body.bias", "scale"):
        assert torch.equal(state[name], start.state_dict()[name])
    assert not torch.equal(state["head.weight"], start.head.weight)
    plain = Frozen().eval()
    plain.load_state_dict(state)
    assert accuracy(plain) == pytest.approx(run.records[-1].metrics["test_accuracy"])


@pytest.mark.parametrize("running", [False, True])
def test_saved_batch_norms_work_in_plain_torch(tmp_path, running):
    problem = aquila.problem(norm_net(running), SHARDS, TEST)
    run = problem.train(METHOD, rounds=8)
    run.save(tmp_path / "model.pt")
    plain = norm_net(running=True).eval()
    plain.load_state_dict(torch.load(tmp_path / "model.pt", weights_only=True))
    assert accuracy(plain) == pytest.approx(run.records[-1].metrics["test_accuracy"])
    assert not torch.equal(plain[1].running_mean, torch.zeros(8))


def test_several_widths():
    options = aquila.ProblemOptions(narrower=[dense_net(4)], groups=[0, 0, 1, 1])
    problem = aquila.problem(dense_net(8), SHARDS, TEST, options=options)
    run = problem.train(METHOD, rounds=4)
    wide, narrow = problem.load(run.theta), problem.load(run.theta, device=3)
    assert accuracy(wide) == pytest.approx(run.records[-1].metrics["test_accuracy"])
    assert torch.equal(narrow[0].weight, wide[0].weight[:4])
    assert torch.equal(narrow[2].weight, wide[2].weight[:, :4])


def test_invalid_calls_of_load_and_save_are_errors(tmp_path):
    problem = aquila.problem(dense_net(), SHARDS)
    with pytest.raises(ValueError, match=r"vector of the 83 trained parameters.*not shape \(2,\)"):
        problem.load(torch.zeros(2))
    with pytest.raises(ValueError, match="device must be from 0 to 3, not 4"):
        problem.load(problem.theta0, device=4)
    run = problem.train(METHOD, rounds=1)
    with pytest.raises(ValueError, match=r"end in \.safetensors or \.pt, unlike 'model\.onnx'"):
        run.save(tmp_path / "model.onnx")
    with pytest.raises(ValueError, match="no best model, because it was not evaluated"):
        run.save(tmp_path / "model.pt", best=True)
    functions = aquila.simulate(METHOD, torch.zeros(20), ridge().devices, rounds=1)
    with pytest.raises(ValueError, match=r"no module to save; save the vector with torch\.save"):
        functions.save(tmp_path / "model.pt")
    assert list(tmp_path.iterdir()) == []


def test_run_folder_has_the_final_and_the_best_model(tmp_path):
    problem = aquila.problem(dense_net(), SHARDS, TEST)
    run = problem.train(METHOD, 12, options=aquila.RunOptions(out=tmp_path, checkpoint_every=5))
    values = [record.metrics["test_accuracy"] for record in run.records]
    assert run.best is not None
    assert (run.best.value, run.best.round) == (max(values), values.index(max(values)))
    for name, theta, value, number in (
        (MODEL_FILE, run.theta, values[-1], 11),
        (BEST_FILE, run.best.theta, run.best.value, run.best.round),
    ):
        plain = dense_net().eval()
        plain.load_state_dict(load_file(tmp_path / name))
        assert torch.equal(nn.utils.parameters_to_vector(plain.parameters()), theta)
        assert accuracy(plain) == pytest.approx(value)
        assert metadata(tmp_path / name) == {
            "method": "qsgd", "round": str(number), "metric": "test_accuracy", "value": repr(value),
            "aquila": __version__,
        }  # fmt: skip
    run.save(tmp_path / "mine.safetensors", best=True)
    assert metadata(tmp_path / "mine.safetensors")["round"] == str(run.best.round)


def test_run_of_functions_writes_its_vector(tmp_path):
    problem = ridge()
    run = aquila.simulate(
        METHOD, torch.zeros(20), problem.devices, 3,
        evaluate=lambda theta: {"loss": problem.loss(theta.double())},
        options=aquila.RunOptions(out=tmp_path),
    )  # fmt: skip
    assert torch.equal(load_file(tmp_path / MODEL_FILE)["theta"], run.theta)
    assert metadata(tmp_path / BEST_FILE)["metric"] == "loss"


def test_best_model_survives_a_resume(tmp_path):
    """The metric is best in round 1, before the interruption."""
    problem = aquila.problem(dense_net(), SHARDS)

    def evaluate(theta):
        return {"accuracy": next(values)}

    def run(rounds, **options):
        return aquila.simulate(
            METHOD, problem.theta0, problem.devices, rounds, evaluate=evaluate,
            options=aquila.RunOptions(out=tmp_path, **options),
        )  # fmt: skip

    values = iter([0.1, 0.9, 0.5, 0.5, 0.5])
    first = run(3)
    resumed = run(5, resume=True)
    assert resumed.best is not None
    assert (resumed.best.round, resumed.best.value) == (1, 0.9)
    assert torch.equal(resumed.best.theta, first.best.theta)
    assert metadata(tmp_path / BEST_FILE)["round"] == "1"
    assert metadata(tmp_path / MODEL_FILE)["round"] == "4"


def test_interrupted_run_writes_its_models(tmp_path):
    problem = aquila.problem(dense_net(), SHARDS, TEST)
    whole = problem.train(METHOD, rounds=8)

    def interrupt(record):
        if record.round == 4:
            raise KeyboardInterrupt

    options = aquila.RunOptions(out=tmp_path, checkpoint_every=0)
    with pytest.raises(KeyboardInterrupt):
        problem.train(METHOD, rounds=8, on_record=interrupt, options=options)
    assert metadata(tmp_path / MODEL_FILE)["round"] == "4"
    assert (tmp_path / BEST_FILE).exists()
    resumed = problem.train(METHOD, 8, options=aquila.RunOptions(out=tmp_path, resume=True))
    assert resumed.records == whole.records
    assert (resumed.best.round, resumed.best.value) == (whole.best.round, whole.best.value)
    assert torch.equal(resumed.best.theta, whole.best.theta)


def test_diverged_run_keeps_its_best_model(tmp_path):
    problem, diverging = (
        aquila.problem(dense_net(), SHARDS, TEST),
        aquila.create("fedsgd", alpha=50),
    )
    with pytest.raises(aquila.NonFiniteError):
        problem.train(diverging, rounds=200, options=aquila.RunOptions(out=tmp_path))
    facts = metadata(tmp_path / BEST_FILE)
    values = [record.metrics.get("test_accuracy", 0.0) for record in read_records(tmp_path)]
    assert facts["value"] == repr(max(values))
    assert not (tmp_path / MODEL_FILE).exists()


def test_finished_run_continues_for_more_rounds(tmp_path):
    problem = aquila.problem(dense_net(), SHARDS, TEST)
    whole = problem.train(METHOD, rounds=9)
    problem.train(METHOD, rounds=4, options=aquila.RunOptions(out=tmp_path))
    longer = problem.train(METHOD, 9, options=aquila.RunOptions(out=tmp_path, resume=True))
    assert longer.records == whole.records
    assert torch.equal(longer.theta, whole.theta)
    assert metadata(tmp_path / MODEL_FILE)["round"] == "8"


def test_models_of_a_deleted_run_are_replaced(tmp_path):
    problem, options = aquila.problem(dense_net(), SHARDS, TEST), aquila.RunOptions(out=tmp_path)
    problem.train(METHOD, 3, options=options)
    for name in ("records.jsonl", "checkpoint.npz"):
        (tmp_path / name).unlink()
    second = problem.train(METHOD, 3, seed=1, options=options)
    plain = dense_net()
    plain.load_state_dict(load_file(tmp_path / MODEL_FILE))
    assert torch.equal(nn.utils.parameters_to_vector(plain.parameters()), second.theta)


def test_pretrained_module_is_the_start(tmp_path):
    first = aquila.problem(dense_net(), SHARDS, TEST).train(METHOD, rounds=5)
    first.save(tmp_path / "model.safetensors")
    module = dense_net()
    module.load_state_dict(load_file(tmp_path / "model.safetensors"))
    assert torch.equal(aquila.problem(module, SHARDS).theta0, first.theta)


def test_state_dicts_that_do_not_fit_name_the_first_wrong_key():
    state = dense_net().state_dict()
    for change, message in (
        ({"0.weight": None}, r"w lacks 0\.weight, which the module has"),
        ({"0.bias": torch.zeros(9)}, r"w has 0\.bias of shape \(9,\), but the module has \(8,\)"),
        ({"9.bias": torch.zeros(9)}, r"w has 9\.bias, which the module lacks"),
    ):
        tensors = {k: v for k, v in {**state, **change}.items() if v is not None}
        with pytest.raises(ValueError, match=message):
            load_state(dense_net(), tensors, "w")


def test_running_statistics_are_left_out_of_static_batch_norms():
    module = norm_net(running=False)
    load_state(module, norm_net(running=True).state_dict(), "w")
    with pytest.raises(ValueError, match=r"w lacks 1\.running_mean"):
        load_state(norm_net(running=True), module.state_dict(), "w")


class Harmful:
    def __reduce__(self):
        return (print, ("code from a file was run",))


def test_unreadable_model_files_are_errors(tmp_path, capsys):
    (tmp_path / "text.pt").write_text("text")
    (tmp_path / "text.safetensors").write_text("text")
    torch.save({"w": Harmful()}, tmp_path / "code.pt")
    torch.save([torch.zeros(2)], tmp_path / "list.pt")
    for name, message in (
        ("none.pt", "there is no model file"),
        ("text.pt", "is not a readable model file: it must be a state dict written by torch"),
        (".", "a model file must end in"),
        ("text.safetensors", "is not a readable model file"),
        ("code.pt", "is not a readable model file"),
        ("list.pt", "does not hold a state dict"),
        ("model.bin", r"must end in \.safetensors or \.pt"),
    ):
        with pytest.raises(ValueError, match=message):
            read_model(tmp_path / name)
    assert "was run" not in capsys.readouterr().out


def test_same_model_gives_the_same_file(tmp_path):
    tensors = {"a": torch.randn(3, 2), "b": torch.arange(4), "c": torch.tensor(1.5)}
    facts = {name: name * 3 for name in ("aquila", "method", "round", "metric", "value")}
    for number in range(5):
        write_model(tmp_path / f"{number}.safetensors", tensors, facts)
    contents = {file.read_bytes() for file in tmp_path.iterdir()}
    assert len(contents) == 1
    assert read_metadata(tmp_path / "0.safetensors") == facts
    loaded = read_model(tmp_path / "0.safetensors")
    assert all(loaded[name].equal(tensor) for name, tensor in tensors.items())
