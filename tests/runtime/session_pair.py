"""A server and its devices on a small problem, and rounds with chosen outcomes per message."""

import pytest
import torch

import aquila
from aquila.core.packet import WireError
from aquila.runtime.device_session import DeviceSession
from aquila.runtime.server_session import ServerSession
from aquila.sim.oracle import as_shard
from helpers.problems import ridge

PROBLEM = ridge(devices=3, dimension=12)
METHODS_WITH_MEMORY = {
    "aquila": {"b_min": 2},
    "lag": {},
    "laq": {},
    "ladaq": {},
    "lena": {"bits": 6},
    "ef21_sgdm": {"density": 0.5},
}
OUTCOMES = (
    "delivered", "order lost", "reply lost", "reply late", "reply repeated", "order repeated",
)  # fmt: skip
ALL_DELIVERED = ("delivered",) * 3


def make_sessions(name: str) -> tuple[ServerSession, list[DeviceSession]]:
    parameters = METHODS_WITH_MEMORY.get(name, {})
    method = aquila.create(name, alpha=0.5 / PROBLEM.smoothness(), **parameters)
    theta = torch.zeros(PROBLEM.dimension, dtype=torch.float64)
    fleet = aquila.Fleet.uniform(PROBLEM.dimension, len(PROBLEM.devices))
    devices = [
        DeviceSession(method, m, as_shard(f), theta, seed=0) for m, f in enumerate(PROBLEM.devices)
    ]
    return ServerSession(method, theta, fleet, seed=0), devices


def run_round(server, devices, outcomes=ALL_DELIVERED, late=None):
    """Run one round with an outcome per device; return the replies that arrive one round late."""
    delayed = {}
    orders = server.open_round()
    for device, frame in (late or {}).items():
        with pytest.raises(WireError, match="a reply to round"):
            server.receive(device, frame)
    for device, order in orders.items():
        outcome = outcomes[device]
        if outcome == "order lost":
            continue
        reply = devices[device].handle(order)
        if outcome == "order repeated":
            assert devices[device].handle(order) == reply
        if outcome == "reply late":
            delayed[device] = reply
        elif outcome != "reply lost":
            server.receive(device, reply)
        if outcome == "reply repeated":
            with pytest.raises(WireError, match="already replied"):
                server.receive(device, reply)
    server.close_round()
    return delayed


def assert_memories_agree(server, devices):
    memories = []
    for session in devices:
        session.apply_ack(server.acks[session.device])
        memories.append(session.state.q)
    state = getattr(server.state, "inner", server.state)
    torch.testing.assert_close(state.q_bar, sum(memories) / len(memories), rtol=1e-11, atol=1e-12)
