"""Uploads above the norm limit are rejected or clipped."""

import math
from functools import cache

import pytest
import torch

import aquila
from aquila.core.packet import Codes, Dense, Packet, WireError
from aquila.core.wire import pack
from aquila.runtime.device_session import DeviceSession
from aquila.runtime.fleet_health import FleetHealth
from aquila.runtime.norm_limit import NormLimit, adaptive_limit, early_limit
from aquila.runtime.server_session import ServerSession
from aquila.sim.oracle import as_shard
from helpers.bad_devices import ATTACKS, softmax_digits, with_bad_devices
from helpers.contract import create
from helpers.problems import ridge

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


# error feedback and memories make uploads vary in size by design
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("fedsgd", {"participation": 0.25}),
        ("topk", {"uplink_loss": 0.4}),
        ("ef_signsgd", {"uplink_loss": 0.4}),
        ("marina", {"participation": 0.25}),
        ("aquila", {"uplink_loss": 0.4}),
        ("aquila_dither", {"participation": 0.25}),
        ("ef21_sgdm", {"uplink_loss": 0.4}),
    ],
)
def test_adaptive_limit_leaves_honest_runs_unchanged(name, options):
    problem = ridge(devices=8, dimension=20)
    method = create(name, problem)
    runs = [
        aquila.simulate(
            method, torch.zeros(20), problem.devices, 40,
            options=aquila.RunOptions(upload_limit=limit, **options),
        )
        for limit in ("adaptive", "none")
    ]  # fmt: skip
    assert runs[0].records == runs[1].records
    assert torch.equal(runs[0].theta, runs[1].theta)


def test_adaptive_limit_needs_four_devices():
    assert adaptive_limit([1.0, 1.0, 0.0, 1.0]) == math.inf
    assert adaptive_limit([1.0, 2.0, 3.0, 4.0, 5.0]) == 30 * 4.0
    assert adaptive_limit([1e300, 1.0, 1.0, 1.0, 1.0]) == 30


def upload_from_all(server, norms):
    for device, order in server.open_round().items():
        vector = Dense(torch.tensor([norms[device], 0.0]))
        server.receive(device, pack(Packet(server.round, vector, refers_to=order.checksum)))
    server.close_round()


@pytest.mark.parametrize("name", ["fedsgd", "lag"])
def test_upload_far_above_those_of_the_fleet_is_rejected(name, caplog):
    fleet = aquila.Fleet.uniform(2, 5)
    server = ServerSession(aquila.create(name, alpha=1.0), torch.zeros(2), fleet, seed=0)
    upload_from_all(server, [1.0, 1.0, 1.0, 1.0, 1e30])
    assert server.guard.rejected == (4,)
    assert -1.0 <= server.theta[0] <= -0.8
    assert server.acks[4].round == -1
    assert sorted(server.open_round()) == [0, 1, 2, 3]
    assert "its upload has norm 1e+30, but the limit of the fleet is 30" in caplog.text


def test_limit_follows_the_norms_of_the_fleet():
    fleet = aquila.Fleet.uniform(2, 5)
    server = ServerSession(aquila.create("fedsgd"), torch.zeros(2), fleet, seed=0)
    for scale in (1.0, 1e3, 1e6):
        upload_from_all(server, [scale] * 5)
        assert server.guard.rejected == ()


def test_uploads_are_clipped_to_the_median_norm():
    options = aquila.RunOptions(upload_limit="median")
    fleet = aquila.Fleet.uniform(2, 5)
    method = aquila.create("fedsgd", alpha=1.0)
    server = ServerSession(method, torch.zeros(2), fleet, 0, options)
    upload_from_all(server, [0.5, 1.0, 1.0, 9.0, 29.0])
    assert server.theta.tolist() == pytest.approx([-0.9, 0.0])
    with pytest.raises(ValueError, match=r"cannot be clipped.*remembers"):
        ServerSession(aquila.create("aquila"), torch.zeros(2), fleet, 0, options)


@cache
def attacked(name, kinds, limit="adaptive", seed=0, participation=1.0):
    """Return the accuracy and the records of a run in which a fifth of the devices are bad."""
    problem = softmax_digits(20)
    devices = with_bad_devices(problem.devices, kinds) if kinds else problem.devices
    run = aquila.simulate(
        aquila.create(name, alpha=1.0), torch.zeros(650), devices, 60, seed,
        options=aquila.RunOptions(upload_limit=limit, participation=participation),
    )  # fmt: skip
    return problem.accuracy(run.theta), run.records


@pytest.mark.parametrize("name", ["fedavg", "topk", "aquila_topk"])
def test_a_fifth_of_bad_devices_costs_at_most_three_points(name):
    honest, _ = attacked(name, ())
    accuracy, records = attacked(name, tuple(ATTACKS))
    assert accuracy > honest - 0.03
    assert records[0].rejected == [7, 12]  # scaled and constant
    assert records[0].quarantined == [7, 12, 17]  # and NaN


@pytest.mark.parametrize("kinds", [("scaled",), tuple(ATTACKS)])
def test_differences_are_not_compared_with_whole_gradients(kinds):
    honest, _ = attacked("marina", ())
    assert attacked("marina", kinds)[0] > honest - 0.03


def test_small_differences_have_the_limit_of_their_round():
    """Norms of earlier differences allow 30, those of the round 0.3."""
    norms = dict.fromkeys(range(4), 0.01)
    health = FleetHealth.of(5).with_norms(dict.fromkeys(range(5), 1.0), True, "coded_norms")
    assert health.excessive({**norms, 4: 1.0}, "coded_norms") == {}
    also_whole = health.with_norms({0: 9.0}, True, "norms")
    assert list(also_whole.excessive({**norms, 4: 1.0}, "coded_norms")) == [4]
    assert also_whole.excessive({**norms, 4: 0.29}, "coded_norms") == {}
    assert also_whole.excessive({0: 0.01, 4: 1.0}, "coded_norms") == {}


@pytest.mark.parametrize("kind", ATTACKS)
def test_each_attack_costs_at_most_three_points(kind):
    assert attacked("fedavg", (kind,))[0] > attacked("fedavg", ())[0] - 0.03


def test_without_a_limit_an_attack_costs_ten_points():
    assert attacked("fedavg", ("constant",), "none")[0] < 0.83


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_fifth_of_bad_devices_costs_little_with_two_devices_per_round(seed):
    """Of the first devices that take part, a half or more may be bad."""
    small = {"seed": seed, "participation": 0.1}
    honest, _ = attacked("fedavg", (), **small)
    assert attacked("fedavg", ("scaled",), **small)[0] > honest - 0.03


def test_early_limit_needs_two_devices_and_ends_with_most_of_the_fleet():
    assert early_limit([1.0] + [0.0] * 19) == math.inf
    assert early_limit([1e30, 1.0] + [0.0] * 18) == 100
    assert early_limit([1e30, 1e30, 2.0, 1.0] + [0.0] * 16) == 200
    assert early_limit([1e30, 1.0, 1.0]) == math.inf  # all of a small fleet
    assert early_limit([1.0] * 31 + [0.0] * 969) == 100
    assert early_limit([1.0] * 32 + [0.0] * 968) == math.inf


def test_early_limit_does_not_compare_differences():
    """Differences of few devices vary more than whole gradients do."""
    health = FleetHealth.of(20).with_norms({0: 9.0}, True, "norms")
    health = health.with_norms({0: 0.001, 1: 1.0}, True, "coded_norms")
    assert health.excessive({1: 1.0}, "coded_norms") == {}
