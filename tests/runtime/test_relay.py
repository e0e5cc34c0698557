"""Uploads of earlier rounds that tell devices how the model has changed."""

from dataclasses import replace

import pytest
import torch

from aquila.core.fleet import Fleet
from aquila.core.method import order_scalars
from aquila.core.packet import NEVER, Codes, Dense, Packet, RelayedUploads, WireError
from aquila.core.random import Key
from aquila.core.wire import pack, unpack
from aquila.runtime.frame_spool import in_memory
from aquila.runtime.model_downlink import DownlinkCoder, add_models
from aquila.runtime.reference import resolve_model, with_checksum
from aquila.runtime.relay import (
    REPLY_BYTES,
    ROUND_BYTES,
    Relay,
    RoundUploads,
    pack_rounds,
)
from aquila.runtime.saved_references import (
    references_from_arrays,
    references_to_arrays,
    uploads_from_arrays,
    uploads_to_arrays,
)
from aquila.runtime.upload_keeper import UploadKeeper

D = 400
FLEET = Fleet.uniform(D, 4)
THETA = Key((1,)).uniform(torch.zeros(D))


def read(frame):
    return unpack(frame).vector.decode()


def relay_of(uploads, misfits=None):
    return Relay(uploads, read, [].append if misfits is None else misfits.append)


def upload(*key):
    """Return the frame of a sparse upload."""
    codes = (Key(key).uniform(torch.zeros(D)) < 0.02).to(torch.uint8) + 1
    return pack(Packet(3, Codes(codes, 2, torch.tensor([-0.5]), torch.tensor([0.5]), D)))


def uploads_of(round_number, weights=(1.0, 1.0)):
    frames = tuple(upload(round_number, device) for device in range(len(weights)))
    return RoundUploads(tuple(weights), frames)


def stepped(theta, uploads, alpha=0.1):
    total = sum(w * read(f).double() for w, f in zip(uploads.weights, uploads.frames, strict=True))
    return (theta - alpha * total / sum(uploads.weights)).to(theta.dtype)


def order_of(theta, round_number):
    return Packet(round_number, Dense(theta))


def relayed_path(rounds, theta=THETA):
    """Return the order and the reference of each round."""
    reference, path = with_checksum(theta), []
    for k in range(1, rounds + 1):
        uploads = uploads_of(k, (1.0, 3.0))
        theta = stepped(theta, uploads)
        order = order_of(theta, k)
        reference = relay_of(uploads).next_reference(order, reference)
        path.append((order, reference))
    return path


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("weights", [(1.0, 1.0), (1.0, 2.5, 7.0), (3.0,)])
def test_uploads_tell_a_step_along_their_mean(dtype, weights):
    base, uploads = with_checksum(THETA.to(dtype)), uploads_of(1, weights)
    order = order_of(stepped(base.theta, uploads), 1)
    reference = relay_of(uploads).next_reference(order, base)
    error = (reference.theta - order.vector.values).norm()
    assert error <= 4 * torch.finfo(dtype).eps * order.vector.values.norm()
    packet = unpack(pack_rounds(order, reference, 1))
    assert packet.refers_to == base.checksum
    resolved = resolve_model(packet, [base], read)
    assert resolved.theta.numpy().tobytes() == reference.theta.numpy().tobytes()
    assert resolved.checksum == reference.checksum


def test_a_change_that_uploads_do_not_tell_is_not_relayed():
    base, uploads = with_checksum(THETA), uploads_of(1)
    order = order_of(stepped(THETA, uploads) + 0.01 * torch.ones(D), 1)
    assert relay_of(uploads).next_reference(order, base) is None
    assert relay_of(RoundUploads()).next_reference(order, base) is None
    packets = add_models(order_scalars(FLEET), order.vector.values, FLEET, 1)
    for error, reported in ((0.0, [1]), (0.5, [])):
        misfits = []
        relay = relay_of(uploads, misfits)
        _, after = DownlinkCoder(error).encode(packets, FLEET, {0: base}, lambda _: 0, relay)
        assert after[0].rounds == ()
        assert misfits == reported


def test_an_unchanged_model_needs_no_uploads():
    base, order = with_checksum(THETA), order_of(THETA, 1)
    reference = relay_of(RoundUploads()).next_reference(order, base)
    assert torch.equal(reference.theta, THETA)
    assert len(pack_rounds(order, reference, 1)) < 40


@pytest.mark.parametrize("missed", [1, 2, 3, 4])
def test_a_device_that_missed_rounds_gets_all_uploads_since_its_model(missed):
    path = relayed_path(4)
    order, reference = path[-1]
    held = with_checksum(THETA) if missed == 4 else path[-1 - missed][1]
    packet = unpack(pack_rounds(order, reference, missed))
    assert len(packet.vector.rounds) == missed
    resolved = resolve_model(packet, [held], read)
    assert resolved.theta.numpy().tobytes() == reference.theta.numpy().tobytes()
    # a device that holds a later model than the server knows skips the first rounds
    later = path[-2][1]
    assert resolve_model(packet, [held, later], read).checksum == reference.checksum
    assert resolve_model(packet, [with_checksum(THETA + 1)], read) is None


def test_each_device_gets_what_takes_the_fewest_bytes():
    (_, base), (order, _) = relayed_path(2)
    packets = add_models(order_scalars(FLEET), order.vector.values, FLEET, 2)
    relay = relay_of(uploads_of(2, (1.0, 3.0)))
    rounds = {0: 1, 1: 0, 2: NEVER, 3: 1}
    frames, references = DownlinkCoder(0.0).encode(
        packets, FLEET, {0: base}, rounds.__getitem__, relay
    )
    assert frames[0] is frames[3]
    assert len(unpack(frames[0]).vector.rounds) == 1
    assert len(unpack(frames[1]).vector.rounds) == 2
    assert isinstance(unpack(frames[2]).vector, Dense)
    models = {
        0: resolve_model(unpack(frames[0]), [base], read),
        1: resolve_model(unpack(frames[1]), [with_checksum(THETA)], read),
        2: resolve_model(unpack(frames[2]), [], read),
    }
    assert {model.checksum for model in models.values()} == {references[0].checksum}


def test_rounds_that_take_more_bytes_than_the_model_are_forgotten():
    path = relayed_path(60)
    order, reference = path[-1]
    count = len(reference.rounds)
    assert 1 < count < 60
    assert 0.8 * 4 * D < len(pack_rounds(order, reference, count)) <= 4 * D


def test_rounds_without_uploads_are_forgotten_after_a_while():
    reference = with_checksum(THETA)
    for k in range(1, 100):
        order = order_of(THETA, k)
        reference = relay_of(RoundUploads()).next_reference(order, reference)
    assert len(pack_rounds(order, reference, len(reference.rounds))) <= 4 * D


def test_a_coded_difference_ends_the_rounds():
    _, base = relayed_path(1)[0]
    packets = add_models(order_scalars(FLEET), base.theta + THETA.flip(0), FLEET, 2)
    relay = relay_of(uploads_of(2))
    _, references = DownlinkCoder(0.5).encode(packets, FLEET, {0: base}, lambda _: 1, relay)
    assert not torch.equal(references[0].theta, base.theta)
    assert references[0].rounds == ()


def test_devices_must_hold_the_same_coordinates():
    fleet = Fleet(D, [0, 1], [None, torch.arange(D // 2)])
    assert not UploadKeeper(False, fleet, unpack).relay
    with pytest.raises(ValueError, match="all hold the whole model"):
        UploadKeeper(True, fleet, unpack)


def test_uploads_above_a_limit_are_not_kept():
    replies = [(1.0, in_memory(b"abc")), (2.0, in_memory(b"defg"))]
    most = ROUND_BYTES + 2 * REPLY_BYTES + 7
    assert RoundUploads.within(replies, most) == RoundUploads((1.0, 2.0), (b"abc", b"defg"))
    assert RoundUploads.within(replies, most - 1) is None
    assert RoundUploads.within([], most) == RoundUploads()


def test_rounds_and_uploads_are_saved():
    uploads, (_, reference) = uploads_of(7, (1.0, 3.0)), relayed_path(3)[-1]
    arrays = uploads_to_arrays(uploads) | references_to_arrays({0: reference})
    assert uploads_from_arrays(arrays) == uploads
    again = references_from_arrays(arrays, FLEET, THETA)[0]
    assert (again.checksum, again.rounds) == (reference.checksum, reference.rounds)
    assert uploads_from_arrays({}) is uploads_from_arrays(uploads_to_arrays(None)) is None
    assert uploads_from_arrays(uploads_to_arrays(RoundUploads())) == RoundUploads()
    silent = {0: replace(reference, rounds=())}
    assert references_from_arrays(references_to_arrays(silent), FLEET, THETA)[0].rounds == ()


def test_uploads_that_lead_to_infinite_models_are_refused():
    base, uploads = with_checksum(THETA), uploads_of(1)
    order = order_of(stepped(THETA, uploads), 1)
    reference = relay_of(uploads).next_reference(order, base)
    broken = replace(reference, rounds=(replace(reference.rounds[0], factor=1e300),))
    with pytest.raises(WireError, match="not finite"):
        resolve_model(unpack(pack_rounds(order, broken, 1)), [base], read)


@pytest.mark.parametrize(("devices", "is_relayed"), [(4, True), (400, False)])
def test_new_devices_get_whole_models_if_all_will_follow_later(devices, is_relayed):
    """In a large fleet, a device takes part again only after its model is too old."""
    fleet, (_, base) = Fleet.uniform(D, devices), relayed_path(1)[0]
    uploads = uploads_of(2)
    packets = add_models(order_scalars(fleet, [0, 1, 2]), stepped(base.theta, uploads), fleet, 2)
    rounds = {0: 1, 1: NEVER, 2: NEVER}
    frames, after = DownlinkCoder(0.5).encode(
        packets, fleet, {0: base}, rounds.__getitem__, relay_of(uploads)
    )
    assert isinstance(unpack(frames[0]).vector, RelayedUploads) == is_relayed
    assert isinstance(unpack(frames[1]).vector, Dense if is_relayed else Codes)
    assert len(after[0].rounds) == (2 if is_relayed else 0)


def test_rounds_that_do_not_follow_each_other_are_not_applied():
    path = relayed_path(3)
    order, reference = path[-1]
    first, second, third = reference.rounds
    broken = replace(reference, rounds=(first, replace(second, base=77), third))
    packet, base = unpack(pack_rounds(order, broken, 3)), with_checksum(THETA)
    assert resolve_model(packet, [base], read) is None
    assert resolve_model(packet, [base, path[-2][1]], read).checksum == reference.checksum


def test_uploads_for_another_model_are_refused():
    (order, reference), base = relayed_path(1)[0], with_checksum(THETA)
    packet = unpack(pack_rounds(order, reference, 1))
    with pytest.raises(WireError, match="another number of coordinates"):
        resolve_model(packet, [base], lambda frame: read(frame)[:1])
    for relayed in (
        replace(packet.vector, dimension=D + 1),
        replace(packet.vector, dtype=torch.float64),
    ):
        with pytest.raises(WireError, match=r"another dimension|float64, but its model"):
            resolve_model(replace(packet, vector=relayed), [base], read)


def test_a_device_that_joins_a_round_late_gets_the_uploads_since_its_model():
    (_, held), (order, reference) = relayed_path(2)
    packets = add_models(order_scalars(FLEET), order.vector.values, FLEET, 2)
    rounds = {0: 1, 1: 0, 2: NEVER, 3: 1}
    frames, after = DownlinkCoder(0.0).encode_late(
        packets, FLEET, {0: reference}, rounds.__getitem__
    )
    assert after == {0: reference}
    assert [len(frame) < D for frame in frames.values()] == [True, True, False, True]
    assert resolve_model(unpack(frames[0]), [held], read).checksum == reference.checksum
