"""Real processes with faults give the same bits as a simulation with the same losses."""

import pytest

pytest.importorskip("flwr", reason="not installed: pip install -e '.[flower]'")
import torch

import aquila
from faults.faulty_federation import faulty_federation, no_faults
from faults.setup import METHOD, PROBLEM, theta0

DEVICES, ROUNDS, SECONDS = 2, 2, 300


def simulated():
    """The simulator's model when only device 0 replies."""
    simulation = aquila.Simulation(METHOD, theta0(), PROBLEM.devices[:DEVICES])
    simulation.link = type("Link", (), {
        "order_arrives": lambda self, key: True,
        "reply_arrives": lambda self, key: key.path[2] == 0,
    })()  # fmt: skip
    for _ in range(ROUNDS):
        simulation.advance()
    return simulation.theta


@pytest.mark.deployment
def test_run_with_several_faults_equals_simulation(tmp_path):
    """One device computes NaN, and the server is killed and resumed.

    The device with NaN is in quarantine in round 1.
    """
    with faulty_federation(tmp_path, DEVICES) as deployed:
        deployed.set_fault("nan", 1)

        def script():
            yield deployed.rounds_closed(1)
            deployed.clear_fault("nan", 1)
            deployed.set_fault("hold", 0)
            yield deployed.turn_started(0)
            deployed.kill_server()
            deployed.clear_fault("hold", 0)

        printed = deployed.run(script(), SECONDS, rounds=ROUNDS)
        assert (
            "round 0: device 1: device 1, round 0: 30 of 30 coordinates of the gradient are NaN"
            in printed
        ), printed
        deployed.running.start_superlink()
        printed = deployed.run(no_faults(), SECONDS, rounds=ROUNDS)
        assert "round 1 was interrupted; its orders are sent again" in printed, printed
        deployed.check(ROUNDS)
        records = deployed.records()
        assert [record.lost for record in records] == [1, 0]
        assert [record.notes.get("attempts", 1) for record in records] == [1, 2]
        assert torch.equal(deployed.theta(), simulated())
