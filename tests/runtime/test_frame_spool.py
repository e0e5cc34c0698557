"""A server that keeps frames instead of decoded replies takes the same steps."""

from functools import partial

import pytest
import torch

import aquila
from aquila.runtime.device_session import DeviceSession
from aquila.runtime.frame_spool import FrameSpool
from aquila.runtime.norm_limit import NormLimit
from aquila.runtime.options import RunOptions
from aquila.runtime.reply_archive import FolderArchive
from aquila.runtime.server_session import ServerSession
from aquila.runtime.services import Services
from aquila.runtime.stored_upload import ScaledUpload, SparseUpload, StoredUpload
from aquila.sim.oracle import as_shard

D, DEVICES = 40_000, 3
"""More coordinates than one block."""


def run(name, folder, new_spool, options=RunOptions(), limit=None, rounds=3):
    """Return the server after some rounds, and the uploads that it kept."""
    method, theta = aquila.create(name, alpha=0.1), torch.zeros(D)

    def new_device(m):
        target = torch.randn(D, generator=torch.Generator().manual_seed(m)) * (m + 1)
        shard = as_shard(lambda theta: (float(theta @ theta), theta - target))
        return DeviceSession(method, m, shard, theta, seed=0)

    devices = [new_device(m) for m in range(DEVICES)]
    server = ServerSession(
        method, theta, aquila.Fleet.uniform(D, DEVICES), 0, options,
        archive=FolderArchive(folder), limit=limit, services=Services(new_spool=new_spool),
    )  # fmt: skip
    kept = []
    for round_number in range(rounds):
        if round_number == 2:
            devices[1] = new_device(1)  # its replies are read from the archive
        for m, order in server.open_round().items():
            server.receive(m, devices[m].handle(order))
        kept += [entry.reply.vector for entry in server._open.received.values()]
        server.close_round()
    return server, kept


CASES = {
    "codes": ("laq", {}, None, StoredUpload),
    "buckets": ("qsgd", {}, None, StoredUpload),
    "sparse": ("aquila_dither", {}, None, StoredUpload),
    "dense": ("fedsgd", {}, None, StoredUpload),
    "tensors": ("powersgd", {}, None, StoredUpload),
    "median": ("qsgd", {"upload_limit": "median"}, None, StoredUpload),
    "clip": ("qsgd", {}, NormLimit(100.0, "clip"), ScaledUpload),
    "private": ("fedsgd", {"dp_clip": 1.0, "dp_noise": 1.0}, None, StoredUpload),
}


@pytest.mark.parametrize("case", CASES)
def test_kept_frames_give_the_same_bits_as_decoded_replies(case, tmp_path):
    name, options, limit, kind = CASES[case]
    options = RunOptions(**options)
    decoded, _ = run(name, tmp_path / "decoded", None, options, limit)
    spool = partial(FrameSpool, tmp_path, max_memory_bytes=1000)
    spooled, kept = run(name, tmp_path / "spooled", spool, options, limit)
    assert torch.equal(spooled.theta, decoded.theta)
    assert spooled.guard.health == decoded.guard.health
    assert spooled.acks == decoded.acks
    assert {type(upload) for upload in kept if upload is not None} == {kind}
    assert not list(tmp_path.glob("tmp*"))


def test_very_sparse_uploads_stay_decoded(tmp_path):
    method = aquila.create("aquila_dither", alpha=0.1, density=0.005)
    theta, fleet = torch.zeros(D), aquila.Fleet.uniform(D, 1)
    services = Services(new_spool=partial(FrameSpool, tmp_path))
    server = ServerSession(method, theta, fleet, 0, services=services)
    device = DeviceSession(method, 0, as_shard(lambda v: (0.0, torch.randn(D))), theta, seed=0)
    server.receive(0, device.handle(server.open_round()[0]))
    upload = server._open.received[0].reply.vector
    assert type(upload) is SparseUpload
    assert upload.dimension == D
    dense = upload.decode()
    assert dense.count_nonzero() == upload.summand().positions.numel()
