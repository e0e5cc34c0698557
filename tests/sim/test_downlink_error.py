"""Models sent as coded differences in the simulator."""

import pytest
import torch

import aquila
from aquila.sim.setting import Setting
from helpers.problems import ridge

PROBLEM = ridge(devices=8, dimension=40)
METHOD = aquila.create("aquila", alpha=0.5 / PROBLEM.smoothness(), b_min=2)
THETA0 = torch.zeros(40)


def simulation(**options):
    given = aquila.RunOptions(**{"downlink_error": 0.5, **options})
    return aquila.Simulation(METHOD, THETA0, PROBLEM.devices, options=given)


def references_of(run):
    return [session.reference for session in run.devices if session.reference is not None]


@pytest.mark.parametrize("workers", [1, 3])
def test_devices_share_their_reference_model(workers):
    run = simulation(uplink_loss=0.2, downlink_loss=0.3, workers=workers)
    for _ in range(12):
        run.advance()
        assert len({id(reference.theta) for reference in references_of(run)}) == 1
        assert references_of(run)[0].checksum == run.server.references[0].checksum


def test_models_of_earlier_rounds_are_freed():
    run = simulation(participation=0.25)
    for _ in range(10):
        record = run.advance()
        assert len(references_of(run)) == len(record.uplink) == 2


def test_without_the_option_no_device_keeps_a_model():
    run = simulation(downlink_error=0.0)
    for _ in range(3):
        run.advance()
    assert not references_of(run)
    assert not run.server.references


def test_later_models_are_smaller_than_the_coded_first_one():
    theta0 = torch.linspace(-1, 1, 40)
    options = aquila.RunOptions(downlink_error=0.5, workers=1)
    run = aquila.Simulation(METHOD, theta0, PROBLEM.devices, options=options)
    sizes = [run.advance().downlink_bytes for _ in range(6)]
    control = 8 * 15  # no ack, and a drift of 0
    assert 8 * 40 < sizes[0] - control < 0.6 * 8 * (12 + 4 * 40)
    assert max(sizes[1:]) - control < 0.8 * (sizes[0] - control)


def test_device_without_the_model_refuses_one_round():
    run = simulation()
    run.advance()
    run.devices[3].reference = None
    assert [run.advance().refused for _ in range(4)] == [1, 0, 0, 0]


@pytest.mark.parametrize("executor", ["sequential", "batched", "threads"])
def test_every_executor_gives_the_same_bits(executor):
    setting = Setting.of({"samples": 200, "test_samples": 50, "rounds": 6, "split": "iid"})
    problem, _ = setting.problem()
    method = aquila.create("aquila", alpha=0.3, b_min=2)
    runs = [
        aquila.simulate(
            method,
            problem.theta0,
            problem.devices,
            6,
            options=aquila.RunOptions(downlink_error=0.5, uplink_loss=0.2, executor=chosen),
        )
        for chosen in ("auto", executor)
    ]
    assert runs[0].records == runs[1].records
    assert torch.equal(runs[0].theta, runs[1].theta)


def test_run_cannot_be_resumed_with_another_downlink_error(tmp_path):
    first = aquila.RunOptions(out=tmp_path, checkpoint_every=1, downlink_error=0.5)
    aquila.simulate(METHOD, THETA0, PROBLEM.devices, 2, options=first)
    second = aquila.RunOptions(out=tmp_path, resume=True)
    with pytest.raises(ValueError, match=r"no downlink_error \(saved: downlink_error 0\.5\)"):
        aquila.simulate(METHOD, THETA0, PROBLEM.devices, 4, options=second)
