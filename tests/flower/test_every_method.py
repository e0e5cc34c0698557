"""Every method gives the same bits on Flower as in the simulator."""

import ast
from functools import cache
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="not installed: pip install -e '.[flower]'")
import torch
from local_grid import local_grid

import aquila
import aquila.flower
import aquila.flower.transport
from aquila.flower.transport import frame_of
from aquila.methods.parts.mean import NoState
from aquila.runtime.device_session import DeviceSession
from aquila.runtime.norm_limit import NormLimit
from helpers import contract
from helpers.problems import ridge

PROBLEM = ridge(devices=3, dimension=30)
ALPHA = 0.5 / PROBLEM.smoothness()
ROUNDS, SEED = 8, 3

WITH_LINKS = [row.name for row in contract.ROWS if "link" in row.options]

NAMES = [name for name in aquila.METHODS if name not in WITH_LINKS]
every_method = pytest.mark.parametrize("name", NAMES)
one_of_each_kind = pytest.mark.parametrize(
    "name", [name for name in contract.ONE_OF_EACH_KIND if name not in WITH_LINKS]
)
with_device_state = pytest.mark.parametrize(
    "name",
    [n for n in NAMES if not isinstance(aquila.create(n).device.init(torch.zeros(1)), NoState)],
)


def theta0(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.zeros(PROBLEM.dimension, dtype=dtype)


def make_device(device, context):
    return PROBLEM.devices[device]


def on_flower(method, theta, rounds=ROUNDS, evaluate=None, limit=None, **options):
    app = aquila.flower.client_app(method, make_device)
    grid = local_grid(app, 3)
    given = aquila.RunOptions(**options)
    run = aquila.flower.strategy(
        method,
        theta,
        3,
        rounds,
        SEED,
        evaluate=evaluate,
        options=given,
        deployment=aquila.flower.Deployment(limit=limit),
    )
    return run.start(grid), grid


def size(theta):
    return {"size": float(theta.norm())}


@cache
def undisturbed(name):
    """A run without faults, shared by several tests, and its grid."""
    return on_flower(aquila.create(name, alpha=ALPHA), theta0(), evaluate=size)


@every_method
def test_same_frames_and_records_as_the_simulator(name, monkeypatch):
    method = aquila.create(name, alpha=ALPHA)
    frames: list[bytes] = []
    pack = DeviceSession.pack

    def recording(session, reply):
        frames.append(pack(session, reply))
        return frames[-1]

    with monkeypatch.context() as patch:
        patch.setattr(DeviceSession, "pack", recording)
        options = aquila.RunOptions(workers=1)
        wanted = aquila.simulate(
            method, theta0(), PROBLEM.devices, ROUNDS, SEED, evaluate=size, options=options
        )
    got, grid = undisturbed(name)
    replies = [m for m in grid.answered if m.metadata.message_type == "train.aquila"]
    assert [frame_of(reply.content, "f") for reply in replies] == frames
    assert torch.equal(got.theta, wanted.theta)
    assert got.records == wanted.records
    assert [overhead.round for overhead in got.overheads] == list(range(ROUNDS))


@one_of_each_kind
def test_same_model_in_double_precision(name):
    method, theta = aquila.create(name, alpha=ALPHA), theta0(torch.float64)
    wanted = aquila.simulate(method, theta, PROBLEM.devices, ROUNDS, SEED)
    got, _ = on_flower(method, theta)
    assert torch.equal(got.theta, wanted.theta)
    assert got.records == wanted.records


@one_of_each_kind
def test_run_resumes_from_its_folder(name, tmp_path):
    method = aquila.create(name, alpha=ALPHA)
    uninterrupted, _ = undisturbed(name)
    folder = {"out": tmp_path / "run", "evaluate": size}
    on_flower(method, theta0(), rounds=3, **folder)
    resumed, _ = on_flower(method, theta0(), **folder)
    assert torch.equal(resumed.theta, uninterrupted.theta)
    assert resumed.records == uninterrupted.records
    assert len(resumed.overheads) == ROUNDS - 3


@with_device_state
def test_run_converges_although_device_loses_its_state(name, tmp_path):
    """A device gets a new disk during the run. Its earlier uploads are not counted twice."""
    method = contract.create(name, PROBLEM)
    grid = local_grid(aquila.flower.client_app(method, make_device), 3)

    def forget(record):
        if record.round == 5:
            first = min(grid.nodes)
            grid.nodes[first].app = aquila.flower.client_app(
                method, make_device, state_folder=tmp_path / "new"
            )

    run = aquila.flower.strategy(method, theta0(), devices=3, rounds=20)
    result = run.start(grid, on_record=forget)
    best = PROBLEM.loss(PROBLEM.optimum())
    gap, first_gap = PROBLEM.loss(result.theta) - best, PROBLEM.loss(theta0()) - best
    contract.check_limit(contract.find_row(name), "gap_after_restart", gap / first_gap)
    assert sum(record.lost for record in result.records) == 0


@pytest.mark.parametrize("name", WITH_LINKS)
def test_methods_that_need_a_link_model_are_refused(name):
    with pytest.raises(ValueError, match=f"{name} needs a link model, which only the simulator"):
        on_flower(aquila.create(name), theta0())


def test_large_frames_travel_as_arrays(monkeypatch):
    method = aquila.create("aquila", alpha=ALPHA)
    small, _ = on_flower(method, theta0())
    monkeypatch.setattr(aquila.flower.transport, "MAX_INLINE_BYTES", 0)
    large, grid = on_flower(method, theta0())
    assert "f" in grid.sent[-1].content
    assert "f" in grid.answered[-1].content
    assert torch.equal(large.theta, small.theta)
    assert large.records == small.records
    assert large.overheads[-1].uplink.objects > small.overheads[-1].uplink.objects


def test_devices_with_different_widths():
    method = aquila.create("aquila", alpha=ALPHA)
    fleet = aquila.Fleet(30, [0, 1, 1], [None, torch.arange(0, 30, 2)])

    def device(number, context=None):
        return lambda theta: (float(theta @ theta), 2 * theta - torch.ones_like(theta) * number)

    app = aquila.flower.client_app(method, device)
    wanted = aquila.simulate(
        method,
        theta0(),
        [device(m) for m in range(3)],
        ROUNDS,
        SEED,
        options=aquila.RunOptions(fleet=fleet),
    )
    got = aquila.flower.strategy(
        method,
        theta0(),
        devices=3,
        rounds=ROUNDS,
        seed=SEED,
        options=aquila.RunOptions(fleet=fleet),
    ).start(local_grid(app, 3))
    assert torch.equal(got.theta, wanted.theta)
    assert got.records == wanted.records


@pytest.mark.parametrize("name", ["laq", "feddq", "cdag_fl", "powersgd"])
def test_methods_that_know_the_tensors(name):
    parameters = {"range": "tensor"} if name == "laq" else {}
    method = aquila.create(name, alpha=0.2, **parameters)
    x = torch.randn(60, 8, generator=torch.Generator().manual_seed(0))
    shards = [(x[m::3], x[m::3].argmax(1)) for m in range(3)]
    torch.manual_seed(0)
    problem = aquila.problem(torch.nn.Linear(8, 8), shards)
    wanted = problem.train(method, ROUNDS, SEED)
    app = aquila.flower.client_app(method, lambda device, context: problem.devices[device])
    run = aquila.flower.strategy(
        method,
        problem.theta0,
        devices=3,
        rounds=ROUNDS,
        seed=SEED,
        options=aquila.RunOptions(fleet=problem.fleet),
    )
    got = run.start(local_grid(app, 3))
    assert torch.equal(got.theta, wanted.theta)
    assert got.records == wanted.records


def test_partial_participation():
    method = aquila.create("qsgd", alpha=ALPHA)
    wanted = aquila.simulate(
        method,
        theta0(),
        PROBLEM.devices,
        ROUNDS,
        SEED,
        options=aquila.RunOptions(participation=0.6),
    )
    got, _ = on_flower(method, theta0(), participation=0.6)
    assert torch.equal(got.theta, wanted.theta)
    assert got.records == wanted.records


@one_of_each_kind
def test_models_sent_as_differences(name, tmp_path):
    method = aquila.create(name, alpha=ALPHA)
    wanted = aquila.simulate(
        method,
        theta0(),
        PROBLEM.devices,
        ROUNDS,
        SEED,
        options=aquila.RunOptions(downlink_error=0.5),
    )
    got, _ = on_flower(method, theta0(), downlink_error=0.5)
    assert torch.equal(got.theta, wanted.theta)
    assert got.records == wanted.records
    folder = {"out": tmp_path / "run", "downlink_error": 0.5}
    on_flower(method, theta0(), rounds=3, **folder)
    resumed, _ = on_flower(method, theta0(), **folder)
    assert torch.equal(resumed.theta, wanted.theta)
    assert resumed.records == wanted.records


def test_device_without_reference_model_refuses_one_round(tmp_path):
    method = aquila.create("aquila", alpha=ALPHA)
    grid = local_grid(aquila.flower.client_app(method, make_device), 3)

    def forget(record):
        if record.round == 2:
            grid.nodes[min(grid.nodes)].app = aquila.flower.client_app(
                method, make_device, state_folder=tmp_path / "new"
            )

    options = aquila.RunOptions(downlink_error=0.5)
    run = aquila.flower.strategy(method, theta0(), devices=3, rounds=6, options=options)
    result = run.start(grid, on_record=forget)
    assert [record.refused for record in result.records] == [0, 0, 0, 1, 0, 0]


def test_no_method_is_named_in_the_adapter():
    for path in Path(aquila.flower.__file__).parent.glob("*.py"):
        tree = ast.parse(path.read_text())
        words = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        assert not words & (set(aquila.METHODS) - {"aquila"})
        imports = {n.module for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
        assert not any(module.startswith("aquila.methods") for module in imports)


def test_uploads_above_a_limit_count_as_lost():
    method = aquila.create("aquila", alpha=ALPHA)
    limited, _ = on_flower(method, theta0(), limit=NormLimit(1e-12))
    assert [(record.uploads, record.lost) for record in limited.records] == [(0, 3)] * ROUNDS
    assert torch.equal(limited.theta, theta0())


def test_limit_that_method_does_not_support_is_refused_immediately():
    with pytest.raises(ValueError, match="cannot be clipped"):
        on_flower(aquila.create("aquila", alpha=ALPHA), theta0(), limit=NormLimit(1.0, "clip"))


def test_evaluates_every_few_rounds_and_at_the_end():
    method = aquila.create("aquila", alpha=ALPHA)
    run, _ = on_flower(method, theta0(), evaluate=size, evaluate_every=3)
    assert [r.round for r in run.records if r.metrics] == [2, 5, ROUNDS - 1]
