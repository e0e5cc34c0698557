"""This project's simulator at its defaults; the option names the method.

After the rounds that count, a few more tell how much of a round passes outside the gradients.
"""

import statistics
import threading
import time

import aquila
from aquila.sim.module import ModuleOracle
from peers.work import ALPHA, SEED

PARAMETERS = {"aquila": {"beta": 0.25, "level_rule": "tight"}, "fedsgd": {}}
WATCHED_ROUNDS = 3


def run(work, diary):
    made = aquila.problem(work.model(), work.shards())
    method = aquila.create(work.option, alpha=ALPHA, **PARAMETERS[work.option])
    simulation = aquila.Simulation(method, made.theta0, made.devices, seed=SEED, fleet=made.fleet)
    records = []
    for _ in range(work.rounds):
        records.append(simulation.advance())
        diary.end_round(records[-1].loss)
    return {
        "outside_share": outside_share(simulation),
        "uploads": sum(record.uploads for record in records),
    }


def outside_share(simulation):
    """Share of a round, on the threads that compute gradients, in which they compute none."""
    plain_gradient, busy = ModuleOracle.gradient, []

    def timed_gradient(oracle, theta):
        start = time.perf_counter()
        answer = plain_gradient(oracle, theta)
        busy.append((threading.get_ident(), time.perf_counter() - start))
        return answer

    shares = []
    ModuleOracle.gradient = timed_gradient
    for _ in range(WATCHED_ROUNDS):
        busy.clear()
        start = time.perf_counter()
        simulation.advance()
        seconds = time.perf_counter() - start
        threads = {thread for thread, _ in busy}
        shares.append(1 - sum(spent for _, spent in busy) / (len(threads) * seconds))
    ModuleOracle.gradient = plain_gradient
    return statistics.median(shares)
