"""Quarantine, limits and privacy on Flower."""

import json
import math

import pytest

pytest.importorskip("flwr", reason="not installed: pip install -e '.[flower]'")
import torch
from local_grid import local_grid

import aquila
import aquila.flower
from aquila import RunOptions
from aquila.flower import Deployment
from aquila.sim.oracle import FunctionOracle
from aquila.sim.rollback import start_over
from helpers.problems import ridge

PROBLEM = ridge(devices=5, dimension=30)
METHOD = aquila.create("fedsgd", alpha=0.5 / PROBLEM.smoothness())
WAITS = {"deadline_seconds": 0.3, "wait_seconds": 2.0}


def nan_on_1(device, context):
    return (lambda theta: (math.nan, theta)) if device == 1 else PROBLEM.devices[device]


def honest(device, context):
    return PROBLEM.devices[device]


def with_samples(device, context):
    return FunctionOracle(PROBLEM.devices[device], samples=8)


def strategy(rounds, options, method=METHOD):
    return aquila.flower.strategy(
        method, torch.zeros(30), 5, rounds, options=options, deployment=Deployment(**WAITS)
    )


def grid_of(make, options=RunOptions(), method=METHOD):
    return local_grid(aquila.flower.client_app(method, make, options=options), 5)


def test_quarantine_is_that_of_the_simulator_and_survives_a_restart(tmp_path):
    options = RunOptions(participation=0.2, out=tmp_path)
    for rounds in (4, 12):
        result = strategy(rounds, options).start(grid_of(nan_on_1))
    devices = [nan_on_1(device, None) for device in range(5)]
    simulated = aquila.simulate(
        METHOD, torch.zeros(30), devices, 12, options=RunOptions(participation=0.2)
    )
    assert torch.equal(result.theta, simulated.theta)
    for name in ("quarantined", "lost", "uploads", "uplink"):
        ours, theirs = (
            [getattr(record, name) for record in r.records] for r in (result, simulated)
        )
        assert ours == theirs
    assert [record.uploads for record in result.records] == [1] * 12


def test_notes_that_overflow_are_left_out():
    def boastful(reply):
        for record in reply.content.config_records.values():
            record.update({name: 1e308 for name in record if name.startswith("n.")})
        return reply

    grid = grid_of(honest)
    for node in grid.nodes.values():
        node.alter_reply = boastful
    result = strategy(2, RunOptions()).start(grid)
    assert [record.loss for record in result.records] == [None, None]


def test_private_run_counts_every_round_even_if_the_server_is_restored(tmp_path):
    pytest.importorskip("dp_accounting", reason="pip install -e '.[privacy]'")
    options = RunOptions(dp_clip=1.0, dp_noise=4.0, participation=0.4, out=tmp_path)
    first = strategy(2, options).start(grid_of(honest, options))
    old_state = (tmp_path / "server.state").read_bytes()
    strategy(4, options).start(grid_of(honest, options))
    (tmp_path / "server.state").write_bytes(old_state)
    again = strategy(4, options).start(grid_of(honest, options))
    assert json.loads((tmp_path / "privacy.json").read_text()) == 6
    assert again.records[-1].epsilon > 1.2 * first.records[-1].epsilon
    start_over(tmp_path)
    assert json.loads((tmp_path / "privacy.json").read_text()) == 6
    # secret noise: two runs with the same seed differ
    others = [strategy(2, replace_out(options)).start(grid_of(honest, options)) for _ in range(2)]
    assert not torch.equal(others[0].theta, others[1].theta)


def replace_out(options):
    return RunOptions(**{**options.to_dict(), "out": None})


def test_devices_need_the_privacy_options_of_the_server(log):
    pytest.importorskip("dp_accounting", reason="pip install -e '.[privacy]'")
    options = RunOptions(dp_clip=1.0, dp_noise=4.0, dp_noise_by="devices")
    with pytest.raises(TimeoutError):
        strategy(1, options).start(grid_of(honest))
    assert "but this device runs without privacy options" in log.text
    result = strategy(2, options).start(grid_of(honest, options))
    assert result.records[-1].epsilon > 0
    assert result.records[-1].loss is None


@pytest.mark.parametrize("reported", [0, -5, 2**62])
def test_invalid_number_of_samples_does_not_stop_a_run(tmp_path, reported):
    def lying(reply):
        for record in reply.content.config_records.values():
            if "samples" in record:
                record["samples"] = reported
        return reply

    grid = grid_of(with_samples)
    grid.nodes[min(grid.nodes)].alter_reply = lying
    options = RunOptions(weights="samples", out=tmp_path)
    for rounds in (1, 2):
        assert len(strategy(rounds, options).start(grid).records) == rounds
    weights = json.loads((tmp_path / "samples.json").read_text())
    assert sorted(weights) == sorted([8] * 4 + [80 if reported > 0 else 1])
