"""Model frames resolve to whole models or to a reference plus a difference."""

from pathlib import Path

import pytest
import torch

from aquila.core.packet import Codes, Dense, Packet, WireError
from aquila.core.quantize_within import quantize_within
from aquila.core.wire import pack, unpack
from aquila.runtime.reference import NO_BASE, UNNAMED, resolve_model, with_checksum

GOLDEN = Path(__file__).parents[1] / "golden"
THETA = torch.linspace(-1, 1, 32)


def resolve(packet, references):
    return resolve_model(packet, references, pytest.fail)


def difference(refers_to, by=THETA, dtype=torch.float32):
    return Packet(3, quantize_within(by.to(dtype), 0.5), refers_to=refers_to)


def test_checksum_depends_on_the_bits_of_the_model():
    assert with_checksum(THETA).checksum == with_checksum(THETA.clone()).checksum
    assert with_checksum(THETA).checksum != with_checksum(THETA + 1e-6).checksum
    assert with_checksum(torch.zeros(4)).checksum != with_checksum(-torch.zeros(4)).checksum
    assert with_checksum(THETA).checksum != UNNAMED


def test_whole_model_resolves_to_itself():
    model = resolve(Packet(3, Dense(THETA), refers_to=77), [])
    assert model.checksum == 77
    assert model.theta is THETA


def test_difference_is_added_to_the_model_that_it_names():
    other, base = with_checksum(THETA + 1), with_checksum(THETA)
    packet = unpack(pack(difference(base.checksum)))
    model = resolve(packet, [other, base])
    assert torch.equal(model.theta, THETA + packet.vector.decode())
    assert model.checksum == with_checksum(model.theta).checksum
    assert torch.equal(base.theta, torch.linspace(-1, 1, 32))


def test_difference_to_an_unknown_model_resolves_to_none():
    assert resolve(difference(12345), [with_checksum(THETA)]) is None


def test_codes_without_a_base_are_a_coded_model():
    packet = unpack(pack(Packet(0, quantize_within(THETA, 0.01), refers_to=NO_BASE)))
    model = resolve(packet, [with_checksum(THETA)])
    assert torch.equal(model.theta, packet.vector.decode())
    assert float((model.theta - THETA).norm()) <= 0.01 * float(THETA.norm())
    assert model.checksum == with_checksum(model.theta).checksum


def test_invalid_differences_are_rejected():
    base = with_checksum(THETA)
    with pytest.raises(WireError, match=r"float64, but its model is torch\.float32"):
        resolve(difference(base.checksum, dtype=torch.float64), [base])
    with pytest.raises(WireError, match="this one is empty"):
        resolve(Packet(3, refers_to=base.checksum), [base])
    huge = with_checksum(torch.full((2,), 3e38))
    step = Codes(torch.ones(2, dtype=torch.uint8), 1, torch.zeros(1), torch.tensor([3e38]), 2)
    with pytest.raises(WireError, match="not finite"):
        resolve(Packet(3, step, refers_to=huge.checksum), [huge])
    top = Codes(torch.full((2,), 2, dtype=torch.uint8), 2, torch.zeros(1), torch.tensor([3e38]), 2)
    with pytest.raises(WireError, match="not finite"):
        resolve(Packet(0, top, refers_to=NO_BASE), [])


def test_golden_difference_resolves_with_the_golden_model():
    model, change = (
        unpack((GOLDEN / f"model_{name}.frame").read_bytes()) for name in ("whole", "difference")
    )
    reference = resolve(model, [])
    assert reference.checksum == with_checksum(reference.theta).checksum == change.refers_to
    assert resolve(change, [reference]).theta.tolist() == [1.0, -2.5, 0.5, 0.75]


def test_golden_coded_model_needs_no_base():
    frame = (GOLDEN / "model_coded.frame").read_bytes()
    reference = resolve(unpack(frame), [])
    assert reference.theta.tolist() == [0.0, -1.5, 1.0, 0.5]
    assert reference.checksum == with_checksum(reference.theta).checksum
