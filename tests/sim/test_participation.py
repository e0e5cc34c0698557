"""A share of the devices a round: the others are as if there were no round."""

import pytest
import torch

import aquila
from aquila.core.packet import NEVER
from helpers.problems import ridge

PROBLEM = ridge(devices=40, dimension=8, rows=4)
METHOD = aquila.create("aquila", alpha=0.3 / PROBLEM.smoothness(), b_min=2)
THETA0 = torch.zeros(8)


def simulation(method=METHOD, participation=0.1, **options):
    return aquila.Simulation(
        method, THETA0, PROBLEM.devices, participation=participation, **options
    )


def test_only_those_drawn_take_part():
    run = simulation()
    record = run.advance()
    assert len(record.uplink) == record.uploads == 4
    assert (record.lost, record.skips) == (0, 0)
    others = set(run.fleet.devices) - set(record.uplink)
    assert all(run.devices[m].last_round == NEVER for m in others)
    everybody = simulation(participation=1.0).advance()
    assert record.downlink_bytes == everybody.downlink_bytes / 10


def test_every_round_draws_anew_and_every_run_the_same():
    runs = [simulation(), simulation(), simulation(seed=1)]
    drawn = [[frozenset(run.advance().uplink) for _ in range(30)] for run in runs]
    assert drawn[0] == drawn[1] != drawn[2]
    assert len(set(drawn[0])) > 20
    assert len(frozenset().union(*drawn[0])) > 30


def test_whole_participation_draws_nothing():
    whole = aquila.simulate(METHOD, THETA0, PROBLEM.devices, 3)
    asked = aquila.simulate(METHOD, THETA0, PROBLEM.devices, 3, participation=1.0)
    assert whole.records == asked.records
    assert len(whole.records[0].uplink) == 40


@pytest.mark.parametrize(("participation", "expected"), [(0.001, 1), (0.5, 10), (1.0, 20)])
def test_it_is_a_share_of_those_the_method_chose(participation, expected):
    method = aquila.create("fedavg", fraction=0.5)
    assert len(simulation(method, participation).advance().uplink) == expected


@pytest.mark.parametrize("share", [0.0, -0.5, 1.1, float("nan")])
def test_absurd_shares_are_refused(share):
    with pytest.raises(ValueError, match="participation must be above 0 and at most 1"):
        simulation(participation=share)


def test_devices_that_have_had_no_turn_share_one_state():
    run = simulation()
    record = run.advance()
    others = set(run.fleet.devices) - set(record.uplink)
    assert len({id(run.devices[m].state) for m in others}) == 1


def test_after_a_round_a_device_holds_one_state_and_no_reply():
    run = simulation(link=aquila.Link(uplink_loss=0.5))
    for _ in range(5):
        run.advance()
        assert all(session._pending is None for session in run.devices)


@pytest.mark.parametrize("name", ["aquila", "lag", "laq"])
def test_memories_reach_the_optimum_where_averages_of_a_few_cannot(name):
    method = METHOD if name == "aquila" else aquila.create(name, alpha=0.3 / PROBLEM.smoothness())
    theta0 = torch.zeros(8, dtype=torch.float64)
    gap_at_start = PROBLEM.loss(theta0) - PROBLEM.loss(PROBLEM.optimum())
    run = aquila.simulate(method, theta0, PROBLEM.devices, 400, participation=0.1)
    assert PROBLEM.loss(run.theta) - PROBLEM.loss(PROBLEM.optimum()) < 1e-3 * gap_at_start


def test_marina_sets_its_estimate_anew_when_nobody_saw_two_models_in_a_row():
    """Else a change would be missing from the estimate, and the run diverge."""
    method = aquila.create("marina", alpha=0.2 / PROBLEM.smoothness(), p=0.0)
    run = aquila.simulate(method, THETA0, PROBLEM.devices, 300, participation=0.025)
    assert PROBLEM.loss(run.theta.double()) < 2 * PROBLEM.loss(THETA0.double())


def test_another_share_cannot_be_resumed(tmp_path):
    aquila.simulate(METHOD, THETA0, PROBLEM.devices, 3, participation=0.1, out=tmp_path)
    for share in (0.2, 1.0):
        with pytest.raises(ValueError, match=r"resumed: [^;]*participation 0\.1[^;]*$"):
            aquila.simulate(
                METHOD, THETA0, PROBLEM.devices, 6, participation=share, out=tmp_path, resume=True
            )


def test_resumes_with_devices_that_have_had_no_turn(tmp_path):
    options = {"participation": 0.1, "link": aquila.Link(uplink_loss=0.2, downlink_loss=0.2)}
    whole = aquila.simulate(METHOD, THETA0, PROBLEM.devices, 9, **options)
    aquila.simulate(METHOD, THETA0, PROBLEM.devices, 4, out=tmp_path, **options)
    resumed = aquila.simulate(
        METHOD, THETA0, PROBLEM.devices, 9, out=tmp_path, resume=True, **options
    )
    assert resumed.records == whole.records
    assert torch.equal(resumed.theta, whole.theta)
