"""Innovations: C and Triton passes against plain torch, and plain torch against formulas."""

import math

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from aquila.core.innovation import Innovation, aquila_level, measure
from aquila.core.packet import Codes, Dense, code_dtype
from aquila.core.passes import cpu, passes_for, plain
from aquila.core.quantize import midrise, range_grid
from aquila.core.vector import squared_norm
from aquila.native import passes as native

STABLE = settings(deadline=None, derandomize=True, max_examples=300)
REALS = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
LARGEST = {torch.float32: 2.0**120, torch.float64: 1e150}
SIZES = [1, 2, 3, 1023, 1024, 1025, 65535, 65536, 65537, 200_003]
BITS = [*range(1, 13), 15, 16, 24, 25, 30, 31]


def normal(dimension, seed=0, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(dimension, generator=generator, dtype=dtype)


def innovation_of(v):
    return measure(v, torch.zeros_like(v))


@st.composite
def pairs(draw):
    """Draw a gradient and a memory of one type, with ties, signed zeros and subnormal numbers."""
    dtype = draw(st.sampled_from([torch.float32, torch.float64]))
    limit = LARGEST[dtype]
    number = st.floats(-limit, limit, width=torch.finfo(dtype).bits)
    tiny = torch.finfo(dtype).smallest_normal
    plain_number = st.sampled_from([0.0, -0.0, 1.0, -1.0, 0.5, 0.25, 3.0, tiny, tiny / 8])
    near = st.floats(-1, 1, width=torch.finfo(dtype).bits)
    row = draw(st.sampled_from([number, plain_number, near]))
    rows = draw(st.lists(st.tuples(row, row), min_size=1, max_size=40))
    gradient, memory = (torch.tensor(column, dtype=dtype) for column in zip(*rows, strict=True))
    return gradient, memory


def bytes_of(tensor):
    return tensor.cpu().numpy().tobytes()


def assert_same_quantized(one, other):
    assert one.codes.dtype == other.codes.dtype
    assert bytes_of(one.codes) == bytes_of(other.codes)
    assert bytes_of(one.new_memory) == bytes_of(other.new_memory)
    assert (one.sent_squared, one.error_squared) == (other.sent_squared, other.error_squared)


# the implementations agree bit for bit


@STABLE
@given(pairs(), st.integers(1, 31))
def test_c_gives_the_bits_of_plain_torch(pair, bits):
    assert passes_for(*pair) is cpu
    assert cpu.measure(*pair) == plain.measure(*pair)
    grid = range_grid(cpu.measure(*pair)[0], bits, pair[0].dtype)
    assume(grid is not None)
    assert_same_quantized(cpu.quantize(*pair, grid), plain.quantize(*pair, grid))


@REALS
@pytest.mark.parametrize("size", SIZES)
def test_c_gives_the_bits_of_plain_torch_at_any_length(size, dtype):
    gradient, memory = normal(size, 1, dtype), normal(size, 2, dtype) / 8
    assert cpu.measure(gradient, memory) == plain.measure(gradient, memory)
    assert cpu.measure(gradient, None) == plain.measure(gradient, None)
    for bits in (1, 4, 8, 9, 31):
        grid = range_grid(cpu.measure(gradient, memory)[0], bits, dtype)
        assert_same_quantized(
            cpu.quantize(gradient, memory, grid), plain.quantize(gradient, memory, grid)
        )


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@REALS
@pytest.mark.parametrize("size", [*SIZES, 11_173_962])
def test_gpu_gives_the_bits_of_the_cpu(size, dtype):
    here = normal(size, 1, dtype), normal(size, 2, dtype) / 8
    there = tuple(vector.cuda() for vector in here)
    for passes in (plain, passes_for(*there)):
        assert passes.measure(*there) == cpu.measure(*here)
        assert passes.measure(there[0], None) == cpu.measure(here[0], None)
        for bits in (1, 4, 8, 9, 31):
            grid = range_grid(cpu.measure(*here)[0], bits, dtype)
            assert_same_quantized(passes.quantize(*there, grid), cpu.quantize(*here, grid))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@settings(STABLE, max_examples=100)
@given(pairs(), st.sampled_from(BITS))
def test_gpu_gives_the_bits_of_the_cpu_for_special_numbers(pair, bits):
    there = tuple(vector.cuda() for vector in pair)
    assert passes_for(*there).measure(*there) == cpu.measure(*pair)
    grid = range_grid(cpu.measure(*pair)[0], bits, pair[0].dtype)
    assume(grid is not None)
    for passes in (plain, passes_for(*there)):
        assert_same_quantized(passes.quantize(*there, grid), cpu.quantize(*pair, grid))


# the passes match the formulas


def definition_2(gradient, memory, bits):
    """Return Definition 2 and the new memory per coordinate, each operation rounded separately."""
    real = gradient.numpy().dtype.type
    differences = [real(g - q) for g, q in zip(gradient.numpy(), memory.numpy(), strict=True)]
    R, top = max(map(abs, differences)), 2**bits - 1
    step, last = real(2 * float(R) / top), real(top)
    if float(last) > top:
        last = np.nextafter(last, real(0))
    codes, moved, sent, error = [], [], [], []
    for v, q in zip(differences, memory.numpy(), strict=True):
        psi = min(max(np.floor((v + R) / step + real(0.5)), real(0)), last)
        dq = psi * step - R
        codes.append(int(psi))
        moved.append(q + dq)
        sent.append(float(dq) ** 2)
        error.append(float(v - dq) ** 2)
    return codes, np.array(moved, real), math.fsum(sent), math.fsum(error)


@STABLE
@given(pairs(), st.integers(1, 31))
def test_midrise_of_an_innovation_is_definition_2(pair, bits):
    candidate = measure(*pair).midrise(bits)
    assume(candidate is not None)
    codes, moved, sent, error = definition_2(*pair, bits)
    assert candidate.upload.codes.tolist() == codes
    assert bytes_of(candidate.memory) == moved.tobytes()
    assert candidate.sent_squared == pytest.approx(sent, rel=1e-14, abs=1e-300)
    assert candidate.error_squared == pytest.approx(error, rel=1e-14, abs=1e-300)


@STABLE
@given(pairs(), st.integers(1, 31))
def test_midrise_of_an_innovation_is_midrise_of_the_difference(pair, bits):
    gradient, memory = pair
    v = gradient - memory
    candidate, codes = measure(gradient, memory).midrise(bits), midrise(v, bits)
    assert (candidate is None) == (codes is None)
    assume(codes is not None)
    dq = codes.decode()
    assert bytes_of(candidate.upload.codes) == bytes_of(codes.codes)
    assert bytes_of(candidate.upload.decode()) == bytes_of(dq)
    assert bytes_of(candidate.memory) == bytes_of(memory + dq)
    assert (candidate.sent_squared, candidate.error_squared) == (
        squared_norm(dq),
        squared_norm(v - dq),
    )


@REALS
@pytest.mark.parametrize("bits", BITS)
def test_codes_have_the_smallest_type(bits, dtype):
    candidate = innovation_of(normal(1000, dtype=dtype)).midrise(bits)
    assert candidate.upload.codes.dtype == code_dtype(bits)
    assert (
        candidate.upload.low.dtype == candidate.upload.step.dtype == candidate.memory.dtype == dtype
    )
    codes = candidate.upload.codes.long()
    assert 0 <= int(codes.min()) <= int(codes.max()) < 2**bits


def test_measure_returns_range_norm_and_dimension():
    innovation = measure(torch.tensor([1.0, -2.0, 4.0]), torch.tensor([1.0, 1.0, 0.0]))
    assert (innovation.max_abs, innovation.squared_norm, innovation.dimension) == (4.0, 25.0, 3)


def test_quantizing_does_not_change_gradient_and_memory():
    gradient, memory = normal(100, 1), normal(100, 2)
    kept = gradient.clone(), memory.clone()
    measure(gradient, memory).midrise(3)
    assert torch.equal(gradient, kept[0])
    assert torch.equal(memory, kept[1])


@pytest.mark.parametrize("numbers", [[0.0, -0.0], [], [3.0]])
def test_zero_innovation_has_no_upload(numbers):
    vector = torch.tensor(numbers)
    innovation = measure(vector, vector.clone())
    assert innovation.squared_norm == 0
    assert innovation.midrise(4) is None
    assert innovation.midrise_or_dense(32) is None


def test_range_whose_step_underflows_has_no_upload():
    assert innovation_of(torch.tensor([1e-45, 0.0])).midrise(8) is None


def test_innovation_itself_is_sent_from_32_bits_on():
    gradient, memory = normal(50, 1), normal(50, 2)
    innovation = measure(gradient, memory)
    assert isinstance(innovation.midrise_or_dense(31).upload, Codes)
    candidate = innovation.midrise_or_dense(32)
    assert isinstance(candidate.upload, Dense)
    assert torch.equal(candidate.upload.decode(), gradient - memory)
    assert torch.equal(candidate.memory, memory + (gradient - memory))
    assert (candidate.sent_squared, candidate.error_squared) == (innovation.squared_norm, 0.0)


def test_strided_vectors_are_quantized_the_same():
    wide = normal(4000).reshape(2000, 2)
    gradient, memory = wide[:, 0], wide[:, 1]
    assert passes_for(gradient, memory) is plain
    strided = measure(gradient, memory).midrise(5)
    whole = measure(gradient.contiguous(), memory.contiguous()).midrise(5)
    assert torch.equal(strided.upload.codes, whole.upload.codes)
    assert torch.equal(strided.memory, whole.memory)
    assert (strided.sent_squared, strided.error_squared) == (
        whole.sent_squared,
        whole.error_squared,
    )


# NaN, infinities and invalid arguments


@REALS
@pytest.mark.parametrize("place", [0, 1500, 2999])
def test_nan_propagates(place, dtype):
    v = normal(3000, dtype=dtype)
    v[place] = math.nan
    zeros = torch.zeros_like(v)
    for passes in (cpu, plain):
        assert all(map(math.isnan, passes.measure(v, zeros)))
        grid = range_grid(math.nan, 4, dtype)
        quantized = passes.quantize(v, zeros, grid)
        assert not quantized.codes.any()
        assert quantized.new_memory.isnan().all()
        assert math.isnan(quantized.sent_squared)
    with pytest.raises(ValueError, match="must be finite"):
        aquila_level(innovation_of(v))


@REALS
def test_infinities_are_clamped_to_the_ends_of_the_grid(dtype):
    v = normal(3000, dtype=dtype)
    v[7], v[8], v[9] = math.inf, -math.inf, math.nan
    zeros = torch.zeros_like(v)
    assert innovation_of(v[:9]).max_abs == math.inf
    finite = range_grid(1.0, 31, dtype)
    in_c, in_torch = cpu.quantize(v, zeros, finite), plain.quantize(v, zeros, finite)
    assert torch.equal(in_c.codes, in_torch.codes)
    assert in_c.codes[7:10].tolist() == [int(finite.max_code), 0, 0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({1: np.zeros(3, np.float32)}, "one length"),
        ({1: np.zeros(4, np.float64)}, "one float type"),
        ({2: np.zeros(5, np.float32)}, "one length"),
        ({0: np.zeros(4, np.int32)}, "one float type"),
        ({3: np.zeros(3, np.uint8)}, "one code"),
        ({3: np.zeros(4, np.int64)}, "one code"),
        ({6: 2.0**31 - 1}, "31 bits"),
        ({6: -1.0}, "31 bits"),
        ({6: math.nan}, "31 bits"),
    ],
)
def test_c_refuses_invalid_arguments(change, message):
    arguments = [np.zeros(4, np.float32) for _ in range(3)] + [np.zeros(4, np.uint8), 1.0, 1.0, 1.0]
    native.quantize(*arguments)
    for place, value in change.items():
        arguments[place] = value
    with pytest.raises(ValueError, match=message):
        native.quantize(*arguments)


def test_c_refuses_vectors_that_differ_or_have_gaps():
    with pytest.raises(ValueError, match="one length"):
        native.measure(np.zeros(4), np.zeros(3))
    with pytest.raises(ValueError, match="one float type"):
        native.measure(np.zeros(4, np.int64), None)
    with pytest.raises(ValueError, match="contiguous"):
        native.measure(np.zeros(8)[::2], None)
    with pytest.raises((ValueError, BufferError)):
        native.quantize(*[np.zeros(1).tobytes()] * 4, 1.0, 1.0, 1.0)


# levels


@STABLE
@given(st.lists(st.floats(-1e100, 1e100), min_size=1, max_size=30), st.sampled_from([1.0, 7.0]))
def test_level_is_that_of_theorem_1(numbers, tightness):
    R = max(map(abs, numbers))
    assume(R > 1e-100)
    norm = R * math.sqrt(math.fsum((x / R) ** 2 for x in numbers))
    exact = math.log2(tightness * R * math.sqrt(len(numbers)) / norm + 1)
    level = aquila_level(innovation_of(torch.tensor(numbers, dtype=torch.float64)), tightness)
    assert level in {max(1, math.floor(exact - 1e-12)), max(1, math.floor(exact + 1e-12))}


@REALS
@pytest.mark.parametrize("dimension", [1, 2, 3, 8, 9, 10, 48, 49, 50, 1000])
def test_level_is_between_1_and_that_of_one_nonzero_coordinate(dimension, dtype):
    highest = math.floor(math.log2(math.sqrt(dimension) + 1))
    spike = torch.zeros(dimension, dtype=dtype)
    spike[dimension // 2] = -0.5
    assert aquila_level(innovation_of(spike)) == highest
    for seed in range(20):
        v = normal(dimension, seed, dtype) ** 5
        assert 1 <= aquila_level(innovation_of(v)) <= highest


@pytest.mark.parametrize("level", range(1, 31))
def test_level_increases_exactly_at_powers_of_two(level):
    def at(ratio):
        one = torch.ones(1)
        return aquila_level(Innovation(one, one, max_abs=ratio, squared_norm=1.0))

    assert at(2.0**level - 1) == level
    assert at(2.0**level - 1 - 2.0**-20) == max(level - 1, 1)
    assert at(2.0**level - 1 + 2.0**-20) == level


@REALS
def test_vector_of_equal_magnitudes_has_level_1_despite_rounding(dtype):
    for dimension in range(1, 200):
        signs = normal(dimension, dimension).sign().to(dtype)
        for size in (0.1, 1 / 3, 0.7, 1e-20, 1e20):
            assert aquila_level(innovation_of(size * signs)) == 1


def test_zero_vector_has_level_0():
    assert aquila_level(innovation_of(torch.zeros(7))) == 0


def test_tighter_rule_gives_a_higher_level():
    v = innovation_of(normal(1000))
    assert aquila_level(v, tightness=7.0) > aquila_level(v)
