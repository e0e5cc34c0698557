"""Ranks before the first backward pass with a hook: a rank that joins, and other weights."""

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from aquila.distributed import Exchange, ExchangeError, HookState, Outer, hook
from helpers.hook_training import descend, wrap
from helpers.rank_training import make_model, weights
from helpers.ranks import run_ranks


def save_hook(file, method):
    model, state = wrap(method, bucket_cap_mb=1.0)
    descend(model, 0, 4)
    if dist.get_rank() == 0:
        saved = {"model": model.module.state_dict(), "hook": state.state_dict()}
        torch.save(saved, file)


def resume_without_rank_1(file, method):
    """Load the state on rank 0 only; return the next round, its server memory and the weights."""
    saved = torch.load(file, weights_only=True)
    plain = make_model()
    plain.load_state_dict(saved["model"])
    model, state = wrap(method, plain, bucket_cap_mb=1.0)
    if dist.get_rank() == 0:
        state.load_state_dict(saved["hook"])
    descend(model, 4, 3)
    (bucket,) = state._buckets.values()
    return bucket.round, bucket.last_checksum, weights(model).numpy()


@pytest.mark.parametrize(
    ("method", "rounds"), [("topk:density=0.1", 7), ("qsgd:bits=8", 7), ("ef21", 3)]
)
def test_rank_that_joins_gets_the_snapshot(tmp_path, method, rounds):
    run_ranks(tmp_path, save_hook, tmp_path / "state", method)
    first, second = run_ranks(tmp_path, resume_without_rank_1, tmp_path / "state", method)
    assert first[:2] == second[:2]
    assert first[0] == rounds  # a server that averages memories starts anew
    assert (first[2] == second[2]).all()


def train_from_other_weights(check_means):
    model = DistributedDataParallel(make_model(seed=dist.get_rank()), init_sync=False)
    state = HookState(model, "qsgd:bits=8", check_means=check_means)
    model.register_comm_hook(state, hook)
    descend(model, 0, 1)


def test_rank_with_other_weights_at_the_start(tmp_path):
    for error in run_ranks(tmp_path, train_from_other_weights, True):
        assert "rank 1 has other weights than rank 0 at the start of round 0; make" in str(error)
    assert run_ranks(tmp_path, train_from_other_weights, False) == [None, None]


def load_while_others_train():
    model, state = wrap("qsgd:bits=8", bucket_cap_mb=1.0)
    descend(model, 0, 2)
    if dist.get_rank() == 1:
        state.load_state_dict(state.state_dict())
    descend(model, 2, 1)


def test_rank_that_loads_a_state_while_others_train(tmp_path):
    for error in run_ranks(tmp_path, load_while_others_train):
        assert "a first backward pass instead of bucket of parameters" in str(error)


class DamagingBroadcast(Exchange):
    """Damages a snapshot on its way to rank 2."""

    def broadcast(self, content, source):
        content = super().broadcast(content, source)
        return content[:-1] + b"?" if self.rank == 2 else content


DAMAGED_SNAPSHOT = (
    "ranks [2] cannot read the snapshot of rank 0; restart all ranks from their last saved state"
)


def join_with_damaged_snapshot(file):
    saved = torch.load(file, weights_only=True)
    model, state = wrap("qsgd:bits=8", bucket_cap_mb=1.0, exchange=DamagingBroadcast(timeout=5))
    if dist.get_rank() == 0:
        state.load_state_dict({**saved["hook"], "ranks": 3})
    descend(model, 4, 3)


def test_damaged_snapshot_stops_all_ranks(tmp_path):
    run_ranks(tmp_path, save_hook, tmp_path / "state", "qsgd:bits=8")
    results = run_ranks(tmp_path, join_with_damaged_snapshot, tmp_path / "state", ranks=3)
    for error in results:
        assert DAMAGED_SNAPSHOT in str(error)


def join_outer_with_damaged_snapshot():
    outer = Outer(make_model(), "qsgd:bits=8", exchange=DamagingBroadcast(timeout=5))
    if dist.get_rank() == 0:
        outer.load_state_dict(outer.state_dict())
    outer.start()


def test_damaged_snapshot_of_the_outer_loop_stops_all_ranks(tmp_path):
    results = run_ranks(tmp_path, join_outer_with_damaged_snapshot, ranks=3)
    assert [(type(error), str(error)) for error in results] == [
        (ExchangeError, DAMAGED_SNAPSHOT)
    ] * 3
