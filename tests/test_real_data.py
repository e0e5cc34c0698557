"""Every method learns on real data. Skipped if the data is not on this machine."""

import pytest

import aquila
from aquila.sim.setting import Setting
from helpers import contract
from helpers.dataset_files import real_data

# the defaults of the methods are those of their papers; AQUILA needs two bits to contract, and the
# steps of signSGD do not shrink with the gradient
CONVERGENT = {"aquila": {"b_min": 2}, "signsgd": {"alpha": 0.002}}

CIFAR = {
    "data": "cifar10", "model": "cnn", "samples": 2000, "test_samples": 1000, "split": "iid",
    "rounds": 12, "alpha": 0.05, "work": "epochs", "epochs": 1, "batch_size": 20,
}  # fmt: skip
TEXT = {
    "data": "wikitext2", "model": "transformer_small", "samples": 60, "test_samples": 10,
    "devices": 3, "split": "iid", "rounds": 4, "alpha": 0.5, "work": "epochs", "epochs": 1,
    "batch_size": 10,
}  # fmt: skip


def train(setting: Setting, name: str) -> aquila.Run:
    problem, _ = setting.problem()
    known = aquila.METHODS[name].parameters
    defaults = {n: v for n, v in setting.method_defaults.items() if n in known}
    method = aquila.create(name, **{**defaults, **CONVERGENT.get(name, {})})
    return aquila.simulate(
        method,
        problem.theta0,
        problem.devices,
        setting.rounds,
        evaluate=problem.evaluate,
        options=contract.run_options(name, fleet=problem.fleet, evaluate_every=setting.rounds // 2),
    )


def metrics_of(run: aquila.Run, metric: str) -> list[float]:
    return [r.metrics[metric] for r in run.records if r.metrics]


@pytest.mark.parametrize("name", aquila.METHODS)
def test_every_method_learns_cifar10(name):
    folder = str(real_data("cifar10"))
    work = (
        {}
        if name != "fedsgd"
        else {"work": "gradient", "batch_size": 0, "alpha": 0.1, "rounds": 30}
    )
    run = train(Setting(**{**CIFAR, **work, "data_folder": folder}), name)
    assert run.records[-1].loss < 0.97 * run.records[0].loss
    assert metrics_of(run, "test_accuracy")[-1] > 0.14


@pytest.mark.parametrize("name", aquila.METHODS)
def test_every_method_learns_a_slice_of_wikitext2(name):
    folder = str(real_data("wikitext2"))
    run = train(Setting(**TEXT, data_folder=folder), name)
    assert run.records[-1].loss < 0.97 * run.records[0].loss
    assert metrics_of(run, "perplexity")[-1] < metrics_of(run, "perplexity")[0]


def test_heterogeneous_fleet_learns_cifar10():
    folder = str(real_data("cifar10"))
    setting = Setting(
        **{**CIFAR, "widths": "1,0.5", "split": "classes:2"}, mask_classes=True, data_folder=folder
    )
    run = train(setting, "aquila")
    assert run.records[-1].loss < 0.9 * run.records[0].loss
    assert metrics_of(run, "local_accuracy")[-1] > 0.6
    sizes = run.records[0].uplink
    assert max(sizes[m] for m in range(5, 10)) < min(sizes[m] for m in range(5))
