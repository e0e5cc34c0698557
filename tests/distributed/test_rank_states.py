"""Ranks that are saved, killed, resumed and joined continue with the same bits."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import DefaultLoadPlanner

from aquila.distributed import ExchangeError, Outer
from helpers.killed_rank import STEPS, make_run
from helpers.rank_training import make_model, train, weights
from helpers.ranks import run_ranks

METHODS = ("aquila_topk", "sparseloco", "aquila_dither")
OPTIONS = {"every": 3, "server_optimizer": "nesterov", "server_lr": 0.7}
KILLED = Path(__file__).parents[1] / "helpers" / "killed_rank.py"


def make_outer(method):
    model = make_model()
    return model, Outer(model, method, **OPTIONS)


def file_of(folder, method, rank=None):
    return folder / f"{method}-{dist.get_rank() if rank is None else rank}.pt"


def run_in_two_parts(folder):
    """Return per method the weights of a whole run, and those of a run that is resumed."""
    results = []
    for method in METHODS:
        model, outer = make_outer(method)
        train(outer, model, 20)
        whole, sent = weights(model), outer.bytes_sent
        model, outer = make_outer(method)
        train(outer, model, 11)  # two steps after a round
        state = {"model": model.state_dict(), "outer": outer.state_dict()}
        torch.save(state, file_of(folder, method))
        model, outer = make_outer(method)
        state = torch.load(file_of(folder, method), weights_only=True)
        model.load_state_dict(state["model"])
        outer.load_state_dict(state["outer"])
        train(outer, model, 9, first=11)
        results.append((method, torch.equal(weights(model), whole), outer.bytes_sent == sent))
    return results


def test_file_per_rank_resumes_with_the_same_bits(tmp_path):
    for result in run_ranks(tmp_path, run_in_two_parts, tmp_path):
        assert result == [(method, True, True) for method in METHODS]


def run_with_checkpoint(folder):
    model, outer = make_outer("aquila_topk")
    train(outer, model, 12)
    whole = weights(model)
    model, outer = make_outer("aquila_topk")
    train(outer, model, 6)  # right after a round, because the model is saved once for all ranks
    dcp.save({"model": model.state_dict(), "outer": outer}, checkpoint_id=folder)
    model, outer = make_outer("aquila_topk")
    parts = {"model": model.state_dict(), "outer": outer}
    dcp.load(parts, checkpoint_id=folder)
    model.load_state_dict(parts["model"])
    train(outer, model, 6, first=6)
    return torch.equal(weights(model), whole)


def test_distributed_checkpoint_resumes_with_the_same_bits(tmp_path):
    assert run_ranks(tmp_path, run_with_checkpoint, tmp_path / "checkpoint") == [True, True]


def save_checkpoint(folder):
    model, outer = make_outer("aquila_topk")
    train(outer, model, 6)
    dcp.save({"model": model.state_dict(), "outer": outer}, checkpoint_id=folder)
    return weights(model).numpy()


def load_checkpoint(folder):
    model, outer = make_outer("aquila_topk")
    parts = {"model": model.state_dict(), "outer": outer}
    planner = DefaultLoadPlanner(allow_partial_load=True)
    dcp.load(parts, checkpoint_id=folder, planner=planner)
    model.load_state_dict(parts["model"])
    outer.start()
    before, start = outer.round, weights(model).numpy()
    train(outer, model, 6, first=6)
    return before, start, weights(model).numpy()


@pytest.mark.parametrize("ranks", [1, 3])
def test_distributed_checkpoint_of_another_number_of_ranks(tmp_path, ranks):
    saved, _ = run_ranks(tmp_path, save_checkpoint, tmp_path / "checkpoint")
    results = run_ranks(tmp_path, load_checkpoint, tmp_path / "checkpoint", ranks=ranks)
    for before, start, end in results:
        assert before == 2
        assert (start == saved).all()
        assert (end == results[0][2]).all()


def save_states(folder):
    for method in METHODS:
        model, outer = make_outer(method)
        train(outer, model, 7)
        state = {"model": model.state_dict(), "outer": outer.state_dict()}
        torch.save(state, file_of(folder, method))


def resume_some(folder, resuming):
    """Load states on some ranks; return the rounds before and after training, and the weights."""
    results = []
    for method in METHODS:
        model, outer = make_outer(method)
        rank = dist.get_rank()
        if rank in resuming:
            state = torch.load(file_of(folder, method, resuming[rank]), weights_only=True)
            model.load_state_dict(state["model"])
            outer.load_state_dict(state["outer"])
        outer.start()
        before = outer.round
        train(outer, model, 7, first=7)
        after = outer.round
        outer.finish()
        results.append((before, after, weights(model).numpy()))
    return results


@pytest.mark.parametrize(
    ("ranks", "resuming"),
    [
        (2, {0: 0}),  # rank 1 has lost its disk
        (2, {1: 1}),
        (3, {0: 0, 1: 1}),  # a third rank joins
    ],
)
def test_rank_that_joins_gets_the_snapshot(tmp_path, ranks, resuming):
    run_ranks(tmp_path, save_states, tmp_path)
    results = run_ranks(tmp_path, resume_some, tmp_path, resuming, ranks=ranks)
    for parts in zip(*results, strict=True):
        rounds = {part[:2] for part in parts}
        assert rounds == {(2, 4)}
        assert all((part[2] == parts[0][2]).all() for part in parts)


def load_wrong_state(folder, method, rank):
    outer = Outer(make_model(), method, **OPTIONS)
    outer.load_state_dict(
        torch.load(file_of(folder, "sparseloco", rank), weights_only=True)["outer"]
    )
    outer.start()


def test_states_that_do_not_fit(tmp_path):
    run_ranks(tmp_path, save_states, tmp_path)
    results = run_ranks(tmp_path, load_wrong_state, tmp_path, "fedavg", None)
    assert all(
        "the state was saved with method Method(name='sparseloco'" in str(r) for r in results
    )
    results = run_ranks(tmp_path, load_wrong_state, tmp_path, "sparseloco", 0)
    assert results[1].args == ("the state is of another rank than rank 1",)
    assert isinstance(results[0], ExchangeError)  # rank 1 has ended
    (error,) = run_ranks(tmp_path, load_nothing, ranks=1)
    assert str(error) == "this is not the result of state_dict() of aquila.distributed"


def load_nothing():
    make_outer("fedavg")[1].load_state_dict({})


def load_damaged(part):
    """Fail to load a damaged state, go on, and return how that differs from a run without it."""
    runs = []
    for loads in (False, True):
        model, outer = make_outer("aquila_topk")
        train(outer, model, 7)
        saved = outer.state_dict()
        train(outer, model, 4, first=7)
        if loads:
            before = weights(model)
            with pytest.raises(ValueError, match=r"damaged|not the result of state_dict"):
                outer.load_state_dict(damage(saved, part))
            assert torch.equal(weights(model), before)
            assert outer.round == 3
        train(outer, model, 4, first=11)
        runs.append((weights(model).tolist(), outer.round, outer.bytes_sent, len(outer.records)))
    return runs


def damage(state, part):
    own = dict(state["rank_0"])
    if part in DAMAGED_RANKS:
        return {**state, "ranks": DAMAGED_RANKS[part]}
    if part == "server":
        return {**state, "server": flip_last(state["server"])}
    if part == "server of more ranks":
        return {**state, "ranks": 2, "server": flip_last(state["server"])}
    if part == "device":
        own["device"] = flip_last(own["device"])
    elif part == "pending: too many":
        own["pending"] = OPTIONS["every"]  # the next round would never come
    else:
        del own[part.removeprefix("no ")]
    return {**state, "rank_0": own}


DAMAGED_RANKS = {"ranks: none": None, "ranks: 0": 0, "ranks: too many": 10**15}


def flip_last(content):
    return content[:-1] + bytes([content[-1] ^ 1])


@pytest.mark.parametrize(
    "part",
    [
        "server",
        "server of more ranks",
        "device",
        "no device",
        "no steps",
        "pending: too many",
        *DAMAGED_RANKS,
    ],
)
def test_damaged_state_changes_nothing(tmp_path, part):
    ((expected, loaded),) = run_ranks(tmp_path, load_damaged, part, ranks=1)
    assert loaded == expected


def save_late(folder):
    model, outer = make_outer("sparseloco")
    train(outer, model, 7)
    if dist.get_rank() == 0:
        torch.save({"outer": outer.state_dict()}, file_of(folder, "sparseloco"))
    train(outer, model, 3, first=7)
    if dist.get_rank() == 1:
        torch.save({"outer": outer.state_dict()}, file_of(folder, "sparseloco"))


def test_states_of_different_rounds(tmp_path):
    run_ranks(tmp_path, save_late, tmp_path)
    for error in run_ranks(tmp_path, load_wrong_state, tmp_path, "sparseloco", None):
        assert str(error).startswith("rank 1 is in round 3, but rank 0 is in round 2; load states")


def run_torchrun(folder, kill):
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join(sys.path),
        # else the restarted ranks read the addresses of the killed ones, and cannot connect
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
    }
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
        "--max-restarts", "1", "--monitor-interval", "0.1", str(KILLED), str(folder), *kill,
    ]  # fmt: skip
    subprocess.run(command, check=True, env=environment, timeout=120)
    return [torch.load(folder / f"final-{rank}.pt", weights_only=True) for rank in range(2)]


@pytest.mark.parametrize("kind", ["outer", "hook"])
def test_torchrun_restart_after_a_killed_rank_gives_the_same_bits(tmp_path, kind):
    whole = run_ranks(tmp_path, run_whole, kind)
    for (theirs, attempts), ours in zip(run_torchrun(tmp_path, [kind, "8"]), whole, strict=True):
        assert attempts == 1
        assert torch.equal(theirs, torch.tensor(ours))


def run_whole(kind):
    model = make_model()
    _, take_step = make_run(kind, model)
    for step in range(STEPS):
        take_step(step)
    return weights(model).numpy()
