"""The downlink: one reference per group, differences to it, and whole models."""

import pytest
import torch

import aquila
from aquila.core.method import order_scalars
from aquila.core.packet import NEVER, Dense, Packet
from aquila.core.random import Key
from aquila.core.wire import pack, unpack
from aquila.runtime.model_downlink import MAX_MODEL_ERROR, DownlinkCoder, add_models, pack_models
from aquila.runtime.reference import NO_BASE, resolve_model, with_checksum
from aquila.runtime.saved_references import references_from_arrays, references_to_arrays

D = 200
FLEET = aquila.Fleet(D, [0, 0, 0, 1, 1], [None, torch.arange(D // 2)])
THETA = Key((1,)).uniform(torch.zeros(D))


def held(round_number, in_step=lambda _: True):
    """Return which models devices hold in a round: the last one if they are in step."""
    return lambda device: round_number - 1 if in_step(device) else NEVER


def resolve(packet, references):
    return resolve_model(packet, references, pytest.fail)


def model_path(theta=THETA, steps=30, size=0.1):
    """Yield a sequence of models with steps that shrink."""
    for k in range(steps):
        yield theta
        theta = theta - size * 0.8**k * (Key((2, k)).uniform(theta) - 0.5)


def model_packets(fleet, theta, round_number):
    return add_models(order_scalars(fleet), theta, fleet, round_number)


def test_whole_models_are_packed_once_per_group():
    frames = pack_models(model_packets(FLEET, THETA, 3))
    assert frames[0] == pack(Packet(3, Dense(THETA)))
    assert len({id(frame) for frame in frames.values()}) == 2
    assert unpack(frames[4]).refers_to == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_every_device_gets_the_bits_of_the_reference(dtype):
    coder, references = DownlinkCoder(0.5), {}
    models, names = dict.fromkeys(FLEET.devices), []
    for k, theta in enumerate(model_path(THETA.to(dtype))):
        in_step = {d for d in FLEET.devices if k and (d + k) % 3}
        packets = model_packets(FLEET, theta, k)
        frames, references = coder.encode(packets, FLEET, references, held(k, in_step.__contains__))
        for device, frame in frames.items():
            packet = unpack(frame)
            names.append(packet.refers_to)
            models[device] = resolve(packet, [models[device]] if device in in_step else [])
            reference = references[FLEET.groups[device]]
            assert models[device].theta.numpy().tobytes() == reference.theta.numpy().tobytes()
            assert (
                models[device].checksum
                == reference.checksum
                == with_checksum(reference.theta).checksum
            )
    assert 0 < names.count(NO_BASE) < len(names)  # some models are coded, and some are differences


def test_coding_error_vanishes_with_the_steps():
    """Each difference contains the error of the one before."""
    coder, references, errors, before = DownlinkCoder(0.5), {}, [], THETA
    for k, theta in enumerate(model_path(steps=60)):
        packets = model_packets(FLEET, theta, k)
        frames, references = coder.encode(packets, FLEET, references, held(k))
        errors.append(float((theta - references[0].theta).norm()))
        assert k == 0 or len(frames[0]) < D
        assert k == 0 or errors[k] <= 0.5 * (errors[k - 1] + float((theta - before).norm())) + 1e-5
        before = theta
    assert errors[0] <= MAX_MODEL_ERROR * float(THETA.norm())
    assert max(errors) > 20 * errors[-1]


def test_the_first_model_takes_about_eight_bits_per_coordinate():
    fleet, theta = aquila.Fleet.uniform(50_000, 2), Key((3,)).normal(torch.zeros(50_000)).float()
    frames, after = DownlinkCoder(0.9).encode(model_packets(fleet, theta, 0), fleet, {}, held(0))
    assert frames[0] is frames[1]
    assert 7.5 < 8 * len(frames[0]) / 50_000 < 9
    assert torch.equal(after[0].theta, unpack(frames[0]).vector.decode())
    assert 0 < float((after[0].theta - theta).norm()) <= MAX_MODEL_ERROR * float(theta.norm())


def test_a_first_model_that_coding_does_not_shrink_is_sent_whole():
    fleet, theta = aquila.Fleet.uniform(1, 1), torch.ones(1)
    frames, after = DownlinkCoder(0.5).encode(model_packets(fleet, theta, 0), fleet, {}, held(0))
    assert torch.equal(unpack(frames[0]).vector.values, theta)
    assert after[0].checksum == unpack(frames[0]).refers_to


def test_group_without_devices_in_step_gets_a_model_as_exact_as_a_difference():
    coder = DownlinkCoder(0.5)
    old = {0: with_checksum(THETA + 1), 1: with_checksum(THETA[: D // 2] + 1)}
    packets = model_packets(FLEET, THETA, 5)
    frames, references = coder.encode(packets, FLEET, old, held(5, {0}.__contains__))
    assert not torch.equal(references[0].theta, THETA)
    bound = min(MAX_MODEL_ERROR * THETA[: D // 2].norm(), 0.5 * (D // 2) ** 0.5)
    assert 0 < (references[1].theta - THETA[: D // 2]).norm() <= bound
    assert torch.equal(unpack(frames[3]).vector.decode(), references[1].theta)
    assert unpack(frames[3]).refers_to == NO_BASE


@pytest.mark.parametrize("change", [1e-3, 1e-6, 1e-9])
@pytest.mark.parametrize("largest", [1, 1e4])
def test_coded_models_get_more_exact_as_the_steps_shrink(change, largest):
    fleet, theta = aquila.Fleet.uniform(D, 1), THETA.double()
    theta[0] = largest
    base = {0: with_checksum(theta + change)}
    coder = DownlinkCoder(0.5)
    _, after = coder.encode(model_packets(fleet, theta, 5), fleet, base, held(5, lambda _: False))
    assert (after[0].theta - theta).norm() <= 0.5 * change * D**0.5 * (1 + 1e-6)


def test_unchanged_model_reaches_new_devices_exactly():
    fleet, base = aquila.Fleet.uniform(D, 1), {0: with_checksum(THETA)}
    packets = model_packets(fleet, THETA, 5)
    frames, after = DownlinkCoder(0.5).encode(packets, fleet, base, held(5, lambda _: False))
    assert torch.equal(after[0].theta, THETA)
    assert torch.equal(resolve(unpack(frames[0]), []).theta, THETA)


def test_few_devices_out_of_step_get_the_whole_model():
    fleet = aquila.Fleet.uniform(D, 9)
    packets = model_packets(fleet, THETA, 5)
    base = {0: with_checksum(THETA + 1)}
    frames, references = DownlinkCoder(0.5).encode(
        packets, fleet, base, held(5, lambda device: device > 0)
    )
    assert torch.equal(unpack(frames[0]).vector.values, references[0].theta)
    assert unpack(frames[0]).refers_to == references[0].checksum
    assert unpack(frames[1]).refers_to == base[0].checksum


def test_a_group_that_joins_late_gets_the_model_of_the_round():
    """Also if it took part in an earlier round."""
    first = {d: order for d, order in model_packets(FLEET, THETA, 5).items() if d < 3}
    late = {d: order for d, order in model_packets(FLEET, THETA, 5).items() if d >= 3}
    old = {0: with_checksum(THETA + 1), 1: with_checksum(THETA[: D // 2] + 1)}
    coder = DownlinkCoder(0.5)
    _, references = coder.encode(first, FLEET, old, held(5))
    frames, after = coder.encode_late(late, FLEET, references, held(5))
    assert torch.equal(unpack(frames[3]).vector.values, THETA[: D // 2])
    assert torch.equal(after[1].theta, THETA[: D // 2])


def test_unchanged_model_takes_a_few_bytes():
    references = {0: with_checksum(THETA), 1: with_checksum(THETA[: D // 2])}
    packets = model_packets(FLEET, THETA, 5)
    frames, after = DownlinkCoder(0.5).encode(packets, FLEET, references, held(5))
    assert len(frames[0]) < 70
    assert torch.equal(after[0].theta, THETA)


def test_difference_larger_than_the_model_is_not_sent():
    fleet, theta = aquila.Fleet.uniform(1, 1), torch.ones(1)
    packets = model_packets(fleet, theta, 1)
    frames, after = DownlinkCoder(0.5).encode(
        packets, fleet, {0: with_checksum(theta * 2)}, lambda _: True
    )
    assert torch.equal(unpack(frames[0]).vector.decode(), theta)
    assert after[0].checksum == unpack(frames[0]).refers_to


def test_loaded_references_have_the_same_checksums():
    references = {0: with_checksum(THETA), 1: with_checksum(THETA[: D // 2])}
    arrays = references_to_arrays(references)
    again = references_from_arrays({"round": THETA.numpy(), **arrays}, FLEET, THETA)
    assert {g: reference.checksum for g, reference in again.items()} == {
        g: reference.checksum for g, reference in references.items()
    }
    arrays["reference.1"] = arrays["reference.0"]
    with pytest.raises(ValueError, match=r"reference\.1 has shape \(200,\), not \(100,\)"):
        references_from_arrays(arrays, FLEET, THETA)


@pytest.mark.parametrize("error", [-0.1, 1.0, float("nan")])
def test_invalid_downlink_errors_are_rejected(error):
    with pytest.raises(
        ValueError, match=f"downlink_error must be at least 0 and below 1, not {error}"
    ):
        DownlinkCoder(error)
