"""A round gives the same bits if uploads are kept as frames, and if threads receive them."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
import torch

import aquila
from aquila.core.fleet import Fleet
from aquila.core.packet import Codes, Packet, SparseCodes, StoredUpload, WireError
from aquila.core.quantize import shared_dither, sparse
from aquila.core.random import Key
from aquila.core.wire import pack, unpack
from aquila.runtime.frame_spool import FrameSpool
from aquila.runtime.server_session import ServerSession
from aquila.runtime.services import Services, no_spool
from aquila.runtime.waiting_uploads import WaitingUploads

DEVICES, DIMENSION = 6, 20_000


def upload(device):
    v = torch.randn(DIMENSION, generator=Key((1, device)).torch()) ** 3
    return shared_dither(v, 0.01, Key((2, device))) if device % 2 else sparse(v, 0.01)


def closed_session(limit, receive_all, new_spool=no_spool):
    """Return a session after a round in which `receive_all` delivered the replies."""
    method = aquila.create("aquila_dither", alpha=0.1)
    session = ServerSession(
        method, torch.zeros(DIMENSION), Fleet.uniform(DIMENSION, DEVICES), seed=0,
        services=Services(new_spool=new_spool),
    )  # fmt: skip
    orders = session.open_round()
    session._open.uploads.limit = limit
    receive_all(
        lambda device: session.receive(
            device, pack(Packet(0, upload(device), refers_to=orders[device].checksum))
        )
    )
    return session, session.close_round()


def one_by_one(receive):
    for device in range(DEVICES):
        receive(device)


def on_threads(receive):
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(receive, reversed(range(DEVICES))))


@pytest.mark.parametrize("limit", [0, 4000, 2**30])
@pytest.mark.parametrize("receive_all", [one_by_one, on_threads])
@pytest.mark.parametrize("in_file", [False, True])
def test_model_does_not_depend_on_the_place_or_on_threads(limit, receive_all, in_file, tmp_path):
    expected, _ = closed_session(2**30, one_by_one)
    spool = partial(FrameSpool, tmp_path, max_memory_bytes=100) if in_file else no_spool
    session, replies = closed_session(limit, receive_all, spool)
    assert session.theta.equal(expected.theta)
    assert session.state.q_bar.equal(expected.state.q_bar)
    stored = [isinstance(reply.vector, StoredUpload) for reply in replies.values()]
    assert (any(stored), all(stored)) == (limit < 2**30, limit == 0)


def test_stored_codes_have_the_dimension_and_the_vector_of_their_frame():
    codes = upload(0)
    sparse_codes = SparseCodes(
        (codes.codes != 127).nonzero().flatten(), codes.codes[codes.codes != 127], 127,
        DIMENSION, codes.bits, codes.low, codes.step,
    )  # fmt: skip
    frame = pack(Packet(0, codes))
    reply, read_frame = WaitingUploads(limit=0).keep(Packet(0, sparse_codes), frame, unpack)
    stored = reply.vector
    assert isinstance(stored, StoredUpload)
    assert read_frame() == frame
    assert (stored.dimension, stored.bits) == (DIMENSION, codes.bits)
    assert stored.decode().equal(sparse_codes.decode())


def test_other_uploads_are_kept_as_they_are_without_a_spool():
    keep = WaitingUploads(limit=0).keep
    for vector in (None, Codes(torch.zeros(3), 2, torch.zeros(1), torch.ones(1), 3)):
        assert keep(Packet(0, vector), b"", unpack)[0].vector is vector


def test_stored_frame_without_upload_is_refused():
    codes = SparseCodes(
        torch.tensor([1]), torch.tensor([2]), 1, 9, 2, torch.zeros(1), torch.ones(1)
    )
    reply, _ = WaitingUploads(limit=0).keep(Packet(0, codes), pack(Packet(0)), unpack)
    with pytest.raises(WireError, match="no upload"):
        reply.vector.decode()
