"""States to arrays and files and back, without pickle."""

from dataclasses import dataclass, field

import numpy as np
import pytest
import torch

from aquila.core.state import from_arrays, map_tensors, tensors_of, to_arrays


@dataclass(frozen=True)
class NoState:
    pass


@dataclass(frozen=True)
class Inner:
    q: torch.Tensor
    history: tuple = ()
    started: bool = False


@dataclass(frozen=True)
class Outer:
    theta: torch.Tensor
    inner: Inner
    counts: torch.Tensor
    round: int = 0
    drift: float = 0.0
    table: tuple = ()
    cube: tuple = ()
    nothing: NoState = field(default_factory=NoState)


FULL = Outer(
    theta=torch.tensor([0.1, -0.0, 1e-45, 3.4028234663852886e38]),
    inner=Inner(torch.tensor([1 / 3, 5e-324], dtype=torch.float64), (0.1, 1 / 3), True),
    counts=torch.tensor([[1, 2], [3, 2**62]]),
    round=2**53 + 1,
    drift=1 / 3,
    table=((1, 2, 3), (4, 5, 6)),
    cube=(((0.5,), (1.5,)), ((2.5,), (3.5,))),
)
BLANK = Outer(
    theta=torch.zeros(4),
    inner=Inner(torch.zeros(2, dtype=torch.float64)),
    counts=torch.zeros((2, 2), dtype=torch.int64),
)


def round_trip(state, template, path):
    np.savez(path, allow_pickle=False, **to_arrays(state))
    with np.load(path, allow_pickle=False) as arrays:
        return from_arrays(template, arrays)


def assert_same(left, right):
    assert type(left) is type(right)
    if isinstance(left, torch.Tensor):
        assert (left.dtype, left.shape) == (right.dtype, right.shape)
        assert left.numpy().tobytes() == right.numpy().tobytes()
    elif isinstance(left, tuple):
        assert len(left) == len(right)
        for one, other in zip(left, right, strict=True):
            assert_same(one, other)
    elif hasattr(left, "__dataclass_fields__"):
        for name in left.__dataclass_fields__:
            assert_same(getattr(left, name), getattr(right, name))
    else:
        assert left == right


def test_nested_state_round_trips_bit_for_bit(tmp_path):
    assert_same(round_trip(FULL, BLANK, tmp_path / "state.npz"), FULL)


def test_empty_tuples_round_trip(tmp_path):
    assert_same(round_trip(BLANK, FULL, tmp_path / "state.npz"), BLANK)


@pytest.mark.parametrize("table", [(), ((), ()), ((1,),), ((1.5, 2.5), (3.5, 4.5)), (True, False)])
def test_nested_tuples_round_trip(table, tmp_path):
    state = Inner(torch.zeros(1), table)
    assert_same(round_trip(state, Inner(torch.zeros(1)), tmp_path / "state.npz"), state)


def test_empty_state_has_no_arrays():
    assert to_arrays(NoState()) == {}
    assert from_arrays(NoState(), {}) == NoState()


def test_arrays_are_named_by_the_path_of_their_field():
    names = {name.rstrip(".") for name in to_arrays(FULL)}
    assert {"theta", "inner.q", "inner.history", "round", "table"} <= names
    assert "nothing" not in names


def test_loaded_state_shares_no_memory_with_the_arrays():
    arrays = to_arrays(FULL)
    loaded = from_arrays(BLANK, arrays)
    loaded.theta.zero_()
    assert FULL.theta[0] != 0


def test_nested_tensors_are_found_and_replaced():
    found = list(tensors_of(FULL))
    assert all(a is b for a, b in zip(found, (FULL.theta, FULL.inner.q, FULL.counts), strict=True))
    emptied = map_tensors(FULL, torch.zeros_like)
    assert not any(vector.any() for vector in tensors_of(emptied))
    back = iter(found)
    assert_same(map_tensors(emptied, lambda vector: next(back)), FULL)


def test_missing_field_is_named():
    arrays = to_arrays(FULL)
    del arrays["inner.q."]
    with pytest.raises(ValueError, match=r"no inner\.q$"):
        from_arrays(BLANK, arrays)


@pytest.mark.parametrize("value", [None, "text", [1, 2], {"a": 1}])
def test_field_of_another_type_is_named(value):
    with pytest.raises(TypeError, match=rf"inner\.history.* is a {type(value).__name__}"):
        to_arrays(Outer(torch.zeros(1), Inner(torch.zeros(1), value), torch.zeros(1)))
