"""Devices and server must never disagree about a memory, whatever the link does to messages."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import aquila
from aquila.core.packet import Dense, Packet, WireError
from aquila.core.wire import pack, unpack
from aquila.runtime.messages import NO_ACK
from aquila.runtime.session import DeviceSession, Order, ServerSession
from aquila.sim.oracle import as_shard
from helpers.problems import ridge

PROBLEM = ridge(devices=3, dimension=12)
METHODS = {
    "aquila": {"b_min": 2},
    "lag": {},
    "laq": {},
    "ladaq": {},
    "lena": {"bits": 6},
}
OUTCOMES = ("delivered", "order lost", "reply lost", "reply late", "reply twice", "order twice")


def sessions(name: str) -> tuple[ServerSession, list[DeviceSession]]:
    method = aquila.create(name, alpha=0.5 / PROBLEM.smoothness(), **METHODS.get(name, {}))
    theta = torch.zeros(PROBLEM.dimension, dtype=torch.float64)
    fleet = aquila.Fleet.uniform(PROBLEM.dimension, len(PROBLEM.devices))
    devices = [
        DeviceSession(method, m, as_shard(f), theta, seed=0) for m, f in enumerate(PROBLEM.devices)
    ]
    return ServerSession(method, theta, fleet, seed=0), devices


def run_round(server, devices, outcomes, late):
    """Run one round in which each message meets its outcome; return the replies held up."""
    delayed = {}
    orders = server.open_round()
    for device, frame in late.items():
        with pytest.raises(WireError, match="reply to round"):
            server.receive(device, frame)
    for device, order in orders.items():
        outcome = outcomes[device]
        if outcome == "order lost":
            continue
        reply = devices[device].handle(order)
        if outcome == "order twice":
            assert devices[device].handle(order) == reply
        if outcome == "reply late":
            delayed[device] = reply
        elif outcome != "reply lost":
            server.receive(device, reply)
        if outcome == "reply twice":
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


rounds_of_outcomes = st.lists(st.tuples(*[st.sampled_from(OUTCOMES)] * 3), min_size=1, max_size=12)


@pytest.mark.parametrize("name", METHODS)
@settings(max_examples=60, deadline=None)
@given(outcomes=rounds_of_outcomes)
def test_average_memory_survives_any_outcome_of_messages(name, outcomes):
    server, devices = sessions(name)
    late = {}
    for round_of_outcomes in outcomes:
        late = run_round(server, devices, round_of_outcomes, late)
        assert_memories_agree(server, devices)


def test_a_lost_reply_is_taken_back_and_an_applied_one_kept():
    server, devices = sessions("aquila")
    run_round(server, devices, ("delivered", "reply lost", "delivered"), {})
    assert [ack.round for ack in server.acks] == [0, -1, 0]
    for session in devices:
        session.apply_ack(server.acks[session.device])
    assert devices[0].state.q.any()
    assert not devices[1].state.q.any()


def test_an_order_that_comes_again_after_its_ack_changes_nothing():
    server, devices = sessions("aquila")
    order = server.open_round()[0]
    run_round(server, devices, ("delivered",) * 3, {})
    devices[0].apply_ack(server.acks[0])
    settled = devices[0].state
    devices[0].handle(order)
    assert devices[0].state is settled
    run_round(server, devices, ("delivered",) * 3, {})
    assert_memories_agree(server, devices)


def test_a_device_that_lost_its_state_says_so_and_is_refused_without_an_archive(caplog):
    server, devices = sessions("aquila")
    run_round(server, devices, ("delivered",) * 3, {})
    order = server.open_round()[0]
    anew = sessions("aquila")[1][0].handle(order)
    assert unpack(anew).fresh
    assert "device 0 answers round 1 from its initial state" in caplog.text
    with pytest.raises(WireError, match="device 0 starts anew, but without an archive"):
        server.receive(0, anew)
    server.receive(0, devices[0].handle(order))


@pytest.mark.parametrize("name", ["fedsgd", "marina", "lena_tables", "adaquantfl"])
def test_a_method_that_remembers_nothing_lets_any_device_start_anew(name):
    server, devices = sessions(name)
    run_round(server, devices, ("delivered",) * 3, {})
    reply = sessions(name)[1][0].handle(server.open_round()[0])
    assert unpack(reply).fresh
    server.receive(0, reply)
    assert 0 in server.close_round()


def test_a_reply_to_another_order_is_refused():
    """The server was put back, and what it asks in round 1 now differs from what it asked then."""
    server, devices = sessions("aquila")
    saved = server.state, server.round, list(server.acks)
    run_round(server, devices, ("delivered",) * 3, {})
    reply = devices[0].handle(server.open_round()[0])
    server.restore(*saved)
    run_round(server, devices, ("order lost",) * 3, {})
    server.open_round()
    with pytest.raises(WireError, match="reply to another order than that of round 1"):
        server.receive(0, reply)


def test_a_late_order_destroys_neither_the_state_nor_the_pending_turn():
    server, devices = sessions("aquila")
    late = server.open_round()[0]
    for _ in range(2):
        run_round(server, devices, ("delivered",) * 3, {})
    reply = devices[0].handle(server.open_round()[0])
    assert unpack(devices[0].handle(late)).round == 0
    assert devices[0].handle(server.open_round()[0]) == reply
    server.receive(0, reply)
    server.close_round()
    assert not unpack(devices[0].handle(server.open_round()[0])).fresh
    assert_memories_agree(server, devices)


def test_a_round_is_closed_once():
    server, devices = sessions("aquila")
    with pytest.raises(RuntimeError, match="round 0 has not been opened"):
        server.close_round()
    run_round(server, devices, ("delivered",) * 3, {})
    before = server.theta.clone()
    with pytest.raises(RuntimeError, match="round 1 has not been opened"):
        server.close_round()
    assert torch.equal(server.theta, before)


def test_opening_a_round_twice_gives_the_same_orders():
    server, _ = sessions("marina")
    assert server.open_round() == server.open_round()


def test_all_devices_share_one_model_frame():
    server, _ = sessions("aquila")
    assert len({id(order.model) for order in server.open_round().values()}) == 1


def test_the_model_moves_when_nobody_uploads():
    server, devices = sessions("aquila")
    run_round(server, devices, ("delivered",) * 3, {})
    before = server.theta.clone()
    run_round(server, devices, ("order lost",) * 3, {})
    assert not torch.equal(server.theta, before)


class TestUnsoundOrders:
    def assert_order_refused(self, order: Order, match: str) -> None:
        server, devices = sessions("aquila")
        run_round(server, devices, ("delivered",) * 3, {})
        session = devices[0]
        state = session.state
        with pytest.raises(WireError, match=match):
            session.handle(order)
        assert session.state is state
        run_round(server, devices, ("delivered",) * 3, {})
        assert_memories_agree(server, devices)

    def order(
        self, round_number=1, dimension=12, control_round=None, scalars=None, vector=None
    ) -> Order:
        model = pack(Packet(round_number, Dense(torch.zeros(dimension, dtype=torch.float64))))
        control_round = round_number if control_round is None else control_round
        return Order(model, pack(Packet(control_round, vector, scalars or {})))

    def test_wrong_dimension(self):
        self.assert_order_refused(self.order(dimension=13), "holds 13 coordinates")

    def test_rounds_that_differ(self):
        self.assert_order_refused(
            self.order(control_round=2), "model of round 1 in an order of round 2"
        )

    def test_missing_scalar(self):
        self.assert_order_refused(self.order(), "lacks the scalar 'drift'")

    def test_control_with_a_vector(self):
        self.assert_order_refused(self.order(vector=Dense(torch.zeros(12))), "where 0 are expected")

    def test_damaged_model(self):
        sound = self.order()
        damaged = sound.model[:-1] + bytes([sound.model[-1] ^ 1])
        self.assert_order_refused(Order(damaged, sound.control), "damaged")

    def test_replayed_order(self):
        server, devices = sessions("aquila")
        old = server.open_round()[0]
        run_round(server, devices, ("delivered",) * 3, {})
        run_round(server, devices, ("delivered",) * 3, {})
        assert not unpack(devices[0].handle(old)).fresh  # it acknowledges nothing
        assert_memories_agree(server, devices)


class TestUnsoundReplies:
    def assert_reply_refused(self, name: str, device: int, frame: bytes, match: str) -> None:
        server, _ = sessions(name)
        server.open_round()
        with pytest.raises(WireError, match=match):
            server.receive(device, frame)
        assert server.close_round() == {}
        assert server.acks == [NO_ACK] * 3
        assert not server.theta.any()

    def reply(self, round_number=0, dimension=12, name="aquila", **fields) -> bytes:
        answers = sessions(name)[0].open_round()[0].checksum
        return pack(Packet(round_number, Dense(torch.ones(dimension)), answers=answers, **fields))

    def test_unknown_device(self):
        self.assert_reply_refused("aquila", 9, self.reply(), "device 9 has no order")

    def test_wrong_dimension(self):
        self.assert_reply_refused("aquila", 0, self.reply(dimension=13), "holds 13 coordinates")

    def test_wrong_round(self):
        self.assert_reply_refused(
            "aquila", 0, self.reply(round_number=4), "reply to round 4 in round 0"
        )

    def test_another_order(self):
        self.assert_reply_refused("aquila", 0, pack(Packet(0)), "reply to another order")

    def test_garbage(self):
        self.assert_reply_refused("aquila", 0, b"garbage" * 10, "not a frame")

    def test_missing_or_absurd_scalars(self):
        self.assert_reply_refused(
            "fedavg", 0, self.reply(name="fedavg"), "lacks the scalar 'samples'"
        )
        absurd = self.reply(name="fedavg", scalars={"samples": -1.0})
        self.assert_reply_refused("fedavg", 0, absurd, "claims -1 samples")
        self.assert_reply_refused("ladaq", 0, self.reply(name="ladaq"), "lacks the scalar 'loss'")
        no_age = self.reply(name="lena", scalars={"age": 0.0})
        self.assert_reply_refused("lena", 0, no_age, "adds up 0 rounds")

    def test_no_round_open(self):
        server, _ = sessions("aquila")
        with pytest.raises(WireError, match="no order"):
            server.receive(0, self.reply())


def test_marina_waits_for_two_models_in_a_row():
    server, devices = sessions("marina")
    run_round(server, devices, ("delivered", "delivered", "delivered"), {})
    run_round(server, devices, ("delivered", "order lost", "reply lost"), {})
    replies = {d: unpack(devices[d].handle(o)) for d, o in server.open_round().items()}
    assert "stale" in replies[1].scalars  # it never saw the model of round 1
    assert "stale" not in replies[2].scalars  # it did, although its reply was lost


def test_a_refusal_counts_as_no_reply():
    method = aquila.create("aquila", alpha=0.1)
    theta = torch.zeros(2)
    session = DeviceSession(
        method, 0, as_shard(lambda t: (0.0, t * float("inf") + float("nan"))), theta, 0, "skip"
    )
    server = ServerSession(method, theta, aquila.Fleet.uniform(2, 1), seed=0)
    reply = session.handle(server.open_round()[0])
    assert unpack(reply).refused
    server.receive(0, reply)
    assert server.close_round()[0].refused
    assert server.acks == [NO_ACK]


def test_a_model_that_is_no_longer_finite_stops_the_run():
    steep = [lambda theta: (1.0, torch.full_like(theta, 1e37))]
    with pytest.raises(aquila.NonFiniteError, match="no longer finite after round 0"):
        aquila.simulate(aquila.create("fedsgd", alpha=1e3), torch.zeros(3), steep, rounds=2)


def test_a_gradient_of_the_wrong_shape_is_named():
    wrong = [lambda theta: (1.0, torch.zeros(5))]
    with pytest.raises(TypeError, match=r"device 0, round 0: the gradient is \(5,\)"):
        aquila.simulate(aquila.create("fedsgd"), torch.zeros(3), wrong, rounds=1)


def test_functions_that_write_to_their_model_harm_nobody():
    def careless(theta):
        theta.requires_grad_()
        loss = (theta - 1).square().sum()
        loss.backward()
        theta.data.zero_()
        return loss.item(), theta.grad

    def careful(theta):
        return float((theta - 1).square().sum()), 2 * (theta - 1)

    runs = [
        aquila.simulate(aquila.create("fedsgd"), torch.zeros(3), [f] * 4, rounds=5).theta
        for f in (careless, careful)
    ]
    assert torch.equal(*runs)


def test_functions_that_hand_out_the_same_buffer_harm_nobody():
    buffer = torch.zeros(3)

    def reusing(theta):
        buffer.copy_(2 * (theta - 1))
        return 1.0, buffer

    method = aquila.create("marina", alpha=0.1, p=0.0, bits=31)
    run = aquila.simulate(method, torch.zeros(3), [reusing] * 2, rounds=60)
    torch.testing.assert_close(run.theta, torch.ones(3), rtol=1e-3, atol=1e-3)


def test_an_evaluation_that_writes_to_the_model_harms_nobody():
    device = [lambda theta: (1.0, theta - 1)]
    run = aquila.simulate(
        aquila.create("fedsgd", alpha=0.5), torch.zeros(3), device, rounds=30,
        evaluate=lambda theta: {"zero": float(theta.zero_().sum())},
    )  # fmt: skip
    torch.testing.assert_close(run.theta, torch.ones(3))


@pytest.mark.parametrize("name", ["aquila", "lag", "laq", "lena"])
def test_float64_runs_that_diverge_say_so(name):
    steep = [lambda theta: (1.0, -theta * 1e6 - 1)]
    with pytest.raises(aquila.NonFiniteError):
        aquila.simulate(
            aquila.create(name, alpha=1.0), torch.zeros(3, dtype=torch.float64), steep, rounds=80
        )
