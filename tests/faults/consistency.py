"""Checks the guarantee of docs/consistency.md on the files that a run left."""

import json
from pathlib import Path

import torch

import aquila
from aquila.core.method import Method
from aquila.runtime.device_session import DeviceSession
from aquila.runtime.persist import load_device, load_server
from aquila.runtime.server_session import ServerSession
from aquila.sim.oracle import as_shard

ROUNDING = 1e-5


def server_of(run: Path, method: Method, theta0: torch.Tensor, devices: int) -> ServerSession:
    """Return a server session restored from the checkpoint of a run."""
    fleet = aquila.Fleet.uniform(theta0.numel(), devices)
    server = ServerSession(method, theta0.clone(), fleet, seed=0)
    assert load_server(run / "server.state", server)
    return server


def assert_consistent(
    run: Path, states: Path, method: Method, theta0: torch.Tensor, devices: int
) -> None:
    """Assert that the server's q̄ is the mean of the memories in the devices' state files."""
    server = server_of(run, method, theta0, devices)
    name = json.loads((run / "run.json").read_text())["run"]
    memories = []
    for number in range(devices):
        device = DeviceSession(method, number, as_shard(lambda theta: (0.0, theta)), theta0, 0)
        load_device(states / name / f"device-{number}.state", device)
        device.apply_ack(server.acks[number])
        memories.append(device.state.q.double())
    mean = torch.stack(memories).mean(0)
    largest = max(float(q.abs().max()) for q in memories)
    assert largest > 0
    damped = getattr(server.state, "inner", server.state)  # AQUILA-Dither wraps this state
    torch.testing.assert_close(damped.q_bar, mean, rtol=0, atol=ROUNDING * largest)
