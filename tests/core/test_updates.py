"""Updates of devices: fused passes in C and on a GPU against the same steps in torch operations."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from aquila.core import quantize, updates, vector
from aquila.core.passes import cpu, passes_for, plain
from aquila.core.quantize import shared_dither
from aquila.core.random import Key
from aquila.core.updates import dithered_update, dithered_upload, feedback_update
from aquila.native import dither, error_feedback

REALS = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
SIZES = [1, 2, 3, 15, 17, 1023, 1025, 65_535, 65_537, 200_003]
RATE = 0.015
NEEDS_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")


def normal(size, seed, dtype):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(size, generator=generator, dtype=dtype)


def state(size, dtype):
    """Return a gradient, a memory and an error of a typical device."""
    gradient, memory, error = (normal(size, seed, dtype) for seed in range(3))
    return gradient, memory / 8, error * 20


def special_gradients(dtype):
    """Return gradients that test the limits of the grids, of the codes and of the types."""
    d = 3000
    ramp, tiny = torch.arange(d, dtype=dtype), torch.finfo(dtype).smallest_normal
    spike = torch.full((d,), 1e-3, dtype=dtype)
    spike[1234] = -1e6
    return {
        "zero": torch.zeros(d, dtype=dtype),
        "negative zero": -torch.zeros(d, dtype=dtype),
        "equal": torch.full((d,), -0.3, dtype=dtype),
        "two sizes": torch.where(ramp % 2 == 0, 1.0, -2.0).to(dtype),
        "spike": spike,
        "heavy tail": normal(d, 5, dtype) ** 7,
        "subnormal": (ramp - 1000) * tiny * torch.finfo(dtype).eps,
        "smallest normal": normal(d, 5, dtype) * tiny,
        "large": normal(d, 5, dtype) * torch.finfo(dtype).max ** 0.4,
        "overflow": normal(d, 5, dtype).sign() * torch.finfo(dtype).max / 2,
        "infinite": torch.where(ramp == 7, -math.inf, ramp),
        "nan": torch.where(ramp == 7, math.nan, ramp),
    }


SPECIAL = pytest.mark.parametrize("name", special_gradients(torch.float32))


def in_torch_operations(update, *arguments):
    """Call a function with the torch operations in place of the passes in C."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (quantize, updates, vector):
            patch.setattr(module, "passes_for", lambda *vectors: plain)
        return update(*arguments)


def assert_same_bits(a, b):
    assert a.dtype == b.dtype
    assert torch.equal(a.isnan(), b.isnan())  # the bits of NaN are not defined
    bits = {4: torch.int32, 8: torch.int64}[a.element_size()]
    known = ~a.isnan()
    assert torch.equal(a[known].view(bits), b[known].view(bits))


def assert_same_codes(a, b):
    assert torch.equal(a.codes, b.codes)
    assert a.codes.dtype == b.codes.dtype
    assert (a.bits, a.bucket, a.dither_seed) == (b.bits, b.bucket, b.dither_seed)
    assert_same_bits(a.low, b.low)
    assert_same_bits(a.step, b.step)


def assert_same_dithered(gradient, memory, density, seed=0):
    """Compare the passes in C with torch operations; return the update."""
    assert passes_for(gradient, memory) is cpu
    arguments = gradient, memory, RATE, density, Key((seed,))
    fused = dithered_update(*arguments)
    slow = in_torch_operations(dithered_update, *arguments)
    assert (fused is None) == (slow is None)
    if fused is not None:
        assert_same_codes(fused.codes, slow.codes)
        assert_same_bits(fused.memory, slow.memory)
        assert fused.error_ratio == slow.error_ratio
    return fused


def assert_same_upload(v, density):
    fused = dithered_upload(v, density, Key((3,)))
    slow = in_torch_operations(dithered_upload, v, density, Key((3,)))
    assert (fused is None) == (slow is None)
    if fused is not None:
        assert_same_codes(fused[0], slow[0])
        assert fused[1] == slow[1]
        assert_same_codes(fused[0], shared_dither(v, density, Key((3,))))


def assert_same_feedback(error, gradient, memory, density):
    arguments = error, gradient, memory, RATE, density
    fused = feedback_update(*arguments)
    slow = in_torch_operations(feedback_update, *arguments)
    assert (fused.codes is None) == (slow.codes is None)
    if fused.codes is not None:
        assert_same_codes(fused.codes, slow.codes)
    assert_same_bits(fused.error, slow.error)
    assert_same_bits(fused.memory, slow.memory)
    np.testing.assert_equal(fused.error_ratio, slow.error_ratio)  # NaN equals NaN


@REALS
@pytest.mark.parametrize("size", SIZES)
def test_fused_updates_have_the_bits_of_torch_operations_at_any_length(size, dtype):
    gradient, memory, error = state(size, dtype)
    for density in (0.003, 0.06, 0.7):
        before = [v.clone() for v in (gradient, memory, error)]
        assert_same_dithered(gradient, memory, density)
        assert_same_upload(gradient, density)
        assert_same_feedback(error, gradient, memory, density)
        for old, new in zip(before, (gradient, memory, error), strict=True):
            assert_same_bits(old, new)


@REALS
@SPECIAL
def test_fused_updates_have_the_bits_of_torch_operations_for_special_gradients(name, dtype):
    gradient = special_gradients(dtype)[name]
    zero = torch.zeros_like(gradient)
    for memory, error in ((zero, zero), (gradient / 3, -gradient), (gradient, zero)):
        for density in (0.003, 0.3, 0.7):
            assert_same_dithered(gradient, memory, density)
            assert_same_feedback(error, gradient, memory, density)
            assert_same_upload(gradient, density)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_gradient_that_is_not_finite_has_no_dithered_upload(bad):
    gradient = normal(2000, 0, torch.float32)
    gradient[1999] = bad
    assert dithered_update(gradient, torch.zeros(2000), RATE, 0.1, Key((0,))) is None


@REALS
def test_grid_grows_if_the_dither_rounds_up_to_more_steps(dtype):
    # 1.5 steps become 1 or 2, and 2 steps need a code of 3 bits
    gradient = torch.full((3000,), 1e-6, dtype=dtype)
    gradient[2500] = 1.0
    density = 1.5 / math.sqrt(3000)
    memory = torch.zeros_like(gradient)
    widths = {assert_same_dithered(gradient, memory, density, seed).codes.bits for seed in range(9)}
    assert widths == {2, 3}


@REALS
@pytest.mark.parametrize("density", [0.7, 100.0, 30_000.0, 1e7])
def test_codes_of_every_width_have_the_same_bits(density, dtype):
    gradient = special_gradients(dtype)["spike"]
    assert_same_dithered(gradient, torch.zeros_like(gradient), density)


@REALS
@pytest.mark.parametrize(
    ("sampled", "others"), [(0.0, 1.0), (1.0, 0.0), (1.0, 1e-3), (1e-3, 1.0), (1.0, 1.0)]
)
def test_kth_largest_does_not_depend_on_the_sample(sampled, others, dtype):
    size = 200_003
    v = normal(size, 0, dtype) * others
    starts = size // 2048 * torch.arange(2048)
    sample = (starts[:, None] + torch.arange(16)).flatten()
    v[sample] *= sampled / others if others else 0
    if not others:
        v[sample] = sampled
    for k in (1, 20, 2000, 12_500, 12_501):
        expected = float(v.abs().topk(k).values[-1])
        assert cpu.kth_largest(v, k) == expected
        zero = torch.zeros_like(v)
        assert cpu.accumulate(zero, v, zero, k).kth_largest == expected


# the fused passes on a GPU have the bits of those in C


def assert_gpu_gives_the_dithered_update(gradient, memory, density, seed=0):
    arguments = RATE, density, Key((seed,))
    here = dithered_update(gradient, memory, *arguments)
    there = dithered_update(gradient.cuda(), memory.cuda(), *arguments)
    assert (here is None) == (there is None)
    if here is not None:
        assert_same_codes(here.codes, on_cpu(there.codes))
        assert_same_bits(here.memory, there.memory.cpu())
        assert here.error_ratio == there.error_ratio
    upload, sent = (dithered_upload(v, density, Key((3,))) for v in (gradient, gradient.cuda()))
    assert (upload is None) == (sent is None)
    if upload is not None:
        assert_same_codes(upload[0], on_cpu(sent[0]))
        assert upload[1] == sent[1]


def assert_gpu_gives_the_feedback_update(error, gradient, memory, density):
    vectors = error, gradient, memory
    here = feedback_update(*vectors, RATE, density)
    there = feedback_update(*(v.cuda() for v in vectors), RATE, density)
    assert (here.codes is None) == (there.codes is None)
    if here.codes is not None:
        assert_same_codes(here.codes, on_cpu(there.codes))
    assert_same_bits(here.error, there.error.cpu())
    assert_same_bits(here.memory, there.memory.cpu())
    np.testing.assert_equal(here.error_ratio, there.error_ratio)


def on_cpu(codes):
    assert codes.codes.is_cuda
    parts = {name: getattr(codes, name).cpu() for name in ("codes", "low", "step")}
    return replace(codes, **parts)


@NEEDS_GPU
@REALS
@pytest.mark.parametrize("size", [*SIZES, 11_173_962])
def test_gpu_gives_the_updates_of_the_cpu(size, dtype):
    gradient, memory, error = state(size, dtype)
    for density in (0.003, 0.06, 0.7):
        assert_gpu_gives_the_dithered_update(gradient, memory, density)
        assert_gpu_gives_the_feedback_update(error, gradient, memory, density)


@NEEDS_GPU
@REALS
@SPECIAL
def test_gpu_gives_the_updates_of_the_cpu_for_special_gradients(name, dtype):
    gradient = special_gradients(dtype)[name]
    zero = torch.zeros_like(gradient)
    for memory, error in ((zero, zero), (gradient / 3, -gradient), (gradient, zero)):
        for density in (0.003, 0.3, 0.7):
            assert_gpu_gives_the_dithered_update(gradient, memory, density)
            assert_gpu_gives_the_feedback_update(error, gradient, memory, density)


@NEEDS_GPU
@REALS
@pytest.mark.parametrize(
    ("sampled", "others"), [(0.0, 1.0), (1.0, 0.0), (1.0, 1e-3), (1e-3, 1.0), (1.0, 1.0)]
)
def test_kth_largest_on_a_gpu_does_not_depend_on_the_sample(sampled, others, dtype):
    size = 200_003
    v = normal(size, 0, dtype) * others
    starts = size // 1024 * torch.arange(1024)  # the groups of core/passes/feedback_kernels.py
    sample = (starts[:, None] + torch.arange(16)).flatten()
    v[sample] = sampled * normal(len(sample), 1, dtype)
    zero = torch.zeros_like(v).cuda()
    for k in (1, 20, 2000, 12_500, 12_501):
        expected = float(v.abs().topk(k).values[-1])
        assert passes_for(zero).accumulate(zero, v.cuda(), zero, k).kth_largest == expected


@NEEDS_GPU
def test_kth_largest_on_a_gpu_may_be_in_one_lane():
    v = normal(200 * plain.LANES, 0, torch.float32) / 100
    v[7 :: plain.LANES] += 10
    zero = torch.zeros_like(v).cuda()
    for k in (50, 150, 5000):
        expected = float(v.abs().topk(k).values[-1])
        assert passes_for(zero).accumulate(zero, v.cuda(), zero, k).kth_largest == expected


# invalid arguments


def dither_arguments():
    return [*(np.zeros(4, np.float32) for _ in range(3)), np.zeros(4, np.uint8), 1.0, 7, 127, 0.5]


def feedback_arguments():
    vectors = [np.zeros(4, np.float32) for _ in range(3)]
    return [*vectors, np.zeros(4, np.uint8), 1.0, 0.4, 0.6, 127, 0.5]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({0: np.zeros(4, np.int32)}, "one float type"),
        ({1: np.zeros(4, np.float64)}, "one float type"),
        ({2: np.zeros(3, np.float32)}, "one length"),
        ({3: np.zeros(3, np.uint8)}, "one code"),
        ({3: np.zeros(4, np.int64)}, "one code"),
        ({0: np.zeros(8, np.float32)[::2]}, "contiguous"),
    ],
)
def test_c_refuses_invalid_vectors(change, message):
    for function, make in (
        (dither.codes, dither_arguments),
        (error_feedback.feed_back, feedback_arguments),
    ):
        arguments = make()
        function(*arguments)
        for place, value in change.items():
            arguments[place] = value
        with pytest.raises(ValueError, match=message):
            function(*arguments)


@pytest.mark.parametrize("top", [-1, 0, 128, 2**31 - 1])
def test_c_refuses_a_grid_that_does_not_fit_the_codes(top):
    arguments = dither_arguments()
    arguments[6] = top
    with pytest.raises(ValueError, match="fit the type"):
        dither.codes(*arguments)
    arguments = feedback_arguments()
    arguments[7] = top
    with pytest.raises(ValueError, match="fit the type"):
        error_feedback.feed_back(*arguments)


@pytest.mark.parametrize("k", [-1, 0, 5])
def test_c_refuses_an_invalid_rank(k):
    with pytest.raises(ValueError, match="from 1 to"):
        error_feedback.accumulate(*(np.zeros(4) for _ in range(4)), k)


def test_c_refuses_vectors_of_several_lengths():
    with pytest.raises(ValueError, match="one length"):
        error_feedback.accumulate(np.zeros(4), np.zeros(4), np.zeros(3), np.zeros(4), 1)


@REALS
@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_c_keeps_dithered_codes_in_bounds_for_any_input(number, dtype):
    gradient = normal(3000, 0, dtype).numpy()
    gradient[::7] = number
    for step in (number, 0.0, -1.0, 1e-300, 1.0):
        codes = np.zeros(3000, np.uint8)
        top, _ = dither.codes(gradient, None, None, codes, step, 7, 3, 0.0)
        assert 0 <= top <= 4
        assert top > 3 or codes.max() <= 6
