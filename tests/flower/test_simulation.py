"""Flower's own simulation, with Ray on loopback, gives the same bits as the simulator."""

import pytest

pytest.importorskip("flwr", reason="not installed: pip install -e '.[flower]'")
import torch
from flwr.serverapp import ServerApp

import aquila
import aquila.flower
from helpers.problems import ridge

pytest.importorskip("ray", reason="Ray is not installed: pip install 'flwr[simulation]'")

METHODS = ("aquila", "laq", "marina", "qsgd")
DEVICES, DIMENSION, ROUNDS, SEED = 3, 30, 5, 3


def problem():
    return ridge(DEVICES, DIMENSION)


def create(name):
    return aquila.create(name, alpha=0.5 / problem().smoothness())


@pytest.mark.ray
@pytest.mark.filterwarnings("ignore")  # Ray and Flower warn about their own code
def test_four_methods_equal_the_simulator(tmp_path):
    from flwr.simulation import run_simulation

    chosen = tmp_path / "method"  # devices run in other processes
    client = aquila.flower.client_app(
        lambda context: create(chosen.read_text()),
        lambda device, context: problem().devices[device],
        state_folder=tmp_path / "states",
    )
    server, results = ServerApp(), {}

    @server.main()
    def main(grid, context):
        for name in METHODS:
            chosen.write_text(name)
            results[name] = aquila.flower.strategy(
                create(name),
                torch.zeros(DIMENSION),
                devices=DEVICES,
                rounds=ROUNDS,
                seed=SEED,
                deployment=aquila.flower.Deployment(deadline_seconds=240, wait_seconds=240),
            ).start(grid)

    run_simulation(server, client, DEVICES)
    for name in METHODS:
        wanted = aquila.simulate(
            create(name), torch.zeros(DIMENSION), problem().devices, ROUNDS, SEED
        )
        assert torch.equal(results[name].theta, wanted.theta)
        assert results[name].records == wanted.records
