"""Real sessions on a simulated network that loses, repeats and delays messages.

Machines can restart with old files or without any. After every event the harness checks two
invariants. The server's average memory is the weighted mean of the memories after the acknowledged
replies.
A device that has the state after such a reply has that memory. Whenever a device computes, the
harness also compares its model, bit by bit, with the model of the server's order.
"""

import copy
from dataclasses import dataclass, field, replace

import torch

import aquila
from aquila.core.envelope import checksum_of
from aquila.core.method import Method, Turn
from aquila.core.packet import Dense, Packet, WireError
from aquila.methods.parts.memory import Memory, MemoryServer
from aquila.runtime.device_session import DeviceSession
from aquila.runtime.messages import NO_ACK
from aquila.runtime.options import RunOptions
from aquila.runtime.persist import device_to_bytes, restore_device, restore_server, server_to_bytes
from aquila.runtime.restart_limit import RestartLimit
from aquila.runtime.server_session import ServerSession
from helpers.memory_archive import MemoryArchive


@dataclass(frozen=True)
class IntegerDevice:
    """Uploads the change to a target that no earlier turn had; skips one target in four."""

    def init(self, like):
        return Memory(torch.zeros_like(like))

    def step(self, state, order, oracle, key):
        _, target = oracle.gradient(order.vector.decode())
        if state.has_uploaded and int(target[0]) % 4 == 3:
            return Turn(state, Packet(order.round))
        reply = Packet(order.round, Dense(target - state.q))
        return Turn(Memory(target, True), reply)


class ChangingGradients:
    """Data that returns another gradient of whole numbers at every call."""

    samples = 1

    def __init__(self):
        self.number = 0

    def oracle(self, key):
        return self

    def gradient(self, theta):
        self.number += 1
        return 0.0, self.number * (1 + torch.arange(len(theta), dtype=theta.dtype) % 5)


class RecordingShard:
    """Data that records the models at which it is evaluated."""

    def __init__(self, shard):
        self.shard = shard
        self.models = []

    def oracle(self, key):
        return RecordingOracle(self.shard.oracle(key), self.models)


@dataclass(frozen=True)
class RecordingOracle:
    """An oracle that records the models at which it is evaluated."""

    inner: object
    models: list

    @property
    def samples(self):
        return self.inner.samples

    def gradient(self, theta):
        self.models.append(theta)
        return self.inner.gradient(theta)


DIFFERENCES = {"downlink_error": 0.7, "dimension": 16}
"""Options of a harness in which coded differences are smaller than whole models."""

UNLIMITED = RestartLimit(free=10**6)

SOME_FRAMES = 60
"""Bytes of two frames of the smallest harness: some histories are folded, and some are not."""

INTEGERS = Method("integers", IntegerDevice(), MemoryServer(alpha=1.0))


@dataclass
class Network:
    """All messages to and from one device. A message is lost if a test does not deliver it."""

    orders: list = field(default_factory=list)
    replies: list = field(default_factory=list)


class FaultHarness:
    """Sessions, their files and backups, the network between them, and the invariant checks."""

    def __init__(
        self,
        devices=2,
        method=INTEGERS,
        shards=None,
        dimension=1,
        exact=True,
        files=True,
        weights=None,
        limits_restarts=False,
        **options,
    ):
        self.method, self.exact, self.files = method, exact, files
        self.options = RunOptions(**options)
        self.theta = torch.zeros(dimension, dtype=torch.float64)
        self.fleet = aquila.Fleet.uniform(dimension, devices)
        if weights is not None:
            self.fleet = self.fleet.with_weights(weights)
        self.shards = [
            RecordingShard(s) for s in shards or [ChangingGradients() for _ in range(devices)]
        ]
        self.archive = MemoryArchive()
        self.restart_limit = RestartLimit() if limits_restarts else UNLIMITED
        self.server = self.new_server()
        self.devices = [self.new_device(m) for m in range(devices)]
        self.networks = [Network() for _ in range(devices)]
        self.backups = [[] for _ in range(devices)]
        self.checkpoints = [self.snapshot(self.server)]
        self.memory_by_reply = {}
        self.model_by_order = {}

    def new_server(self):
        server = ServerSession(
            self.method,
            self.theta,
            self.fleet,
            0,
            self.options,
            archive=self.archive,
        )
        server.histories.limit = self.restart_limit
        server.histories.min_fold_bytes = SOME_FRAMES
        return server

    def new_device(self, m):
        return DeviceSession(self.method, m, self.shards[m], self.theta, seed=0)

    def copy(self):
        """Return an independent harness. States are immutable, so both harnesses share them."""
        other = copy.copy(self)
        other.archive = self.archive.copy()
        other.server = copy.copy(self.server)
        other.server.histories = copy.copy(self.server.histories)
        other.server.histories.archive = other.archive
        other.server.acks = list(self.server.acks)
        opened = self.server._open
        if opened is not None:
            other.server._open = replace(opened, received=dict(opened.received))
        other.devices = [copy.copy(session) for session in self.devices]
        other.networks = [Network(list(n.orders), list(n.replies)) for n in self.networks]
        other.backups = [list(kept) for kept in self.backups]
        other.checkpoints = list(self.checkpoints)
        return other

    # ---- messages ----

    def order(self, m):
        """Send the open round's order to a device."""
        order = self.server.open_round()[m]
        references = self.server._open.references
        model = references[0].theta if references else self.server.theta
        self.model_by_order[order.checksum] = model
        self.networks[m].orders.append(order)
        return order

    def handle(self, m, order):
        """Let a device answer an order; it writes its file before it sends the reply."""
        session, models = self.devices[m], self.shards[m].models
        models.clear()
        frame = session.handle(order)
        for model in models:
            assert bits_of(model) == bits_of(self.model_by_order[order.checksum])
        for turn in session._pending_turns():
            if turn.frame == frame:
                self.memory_by_reply[m, checksum_of(frame)] = turn.turn.state.q
        self.backups[m].append(self.snapshot(session))
        self.networks[m].replies.append(frame)
        return frame

    def receive(self, m, frame):
        """Pass a reply to the server; return whether the server accepted it."""
        self.server.open_round()
        try:
            self.server.receive(m, frame)
        except WireError:
            return False
        return True

    def close(self):
        """Close the round and write a checkpoint."""
        self.server.open_round()
        self.server.close_round()
        del self.checkpoints[self.server.round :]
        self.checkpoints.append(self.snapshot(self.server))
        self.check()

    def run_round_without_faults(self):
        """Run a round in which every message arrives and return its replies."""
        frames = [self.handle(m, self.order(m)) for m in range(len(self.devices))]
        assert all(self.receive(m, frame) for m, frame in enumerate(frames))
        self.close()
        return frames

    # ---- machines ----

    def restart_device(self, m, file=None):
        """Restart a device from a file, or from its initial state."""
        self.devices[m] = self.new_device(m)
        if file is not None and self.files:
            restore_device(self.devices[m], file)
        elif file is not None:
            self.devices[m].restore(file)

    def restart_server(self, round_number):
        """Restart the server from the checkpoint of a round."""
        self.server = self.new_server()
        if self.files:
            restore_server(self.server, self.checkpoints[round_number])
        else:
            self.server.restore(self.checkpoints[round_number])
        self.check()

    def snapshot(self, session):
        """Return the content of a file, or without files the snapshot, which is faster."""
        if not self.files:
            return session.snapshot()
        is_device = isinstance(session, DeviceSession)
        return device_to_bytes(session) if is_device else server_to_bytes(session)

    # ---- consistency ----

    def check(self):
        """Compare the server's average with the memories after the acknowledged replies."""
        acks = self.server.acks
        zero = torch.zeros_like(self.theta)
        memories = [
            zero if ack == NO_ACK else self.memory_by_reply[m, ack.checksum]
            for m, ack in enumerate(acks)
        ]
        state = getattr(self.server.state, "inner", self.server.state)
        weights = self.fleet.weights
        weighted = sum(w * memory for w, memory in zip(weights, memories, strict=True))
        self.assert_equal(state.q_bar * sum(weights), weighted)
        for session, ack, memory in zip(self.devices, acks, memories, strict=True):
            device_state = session._state_for(ack)
            if device_state is not None:
                self.assert_equal(device_state.q, memory)
        for reference in self.server.references.values():
            for model in (m for session in self.devices for m in session._references()):
                same = bits_of(model.theta) == bits_of(reference.theta)
                assert same is (model.checksum == reference.checksum)

    def assert_equal(self, one, other):
        if self.exact:
            assert torch.equal(one, other), (one, other)
        else:
            torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


def bits_of(vector):
    return vector.numpy().tobytes()
