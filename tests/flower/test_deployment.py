"""Real processes on loopback, with faults, give the bits of a simulation with the same losses."""

import pytest

pytest.importorskip("flwr", reason="not installed: pip install 'aquila-fl[flower]'")
import torch

import aquila
from faults.faulty_federation import faulty_federation, no_faults
from faults.setup import METHOD, PROBLEM, theta0

ROUNDS, SECONDS = 2, 170


def simulated():
    """What the simulator does when only device 0 is heard in round 0."""
    simulation = aquila.Simulation(METHOD, theta0(), PROBLEM.devices)
    simulation.link = type("Link", (), {
        "order_arrives": lambda self, key: True,
        "reply_arrives": lambda self, key: simulation.server.round > 0 or key.path[2] == 0,
    })()  # fmt: skip
    for _ in range(ROUNDS):
        simulation.advance()
    return simulation.theta


@pytest.mark.deployment
def test_several_faults_in_one_run(tmp_path):
    """One device lies, one computes NaN, and the server is killed in a round and resumed."""
    with faulty_federation(tmp_path) as deployed:
        deployed.set_fault("bad-frame", 1, "garbage")
        deployed.set_fault("nan", 2)

        def script():
            yield deployed.rounds_closed(1)
            deployed.clear_fault("nan", 2)
            deployed.set_fault("hold", 0)
            yield deployed.turn_started(0)
            deployed.kill_server()
            deployed.clear_fault("hold", 0)

        printed = deployed.run(script(), SECONDS, rounds=ROUNDS)
        assert "round 0: device 1: not a frame: it does not start with AQLA" in printed, printed
        assert "30 of 30 coordinates of the gradient are NaN" in printed, printed
        deployed.running.start_superlink()
        printed = deployed.run(no_faults(), SECONDS, rounds=ROUNDS)
        assert "round 1 was begun before: its messages are sent again" in printed, printed
        deployed.check(ROUNDS)
        records = deployed.records()
        assert [record.lost for record in records] == [2, 0]
        assert [record.notes.get("attempts", 1) for record in records] == [1, 2]
        assert torch.equal(deployed.theta(), simulated())
