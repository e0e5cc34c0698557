"""Uploads that the server passes on, over Flower."""

import torch
from local_grid import local_grid

import aquila
import aquila.flower
from helpers.problems import ridge

PROBLEM = ridge(devices=3, dimension=600, rows=20)
METHOD = aquila.create("aquila_peak", alpha=0.2 / PROBLEM.smoothness(), memory="none", density=0.02)
THETA0 = torch.linspace(-1, 1, PROBLEM.dimension)
ROUNDS, SEED = 8, 3


def make_device(device, context):
    return PROBLEM.devices[device]


def start(grid, rounds=ROUNDS, on_record=None, **options):
    given = aquila.RunOptions(relay_uploads=True, **options)
    run = aquila.flower.strategy(METHOD, THETA0, 3, rounds, SEED, options=given)
    return run.start(grid, on_record=on_record)


def client(**folder):
    return aquila.flower.client_app(METHOD, make_device, **folder)


def test_run_has_the_bits_of_the_simulator(tmp_path):
    options = aquila.RunOptions(relay_uploads=True, participation=0.6)
    wanted = aquila.simulate(METHOD, THETA0, PROBLEM.devices, ROUNDS, SEED, options=options)
    sizes = [record.downlink_bytes for record in wanted.records]
    assert min(sizes) < 0.2 * sizes[0]
    got = start(local_grid(client(), 3), participation=0.6)
    assert torch.equal(got.theta, wanted.theta)
    assert got.records == wanted.records
    folder = {"out": tmp_path / "run", "participation": 0.6}
    grid = local_grid(client(), 3)
    start(grid, 4, **folder)
    resumed = start(grid, **folder)
    assert torch.equal(resumed.theta, wanted.theta)
    assert resumed.records == wanted.records


def test_device_without_its_model_refuses_one_round(tmp_path):
    grid = local_grid(client(), 3)

    def forget(record):
        if record.round == 2:
            grid.nodes[min(grid.nodes)].app = client(state_folder=tmp_path / "new")

    result = start(grid, 7, on_record=forget)
    assert [record.refused for record in result.records] == [0, 0, 0, 1, 0, 0, 0]


def test_device_that_restarts_from_its_file_goes_on(tmp_path):
    grid = local_grid(client(state_folder=tmp_path), 3)

    def restart(record):
        grid.nodes[min(grid.nodes)].app = client(state_folder=tmp_path)

    undisturbed = start(local_grid(client(), 3))
    restarted = start(grid, on_record=restart)
    assert restarted.records == undisturbed.records
    assert torch.equal(restarted.theta, undisturbed.theta)
