"""The DDP hook on real processes: same gradients on all ranks, per bucket, with memory."""

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import aquila
from aquila.distributed import Exchange, HookState, hook
from aquila.runtime.state_file import read_state, state_to_bytes
from helpers.hook_training import backward, descend, wrap
from helpers.rank_training import make_batch, make_model, weights
from helpers.ranks import run_ranks

METHODS = ("qsgd:bits=8", "aquila_topk", "ef21", "powersgd", "aquila")


def all_methods():
    results = []
    for method in METHODS:
        model, state = wrap(method)
        descend(model, 0, 12)
        x, y = make_batch(0, 0)
        loss = float(nn.functional.cross_entropy(model.module(x), y).detach())
        results.append(
            (method, weights(model).numpy(), loss, state.bytes_sent, len(state._buckets))
        )
    return results


def test_ranks_stay_equal(tmp_path):
    x, y = make_batch(0, 0)
    start = float(nn.functional.cross_entropy(make_model()(x), y).detach())
    for ours, theirs in zip(*run_ranks(tmp_path, all_methods), strict=True):
        assert (ours[1] == theirs[1]).all(), ours[0]
        assert ours[2] < start, ours[0]
        assert 0 < ours[3] < 12 * 4 * 323 * (1.2 if ours[0] == "powersgd" else 0.6)
        assert ours[4] > 1


def compare_with_plain(dtype_of_buffer):
    """Return the gradients of the hook and of plain DDP, with gradient accumulation."""
    gradients = []
    for compressed in (True, False):
        model = make_model().to(dtype_of_buffer)
        wrapped = DistributedDataParallel(model)
        state = HookState(wrapped, "fedsgd")
        if compressed:
            wrapped.register_comm_hook(state, hook)
        for step in range(3):
            x, y = make_batch(step, dist.get_rank())
            wrapped.require_backward_grad_sync = step != 1
            if step == 1:
                with wrapped.no_sync():
                    nn.functional.cross_entropy(wrapped(x.to(dtype_of_buffer)), y).backward()
                    sent = state.bytes_sent
            else:
                if step == 0:
                    wrapped.zero_grad()
                nn.functional.cross_entropy(wrapped(x.to(dtype_of_buffer)), y).backward()
        after = state.bytes_sent
        flat = torch.cat([p.grad.reshape(-1).float() for p in model.parameters()])
        gradients.append((flat.numpy(), sent, after))
    return gradients


@pytest.mark.parametrize(("dtype", "error"), [(torch.float32, 1e-6), (torch.bfloat16, 2e-2)])
def test_dense_frames_accumulation_and_mixed_precision(tmp_path, dtype, error):
    results = run_ranks(tmp_path, compare_with_plain, dtype)
    (ours, sent, after), (plain, _, _) = results[0]
    assert after == 2 * sent > 0  # nothing is sent inside no_sync
    assert torch.allclose(torch.tensor(ours), torch.tensor(plain), atol=error)
    assert (ours == results[1][0][0]).all()


def resume(bucket_cap_mb):
    model, state = wrap("aquila_topk", bucket_cap_mb=bucket_cap_mb)
    descend(model, 0, 8)
    whole, sent = weights(model), state.bytes_sent
    model, state = wrap("aquila_topk", bucket_cap_mb=bucket_cap_mb)
    descend(model, 0, 5)
    saved = {"model": model.module.state_dict(), "hook": state.state_dict()}
    plain = make_model()
    plain.load_state_dict(saved["model"])
    model, state = wrap("aquila_topk", plain, bucket_cap_mb=bucket_cap_mb)
    state.load_state_dict(saved["hook"])
    descend(model, 5, 3)
    return torch.equal(weights(model), whole), state.bytes_sent == sent, len(state._saved)


def test_one_bucket_resumes_with_the_same_bits(tmp_path):
    assert run_ranks(tmp_path, resume, 1.0) == [(True, True, 0)] * 2


def test_memories_of_buckets_are_taken_up_after_ddp_has_rebuilt_them(tmp_path):
    results = run_ranks(tmp_path, resume, 0.0005)
    assert [result[2] for result in results] == [0, 0]


def overflow():
    model, state = wrap("aquila_topk", bucket_cap_mb=1.0)
    descend(model, 0, 3)
    before = next(iter(state._buckets.values())).device.e.clone()
    model.zero_grad()
    x, y = make_batch(3, dist.get_rank())
    scale = torch.inf if dist.get_rank() == 1 else 1.0
    (scale * nn.functional.cross_entropy(model(x), y)).backward()
    gradients = torch.cat([p.grad.reshape(-1) for p in model.parameters()])
    same = torch.equal(before, next(iter(state._buckets.values())).device.e)
    model.zero_grad()
    backward(model, 4)
    finite = all(bool(torch.isfinite(p.grad).all()) for p in model.parameters())
    return bool(gradients.isnan().all()), same, finite


def test_gradient_that_is_not_finite_is_nan_on_all_ranks_once(tmp_path):
    assert run_ranks(tmp_path, overflow) == [(True, True, True)] * 2


class DamagingExchange(Exchange):
    """Damages the frame of rank 1 on rank 0 in the second exchange."""

    calls = 0

    def gather_bodies(self, body, lengths):
        bodies = super().gather_bodies(body, lengths)
        self.calls += 1
        if self.rank == 0 and self.calls == 2:
            bodies[1] = bodies[1][:-1] + bytes([bodies[1][-1] ^ 1])
        return bodies


def load_damaged_states():
    """Fail to load damaged states, go on, and return that run and one without them."""
    runs = []
    for loads in (False, True):
        model, state = wrap("aquila_topk", bucket_cap_mb=1)
        descend(model, 0, 3)
        saved = state.state_dict()
        descend(model, 3, 2)
        for name, damage in DAMAGES.items() if loads else ():
            sent = state.bytes_sent
            with pytest.raises(ValueError, match=r"damaged|state"):
                state.load_state_dict(damage(saved))
            assert state.bytes_sent == sent, name
        descend(model, 5, 2)
        runs.append((weights(model).tolist(), state.bytes_sent))
    return runs


def with_buckets(saved, buckets):
    return {**saved, "rank_0": {"buckets": buckets}}


def without_last_field(saved):
    arrays = read_state(saved["rank_0"]["buckets"])
    arrays.popitem()
    return with_buckets(saved, state_to_bytes(arrays))


def with_unknown_parameter(saved):
    arrays = read_state(saved["rank_0"]["buckets"])
    renamed = {name.replace("0 1", "0 9", 1): array for name, array in arrays.items()}
    return with_buckets(saved, state_to_bytes(renamed))


DAMAGES = {
    "a flipped bit": lambda saved: with_buckets(saved, saved["rank_0"]["buckets"][:-1] + b"?"),
    "no buckets": lambda saved: {**saved, "rank_0": {}},
    "no number of ranks": lambda saved: {**saved, "ranks": None},
    "a missing field": without_last_field,
    "an unknown parameter": with_unknown_parameter,
}


def test_damaged_state_changes_nothing(tmp_path):
    ((expected, loaded),) = run_ranks(tmp_path, load_damaged_states, ranks=1)
    assert loaded == expected


def damaged():
    model, _ = wrap("ef21", bucket_cap_mb=1.0, exchange=DamagingExchange())
    descend(model, 0, 5)
    return weights(model).numpy()


def test_damaged_frame_is_refused_by_all_ranks(tmp_path):
    first, second = run_ranks(tmp_path, damaged)
    assert (first == second).all()


def other_method():
    model, _ = wrap(f"qsgd:bits={4 + dist.get_rank()}", bucket_cap_mb=1.0)
    descend(model, 0, 1)


def test_other_method_on_one_rank(tmp_path):
    for error in run_ranks(tmp_path, other_method):
        assert "rank 1 has other settings than rank 0" in str(error)
        assert "bits=5" in str(error)


def diverging():
    model, state = wrap("qsgd:bits=8", bucket_cap_mb=1.0)
    descend(model, 0, 2)
    if dist.get_rank() == 1:
        next(iter(state._buckets.values())).last_checksum ^= 1
    descend(model, 2, 1)


def test_checksum_finds_ranks_that_have_diverged(tmp_path):
    for error in run_ranks(tmp_path, diverging):
        assert "rank 1 got another mean gradient than rank 0 before round 2; load" in str(error)


def other_module():
    model = DistributedDataParallel(make_model())
    model.register_comm_hook(HookState(make_model(), "qsgd"), hook)
    backward(model, 0)


def test_state_of_another_module(tmp_path):
    (error,) = run_ranks(tmp_path, other_module, ranks=1)
    assert "the bucket has parameters of another module than that of HookState" in str(error)


def invalid_methods():
    sentences = []
    made = aquila.create("sparseloco", alpha=1)
    for method in ("fedavg", "qsgd:alpha=0.1", "qsgd:work=epochs", "sparseloco", made, "marina"):
        try:
            HookState(make_model(), method)
        except ValueError as error:
            sentences.append(str(error))
    try:
        descend(wrap("adaquantfl")[0], 0, 3)
    except RuntimeError as error:
        sentences.append(str(error))
    return sentences


def test_methods_that_need_more_than_a_gradient(tmp_path):
    (sentences,) = run_ranks(tmp_path, invalid_methods, ranks=1)
    assert len(sentences) == 7
    assert sentences[0].startswith("fedavg trains locally, so it cannot compress single gradients")
    assert "your optimizer sets the step size" in sentences[1]
    assert sentences[2].startswith("qsgd trains locally")
    assert all(sentence.startswith("sparseloco trains locally") for sentence in sentences[3:5])
    assert "the method needs gradients or losses at other models" in sentences[5]
    assert "the method sends the loss, which a DDP hook does not know" in sentences[6]
