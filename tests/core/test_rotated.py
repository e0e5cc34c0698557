"""Sums of rotated vectors: one inverse rotation per basis gives the sum of all vectors."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import aquila
from aquila.core import rotated
from aquila.core.fleet import Fleet
from aquila.core.method import uploads
from aquila.core.packet import Packet
from aquila.core.peaks import quantize_peaks
from aquila.core.random import Key
from aquila.core.rotated import RotatedSum
from aquila.core.tensors import one_tensor

SHAPES = (torch.Size([30, 20]), torch.Size([50]))


def upload(seed, shapes=SHAPES, round_number=3):
    size = sum(shape.numel() for shape in shapes)
    v = torch.randn(size, generator=torch.Generator().manual_seed(seed))
    return quantize_peaks(v, shapes, 4, Key((seed,)), round_number)[0]


def same_basis(first, count):
    """Return uploads with the rotation of the first one."""
    found, seed = [upload(first)], first
    while len(found) < count:
        seed += 1
        if upload(seed).basis == found[0].basis:
            found.append(upload(seed))
    return found


def count_inverse_rotations(monkeypatch):
    calls = []
    original = rotated.unrotate_chunks_
    monkeypatch.setattr(
        rotated, "unrotate_chunks_", lambda *parts: calls.append(1) or original(*parts)
    )
    return calls


def test_a_basis_is_rotated_back_once(monkeypatch):
    sent = [*same_basis(0, 2), *same_basis(1, 2)]
    expected = sum(w * one.decode().double() for w, one in enumerate(sent, 1))
    calls, total = count_inverse_rotations(monkeypatch), torch.zeros(650, dtype=torch.float64)
    basis_sum = RotatedSum(total)
    for weight, one in enumerate(sent, 1):
        basis_sum.add(one.decode_sparse(), weight)
    basis_sum.finish()
    basis_sum.finish()
    assert len(calls) == 2
    torch.testing.assert_close(total, expected, atol=1e-5, rtol=1e-5)


def test_uploads_of_a_basis_follow_each_other(monkeypatch):
    first, second = same_basis(0, 2), same_basis(1, 2)
    mixed = [first[0], second[0], first[1], second[1]]
    replies = {device: Packet(3, one) for device, one in enumerate(mixed)}
    fleet = Fleet(650, [0] * 4, shapes=[SHAPES])
    calls = count_inverse_rotations(monkeypatch)
    mean = fleet.mean(uploads(replies), replies)
    assert len(calls) == 2
    expected = torch.stack([one.decode().double() for one in mixed]).mean(0)
    torch.testing.assert_close(mean, expected, atol=1e-5, rtol=1e-5)


def test_uploads_with_other_chunks_do_not_share_a_basis(monkeypatch):
    """Hostile devices could otherwise alternate between two bases."""
    short, long = same_basis(0, 2), []
    seed = 0
    while len(long) < 2:
        v = torch.randn(650, generator=torch.Generator().manual_seed(seed))
        found = quantize_peaks(v, SHAPES, 40, Key((seed,)), 3)[0]
        long += [found] * (found.basis.seed == short[0].basis.seed)
        seed += 1
    replies = dict(enumerate(Packet(3, one) for one in (short[0], long[0], short[1], long[1])))
    calls = count_inverse_rotations(monkeypatch)
    Fleet(650, [0] * 4, shapes=[SHAPES]).mean(uploads(replies), replies)
    assert len(calls) == 2


def test_numbers_of_another_type_and_large_weights_are_added():
    first, second = same_basis(0, 2)
    wide = replace(second, scale=second.scale.double())
    total = torch.zeros(650, dtype=torch.float64)
    basis_sum = RotatedSum(total)
    basis_sum.add(first.decode_sparse(), 1e45)
    basis_sum.add(wide.decode_sparse(), 1e45)
    basis_sum.finish()
    expected = first.decode().double() + second.decode()
    torch.testing.assert_close(total / 1e45, expected, atol=1e-5, rtol=1e-5)


def test_devices_with_a_part_of_the_model_are_added_too():
    half = torch.arange(0, 400, 2)
    fleet = Fleet(400, [0, 1], [None, half])
    whole, part = upload(0, one_tensor(400)), upload(1, one_tensor(200))
    replies = {0: Packet(3, whole), 1: Packet(3, part)}
    expected = whole.decode().double()
    expected[half] = (expected[half] + part.decode()) / 2
    torch.testing.assert_close(
        fleet.mean(uploads(replies), replies), expected, atol=1e-5, rtol=1e-5
    )


@pytest.mark.parametrize("devices", [3, 300])
def test_a_server_rotates_back_at_most_once_per_seed(devices, monkeypatch):
    calls = count_inverse_rotations(monkeypatch)
    gradients = np.random.default_rng(0).normal(size=(devices, 70)).astype(np.float32)
    run = aquila.simulate(
        aquila.create("aquila_peak", alpha=0.1, memory="none"),
        torch.zeros(70),
        [lambda theta, m=m: (0.0, torch.from_numpy(gradients[m])) for m in range(devices)],
        rounds=1,
    )
    assert len(calls) <= min(devices, 256)
    mean = -run.theta / 0.1
    error = (mean - torch.from_numpy(gradients.mean(0))).norm()
    assert float(error) < 3 * np.sqrt(70 / devices)
