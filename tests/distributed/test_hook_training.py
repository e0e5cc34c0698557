"""The hook in a whole training program: overlap, a gradient scaler, checkpoints and faults."""

import threading

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn

from aquila.distributed import Exchange
from helpers.hook_training import backward, descend, wrap
from helpers.rank_faults import error_and_seconds, fail_on_rank_1
from helpers.rank_training import make_batch, make_model, weights
from helpers.ranks import run_ranks

REACHED = threading.Event()
"""Set when the backward pass reaches the first layer."""


class ReachFirstLayer(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        REACHED.set()
        return gradient


class Marker(nn.Module):
    def forward(self, x):
        return ReachFirstLayer.apply(x)


class WaitingExchange(Exchange):
    """Exchanges nothing until the backward pass has reached the first layer."""

    def gather(self, message):
        assert REACHED.wait(5), "the backward pass waits for the exchange"
        return super().gather(message)


def overlap():
    first, _, last = make_model()
    marked = nn.Sequential(first, Marker(), last)
    # one bucket per layer
    model, state = wrap("qsgd:bits=8", marked, 0.0003, exchange=WaitingExchange())
    for step in range(3):
        REACHED.clear()
        backward(model, step)
    return len(state._buckets), state.bytes_sent > 0


def test_backward_pass_goes_on_during_an_exchange(tmp_path):
    assert run_ranks(tmp_path, overlap) == [(2, True)] * 2


def train_with_scaler():
    """Return the weights, the scales and the steps that were taken; one loss is infinite."""
    model, _ = wrap("aquila_topk", bucket_cap_mb=1.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    scales, changed = [], []
    for step in range(4):
        x, y = make_batch(step, dist.get_rank())
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = nn.functional.cross_entropy(model(x).float(), y)
        infinite = step == 2 and dist.get_rank() == 1
        scaler.scale(loss * (torch.inf if infinite else 1.0)).backward()
        before = weights(model).clone()
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
        changed.append(not torch.equal(before, weights(model)))
    return weights(model).tolist(), scales, changed


def test_gradient_scaler_skips_the_same_step_on_all_ranks(tmp_path):
    first, second = run_ranks(tmp_path, train_with_scaler)
    assert first == second
    assert first[1] == [1024, 1024, 512, 512]
    assert first[2][2:] == [False, True]


def resume_from_checkpoint(folder):
    model, _ = wrap("aquila_topk", bucket_cap_mb=1.0)
    descend(model, 0, 8)
    whole = weights(model)
    model, state = wrap("aquila_topk", bucket_cap_mb=1.0)
    descend(model, 0, 5)
    dcp.save({"model": model.module.state_dict(), "hook": state}, checkpoint_id=folder)
    plain = make_model()
    model, state = wrap("aquila_topk", plain, bucket_cap_mb=1.0)
    parts = {"model": plain.state_dict(), "hook": state}
    dcp.load(parts, checkpoint_id=folder)
    plain.load_state_dict(parts["model"])
    descend(model, 5, 3)
    return torch.equal(weights(model), whole)


def test_distributed_checkpoint_resumes_with_the_same_bits(tmp_path):
    assert run_ranks(tmp_path, resume_from_checkpoint, tmp_path / "checkpoint") == [True, True]


def dying(how):
    model, _ = wrap("qsgd:bits=8", exchange=Exchange(timeout=1))
    descend(model, 0, 2)
    fail_on_rank_1(how)
    return error_and_seconds(RuntimeError, descend, model, 2, 2)


@pytest.mark.parametrize("how", ["kill", "hang"])
def test_rank_that_dies_or_hangs(tmp_path, how):
    results = run_ranks(tmp_path, dying, how, ranks=3)
    if how == "kill":
        assert results.pop(1) is None
    for message, seconds in results:
        assert "another rank has ended, or has not answered within 1 s; restart" in message
        assert seconds < 5
