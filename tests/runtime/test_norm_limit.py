"""Uploads above the norm limit are rejected or clipped."""

import math

import pytest
import torch

import aquila
from aquila.core.packet import Codes, Dense, Packet, WireError
from aquila.core.wire import pack
from aquila.runtime.device_session import DeviceSession
from aquila.runtime.norm_limit import NormLimit
from aquila.runtime.server_session import ServerSession
from aquila.sim.oracle import as_shard

LARGE = torch.tensor([3.0, 4.0])


def server_of(method: str, limit: NormLimit) -> ServerSession:
    created = aquila.create(method, alpha=1.0)
    return ServerSession(created, torch.zeros(2), aquila.Fleet.uniform(2, 2), seed=0, limit=limit)


def reply_to(server: ServerSession, device: int, vector) -> bytes:
    order = server.open_round()[device]
    return pack(Packet(server.round, vector, refers_to=order.checksum))


def test_upload_within_the_limit_is_applied_unchanged():
    server = server_of("fedsgd", NormLimit(5.0))
    server.receive(0, reply_to(server, 0, Dense(LARGE)))
    server.close_round()
    assert server.theta.tolist() == [-3.0, -4.0]


def test_upload_above_the_limit_is_rejected_and_changes_nothing():
    server = server_of("fedsgd", NormLimit(4.9))
    with pytest.raises(WireError, match=r"device 0 has norm 5, but the limit is 4\.9"):
        server.receive(0, reply_to(server, 0, Dense(LARGE)))
    server.receive(0, reply_to(server, 0, Dense(LARGE / 5)))  # the device may send another one
    server.close_round()
    assert torch.allclose(server.theta, -LARGE / 5)


def test_upload_above_the_limit_is_clipped_without_memory():
    server = server_of("fedsgd", NormLimit(2.5, "clip"))
    server.receive(0, reply_to(server, 0, Dense(LARGE)))
    server.close_round()
    assert torch.allclose(server.theta, -LARGE / 2)


def test_norm_of_codes_is_that_of_the_decoded_vector():
    codes = Codes(torch.tensor([0, 3], dtype=torch.uint8), 2, LARGE[:1] * 0, LARGE[:1], 2)
    server = server_of("qsgd", NormLimit(8.9))
    with pytest.raises(WireError, match="norm 9"):
        server.receive(0, reply_to(server, 0, codes))


def test_methods_with_memory_cannot_clip():
    with pytest.raises(ValueError, match=r"cannot be clipped.*; use the policy reject"):
        server_of("aquila", NormLimit(1.0, "clip"))


def test_device_rolls_back_a_rejected_innovation():
    """q̄ stays the mean of the memories although every upload of one device is rejected."""
    method = aquila.create("aquila", alpha=0.1, b_min=4)
    gradients = [torch.tensor([1.0, 1.0]), torch.tensor([50.0, 0.0])]
    devices = [
        DeviceSession(method, m, as_shard(lambda theta, g=g: (1.0, g + 0.01 * theta)), g, seed=0)
        for m, g in enumerate(gradients)
    ]
    fleet = aquila.Fleet.uniform(2, 2)
    server = ServerSession(method, torch.zeros(2), fleet, seed=0, limit=NormLimit(10.0))
    rejected = 0
    for _ in range(5):
        for device, order in server.open_round().items():
            try:
                server.receive(device, devices[device].handle(order))
            except WireError:
                rejected += 1
        server.close_round()
        for session in devices:
            session.apply_ack(server.acks[session.device])
        mean = (devices[0].state.q + devices[1].state.q) / 2
        assert torch.allclose(server.state.q_bar.float(), mean, atol=1e-6)
    assert rejected == 5
    assert not devices[1].state.q.any()


@pytest.mark.parametrize("norm", [0.0, -1.0, math.nan])
def test_limit_must_be_positive(norm):
    with pytest.raises(ValueError, match="must be above 0"):
        NormLimit(norm)


def test_unknown_policy_is_rejected():
    with pytest.raises(ValueError, match="one of reject, clip, not 'scale'"):
        NormLimit(1.0, "scale")
