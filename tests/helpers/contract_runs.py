"""Runs of every method of the contract table on one small problem."""

import pytest
import torch

import aquila
from helpers import contract
from helpers.contract import ROWS, Row
from helpers.problems import ridge

PROBLEM = ridge(devices=5, dimension=30)
KNOWN_ROWS = [row for row in ROWS if row.name in aquila.METHODS]

every_method = pytest.mark.parametrize("row", KNOWN_ROWS, ids=lambda row: row.name)
methods_with_memory = pytest.mark.parametrize(
    "row", [row for row in KNOWN_ROWS if row.memory], ids=lambda row: row.name
)


def create(row: Row, **parameters: object) -> aquila.Method:
    """Return the method of a row."""
    return contract.create(row.name, PROBLEM, **parameters)


def theta0(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Return the initial model."""
    return torch.zeros(PROBLEM.dimension, dtype=dtype)


def simulation(row: Row, seed: int = 0, **options: object) -> aquila.Simulation:
    """Return a simulation of the method of a row."""
    given = contract.run_options(row.name, **options)
    return aquila.Simulation(create(row), theta0(), PROBLEM.devices, seed, given)


def fleet_in_round(run: aquila.Simulation) -> aquila.Fleet:
    """Return the fleet that the method of a simulation gets in its current round."""
    if run.network is None:
        return run.fleet
    return run.fleet.with_links(run.network.states(run.server.round, run.fleet.devices))
