"""Optimizers, schedules and weights give the same bits on Flower as in the simulator."""

import json
from dataclasses import replace

import pytest

pytest.importorskip("flwr", reason="flwr is not installed")
import torch
from local_grid import LocalGrid, Node, local_grid

import aquila
import aquila.flower

ROUNDS, SEED = 6, 5
SIZES = [40, 15, 25]
LOCAL = {
    "momentum": aquila.LocalTraining(momentum=0.9, nesterov=True, weight_decay=1e-3, clip=1.0),
    "adam": aquila.LocalTraining(local_optimizer="adam"),
    "adamw": aquila.LocalTraining(local_optimizer="adamw", weight_decay=0.01, prox=0.1),
}
SERVER = {
    "cosine": {"schedule": "warmup:2+cosine"},
    "momentum": {"server_optimizer": "momentum", "schedule": "cosine"},
    "adam": {"server_optimizer": "adam", "server_lr": 0.02, "server_schedule": "cosine"},
    "weights": {"server_optimizer": "nesterov", "server_lr": 0.5, "weights": "samples"},
}
METHODS = ("fedavg", "aquila", "aquila_dither", "marina")
RECIPES = [
    pytest.param(METHODS[(i + j) % 4], LOCAL[local], SERVER[server], id=f"{local}-{server}")
    for i, local in enumerate(LOCAL)
    for j, server in enumerate(SERVER)
]
SELECTIONS = [
    *((name, "rpow_d") for name in METHODS),
    *(("aquila", rule) for rule in ("weighted", "pow_d", "cpow_d")),
]


def make_problem(training):
    generator = torch.Generator().manual_seed(1)
    shards = [
        (torch.randn(n, 6, generator=generator), torch.randint(3, (n,), generator=generator))
        for n in SIZES
    ]
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    return aquila.problem(module, shards, batch_size=5, training=training)


def create(name):
    parameters = {} if name == "fedavg" else {"work": "epochs"}
    return aquila.create(name, alpha=0.05, **parameters)


def strategy(problem, method, options, rounds=ROUNDS):
    return aquila.flower.strategy(method, problem.theta0, 3, rounds, SEED, options=options)


def client_app(problem, method):
    return aquila.flower.client_app(method, lambda device, _: problem.devices[device])


@pytest.mark.parametrize(("name", "local", "server"), RECIPES)
def test_same_bits_as_the_simulator(name, local, server):
    problem, method, options = make_problem(local), create(name), aquila.RunOptions(**server)
    wanted = aquila.simulate(method, problem.theta0, problem.devices, ROUNDS, SEED, options=options)
    grid = local_grid(client_app(problem, method), 3)
    got = strategy(problem, method, options).start(grid)
    assert torch.equal(got.theta, wanted.theta)
    assert got.records == wanted.records


@pytest.mark.parametrize("server", SERVER.values(), ids=SERVER)
def test_server_resumes_with_the_same_bits(tmp_path, server):
    problem, method = make_problem(LOCAL["momentum"]), create("aquila")
    options = aquila.RunOptions(**server).for_rounds(ROUNDS)
    app = client_app(problem, method)
    whole = strategy(problem, method, options).start(local_grid(app, 3))
    saved = replace(options, out=tmp_path)
    grid = local_grid(app, 3)
    strategy(problem, method, saved, rounds=3).start(grid)
    resumed = strategy(problem, method, saved).start(grid)
    assert torch.equal(resumed.theta, whole.theta)


def test_samples_are_asked_once_and_saved(tmp_path):
    problem, method = make_problem(LOCAL["momentum"]), create("aquila")
    options = aquila.RunOptions(weights="samples", out=tmp_path)
    grid = local_grid(client_app(problem, method), 3)
    strategy(problem, method, options, rounds=1).start(grid)
    assert json.loads((tmp_path / "samples.json").read_text()) == SIZES
    (tmp_path / "samples.json").write_text("[1, 2")
    with pytest.raises(ValueError, match=r"samples\.json does not hold numbers of samples"):
        strategy(problem, method, options, rounds=2).start(grid)


def test_devices_without_samples_are_refused(caplog):
    method = aquila.create("fedsgd")
    app = aquila.flower.client_app(method, lambda *_: lambda theta: (0.0, theta))
    run = aquila.flower.strategy(
        method, torch.zeros(4), 1, 1,
        options=aquila.RunOptions(weights="samples"),
        deployment=aquila.flower.Deployment(wait_seconds=0.5),
    )  # fmt: skip
    with pytest.raises(TimeoutError):
        run.start(LocalGrid({5: Node(app, {"partition-id": 0})}))
    assert "weights=samples needs the number of samples of every device" in caplog.text


@pytest.mark.parametrize(("name", "rule"), SELECTIONS)
def test_selection_gives_the_same_bits_as_the_simulator(name, rule, tmp_path):
    problem, method = make_problem(LOCAL["momentum"]), create(name)
    options = aquila.RunOptions(selection=rule, participation=0.4, weights="samples")
    wanted = aquila.simulate(method, problem.theta0, problem.devices, ROUNDS, SEED, options=options)
    grid, saved = local_grid(client_app(problem, method), 3), replace(options, out=tmp_path)
    strategy(problem, method, saved, rounds=3).start(grid)
    got = strategy(problem, method, saved).start(grid)
    assert torch.equal(got.theta, wanted.theta)
    assert got.records == wanted.records


@pytest.mark.parametrize("name", ["fedavg", "aquila_dither", "aquila_topk"])
def test_uploads_in_every_second_round_give_the_same_bits_as_the_simulator(name, tmp_path):
    """With a server that restarts between two uploads."""
    work = {} if name == "fedavg" else {"work": "epochs"}
    method = aquila.create(name, alpha=0.05, upload_every=2, **work)
    problem, options = make_problem(LOCAL["momentum"]), aquila.RunOptions(downlink_error=0.3)
    wanted = aquila.simulate(method, problem.theta0, problem.devices, ROUNDS, SEED, options=options)
    grid, saved = local_grid(client_app(problem, method), 3), replace(options, out=tmp_path)
    strategy(problem, method, saved, rounds=3).start(grid)
    got = strategy(problem, method, saved).start(grid)
    assert [record.uploads for record in got.records] == [0, 3] * 3
    assert torch.equal(got.theta, wanted.theta)
    assert got.records == wanted.records


def accuracy_by_round(values):
    """Return an evaluation whose accuracies are the given values."""
    left = iter(values)
    return lambda theta: {"accuracy": next(left)}


@pytest.mark.parametrize(
    ("rule", "rounds"), [({"stop_at": 0.5}, 3), ({"patience": 2}, 5), ({}, ROUNDS)]
)
def test_run_ends_by_the_rules_of_the_simulator(rule, rounds, tmp_path):
    values, method = [0.1, 0.3, 0.6, 0.5, 0.6, 0.4], aquila.create("fedsgd")
    problem = make_problem(aquila.LocalTraining())
    runs = [
        aquila.flower.strategy(
            method, problem.theta0, 3, ROUNDS, SEED, evaluate=accuracy_by_round(values),
            options=aquila.RunOptions(out=tmp_path, **rule),
        )
        for _ in range(2)
    ]  # fmt: skip
    grid = local_grid(client_app(problem, method), 3)
    assert len(runs[0].start(grid).records) == rounds
    assert len(runs[1].start(grid).records) == rounds  # a resumed run has already ended


def test_callback_ends_the_run():
    problem, method = make_problem(aquila.LocalTraining()), aquila.create("fedsgd")
    grid = local_grid(client_app(problem, method), 3)
    seen = []
    run = strategy(problem, method, aquila.RunOptions())
    result = run.start(grid, on_record=[seen.append, lambda record: record.round == 1])
    assert [record.round for record in seen] == [0, 1]
    assert result.records == seen


def test_trackers_continue_the_log_of_a_resumed_run(tmp_path):
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    from aquila.report.trackers.tensorboard import EVENT_FILES, _logged_steps

    problem, method = make_problem(aquila.LocalTraining()), create("fedavg")
    options, grid = (
        aquila.RunOptions(out=tmp_path / "run"),
        local_grid(client_app(problem, method), 3),
    )
    for rounds in (2, 4):
        run = strategy(problem, method, options, rounds)
        run.start(grid, on_record=aquila.trackers(tensorboard=tmp_path / "board"))
    files = (tmp_path / "board" / "fedavg").glob(EVENT_FILES)
    assert sorted(step for file in files for step in _logged_steps(file)) == [0, 1, 2, 3]
