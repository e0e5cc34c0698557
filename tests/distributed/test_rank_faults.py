"""Faults on one rank: all ranks say the same in one sentence, or go on alike. No rank hangs."""

import logging
from dataclasses import replace

import pytest
import torch
import torch.distributed as dist

from aquila.distributed import Exchange, ExchangeError, Outer
from helpers.rank_faults import error_and_seconds, fail_on_rank_1
from helpers.rank_training import make_model, train, weights
from helpers.ranks import run_ranks


def same_sentence(results):
    """Return the message that all ranks raised."""
    assert all(isinstance(result, ExchangeError) for result in results), results
    (message,) = {str(result) for result in results}
    return message


def other_weights(frozen):
    rank = dist.get_rank()
    model = make_model(seed=0 if frozen else rank)
    if frozen:
        model[0].weight.requires_grad_(False)
        with torch.no_grad():
            model[0].weight[0, 0] += rank
    train(Outer(model, "fedavg", every=2), model, 4)


@pytest.mark.parametrize("frozen", [False, True])
def test_rank_with_other_weights_at_the_start(tmp_path, frozen):
    message = same_sentence(run_ranks(tmp_path, other_weights, frozen))
    assert message.startswith("rank 1 has other weights than rank 0 at the start of round 0; make")


def other_settings():
    arguments = {"server_lr": 0.5} if dist.get_rank() == 1 else {}
    model = make_model()
    train(Outer(model, "qsgd:bits=4", every=2, **arguments), model, 4)


def test_rank_with_other_settings(tmp_path):
    message = same_sentence(run_ranks(tmp_path, other_settings))
    assert message == (
        "rank 1 has other settings than rank 0: server_lr 0.5 instead of server_lr 1.0; give all "
        "ranks the same settings and calls"
    )


def other_method():
    model = make_model()
    train(Outer(model, f"qsgd:bits={4 + dist.get_rank()}", every=2), model, 4)


def test_rank_with_another_method(tmp_path):
    message = same_sentence(run_ranks(tmp_path, other_method))
    assert "bits=5" in message.partition("instead of")[0]
    assert "bits=4" in message.partition("instead of")[2]


def diverging():
    model = make_model()
    outer = Outer(model, "qsgd:bits=8", every=2)
    train(outer, model, 2)
    if dist.get_rank() == 1:
        outer._sessions.server.theta[3] += 1e-6  # what a broken memory would do
    train(outer, model, 2)


def test_checksum_finds_ranks_that_have_diverged(tmp_path):
    message = same_sentence(run_ranks(tmp_path, diverging))
    assert message.startswith("rank 1 has other weights than rank 0 at the start of round 1")


def flip_middle(frame):
    half = len(frame) // 2
    return frame[:half] + bytes([frame[half] ^ 255]) + frame[half + 1 :]


DAMAGES = {
    "flipped": flip_middle,
    "truncated": lambda frame: frame[: len(frame) // 2],
    "missing": lambda frame: b"",
    "zeros": lambda frame: bytes(len(frame)),
}


class DamagingExchange(Exchange):
    """Damages the frame of rank 1 on one receiver, once the frames have vectors."""

    def __init__(self, damage):
        super().__init__()
        self._damage, self._calls = DAMAGES[damage], 0

    def gather_bodies(self, body, lengths):
        bodies = super().gather_bodies(body, lengths)
        self._calls += 1
        if self.rank == 0 and self._calls == 3:
            bodies[1] = self._damage(bodies[1])
        return bodies


class Warnings(logging.Handler):
    """Keeps the messages of a logger."""

    def __init__(self):
        super().__init__()
        self.messages = []
        logging.getLogger("aquila").addHandler(self)

    def emit(self, record):
        self.messages.append(record.getMessage())


def damaged_frame(method, damage):
    model, warnings = make_model(), Warnings()
    outer = Outer(model, method, every=2, exchange=DamagingExchange(damage))
    train(outer, model, 8)
    device = outer._sessions.device
    memory = device.half.memory(device.state).double() if method == "aquila_topk" else None
    server = outer._sessions.server
    mean = memory
    if memory is not None:
        dist.all_reduce(mean)
        mean = torch.allclose(mean / 2, server.half.memory(server.state), atol=1e-6)
    refused = [record.refused for record in outer.records]
    return weights(model).numpy(), refused, mean, warnings.messages


@pytest.mark.parametrize(
    ("method", "damage"),
    [("sparseloco", "flipped"), *(("aquila_topk", damage) for damage in DAMAGES)],
)
def test_all_ranks_refuse_a_frame_that_one_cannot_read(tmp_path, method, damage):
    first, second = run_ranks(tmp_path, damaged_frame, method, damage)
    assert (first[0] == second[0]).all()
    assert first[1] == second[1] == [(), (1,), (), ()]
    if method == "aquila_topk":  # the sender has rolled its memory back
        assert first[2] is second[2] is True
    for (message,) in (first[3], second[3]):
        assert message.startswith("round 1: all ranks refuse the frame of rank 1: ")


def all_damaged():
    exchange = Exchange()
    exchange.gather_bodies = lambda body, lengths: [b"x" * length for length in lengths]
    model = make_model()
    outer = Outer(model, "fedavg", every=1)
    outer.start()
    outer.exchange = exchange
    train(outer, model, 1)


def test_no_frame_is_left(tmp_path):
    message = same_sentence(run_ranks(tmp_path, all_damaged))
    assert message == "round 0: the frames of all ranks are damaged"


def bad_gradient(on_nan):
    model = make_model()
    outer = Outer(model, "qsgd:bits=8", every=2, on_nan=on_nan)
    train(outer, model, 3)
    if dist.get_rank() == 1:
        with torch.no_grad():
            model[0].weight[0, 0] = torch.nan
    train(outer, model, 5, first=3)
    return weights(model).numpy(), [record.failed for record in outer.records], outer.bytes_sent


def test_rank_with_nan_is_in_quarantine_on_all_ranks(tmp_path):
    first, second = run_ranks(tmp_path, bad_gradient, "quarantine")
    assert (first[0] == second[0]).all()
    assert torch.isfinite(torch.tensor(first[0])).all()
    assert first[1] == second[1] == [(), (1,), (), ()]
    assert second[2] < first[2]


def test_rank_with_nan_stops_all_ranks(tmp_path):
    message = same_sentence(run_ranks(tmp_path, bad_gradient, "stop"))
    assert message.startswith("rank 1: device 1, round 1: 323 of 323 coordinates of the gradient")


def dying(how):
    model = make_model()
    outer = Outer(model, "qsgd:bits=4", every=2, exchange=Exchange(timeout=1))
    train(outer, model, 2)
    fail_on_rank_1(how)
    return error_and_seconds(ExchangeError, train, outer, model, 4)


@pytest.mark.parametrize("how", ["kill", "hang"])
def test_rank_that_dies_or_hangs(tmp_path, how):
    (message, seconds), other, third = run_ranks(tmp_path, dying, how, ranks=3)
    assert third[0].startswith("round 1: another rank has ended, or has not answered")
    assert "round 1: another rank has ended, or has not answered within 1 s; restart" in message
    assert seconds < 5
    if how == "hang":
        assert "round 1: another rank has ended, or has not answered" in other[0]


def late_rank():
    model = make_model()
    outer = Outer(model, "fedavg", every=2)
    outer.start()
    server = outer._sessions.server
    if dist.get_rank() == 1:
        server.restore(replace(server.snapshot(), round=3))
    train(outer, model, 2)


def test_rank_in_another_round(tmp_path):
    message = same_sentence(run_ranks(tmp_path, late_rank))
    assert message.startswith("rank 1 is in round 3, but rank 0 is in round 0; load states of the")


def all_nan():
    model = make_model()
    outer = Outer(model, "qsgd:bits=8", every=1)
    with torch.no_grad():
        model[0].weight[0, 0] = torch.nan
    outer.step()


def test_nan_on_all_ranks(tmp_path):
    message = same_sentence(run_ranks(tmp_path, all_nan))
    assert message.startswith("device 0, round 0: 1 of 323 coordinates of the gradient")


def buffers_on_one_rank():
    model = torch.nn.BatchNorm1d(4)
    outer = Outer(model, "qsgd:bits=8", every=1)
    outer.start()
    return outer.average_buffers() if dist.get_rank() == 1 else outer.step()


def test_rank_that_averages_buffers_instead_of_a_step(tmp_path):
    message = same_sentence(run_ranks(tmp_path, buffers_on_one_rank))
    assert "a call of average_buffers with 8 numbers of torch.float32 instead of nothing" in message


def bad_buffer_on_one_rank(kind):
    model = torch.nn.BatchNorm1d(4)
    outer = Outer(model, "qsgd:bits=8", every=1)
    if dist.get_rank() == 1 and kind == "meta":
        model.register_buffer("other", torch.ones(2, device="meta"))
    elif dist.get_rank() == 1:
        model.running_mean.fill_(torch.nan)
    outer.average_buffers()


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        ("meta", "rank 1: average_buffers: a buffer is on the meta device; load the model first"),
        ("nan", "rank 1: average_buffers: the vector contains NaN or infinite numbers"),
    ],
)
def test_rank_with_a_buffer_that_cannot_be_sent(tmp_path, kind, sentence):
    assert same_sentence(run_ranks(tmp_path, bad_buffer_on_one_rank, kind)) == sentence


def state_on_one_rank():
    model = make_model()
    outer = Outer(model, "qsgd:bits=8", every=1)
    train(outer, model, 2)
    if dist.get_rank() == 1:
        outer.load_state_dict(outer.state_dict())
    train(outer, model, 2)


def test_rank_that_loads_a_state_while_others_train(tmp_path):
    message = same_sentence(run_ranks(tmp_path, state_on_one_rank))
    assert "a call of start instead of nothing" in message


def check_on_one_rank():
    model = make_model()
    outer = Outer(model, "qsgd:bits=8", every=1, check_weights=dist.get_rank() == 0)
    train(outer, model, 2)
    return weights(model).numpy()


def test_check_of_weights_on_one_rank_only(tmp_path):
    first, second = run_ranks(tmp_path, check_on_one_rank)
    assert (first == second).all()
