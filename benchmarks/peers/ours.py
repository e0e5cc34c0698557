"""AQUILA's simulator with its defaults; the option names the method.

After the measured rounds, a few more measure the fraction of time outside the gradients.
"""

import statistics
import threading
import time

import aquila
from aquila.training.module_shard import ModuleOracle
from peers.workload import ALPHA, SEED

PARAMETERS = {"aquila": {"beta": 0.25, "level_rule": "tight"}, "fedsgd": {}}
TIMED_ROUNDS = 3


def run(workload, log):
    problem = aquila.problem(workload.model(), workload.shards())
    method = aquila.create(workload.option, alpha=ALPHA, **PARAMETERS[workload.option])
    simulation = aquila.Simulation(
        method,
        problem.theta0,
        problem.devices,
        seed=SEED,
        options=aquila.RunOptions(fleet=problem.fleet),
    )
    records = []
    for _ in range(workload.rounds):
        records.append(simulation.advance())
        log.end_round(records[-1].loss)
    return {
        "outside_fraction": outside_fraction(simulation),
        "uploads": sum(record.uploads for record in records),
    }


def outside_fraction(simulation):
    """Return the fraction of a round in which the gradient threads compute no gradient."""
    plain_gradient, gradient_times = ModuleOracle.gradient, []

    def timed_gradient(oracle, theta):
        start = time.perf_counter()
        result = plain_gradient(oracle, theta)
        gradient_times.append((threading.get_ident(), time.perf_counter() - start))
        return result

    fractions = []
    ModuleOracle.gradient = timed_gradient
    for _ in range(TIMED_ROUNDS):
        gradient_times.clear()
        start = time.perf_counter()
        simulation.advance()
        seconds = time.perf_counter() - start
        threads = {thread for thread, _ in gradient_times}
        fractions.append(1 - sum(spent for _, spent in gradient_times) / (len(threads) * seconds))
    ModuleOracle.gradient = plain_gradient
    return statistics.median(fractions)
