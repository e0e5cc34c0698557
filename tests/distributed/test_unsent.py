"""Ranks that keep what they have not sent in their weights."""

import pytest
import torch
import torch.distributed as dist

import aquila
from aquila.distributed import Exchange, ExchangeError, Outer
from aquila.distributed.outer_options import average_only
from helpers.rank_training import make_batch, make_model, train, weights
from helpers.ranks import run_ranks

SPARSE = "sparseloco:beta=0,density=0.02"
DILOCO = {"server_optimizer": "nesterov", "server_lr": 0.7}


def make_outer(method=SPARSE, keep_unsent=True, **options):
    model = make_model()
    return model, Outer(model, method, every=3, keep_unsent=keep_unsent, **DILOCO, **options)


def mean_loss(model):
    """Return the loss on batches of both ranks."""
    batches = [make_batch(step, rank) for step in range(100, 120) for rank in (0, 1)]
    losses = [torch.nn.functional.cross_entropy(model(x), y) for x, y in batches]
    return float(torch.stack(losses).mean().detach())


def dense_frames():
    """Return the weights of a dense run with and without an unsent part."""
    results = []
    for keep_unsent in (False, True):
        model, outer = make_outer("fedavg", keep_unsent)
        train(outer, model, 12)
        results.append(weights(model))
    return [result.numpy() for result in results]


def test_dense_frames_leave_nothing_unsent(tmp_path):
    for shared, kept in run_ranks(tmp_path, dense_frames):
        torch.testing.assert_close(torch.tensor(kept), torch.tensor(shared))


def sparse_frames():
    model, outer = make_outer()
    train(outer, model, 60)
    own = weights(model)
    with outer.shared_weights():
        shared = weights(model)
    assert torch.equal(weights(model), own)
    outer.finish()
    assert torch.equal(weights(model), shared)
    loss = mean_loss(model)
    model, outer = make_outer(keep_unsent=False)
    train(outer, model, 60)
    return own.numpy(), shared.numpy(), loss, mean_loss(model)


def test_ranks_share_weights_and_keep_the_rest(tmp_path):
    first, second = run_ranks(tmp_path, sparse_frames)
    assert (first[1] == second[1]).all()
    assert (first[0] != second[0]).any()
    _, _, loss, loss_without = first
    assert loss < 0.9 * loss_without


def flushed():
    """Return the weights after a flush, the mean of the ranks' weights before, and the bytes."""
    model, outer = make_outer()
    train(outer, model, 12)
    mean, sent = weights(model), outer.bytes_sent
    dist.all_reduce(mean)
    with outer.shared_weights():
        before = weights(model)
    outer.finish(flush="eden:bits=8")
    return weights(model).numpy(), (mean / 2).numpy(), before.numpy(), outer.bytes_sent - sent


def test_flush_gives_the_mean_of_the_ranks(tmp_path):
    first, second = run_ranks(tmp_path, flushed)
    assert (first[0] == second[0]).all()
    after, mean, before = map(torch.tensor, first[:3])
    assert (after - mean).norm() < 0.05 * (before - mean).norm()
    assert 0 < first[3] < 4 * len(after)


def unsent_sum():
    """Return the shared weights, and the mean of what the ranks would have without coding."""
    model, outer = make_outer()
    for step in range(4):
        train(outer, model, 3, first=3 * step)
    total = weights(model)
    dist.all_reduce(total)
    unsent = outer._rank_model._state.unsent.clone()
    dist.all_reduce(unsent)
    return (total / 2).numpy(), (outer._sessions.server.theta - unsent / 2).numpy()


def test_mean_of_the_ranks_is_shared_weights_minus_mean_unsent(tmp_path):
    for mean, expected in run_ranks(tmp_path, unsent_sum):
        torch.testing.assert_close(torch.tensor(mean), torch.tensor(expected))


def run_in_two_parts(folder, stop):
    model, outer = make_outer()
    train(outer, model, 12)
    whole, sent = weights(model), outer.bytes_sent
    model, outer = make_outer()
    train(outer, model, stop)
    file = f"{folder}/rank{dist.get_rank()}-{stop}.pt"
    torch.save({"model": model.state_dict(), "outer": outer.state_dict()}, file)
    model, outer = make_outer()
    state = torch.load(file, weights_only=True)
    if stop % 3:
        model.load_state_dict(state["model"])
    outer.load_state_dict(state["outer"])
    train(outer, model, 12 - stop, first=stop)
    damaged = {**state["outer"], f"rank_{dist.get_rank()}": {}}
    with pytest.raises(ValueError, match="state_dict"):
        outer.load_state_dict(damaged)
    return torch.equal(weights(model), whole), outer.bytes_sent == sent


@pytest.mark.parametrize("stop", [6, 7])
def test_saved_state_resumes_with_the_same_bits(tmp_path, stop):
    assert run_ranks(tmp_path, run_in_two_parts, tmp_path, stop) == [(True, True)] * 2


class DamagedOnce(Exchange):
    """Damages the frame of rank 1 in one round."""

    def gather_bodies(self, body, lengths):
        bodies = super().gather_bodies(body, lengths)
        if max(lengths) > 20 and not getattr(self, "done", False):
            self.done = True
            bodies[1] = bodies[1][:-1] + bytes([bodies[1][-1] ^ 1])
        return bodies


def with_refused_frame():
    model, outer = make_outer(exchange=DamagedOnce())
    train(outer, model, 12)
    unsent = outer._rank_model._state.unsent
    moved = outer._sessions.server.theta - weights(model)
    torch.testing.assert_close(moved, unsent)
    with outer.shared_weights():
        return [record.refused for record in outer.records], weights(model).numpy()


def test_refused_frame_stays_unsent(tmp_path):
    first, second = run_ranks(tmp_path, with_refused_frame)
    assert first[0] == second[0] == [(1,), (), (), ()]
    assert (first[1] == second[1]).all()


def bad_methods():
    messages = []
    for method in ("aquila_topk", "sparseloco", "ef21"):
        with pytest.raises(ValueError, match="keep_unsent needs a method without one") as error:
            make_outer(method)
        messages.append(str(error.value))
    model, outer = make_outer()
    with pytest.raises(ValueError, match="trains locally"):
        outer.finish(flush="fedavg")
    keeps = dist.get_rank() == 1
    model, outer = make_outer(keep_unsent=keeps)
    with pytest.raises(ExchangeError, match="keep_unsent True"):
        train(outer, model, 1)
    return messages


def test_limit_that_clips_is_refused():
    with pytest.raises(ValueError, match="upload_limit adaptive or none, not median"):
        average_only(aquila.RunOptions(upload_limit="median"))


def test_wrong_use_is_refused(tmp_path):
    first, second = run_ranks(tmp_path, bad_methods)
    assert first == second
    assert first[0].startswith("aquila_topk has a memory of its own")
