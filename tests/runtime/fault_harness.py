"""A server and devices on a network that loses, doubles and delays, and machines that forget.

The sessions are the real ones; only what happens to them is made up. After every event the books
are checked: the server's average memory must be the mean of the memories behind the replies that
it acknowledges, and a device that has the state behind such a reply must have that memory. And
whenever a device computes, it is at the very model that the server meant by the order, whether that
came whole or as a difference.
"""

import copy
from dataclasses import dataclass, field

import torch

import aquila
from aquila.core.envelope import checksum_of
from aquila.core.method import Method, Turn
from aquila.core.packet import Dense, Packet, WireError
from aquila.methods.parts.memory import Memory, MemoryServer
from aquila.runtime.archive import MemoryArchive
from aquila.runtime.messages import NO_ACK
from aquila.runtime.persist import device_to_bytes, restore_device, restore_server, server_to_bytes
from aquila.runtime.session import DeviceSession, ServerSession


@dataclass(frozen=True)
class IntegerDevice:
    """Sends the change to a number that no turn has had before, now and then nothing."""

    def init(self, like):
        return Memory(torch.zeros_like(like))

    def step(self, state, order, oracle, key):
        _, target = oracle.gradient(order.vector.decode())
        if state.has_uploaded and int(target[0]) % 4 == 3:
            return Turn(state, Packet(order.round))
        reply = Packet(order.round, Dense(target - state.q))
        return Turn(Memory(target, True), reply)


class ChangingGradients:
    """Data whose gradient has other whole numbers whenever it is asked for."""

    samples = 1

    def __init__(self):
        self.number = 0

    def oracle(self, key):
        return self

    def gradient(self, theta):
        self.number += 1
        return 0.0, self.number * (1 + torch.arange(len(theta), dtype=theta.dtype) % 5)


class RecordingShard:
    """Data that notes at which models it is asked."""

    def __init__(self, shard):
        self.shard = shard
        self.models = []

    def oracle(self, key):
        return RecordingOracle(self.shard.oracle(key), self.models)


@dataclass(frozen=True)
class RecordingOracle:
    """What a device asks of such data in a round."""

    inner: object
    models: list

    @property
    def samples(self):
        return self.inner.samples

    def gradient(self, theta):
        self.models.append(theta)
        return self.inner.gradient(theta)


INTEGERS = Method("integers", IntegerDevice(), MemoryServer(alpha=1.0))


@dataclass
class Network:
    """All that was ever sent to and by each device; losing is not to deliver."""

    orders: list = field(default_factory=list)
    replies: list = field(default_factory=list)


class FaultHarness:
    """Sessions, their files and backups, the network between them, and the books."""

    def __init__(
        self,
        devices=2,
        method=INTEGERS,
        shards=None,
        dimension=1,
        exact=True,
        files=True,
        downlink_error=0.0,
    ):
        self.method, self.exact, self.files, self.downlink_error = (
            method,
            exact,
            files,
            downlink_error,
        )
        self.theta = torch.zeros(dimension, dtype=torch.float64)
        self.fleet = aquila.Fleet.uniform(dimension, devices)
        self.shards = [
            RecordingShard(s) for s in shards or [ChangingGradients() for _ in range(devices)]
        ]
        self.archive = MemoryArchive()
        self.server = self.new_server()
        self.devices = [self.new_device(m) for m in range(devices)]
        self.networks = [Network() for _ in range(devices)]
        self.backups = [[] for _ in range(devices)]
        self.checkpoints = [self.snapshot(self.server)]
        self.memory_by_reply = {}
        self.model_by_order = {}

    def new_server(self):
        return ServerSession(
            self.method,
            self.theta,
            self.fleet,
            0,
            archive=self.archive,
            downlink_error=self.downlink_error,
        )

    def new_device(self, m):
        return DeviceSession(self.method, m, self.shards[m], self.theta, seed=0)

    def copy(self):
        """Return an independent harness; states are never written to, so they are shared."""
        other = copy.copy(self)
        other.archive = copy.copy(self.archive)
        other.archive._frames = {m: list(frames) for m, frames in self.archive._frames.items()}
        other.server = copy.copy(self.server)
        other.server._archive = other.archive
        other.server.acks = list(self.server.acks)
        for name in ("_orders", "_replies", "_reply_acks", "_frames"):
            setattr(other.server, name, dict(getattr(self.server, name)))
        other.devices = [copy.copy(session) for session in self.devices]
        other.networks = [Network(list(n.orders), list(n.replies)) for n in self.networks]
        other.backups = [list(kept) for kept in self.backups]
        other.checkpoints = list(self.checkpoints)
        return other

    # ---- messages ----

    def order(self, m):
        """Send the open round's order to a device."""
        order = self.server.open_round()[m]
        opened = self.server._open_references
        self.model_by_order[order.checksum] = opened[0].theta if opened else self.server.theta
        self.networks[m].orders.append(order)
        return order

    def handle(self, m, order):
        """Have a device answer; its file is written before the answer is on its way."""
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
        """Hand a reply to the server; return whether it took it."""
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

    # ---- machines ----

    def restart_device(self, m, file=None):
        """Start a device again, from a file or from nothing."""
        self.devices[m] = self.new_device(m)
        if file is not None and self.files:
            restore_device(self.devices[m], file)
        elif file is not None:
            self.devices[m].restore(*file)

    def restart_server(self, round_number):
        """Start the server again from the checkpoint of a round."""
        self.server = self.new_server()
        if self.files:
            restore_server(self.server, self.checkpoints[round_number])
        else:
            state, closed_rounds, acks, references = self.checkpoints[round_number]
            self.server.restore(state, closed_rounds, list(acks), references)
        self.check()

    def snapshot(self, session):
        """Return what a file would hold: its bytes, or to be quick what they stand for."""
        if isinstance(session, DeviceSession):
            return device_to_bytes(session) if self.files else session.snapshot()
        if self.files:
            return server_to_bytes(session)
        return session.state, session.round, tuple(session.acks), session.references

    # ---- consistency ----

    def check(self):
        """Compare what the server holds with the memories behind the replies it acknowledges."""
        acks = self.server.acks
        zero = torch.zeros_like(self.theta)
        memories = [
            zero if ack == NO_ACK else self.memory_by_reply[m, ack.checksum]
            for m, ack in enumerate(acks)
        ]
        state = getattr(self.server.state, "inner", self.server.state)
        self.assert_equal(state.q_bar * len(acks), sum(memories))
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
