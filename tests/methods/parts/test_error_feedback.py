"""Error feedback keeps what was not sent as a change of the model, whatever the step size does."""

import numpy as np
import pytest
import torch

import aquila
from aquila.runtime.lr_schedule import parse_schedule
from aquila.sim.oracle import FunctionOracle
from helpers.problems import all_gradients, device_states, ridge

METHODS = {
    "topk": {"density": 0.1},
    "ef_signsgd": {},
    "sparseloco": {"beta": 1.0, "chunk": 7, "density": 0.2},
}
SCHEDULE = "warmup:3+cosine:20"


def unsent_change(simulation):
    """Return the mean change of the model that the devices have not sent."""
    states = device_states(simulation)
    return np.mean([state.alpha * state.e.numpy() for state in states], axis=0)


@pytest.mark.parametrize("name", METHODS)
def test_what_was_not_sent_does_not_shrink_with_the_step_size(name):
    """θ minus the unsent change moves by exactly -α_k ∇f(θ), as in the papers."""
    problem = ridge(devices=4, dimension=40, rows=60)
    base = 0.2 / problem.smoothness()
    method = aquila.create(name, alpha=base, **METHODS[name])
    theta0 = torch.zeros(40, dtype=torch.float64)
    devices = [FunctionOracle(local, 1, 1) for local in problem.devices]
    options = aquila.RunOptions(schedule=SCHEDULE)
    simulation = aquila.Simulation(method, theta0, devices, options=options)
    simulation.advance()
    gradients, factor = all_gradients(problem), parse_schedule(SCHEDULE)
    virtual = simulation.theta.numpy() - unsent_change(simulation)
    for k in range(1, 20):
        step = base * factor(k) * gradients(simulation.theta.numpy()).mean(axis=0)
        simulation.advance()
        virtual = virtual - step
        assert np.abs(unsent_change(simulation)).max() > 1e-4
        np.testing.assert_allclose(
            simulation.theta.numpy() - unsent_change(simulation), virtual, atol=1e-12
        )
