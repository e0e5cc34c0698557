"""Averages over a fleet against slow loops over devices and coordinates."""

import numpy as np
import pytest
import torch

from aquila.core.fleet import Fleet
from aquila.core.method import decode_upload, uploads
from aquila.core.packet import Codes, Packet
from aquila.core.quantize import midrise, shared_dither
from aquila.core.random import Key
from aquila.core.vector import SparseVector, squared_norm
from aquila.core.wire import pack, unpack

DIMENSION = 7
WEIGHTS = [0.5, 2.0, 3.0, 0.25, 7.0, 1.5]
# only the last group holds coordinates 5 and 6; a fleet may have no device of it
SLICES = (
    torch.tensor([0, 1, 2, 3, 4]),
    torch.tensor([0, 2, 4]),
    torch.tensor([1]),
    torch.tensor([5, 6]),
)


def small_fleet(last=3, torch_device="cpu"):
    return Fleet(DIMENSION, [0, 1, 1, 2, 0, last], SLICES, torch_device)


def random_vectors(fleet, devices, dtype=torch.float32):
    generator = torch.Generator().manual_seed(5)
    return {
        device: torch.randn(fleet.dimension_of(device), generator=generator, dtype=dtype)
        for device in devices
    }


def coordinates_of(fleet, device):
    indices = fleet.slices[fleet.groups[device]]
    return list(range(fleet.dimension)) if indices is None else indices.tolist()


def slow_mean(fleet, vectors, weights):
    result = []
    for coordinate in range(fleet.dimension):
        total = weight = 0.0
        for device, part in weights.items():
            indices = coordinates_of(fleet, device)
            if coordinate in indices:
                weight += part
                if device in vectors:
                    total += part * float(vectors[device][indices.index(coordinate)])
        result.append(total / weight if weight else 0.0)
    return np.array(result)


FLEETS = {
    "uniform": Fleet.uniform(DIMENSION, 6),
    "heterogeneous": small_fleet(),
    "coordinates without holders": small_fleet(last=1),
    "some hold all": Fleet(DIMENSION, [0, 1, 1, 0, 1, 0], (None, torch.tensor([1, 3]))),
}


@pytest.fixture(params=FLEETS, ids=lambda name: name.replace(" ", "-"))
def fleet(request):
    return FLEETS[request.param]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("present", [[0, 1, 2, 3, 4, 5], [1, 3, 4], [2], []])
def test_mean_over_holders_divides_by_all_holders(fleet, present, dtype):
    vectors = random_vectors(fleet, present, dtype)
    expected = slow_mean(fleet, vectors, dict.fromkeys(fleet.devices, 1.0))
    mean = fleet.mean_over_holders(vectors.items())
    assert mean.dtype == torch.float64
    np.testing.assert_allclose(mean.numpy(), expected, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("present", [[0, 1, 2, 3, 4, 5], [1, 3, 4], [2], []])
def test_mean_divides_by_the_weight_of_the_holders(fleet, present):
    vectors = random_vectors(fleet, present, torch.float64)
    devices = sorted({0, 2, *present})
    expected = slow_mean(fleet, vectors, {m: WEIGHTS[m] for m in devices})
    mean = fleet.with_weights(WEIGHTS).mean(vectors.items(), devices)
    np.testing.assert_allclose(mean.numpy(), expected, rtol=1e-12, atol=1e-15)
    expected = slow_mean(fleet, vectors, dict(enumerate(WEIGHTS)))
    mean = fleet.with_weights(WEIGHTS).mean_over_holders(vectors.items())
    np.testing.assert_allclose(mean.numpy(), expected, rtol=1e-12, atol=1e-15)


def test_device_without_vector_counts_as_zero():
    fleet = Fleet.uniform(2, 3).with_weights([1.0, 5.0, 3.0])
    mean = fleet.mean([(0, torch.tensor([4.0, 8.0]))], [0, 2])
    assert mean.tolist() == [1.0, 2.0]


def test_weights_multiply_in_float64():
    """A float32 product would round 3 * 0.1 differently."""
    vectors = {0: torch.tensor([0.1]), 1: torch.tensor([0.7])}
    mean = Fleet.uniform(1, 2).with_weights([3.0, 5.0]).mean(vectors.items(), vectors)
    exact = (3 * vectors[0].double() + 5 * vectors[1].double()) / 8
    assert torch.equal(mean, exact)


@pytest.mark.parametrize(
    ("weights", "error"),
    [
        ([1.0], "there are 1 weights for 2 devices"),
        ([1.0, 0.0], "the weight of device 1 must be above 0, not 0.0"),
        ([-1.0, 1.0], "the weight of device 0 must be above 0, not -1.0"),
        ([1.0, float("nan")], "the weight of device 1 must be above 0, not nan"),
    ],
)
def test_invalid_weights_are_refused(weights, error):
    with pytest.raises(ValueError, match=error):
        Fleet.uniform(3, 2).with_weights(weights)


def test_numbers_and_counts_follow_the_weights():
    fleet = Fleet.uniform(3, 3).with_weights([1.0, 1.0, 2.0])
    assert fleet.mean_number({0: 4.0, 2: 1.0}) == 2.0
    assert fleet.effective_count([0, 1]) == 2
    assert fleet.effective_count([0, 1, 2]) == pytest.approx(16 / 6)
    assert fleet.effective_count([]) == 0
    assert fleet.with_participation(0.5).weights == fleet.weights


def test_mean_of_a_coordinate_without_holders_is_zero():
    fleet = FLEETS["coordinates without holders"]
    vectors = random_vectors(fleet, fleet.devices)
    assert fleet.mean_over_holders(vectors.items())[5:].tolist() == [0.0, 0.0]
    assert fleet.mean(vectors.items(), fleet.devices)[5:].tolist() == [0, 0]


def test_mean_without_devices_is_zero():
    assert Fleet.uniform(3, 2).mean([], []).tolist() == [0.0, 0.0, 0.0]


def test_vector_of_another_device_is_refused():
    with pytest.raises(KeyError, match="device 1 is not one of the averaged devices"):
        Fleet.uniform(1, 2).mean([(1, torch.ones(1))], [0])


def test_mean_keeps_small_terms_next_to_large_ones():
    fleet = Fleet.uniform(1, 3)
    vectors = [torch.tensor([x]) for x in (1e8, 1.0, -1e8)]
    assert fleet.mean_over_holders(enumerate(vectors)).item() == pytest.approx(1 / 3, rel=1e-12)


def test_mean_does_not_change_the_vectors():
    fleet = small_fleet()
    vectors = random_vectors(fleet, fleet.devices)
    before = {device: vector.clone() for device, vector in vectors.items()}
    fleet.mean_over_holders(vectors.items())
    fleet.with_weights(WEIGHTS).mean(vectors.items(), fleet.devices)
    assert all(torch.equal(vectors[device], before[device]) for device in fleet.devices)


def test_restrict_returns_the_coordinates_of_each_group():
    vector = torch.arange(10.0, 17.0)
    parts = small_fleet().restrict(vector)
    assert [part.tolist() for part in parts] == [
        [10.0, 11.0, 12.0, 13.0, 14.0],
        [10.0, 12.0, 14.0],
        [11.0],
        [15.0, 16.0],
    ]
    assert small_fleet().squared_norms(vector) == pytest.approx((730, 440, 121, 481))
    assert Fleet.uniform(DIMENSION, 2).restrict(vector)[0] is vector


def test_dimensions_and_devices():
    assert [small_fleet().dimension_of(device) for device in range(6)] == [5, 3, 3, 1, 5, 2]
    assert Fleet.uniform(9, 4).dimension_of(3) == 9
    assert list(Fleet.uniform(9, 4).devices) == [0, 1, 2, 3]
    assert Fleet.uniform(9, 4).groups == (0, 0, 0, 0)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_means_on_gpu_and_cpu_are_equal():
    fleet = small_fleet()
    vectors = random_vectors(fleet, fleet.devices)
    there = small_fleet(torch_device="cuda")
    on_gpu = there.mean_over_holders((device, vector.cuda()) for device, vector in vectors.items())
    assert on_gpu.is_cuda
    assert torch.equal(on_gpu.cpu(), fleet.mean_over_holders(vectors.items()))


def test_coordinate_mask_marks_what_the_devices_hold():
    fleet = small_fleet()
    for chosen in ([], [1], [1, 3], list(fleet.devices)):
        mask = fleet.coordinate_mask(chosen).expand(DIMENSION).tolist()
        assert mask == [
            any(i in coordinates_of(fleet, m) for m in chosen) for i in range(DIMENSION)
        ]


def test_participation_is_part_of_a_copy():
    fleet = Fleet.uniform(4, 3)
    assert fleet.with_participation(0.5).participation == 0.5
    assert fleet.participation == 1


def dithered_replies(fleet, devices, density=0.01, dtype=torch.float32):
    """Return replies with dithered uploads, read from frames."""
    replies = {}
    for device in devices:
        key = Key((1, device))
        v = torch.randn(fleet.dimension_of(device), generator=key.torch(), dtype=dtype)
        v[:100] *= 30  # winners far above the mean are listed, out of order
        frame = pack(Packet(0, shared_dither(v, density, key)))
        replies[device] = unpack(frame)
    return replies


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("slices", [(None,), (None, torch.arange(0, 5000, 2))])
def test_sparse_uploads_are_measured_and_averaged_with_the_bits_of_dense_ones(slices, dtype):
    groups = [device % len(slices) for device in range(6)]
    fleet = Fleet(5000, groups, slices, weights=WEIGHTS)
    replies = dithered_replies(fleet, range(5), dtype=dtype)
    sparse, dense = dict(uploads(replies)), dict(uploads(replies, decode_upload))
    for device, vector in sparse.items():
        assert isinstance(vector, SparseVector)
        assert vector.positions.equal(dense[device].nonzero().flatten())
        assert squared_norm(vector) == squared_norm(dense[device])
    means = [fleet.mean(vectors.items(), range(6)) for vectors in (sparse, dense)]
    assert means[0].numpy().tobytes() == means[1].numpy().tobytes()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("weights", [[1.0, 1.0], [0.5, 3.0]])
@pytest.mark.parametrize("bits", [3, 12, 20, 32])
def test_dense_codes_are_measured_and_averaged_with_the_bits_of_vectors(dtype, weights, bits):
    fleet = Fleet(70_001, [0, 0], weights=weights)
    replies = {}
    for device in fleet.devices:
        v = torch.randn(70_001, generator=Key((2, device)).torch(), dtype=dtype)
        replies[device] = unpack(pack(Packet(0, midrise(v, bits))))
    coded, dense = dict(uploads(replies)), dict(uploads(replies, decode_upload))
    for device, codes in coded.items():
        assert isinstance(codes, Codes)
        assert codes.squared_norm() == squared_norm(dense[device])
    means = [fleet.mean(vectors.items(), range(2)) for vectors in (coded, dense)]
    assert means[0].numpy().tobytes() == means[1].numpy().tobytes()


def test_means_are_those_of_separate_calls():
    fleet = Fleet(5000, [0] * 6, weights=WEIGHTS)
    replies = dithered_replies(fleet, range(5))
    mean, over_holders = fleet.means(uploads(replies), replies)
    assert mean.equal(fleet.mean(uploads(replies), replies))
    assert over_holders.equal(fleet.mean_over_holders(uploads(replies)))


def test_upload_with_many_nonzero_coordinates_is_not_sparse():
    replies = dithered_replies(Fleet.uniform(5000, 1), range(1), density=0.3)
    ((_, vector),) = uploads(replies)
    assert isinstance(vector, Codes)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("bucket", [100_000, 70_000, 33_333, 512, 1])
def test_codes_on_several_grids_are_averaged_with_the_bits_of_vectors(bucket, dtype):
    dimension = 100_000
    generator, grids = torch.Generator().manual_seed(bucket), -(-dimension // bucket)
    codes = torch.randint(0, 16, (dimension,), dtype=torch.uint8, generator=generator)
    low, step = torch.rand(2, grids, generator=generator, dtype=dtype)
    coded = Codes(codes, 4, -low, step, bucket)
    spread = torch.arange(dimension) // bucket
    dense = codes.to(dtype) * step[spread] + -low[spread]
    assert torch.equal(coded.decode(), dense)
    assert coded.squared_norm() == squared_norm(dense)
    for slices in ((None,), (None, torch.arange(1, 2 * dimension, 2))):
        fleet = Fleet(len(slices) * dimension, [len(slices) - 1], slices, weights=[0.3])
        means = [fleet.mean_over_holders([(0, vector)]) for vector in (coded, dense)]
        assert means[0].numpy().tobytes() == means[1].numpy().tobytes()
