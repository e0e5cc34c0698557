"""Passes of the sparse quantizer: C against plain torch, and both against formulas."""

import math

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from aquila.core.packet import code_dtype
from aquila.core.passes import cpu, passes_for, plain
from aquila.core.passes.grid import SparseGrid
from aquila.core.quantize import bits_for_levels, sparse
from aquila.native import sparse as native

STABLE = settings(deadline=None, derandomize=True, max_examples=500)
REALS = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
NEEDS_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
SIZES = [1, 2, 3, 1023, 1024, 1025, 2048, 200_003]
DENSITIES = [1e-6, 0.01, 0.3, 0.5, 0.7, 1.0]


def normal(dimension, seed=0, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(dimension, generator=generator, dtype=dtype)


def tiny(dtype):
    return torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps


@st.composite
def vectors(draw):
    """Draw a vector with ties, signed zeros, neighbouring floats or subnormal numbers."""
    dtype = draw(st.sampled_from([torch.float32, torch.float64]))
    limit = {torch.float32: 2.0**120, torch.float64: 1e150}[dtype]
    width = torch.finfo(dtype).bits
    tie = st.sampled_from([0.0, -0.0, 1.0, -1.0, 0.5, 3.0, -3.0])
    near = st.integers(-3, 3).map(lambda steps: 1 + steps * torch.finfo(dtype).eps)
    subnormal = st.integers(-70_000, 70_000).map(lambda steps: steps * tiny(dtype))
    number = draw(
        st.sampled_from(
            [
                st.floats(-limit, limit, width=width),
                st.floats(-1, 1, width=width),
                tie,
                near,
                subnormal,
                st.one_of(tie, near, subnormal),
            ]
        )
    )
    return torch.tensor(draw(st.lists(number, min_size=1, max_size=40)), dtype=dtype)


def adversarial(dtype):
    """Return vectors that test the limits of the search, the grid and the types of codes."""
    ramp = torch.arange(1, 3001, dtype=dtype)
    spike = torch.full((3000,), 1e-9, dtype=dtype)
    spike[1234] = -1e9
    negative_zeros = -torch.zeros(3000, dtype=dtype)
    negative_zeros[7] = 1
    return {
        "flat": torch.full((3000,), -0.3, dtype=dtype),
        "two sizes": torch.where(ramp % 2 == 0, 1.0, -2.0).to(dtype),
        "neighbours": 1 + ramp * torch.finfo(dtype).eps,
        "ramp": ramp * (-1) ** ramp,
        "powers of two": torch.ldexp(torch.ones_like(ramp), (ramp % 200 - 100).int()),
        "spike": spike,
        "negative zeros": negative_zeros,
        "subnormal": ramp * tiny(dtype),
        "one subnormal": negative_zeros * tiny(dtype),
        "more magnitudes than asked for": torch.where(ramp == 9, 49_150 * tiny(dtype), 0).to(dtype),
        "threshold rounds to zero": torch.where(ramp == 9, 20_000 * tiny(dtype), 0).to(dtype),
        "largest": torch.where(ramp < 9, 2.0**120, -1).to(dtype),
    }


VECTORS = pytest.mark.parametrize("name", adversarial(torch.float32))


def in_torch_operations(v, density):
    """Return the quantizer's result, computed from its definition with every magnitude stored."""
    sizes = v.abs()
    least = float(sizes.sort(descending=True).values[max(1, round(density * len(v))) - 1])
    threshold = max(least, 0.6 * float(sizes.max()) / 32767)
    step = v.new_full((1,), threshold / 0.6)
    if not bool(step > 0):
        return None
    magnitude = (sizes / step + (1 - 0.6)).floor()
    magnitude[sizes == threshold] = 1
    top = int(magnitude.max())
    return top, (magnitude * v.sign() + top).long(), step


def assert_matches_definition(v, density):
    codes, expected = sparse(v, density), in_torch_operations(v, density)
    assert (codes is None) == (expected is None)
    if codes is None:
        return
    top, values, step = expected
    assert codes.bits == bits_for_levels(top)
    assert codes.codes.dtype == code_dtype(codes.bits)
    assert torch.equal(codes.codes.long(), values)
    assert torch.equal(codes.step, step)
    assert torch.equal(codes.low, -(step * top))


# the k-th largest


@STABLE
@given(vectors())
@example(torch.tensor([0.0, -0.0, 0.0]))
def test_c_finds_the_kth_largest(v):
    assert passes_for(v) is cpu
    descending = sorted(v.abs().tolist(), reverse=True)
    assert [cpu.kth_largest(v, k + 1) for k in range(len(v))] == descending
    assert [plain.kth_largest(v, k + 1) for k in range(len(v))] == descending


@REALS
@pytest.mark.parametrize("size", SIZES)
def test_c_finds_the_kth_largest_at_any_length(size, dtype):
    v = normal(size, dtype=dtype) ** 5
    descending = v.abs().sort(descending=True).values
    for k in {1, 2, size // 100, size // 2, size - 1, size} - {0}:
        if k <= size:
            assert cpu.kth_largest(v, k) == plain.kth_largest(v, k) == float(descending[k - 1])


@REALS
@VECTORS
def test_c_finds_the_kth_largest_of_special_vectors(name, dtype):
    v = adversarial(dtype)[name]
    descending = v.abs().sort(descending=True).values.tolist()
    for k in (1, 2, 8, 9, 30, 1499, 1500, 1501, 2999, 3000):
        assert cpu.kth_largest(v, k) == descending[k - 1]


@REALS
def test_every_bit_of_the_kth_largest_counts(dtype):
    for place in range(torch.finfo(dtype).bits - 1):
        kind = {torch.float32: np.uint32, torch.float64: np.uint64}[dtype]
        bits = np.array([0, 1 << place, 0], kind)
        v = torch.from_numpy(bits.view(bits.dtype.str.replace("u", "f")))
        assert cpu.kth_largest(v, 1) == float(v[1])
        assert cpu.kth_largest(v, 2) == 0


@REALS
def test_infinity_is_above_all_other_numbers(dtype):
    v = torch.tensor([1.0, -math.inf, 2.0], dtype=dtype)
    for passes in (cpu, plain):
        assert [passes.kth_largest(v, k) for k in (1, 2, 3)] == [math.inf, 2, 1]


# the quantizer


@STABLE
@given(vectors(), st.sampled_from(DENSITIES))
def test_sparse_has_the_bits_of_torch_operations(v, density):
    assert_matches_definition(v, density)


@REALS
@pytest.mark.parametrize("size", SIZES)
def test_sparse_has_the_bits_of_torch_operations_at_any_length(size, dtype):
    for density in DENSITIES:
        assert_matches_definition(normal(size, dtype=dtype), density)
        assert_matches_definition(normal(size, dtype=dtype) ** 9, density)


@REALS
@VECTORS
def test_sparse_has_the_bits_of_torch_operations_for_odd_vectors(name, dtype):
    for density in DENSITIES:
        assert_matches_definition(adversarial(dtype)[name], density)


@REALS
def test_sparse_codes_of_every_integer_type(dtype):
    v = torch.ones(1000, dtype=dtype)
    for largest, code in ((1, torch.uint8), (1e3, torch.int16), (1e9, torch.int32)):
        v[7] = largest
        assert sparse(v, 0.5).codes.dtype == code
        assert_matches_definition(v, 0.5)


@REALS
def test_strided_vectors_have_the_same_sparse_codes(dtype):
    strided = normal(4000, dtype=dtype)[::2]
    assert passes_for(strided) is plain
    one, other = sparse(strided, 0.1), sparse(strided.contiguous(), 0.1)
    assert torch.equal(one.codes, other.codes)
    assert torch.equal(one.step, other.step)


@NEEDS_GPU
@REALS
@pytest.mark.parametrize("size", [*SIZES, 11_173_962])
def test_gpu_gives_the_sparse_codes_of_the_cpu(size, dtype):
    v = normal(size, dtype=dtype)
    here, there = sparse(v, 0.01), sparse(v.cuda(), 0.01)
    assert there.codes.is_cuda
    assert torch.equal(here.codes, there.codes.cpu())
    assert torch.equal(here.step, there.step.cpu())


@NEEDS_GPU
@REALS
@VECTORS
def test_gpu_gives_the_sparse_codes_of_the_cpu_for_special_vectors(name, dtype):
    v = adversarial(dtype)[name]
    for density in DENSITIES:
        here, there = sparse(v, density), sparse(v.cuda(), density)
        assert (here is None) == (there is None)
        assert here is None or torch.equal(here.codes, there.codes.cpu())


# NaN, infinities and invalid arguments


@REALS
@pytest.mark.parametrize("places", [[0], [1500, 2999], range(3000)])
def test_vector_with_nan_has_no_sparse_codes(places, dtype):
    wide = normal(6000, dtype=dtype)
    wide[::2][places] = math.nan
    for v in (wide[::2], wide[::2].contiguous()):
        assert sparse(v, 0.01) is None


@REALS
def test_infinities_are_sent_together(dtype):
    v = normal(3000, dtype=dtype)
    v[7], v[9] = math.inf, -math.inf
    assert_matches_definition(v, 0.01)
    assert sparse(v, 0.01).codes[7:10].tolist() == [2, 1, 0]


@REALS
@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_c_keeps_codes_in_bounds_for_any_input(number, dtype):
    v = normal(3000, dtype=dtype)
    v[::7] = number
    for step in (number, 0.0, -1.0, 1e-300, 1.0):
        codes = cpu.sparse_codes(v, SparseGrid(step, 0.4, number), 3, torch.uint8)
        assert int(codes.max()) <= 6
    codes = cpu.sparse_codes(v, SparseGrid(1e-6, 0.4, 0.6e-6), 3, torch.uint8)
    assert codes[0] == (3 if math.isnan(number) else 6 * (number > 0))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({0: np.zeros(4, np.int32)}, "float type"),
        ({0: np.zeros(3, np.float64)}, "one code"),
        ({1: np.zeros(3, np.uint8)}, "one code"),
        ({1: np.zeros(4, np.int64)}, "one code"),
        ({5: 0}, "fit the type"),
        ({5: -(2**31)}, "fit the type"),
        ({5: 128}, "fit the type"),
        ({1: np.zeros(4, np.int16), 5: 2**14}, "fit the type"),
        ({1: np.zeros(4, np.int32), 5: 2**31 - 1}, "fit the type"),
        ({0: np.zeros(8)[::2]}, "contiguous"),
    ],
)
def test_c_refuses_invalid_codes(change, message):
    arguments = [np.zeros(4, np.float32), np.zeros(4, np.uint8), 1.0, 0.4, 0.6, 127]
    native.codes(*arguments)
    for place, value in change.items():
        arguments[place] = value
    with pytest.raises(ValueError, match=message):
        native.codes(*arguments)


@pytest.mark.parametrize("k", [0, -1, 5, 2**62])
def test_c_refuses_an_invalid_k(k):
    with pytest.raises(ValueError, match="from 1 to"):
        native.kth_largest(np.zeros(4), k)


def test_c_refuses_vectors_that_are_empty_strided_or_not_floats():
    with pytest.raises(ValueError, match="from 1 to"):
        native.kth_largest(np.zeros(0), 1)
    with pytest.raises(ValueError, match="float type"):
        native.kth_largest(np.zeros(4, np.int32), 1)
    with pytest.raises(ValueError, match="contiguous"):
        native.kth_largest(np.zeros(8)[::2], 1)
    with pytest.raises((ValueError, BufferError)):
        native.codes(np.zeros(1), np.zeros(1, np.uint8).tobytes(), 1.0, 0.4, 0.6, 1)
