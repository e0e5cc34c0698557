"""The experiment files can be read and run, and count bits as the paper does."""

import tomllib
from functools import cache, lru_cache
from pathlib import Path

import pytest
import torch

import aquila
from aquila.sim.experiment import read_experiment
from aquila.sim.setting import Setting
from aquila.tasks import build_model

FOLDER = Path(__file__).parent.parent.parent / "experiments"
FILES = sorted(FOLDER.rglob("*.toml"))
ROWS = [path for path in FILES if path.parent.name in ("table2", "table3")]

# what the tables print for QSGD, in GiB
PRINTED = {
    "table2/cifar10_iid_100": 156.07,
    "table2/cifar10_iid": 15.61,
    "table2/cifar10_non_iid": 15.61,
    "table2/cifar100_iid_100": 165.55,
    "table2/cifar100_iid": 16.56,
    "table2/cifar100_non_iid": 8.28,
    "table2/wikitext2_iid_80": 470.95,
    "table2/wikitext2_iid": 134.56,
    "table3/cifar10_iid": 9.76,
    "table3/cifar10_non_iid": 9.76,
    "table3/cifar100_iid": 10.56,
    "table3/cifar100_non_iid": 5.28,
    "table3/wikitext2_iid": 99.09,
}
PRINTED_ROUNDS = {"table2/wikitext2_iid_80": 437.5}
CLASSES = {"cifar10": 10, "cifar100": 100, "wikitext2": 33_279}


def name(path: Path) -> str:
    return str(path.relative_to(FOLDER).with_suffix(""))


@cache
def dimension_of(model: str, data: str, width: float) -> int:
    """Return the number of parameters of a model."""
    option = "vocabulary" if data == "wikitext2" else "classes"
    with torch.device("meta"):
        module = build_model(model, width, **{option: CLASSES[data]})
    return sum(p.numel() for p in module.parameters())


@cache
def paper_bits_of_a_coordinate() -> int:
    """Return the paper's bits per coordinate of one upload of QSGD, whose bytes are as many."""
    gradient = torch.randn(10_000, generator=torch.Generator().manual_seed(0))
    run = aquila.simulate(
        aquila.create("qsgd"), torch.zeros(10_000), [lambda theta: (1.0, gradient)], rounds=1
    )
    assert run.records[0].uplink_bytes - run.records[0].paper_bits / 8 < 64
    bits, rest = divmod(run.records[0].paper_bits, 10_000)
    assert rest == 0
    return bits


def test_every_row_of_both_tables_has_a_file():
    assert {name(path) for path in ROWS} == set(PRINTED)


@pytest.mark.parametrize("path", ROWS, ids=name)
def test_qsgd_gives_the_count_of_the_paper(path):
    setting = read_experiment(path, {}).setting
    rounds = PRINTED_ROUNDS.get(name(path), setting.rounds)
    widths = [float(width) for width in setting.widths.split(",")]
    bits = sum(
        dimension_of(setting.model, setting.data, width) * (setting.devices // len(widths))
        for width in widths
    )
    bits *= paper_bits_of_a_coordinate()
    assert round(bits * rounds / 8 / 2**30, 2) == PRINTED[name(path)]


@pytest.mark.parametrize("path", FILES, ids=name)
def test_files_start_with_the_expected_result(path):
    first = path.read_text().splitlines()[0]
    assert first.startswith(("# Table", "# Figures", "# Beyond the paper", "# Recipe"))
    assert path.parent.name in (
        "beta", "table2", "table3", "bytes_to_accuracy", "gpu", "recipes", "lena",
        "end_of_training", "ablation", "rivals",
    )  # fmt: skip
    for text in tomllib.loads(path.read_text())["compare"]:
        assert text.partition(":")[0] in aquila.METHODS


def smoke_version(path):
    """Return the setting of a short run, and its AQUILA."""
    experiment = read_experiment(path, {})
    setting = experiment.setting.smoke()
    parameters = {**setting.method_defaults, **experiment.methods.get("aquila", {})}
    return setting, aquila.create("aquila", **parameters)


@lru_cache(maxsize=1)  # neighbours in the list are often the same in short
def problem_of(setting):
    return setting.problem()


def trained_files():
    """Return files that use each option of training with each model for which a file sets it."""
    seen, chosen = set(), []
    for path in FILES:
        setting, _ = smoke_version(path)
        options = ("mask_classes", "widths", "work", "augment", "training")
        used = {(setting.model, option, getattr(setting, option)) for option in options}
        if not used <= seen:
            chosen.append(path)
            seen |= used
    return chosen


@pytest.mark.parametrize("path", FILES, ids=name)
def test_smoke_versions_have_a_problem(path):
    setting, _ = smoke_version(path)
    problem, parts = problem_of(setting)
    assert len(parts) == len(problem.devices) == setting.devices
    assert (len(problem.fleet.slices) == 2) == ("0.0625" in setting.widths)


@pytest.mark.parametrize("path", trained_files(), ids=name)
def test_smoke_versions_run(path):
    setting, method = smoke_version(path)
    assert not setting.compile_model
    problem, _ = setting.problem()
    options = aquila.RunOptions(fleet=problem.fleet)
    run = aquila.simulate(
        method, problem.theta0, problem.devices, 1, evaluate=problem.evaluate, options=options
    )
    assert run.records[0].uploads == setting.devices
    metrics = run.records[-1].metrics
    wanted = "perplexity" if setting.data.endswith("wikitext2") else "local_accuracy"
    assert wanted in metrics or not setting.mask_classes
    assert "last_minibatch_train_accuracy" in metrics


def test_overrides_take_precedence_over_the_file():
    setting = read_experiment(ROWS[0], {"rounds": "7", "data": "synthetic_cifar10"}).setting
    assert (setting.rounds, setting.data) == (7, "synthetic_cifar10")


def test_unknown_settings_are_errors():
    with pytest.raises(ValueError, match="no parameter 'device_count'"):
        Setting.of({"device_count": 3})
    with pytest.raises(ValueError, match="augment must be true or false, not 'maybe'"):
        Setting.of({"augment": "maybe"})


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_run_options_are_flat_keys_of_a_setting():
    setting = Setting.of({"rounds": 3, "participation": 0.5, "executor": "threads"})
    assert setting.options == aquila.RunOptions(participation=0.5, executor="threads")
    values = setting.to_dict()
    assert (values["rounds"], values["participation"]) == (3, 0.5)
    assert not {"options", "fleet", "out", "resume", "identity"} & set(values)
    assert Setting.of(values) == setting
    with pytest.raises(ValueError, match="the setting: participation must be a number > 0"):
        Setting.of({"participation": 0})
    with pytest.raises(ValueError, match="the setting has no parameter 'fleet'"):
        Setting.of({"fleet": None})


def test_missing_gpu_is_an_error():
    with pytest.raises(ValueError, match="this machine has no CUDA GPU"):
        Setting(device="cuda").problem()


def test_widths_are_assigned_in_order():
    setting = Setting(widths="0.5,1", devices=5, data="digits", split="iid")
    problem, _ = setting.problem()
    full = len(problem.theta0)
    sizes = [problem.fleet.dimension_of(m) for m in range(5)]
    assert sizes.count(full) == 2
    assert sizes[0] < full == sizes[-1]


def test_samples_limits_the_training_set():
    problem, parts = Setting(samples=100, split="iid").problem()
    assert sum(map(len, parts)) == 100
    assert sum(shard.samples for shard in problem.devices) == 100
