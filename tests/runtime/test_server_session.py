"""The server applies valid replies of the open round once, and rejects everything else."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from session_pair import (
    METHODS_WITH_MEMORY,
    OUTCOMES,
    assert_memories_agree,
    make_sessions,
    run_round,
)

from aquila.core.packet import Dense, Packet, WireError
from aquila.core.wire import pack, unpack
from aquila.runtime.messages import NO_ACK

rounds_of_outcomes = st.lists(st.tuples(*[st.sampled_from(OUTCOMES)] * 3), min_size=1, max_size=12)


@pytest.mark.parametrize("name", METHODS_WITH_MEMORY)
@settings(max_examples=25, deadline=None)
@given(outcomes=rounds_of_outcomes)
def test_memories_agree_after_any_outcomes_of_messages(name, outcomes):
    server, devices = make_sessions(name)
    late = {}
    for round_of_outcomes in outcomes:
        late = run_round(server, devices, round_of_outcomes, late)
        assert_memories_agree(server, devices)


def test_restarted_device_is_rejected_without_an_archive(caplog):
    server, devices = make_sessions("aquila")
    run_round(server, devices)
    order = server.open_round()[0]
    reply = make_sessions("aquila")[1][0].handle(order)
    assert unpack(reply).fresh
    assert "device 0 answers round 1 from its initial state" in caplog.text
    with pytest.raises(WireError, match="device 0 restarts from its initial state, but without an"):
        server.receive(0, reply)
    server.receive(0, devices[0].handle(order))


@pytest.mark.parametrize("name", ["fedsgd", "marina", "lena_tables", "adaquantfl"])
def test_method_without_memory_accepts_restarted_devices(name):
    server, devices = make_sessions(name)
    run_round(server, devices)
    reply = make_sessions(name)[1][0].handle(server.open_round()[0])
    assert unpack(reply).fresh
    server.receive(0, reply)
    assert 0 in server.close_round()


def test_reply_to_another_order_of_the_same_round_is_rejected():
    """After a restore, the order of round 1 differs from the one that the device answered."""
    server, devices = make_sessions("aquila")
    saved = server.snapshot()
    run_round(server, devices)
    reply = devices[0].handle(server.open_round()[0])
    server.restore(saved)
    run_round(server, devices, ("order lost",) * 3)
    server.open_round()
    with pytest.raises(WireError, match="answers another order than that of round 1"):
        server.receive(0, reply)


def test_snapshot_is_independent_of_later_rounds():
    server, devices = make_sessions("aquila")
    saved = server.snapshot()
    run_round(server, devices)
    assert saved.round == 0
    assert saved.acks == (NO_ACK,) * 3
    assert not saved.theta.any()
    assert not saved.state.q_bar.any()


def test_round_can_be_closed_once():
    server, devices = make_sessions("aquila")
    with pytest.raises(RuntimeError, match="round 0 has not been opened"):
        server.close_round()
    run_round(server, devices)
    before = server.theta.clone()
    with pytest.raises(RuntimeError, match="round 1 has not been opened"):
        server.close_round()
    assert torch.equal(server.theta, before)


def test_opening_a_round_twice_gives_the_same_orders():
    server, _ = make_sessions("marina")
    assert server.open_round() == server.open_round()


def test_all_devices_share_one_model_frame():
    server, _ = make_sessions("aquila")
    assert len({id(order.model) for order in server.open_round().values()}) == 1


def test_model_moves_when_no_device_uploads():
    server, devices = make_sessions("aquila")
    run_round(server, devices)
    before = server.theta.clone()
    run_round(server, devices, ("order lost",) * 3)
    assert not torch.equal(server.theta, before)


class TestInvalidReplies:
    def assert_reply_rejected(self, name: str, device: int, frame: bytes, match: str) -> None:
        server, _ = make_sessions(name)
        server.open_round()
        with pytest.raises(WireError, match=match):
            server.receive(device, frame)
        assert server.close_round() == {}
        assert server.acks == [NO_ACK] * 3
        assert not server.theta.any()

    def reply(self, round_number=0, dimension=12, name="aquila", **fields) -> bytes:
        order = make_sessions(name)[0].open_round()[0].checksum
        return pack(Packet(round_number, Dense(torch.ones(dimension)), refers_to=order, **fields))

    def test_unknown_device(self):
        self.assert_reply_rejected("aquila", 9, self.reply(), "device 9 has no order")

    def test_wrong_dimension(self):
        self.assert_reply_rejected("aquila", 0, self.reply(dimension=13), "holds 13 coordinates")

    def test_wrong_round(self):
        self.assert_reply_rejected(
            "aquila", 0, self.reply(round_number=4), "a reply to round 4 arrived in round 0"
        )

    def test_another_order(self):
        self.assert_reply_rejected("aquila", 0, pack(Packet(0)), "answers another order")

    def test_garbage(self):
        self.assert_reply_rejected("aquila", 0, b"garbage" * 10, "not a frame")

    def test_missing_or_invalid_scalars(self):
        self.assert_reply_rejected("ladaq", 0, self.reply(name="ladaq"), "lacks the scalar 'loss'")
        no_age = self.reply(name="lena", scalars={"age": 0.0})
        self.assert_reply_rejected("lena", 0, no_age, "must have age >= 1, not 0")

    def test_no_open_round(self):
        server, _ = make_sessions("aquila")
        with pytest.raises(WireError, match="no order"):
            server.receive(0, self.reply())
