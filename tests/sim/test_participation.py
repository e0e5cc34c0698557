"""With participation below 1, devices that are not sampled do nothing."""

from dataclasses import replace

import pytest
import torch

import aquila
from aquila.core.packet import NEVER
from helpers.problems import ridge

PROBLEM = ridge(devices=40, dimension=8, rows=4)
METHOD = aquila.create("aquila", alpha=0.3 / PROBLEM.smoothness(), b_min=2)
THETA0 = torch.zeros(8)


def simulation(method=METHOD, participation=0.1, seed=0, **options):
    return aquila.Simulation(
        method,
        THETA0,
        PROBLEM.devices,
        seed,
        aquila.RunOptions(participation=participation, **options),
    )


def test_only_sampled_devices_take_part():
    run = simulation()
    record = run.advance()
    assert len(record.uplink) == record.uploads == 4
    assert (record.lost, record.skips) == (0, 0)
    others = set(run.fleet.devices) - set(record.uplink)
    assert all(run.devices[m].last_round == NEVER for m in others)
    everybody = simulation(participation=1.0).advance()
    assert record.downlink_bytes == everybody.downlink_bytes / 10


def test_sampling_changes_per_round_and_follows_from_the_seed():
    runs = [simulation(), simulation(), simulation(seed=1)]
    drawn = [[frozenset(run.advance().uplink) for _ in range(30)] for run in runs]
    assert drawn[0] == drawn[1] != drawn[2]
    assert len(set(drawn[0])) > 20
    assert len(frozenset().union(*drawn[0])) > 30


def test_full_participation_is_the_default():
    whole = aquila.simulate(METHOD, THETA0, PROBLEM.devices, 3)
    asked = aquila.simulate(
        METHOD, THETA0, PROBLEM.devices, 3, options=aquila.RunOptions(participation=1.0)
    )
    assert whole.records == asked.records
    assert len(whole.records[0].uplink) == 40


@pytest.mark.parametrize(("participation", "expected"), [(0.001, 1), (0.5, 10), (1.0, 20)])
def test_participation_is_a_fraction_of_the_methods_selection(participation, expected):
    method = aquila.create("fedavg", fraction=0.5)
    assert len(simulation(method, participation).advance().uplink) == expected


@pytest.mark.parametrize("participation", [0.0, -0.5, 1.1, float("nan")])
def test_invalid_participation_is_an_error(participation):
    with pytest.raises(ValueError, match="participation must be a number > 0 and <= 1"):
        simulation(participation=participation)


def test_devices_without_a_turn_share_one_state():
    run = simulation()
    record = run.advance()
    others = set(run.fleet.devices) - set(record.uplink)
    assert len({id(run.devices[m].state) for m in others}) == 1


def test_after_a_round_a_device_holds_one_state_and_no_reply():
    run = simulation(uplink_loss=0.5)
    for _ in range(5):
        run.advance()
        assert all(session._pending is None for session in run.devices)


@pytest.mark.parametrize("name", ["aquila", "lag", "laq"])
def test_methods_with_memory_reach_the_optimum(name):
    method = METHOD if name == "aquila" else aquila.create(name, alpha=0.3 / PROBLEM.smoothness())
    theta0 = torch.zeros(8, dtype=torch.float64)
    gap_at_start = PROBLEM.loss(theta0) - PROBLEM.loss(PROBLEM.optimum())
    run = aquila.simulate(
        method, theta0, PROBLEM.devices, 400, options=aquila.RunOptions(participation=0.1)
    )
    assert PROBLEM.loss(run.theta) - PROBLEM.loss(PROBLEM.optimum()) < 1e-3 * gap_at_start


def test_marina_resets_its_estimate_if_no_device_saw_two_consecutive_models():
    """Otherwise the estimate would miss a change, and the run would diverge."""
    method = aquila.create("marina", alpha=0.2 / PROBLEM.smoothness(), p=0.0)
    run = aquila.simulate(
        method, THETA0, PROBLEM.devices, 300, options=aquila.RunOptions(participation=0.025)
    )
    assert PROBLEM.loss(run.theta.double()) < 2 * PROBLEM.loss(THETA0.double())


def test_run_cannot_be_resumed_with_another_participation(tmp_path):
    aquila.simulate(
        METHOD,
        THETA0,
        PROBLEM.devices,
        3,
        options=aquila.RunOptions(participation=0.1, out=tmp_path),
    )
    for participation in (0.2, 1.0):
        with pytest.raises(ValueError, match=r"resumed: [^;]*participation 0\.1[^;]*$"):
            aquila.simulate(
                METHOD,
                THETA0,
                PROBLEM.devices,
                6,
                options=aquila.RunOptions(participation=participation, out=tmp_path, resume=True),
            )


def test_resumes_with_devices_without_a_turn(tmp_path):
    options = aquila.RunOptions(participation=0.1, uplink_loss=0.2, downlink_loss=0.2)
    whole = aquila.simulate(METHOD, THETA0, PROBLEM.devices, 9, options=options)
    options = replace(options, out=tmp_path)
    aquila.simulate(METHOD, THETA0, PROBLEM.devices, 4, options=options)
    options = replace(options, resume=True)
    resumed = aquila.simulate(METHOD, THETA0, PROBLEM.devices, 9, options=options)
    assert resumed.records == whole.records
    assert torch.equal(resumed.theta, whole.theta)
