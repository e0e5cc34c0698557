"""CDAG-FL against a numpy version of k-means, and uploads that are invalid."""

import numpy as np
import pytest
import torch

import aquila
from aquila.core.packet import Packet, WireError
from aquila.core.tensors import checksum_scalars
from aquila.core.wire import pack, unpack
from aquila.methods.cdag_fl import CodebookReader, Codebooks, cluster, k_means
from helpers.layered import FixedGradient, layered_run

SHAPES = (torch.Size([20, 10]), torch.Size([6]))


def in_numpy(values, max_error):
    """Lloyd's algorithm with one loop per coordinate; return the decoded values and k."""
    for k in (2, 4, 8, 16):
        centroids = np.linspace(values.min(), values.max(), k)
        for _ in range(10):
            nearest = np.abs(values[:, None] - centroids).argmin(axis=1)
            for j in set(nearest):
                centroids[j] = values[nearest == j].mean()
        decoded = centroids[np.abs(values[:, None] - centroids).argmin(axis=1)]
        if np.sum((decoded - values) ** 2) <= max_error * np.sum(values**2):
            break
    return decoded, k


def test_centroids_by_hand():
    """From 0 and 10: {0, 1, 2, 3} and {9, 10}."""
    ordered = torch.tensor([0.0, 1, 2, 3, 9, 10], dtype=torch.float64)
    assert k_means(ordered, 2).tolist() == [1.5, 9.5]


def test_upload_follows_the_rule_with_the_smallest_codebook():
    generator, max_error = np.random.default_rng(0), 0.05
    weights, biases = generator.standard_normal(200), np.repeat([-1.0, 2.0], 3)
    gradient = torch.from_numpy(np.concatenate([weights, biases]))
    method = aquila.create("cdag_fl", alpha=0.5, max_error=max_error)
    run = layered_run(method, [FixedGradient(gradient, SHAPES)])
    record = run.advance()
    decoded = [in_numpy(part, max_error) for part in (weights, biases)]
    assert [k for _, k in decoded] == [8, 2]
    expected = -0.5 * np.concatenate([values for values, _ in decoded])
    np.testing.assert_allclose(run.theta, expected, rtol=1e-9)
    assert record.levels == {0: 3}


@pytest.mark.parametrize(("max_error", "k"), [(0.5, 2), (0.15, 4), (0.05, 8), (0.02, 16), (0, 16)])
def test_codebook_grows_as_the_bound_falls(max_error, k):
    part = torch.from_numpy(np.random.default_rng(1).standard_normal(3000)).float()
    codes, book = cluster(part, max_error)
    assert len(book) == k
    error = (book[codes.long()] - part).square().sum() / part.square().sum()
    assert float(error) <= max_error or k == 16


def test_tensors_of_few_numbers_are_exact():
    for part in (torch.tensor([3.0]), torch.zeros(5), torch.tensor([1.0, -1.0, 1.0])):
        codes, book = cluster(part, 0.0)
        assert book[codes.long()].tolist() == part.tolist()


def books(**changes):
    values = {
        "codes": torch.arange(206).remainder(2).byte(),
        "bits": 2,
        "clusters": torch.tensor([4.0, 2.0]),
        "centroids": torch.tensor([-2.0, -1.0, 1.0, 2.0, 5.0, 6.0]),
        "shapes": SHAPES,
    }
    return Codebooks(**{**values, **changes})


def read(upload):
    reader = CodebookReader()
    frame = pack(Packet(0, upload.to_codes(), checksum_scalars(SHAPES)))
    return reader.read(unpack(frame, reader.dimensions(SHAPES)), SHAPES)


def test_server_decodes_what_the_device_decodes():
    upload = books()
    assert torch.equal(read(upload).decode(), upload.decode())
    assert upload.decode()[[0, 1, 200, 201]].tolist() == [-2.0, -1.0, 5.0, 6.0]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"clusters": torch.tensor([3.0, 3.0])}, "must have 2, 4, 8 or 16 centroids"),
        ({"clusters": torch.tensor([4.0, float("nan")])}, "must have 2, 4, 8 or 16 centroids"),
        ({"clusters": torch.tensor([4.0, 4.0])}, "cut short"),
        ({"centroids": torch.tensor([1.0, 2, 3, 4, float("inf"), 1])}, "is not finite"),
        ({"codes": torch.full((206,), 2, dtype=torch.uint8)}, "not in the codebook"),
    ],
)
def test_invalid_codebooks_are_refused(changes, reason):
    with pytest.raises(WireError, match=reason):
        read(books(**changes))


def test_bytes_are_the_codes_and_the_codebooks():
    """Two bits per coordinate and 8 floats, plus header, scalar and checksum."""
    codes = torch.from_numpy(np.random.default_rng(2).integers(0, 2, 206)).byte()
    codes[:200] += 2 * torch.from_numpy(np.random.default_rng(3).integers(0, 2, 200)).byte()
    frame = pack(Packet(0, books(codes=codes).to_codes(), checksum_scalars(SHAPES)))
    assert len(frame) <= 9 + 9 + 8 + 8 * 4 + 206 * 2 // 8 + 1 + 4
