"""Devices commit turns that the server applied, roll back the others, and reject bad orders."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from session_pair import ALL_DELIVERED, assert_memories_agree, make_sessions, run_round

import aquila
from aquila.core.packet import Dense, Packet, WireError
from aquila.core.wire import pack, unpack
from aquila.runtime.device_session import DeviceSession
from aquila.runtime.messages import NO_ACK, Ack, Order
from aquila.runtime.options import RunOptions
from aquila.runtime.server_session import ServerSession
from aquila.runtime.services import Services
from aquila.sim.oracle import as_shard


def test_lost_reply_rolls_device_back_and_applied_reply_commits():
    server, devices = make_sessions("aquila")
    run_round(server, devices, ("delivered", "reply lost", "delivered"))
    assert [ack.round for ack in server.acks] == [0, -1, 0]
    for session in devices:
        session.apply_ack(server.acks[session.device])
    assert devices[0].state.q.any()
    assert not devices[1].state.q.any()


def test_order_repeated_after_its_ack_changes_nothing():
    server, devices = make_sessions("aquila")
    order = server.open_round()[0]
    run_round(server, devices)
    devices[0].apply_ack(server.acks[0])
    committed = devices[0].state
    devices[0].handle(order)
    assert devices[0].state is committed
    run_round(server, devices)
    assert_memories_agree(server, devices)


def test_late_order_keeps_state_and_pending_turn():
    server, devices = make_sessions("aquila")
    late = server.open_round()[0]
    for _ in range(2):
        run_round(server, devices)
    reply = devices[0].handle(server.open_round()[0])
    assert unpack(devices[0].handle(late)).round == 0
    assert devices[0].handle(server.open_round()[0]) == reply
    server.receive(0, reply)
    server.close_round()
    assert not unpack(devices[0].handle(server.open_round()[0])).fresh
    assert_memories_agree(server, devices)


def test_device_half_without_a_state_is_an_error():
    method = aquila.create("fedsgd")
    half = SimpleNamespace(init=lambda like: None, step=method.device.step)
    broken, theta = replace(method, device=half), torch.zeros(3)
    shard = as_shard(lambda theta: (0.0, theta))
    with pytest.raises(TypeError, match="fedsgd: the device's init returned None"):
        DeviceSession(broken, 0, shard, theta, seed=0)
    with pytest.raises(TypeError, match="fedsgd: the device's init returned None"):
        aquila.simulate(broken, theta, [shard], rounds=1)


def test_acknowledgement_without_its_state_is_an_error():
    _, devices = make_sessions("aquila")
    with pytest.raises(WireError, match="device 0 has no state for the acknowledgement Ack"):
        devices[0].apply_ack(Ack(4, 5))


def test_restored_snapshot_continues_with_the_same_bytes():
    server, devices = make_sessions("aquila")
    run_round(server, devices)
    reply = devices[0].handle(server.open_round()[0])
    other = make_sessions("aquila")[1][0]
    other.restore(devices[0].snapshot())
    assert other.handle(server.open_round()[0]) == reply
    assert other.snapshot() == devices[0].snapshot()


def test_state_that_is_also_the_fallback_is_stored_once():
    stored = []

    def store(device, state, *in_use):
        stored.append(replace(state))
        return stored[-1]

    method, theta = aquila.create("marina"), torch.zeros(2)
    shard = as_shard(lambda t: (0.0, t + 1))
    device = DeviceSession(method, 0, shard, theta, 0, services=Services(store_state=store))
    server = ServerSession(method, theta, aquila.Fleet.uniform(2, 1), seed=0)
    device.handle(server.open_round()[0])
    turn = device.snapshot().pending.turn
    assert len(stored) == 1
    assert turn.state is turn.fallback is stored[0]


def test_device_refuses_on_nan_and_server_counts_no_reply():
    method = aquila.create("aquila", alpha=0.1)
    theta = torch.zeros(2)
    shard = as_shard(lambda t: (0.0, t * float("inf") + float("nan")))
    session = DeviceSession(method, 0, shard, theta, 0, RunOptions(on_nan="skip"))
    server = ServerSession(method, theta, aquila.Fleet.uniform(2, 1), seed=0)
    reply = session.handle(server.open_round()[0])
    assert unpack(reply).refused
    server.receive(0, reply)
    assert server.close_round()[0].refused
    assert server.acks == [NO_ACK]


def test_marina_device_is_stale_until_it_has_two_models_in_a_row():
    server, devices = make_sessions("marina")
    run_round(server, devices)
    run_round(server, devices, ("delivered", "order lost", "reply lost"))
    replies = {d: unpack(devices[d].handle(o)) for d, o in server.open_round().items()}
    assert "stale" in replies[1].scalars  # it never saw the model of round 1
    assert "stale" not in replies[2].scalars  # it did, although its reply was lost


class TestInvalidOrders:
    def assert_order_rejected(self, order: Order, match: str) -> None:
        server, devices = make_sessions("aquila")
        run_round(server, devices, ALL_DELIVERED)
        session = devices[0]
        state = session.state
        with pytest.raises(WireError, match=match):
            session.handle(order)
        assert session.state is state
        run_round(server, devices, ALL_DELIVERED)
        assert_memories_agree(server, devices)

    def order(
        self, round_number=1, dimension=12, control_round=None, scalars=None, vector=None
    ) -> Order:
        model = pack(Packet(round_number, Dense(torch.zeros(dimension, dtype=torch.float64))))
        control_round = round_number if control_round is None else control_round
        return Order(model, pack(Packet(control_round, vector, scalars or {})))

    def test_wrong_dimension(self):
        self.assert_order_rejected(self.order(dimension=13), "holds 13 coordinates")

    def test_frames_of_different_rounds(self):
        self.assert_order_rejected(
            self.order(control_round=2), "control frame of round 2 and a model of round 1"
        )

    def test_missing_scalar(self):
        self.assert_order_rejected(self.order(), "lacks the scalar 'drift'")

    def test_control_frame_with_a_vector(self):
        self.assert_order_rejected(
            self.order(vector=Dense(torch.zeros(12))), "where 0 are expected"
        )

    def test_damaged_model(self):
        valid = self.order()
        damaged = valid.model[:-1] + bytes([valid.model[-1] ^ 1])
        self.assert_order_rejected(Order(damaged, valid.control), "damaged")

    def test_replayed_order(self):
        server, devices = make_sessions("aquila")
        old = server.open_round()[0]
        run_round(server, devices)
        run_round(server, devices)
        assert not unpack(devices[0].handle(old)).fresh  # it acknowledges nothing
        assert_memories_agree(server, devices)
