"""A server that keeps frames instead of decoded replies takes the same steps."""

from functools import partial

import pytest
import torch

import aquila
from aquila.core.packet import StoredUpload
from aquila.runtime.device_session import DeviceSession
from aquila.runtime.frame_spool import FrameSpool
from aquila.runtime.norm_limit import NormLimit
from aquila.runtime.options import RunOptions
from aquila.runtime.reply_archive import FolderArchive
from aquila.runtime.server_session import ServerSession
from aquila.runtime.services import Services, no_spool
from aquila.sim.oracle import as_shard

D, DEVICES = 40_000, 3


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
    "codes": ("laq", {}, None),
    "buckets": ("qsgd", {}, None),
    "dithered": ("aquila_dither", {}, None),
    "dense": ("fedsgd", {}, None),
    "tensors": ("powersgd", {}, None),
    "median": ("qsgd", {"upload_limit": "median"}, None),
    "clip": ("qsgd", {}, NormLimit(100.0, "clip")),
    "private": ("fedsgd", {"dp_clip": 1.0, "dp_noise": 1.0}, None),
}


@pytest.mark.parametrize("case", CASES)
def test_kept_frames_give_the_same_bits_as_decoded_replies(case, tmp_path):
    name, options, limit = CASES[case]
    options = RunOptions(**options)
    decoded, _ = run(name, tmp_path / "decoded", no_spool, options, limit)
    spool = partial(FrameSpool, tmp_path, max_memory_bytes=1000)
    spooled, kept = run(name, tmp_path / "spooled", spool, options, limit)
    assert torch.equal(spooled.theta, decoded.theta)
    assert spooled.guard.health == decoded.guard.health
    assert spooled.acks == decoded.acks
    assert {type(upload) for upload in kept if upload is not None} == {StoredUpload}
    assert not list(tmp_path.glob("tmp*"))
