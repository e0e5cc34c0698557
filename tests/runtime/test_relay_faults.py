"""Relayed uploads when messages are lost, and devices and the server restart from old states."""

import random

import pytest
import torch

import aquila
from aquila.core.envelope import Flag, flags_of
from aquila.runtime.device_session import DeviceSession
from aquila.runtime.persist import device_to_bytes, restore_device, restore_server, server_to_bytes
from aquila.runtime.server_session import ServerSession
from aquila.sim.oracle import as_shard
from helpers.problems import ridge

PROBLEM = ridge(devices=4, dimension=500, rows=20)
METHOD = aquila.create("aquila_peak", alpha=0.2 / PROBLEM.smoothness(), memory="none", density=0.02)
THETA = torch.linspace(-1, 1, 500)


class Fleet:
    """A server and its devices, with all states that they have saved."""

    def __init__(self, options: aquila.RunOptions) -> None:
        self.options = options
        self.server, self.devices = self.new_server(), [self.new_device(m) for m in range(4)]
        self.server_states = [server_to_bytes(self.server)]
        self.device_states = [[device_to_bytes(device)] for device in self.devices]

    def new_server(self) -> ServerSession:
        fleet = aquila.Fleet.uniform(len(THETA), 4)
        return ServerSession(METHOD, THETA.clone(), fleet, 1, self.options)

    def new_device(self, m: int) -> DeviceSession:
        return DeviceSession(METHOD, m, as_shard(PROBLEM.devices[m]), THETA, 1, self.options)

    def disturb(self, rng: random.Random) -> None:
        """Restore the server, or restart devices with and without a file."""
        if rng.random() < 0.05:
            self.server = self.new_server()
            restore_server(self.server, rng.choice(self.server_states))
        for m, states in enumerate(self.device_states):
            if rng.random() < 0.05:
                self.devices[m] = self.new_device(m)
                if rng.random() < 0.5:
                    restore_device(self.devices[m], rng.choice(states[-3:]))

    def run_round(self, rng: random.Random) -> tuple[int, int]:
        """Run a round with lost messages; return how many devices answered and refused."""
        for m, order in self.server.open_round().items():
            if rng.random() < 0.1:
                continue
            frame = self.devices[m].handle(order)
            if rng.random() < 0.9:
                self.server.receive(m, frame)
                self.device_states[m].append(device_to_bytes(self.devices[m]))
        replies = self.server.close_round()
        self.server_states.append(server_to_bytes(self.server))
        refused = {m for m, reply in replies.items() if reply.refused}
        expected = self.server.references[0].checksum
        for m in replies.keys() - refused:
            assert expected in {model.checksum for model in self.devices[m]._references()}
        return len(replies), len(refused)


@pytest.mark.parametrize("options", [{}, {"participation": 0.6}, {"downlink_error": 0.3}])
def test_devices_compute_at_the_reference_or_refuse(options):
    for seed in range(3):
        rng = random.Random(seed)
        fleet = Fleet(aquila.RunOptions(relay_uploads=True, **options))
        answered = refused = 0
        for _ in range(40):
            fleet.disturb(rng)
            more, without_model = fleet.run_round(rng)
            answered, refused = answered + more, refused + without_model
        assert refused < 0.25 * answered
        assert any(fleet.server.references[0].rounds) or "downlink_error" in options


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("fails", [False, True])
def test_a_device_without_its_model_refuses_at_most_twice(fails, restart):
    """Its refusals are lost, or it fails without a reply; the server may restart after a round."""
    fleet, refused = Fleet(aquila.RunOptions(relay_uploads=True)), []
    for number in range(10):
        if number == 3:
            fleet.devices[0] = fleet.new_device(0)
        for m, order in fleet.server.open_round().items():
            frame = fleet.devices[m].handle(order)
            is_refused = bool(flags_of(frame) & Flag.REFUSED)
            if is_refused and fails:
                fleet.server.report_failure(m, "out of memory")
            if m == 0:
                refused.append(is_refused)
            if not is_refused:
                fleet.server.receive(m, frame)
        fleet.server.close_round()
        if restart:
            state, fleet.server = server_to_bytes(fleet.server), fleet.new_server()
            restore_server(fleet.server, state)
    # a device that failed is in quarantine for a while
    assert refused[:4] == [False, False, False, True]
    assert sum(refused) <= (1 if fails else 2)
    assert not refused[-1]
