"""Runs in which the server passes uploads on to the devices."""

from dataclasses import replace

import pytest
import torch

import aquila
from aquila.core.packet import Dense, RelayedUploads
from aquila.core.wire import unpack
from helpers.problems import ridge

PROBLEM = ridge(devices=5, dimension=600, rows=20)
ALPHA = 0.2 / PROBLEM.smoothness()
ALONG_THE_MEAN = {
    "aquila_peak": {"memory": "none", "density": 0.02},
    "aquila_dither": {"memory": "none", "density": 0.05, "upload_every": 1},
    "topk": {"density": 0.02},
}
ROUNDS = 12

along_the_mean = pytest.mark.parametrize("name", ALONG_THE_MEAN)


def create(name, **more):
    return aquila.create(name, alpha=ALPHA, **ALONG_THE_MEAN.get(name, {}), **more)


def theta0():
    return torch.linspace(-1, 1, PROBLEM.dimension)


def train(method, rounds=ROUNDS, **options):
    given = aquila.RunOptions(**options)
    return aquila.simulate(method, theta0(), PROBLEM.devices, rounds, options=given)


def downlink_of(run):
    return [record.downlink_bytes for record in run.records]


@along_the_mean
@pytest.mark.parametrize("options", [{}, {"server_lr": 0.5, "schedule": "cosine"}])
def test_training_is_the_same_up_to_rounding(name, options):
    whole = train(create(name), **options)
    relayed = train(create(name), relay_uploads=True, **options)
    assert torch.allclose(relayed.theta, whole.theta, rtol=1e-4, atol=1e-5)
    assert downlink_of(relayed)[0] - downlink_of(whole)[0] == 5 * 4  # the name of the model
    assert sum(downlink_of(relayed)[1:]) < 0.5 * sum(downlink_of(whole)[1:])


@along_the_mean
def test_devices_compute_at_the_reference_of_the_server(name):
    """With lost messages and with devices that take part now and then."""
    asked = []

    def device(m):
        def local(theta):
            asked.append(theta.clone())
            return PROBLEM.local(m, theta)

        return local

    options = aquila.RunOptions(
        relay_uploads=True, participation=0.6, uplink_loss=0.2, downlink_loss=0.2
    )
    devices = [device(m) for m in range(5)]
    run = aquila.Simulation(create(name), theta0(), devices, seed=2, options=options)
    missed_rounds = []
    for _ in range(30):
        orders = run.server.open_round()
        vectors = [unpack(order.model).vector for order in orders.values()]
        missed_rounds += [len(v.rounds) for v in vectors if isinstance(v, RelayedUploads)]
        record = run.advance()
        assert record.refused == 0
        assert all(torch.equal(theta, run.server.references[0].theta) for theta in asked)
        asked.clear()
    assert {1, 2, 3} <= set(missed_rounds)


@pytest.mark.parametrize("options", [{}, {"downlink_error": 0.5}, {"participation": 0.6}])
def test_interrupted_run_resumes_bit_for_bit(options, tmp_path):
    options = {"relay_uploads": True, "uplink_loss": 0.2, **options}
    method = create("aquila_peak")
    whole = train(method, **options)
    train(method, 5, out=tmp_path, checkpoint_every=2, **options)
    resumed = train(method, out=tmp_path, resume=True, **options)
    assert resumed.records == whole.records
    assert torch.equal(resumed.theta, whole.theta)


@pytest.mark.parametrize("options", [{"relay_uploads": True}, {"downlink_error": 0.5}])
def test_run_interrupted_in_a_round_resumes_bit_for_bit(options, tmp_path):
    options = {"participation": 0.8, **options}
    method, calls = create("aquila_peak"), []
    whole = train(method, **options)

    def interrupted(m):
        def local(theta):
            calls.append(m)
            if len(calls) == 19:  # in round 4, after two devices
                raise KeyboardInterrupt
            return PROBLEM.local(m, theta)

        return local

    given = aquila.RunOptions(out=tmp_path, checkpoint_every=0, workers=1, **options)
    devices = [interrupted(m) for m in range(5)]
    with pytest.raises(KeyboardInterrupt):
        aquila.simulate(method, theta0(), devices, ROUNDS, options=given)
    resumed = train(method, out=tmp_path, resume=True, **options)
    assert resumed.records == whole.records
    assert torch.equal(resumed.theta, whole.theta)


def test_a_memory_or_a_momentum_needs_whole_or_coded_models(caplog):
    memory = aquila.create("aquila_peak", alpha=ALPHA, density=0.02, memory="device")
    for method, options in ((memory, {}), (create("topk"), {"server_optimizer": "momentum"})):
        relayed = train(method, relay_uploads=True, **options)
        assert downlink_of(relayed)[-1] > 0.9 * downlink_of(train(method, **options))[-1]
        warning = "relay_uploads: some rounds send whole models, because in round"
        assert [r.message.startswith(warning) for r in caplog.records] == [True]
        caplog.clear()
        coded = train(method, relay_uploads=True, downlink_error=0.5, **options)
        assert downlink_of(coded)[-1] < 0.5 * downlink_of(relayed)[-1]
        assert not caplog.records


def test_uploads_larger_than_the_model_are_not_relayed(caplog):
    run = train(aquila.create("fedsgd", alpha=ALPHA), relay_uploads=True)
    assert ["as many bytes as the model" in record.message for record in caplog.records] == [True]
    assert downlink_of(run)[-1] > 5 * 4 * PROBLEM.dimension


def test_rounds_without_uploads_send_a_few_bytes():
    method = create("aquila_peak", upload_every=3)
    run = train(method, relay_uploads=True)
    assert [record.downlink_bytes < 5 * 100 for record in run.records] == [
        k > 0 and k % 3 > 0 for k in range(ROUNDS)
    ]


def test_server_starts_from_the_coded_first_model():
    run = aquila.Simulation(
        create("aquila_peak"), theta0(), PROBLEM.devices,
        options=aquila.RunOptions(relay_uploads=True, downlink_error=0.1),
    )  # fmt: skip
    first = unpack(run.server.open_round()[0].model).vector
    assert not isinstance(first, Dense)
    assert torch.equal(run.theta, first.decode())
    run.advance()
    assert isinstance(unpack(run.server.open_round()[0].model).vector, RelayedUploads)


def test_device_without_its_model_refuses_one_round():
    run = aquila.Simulation(
        create("aquila_peak"), theta0(), PROBLEM.devices,
        options=aquila.RunOptions(relay_uploads=True),
    )  # fmt: skip
    refused = []
    for k in range(6):
        if k == 3:
            run.devices[1].reference = None
        refused.append(run.advance().refused)
    assert refused == [0, 0, 0, 1, 0, 0]


def test_option_is_part_of_the_run(tmp_path):
    options = {"out": tmp_path, "checkpoint_every": 1}
    train(create("topk"), 2, relay_uploads=True, **options)
    with pytest.raises(ValueError, match=r"no relay_uploads \(saved: relay_uploads True\)"):
        train(create("topk"), 3, resume=True, **options)


def test_noise_of_the_server_would_not_protect_relayed_uploads():
    privacy = {"dp_clip": 1.0, "dp_noise": 1.0, "relay_uploads": True}
    with pytest.raises(ValueError, match="set dp_noise_by=devices"):
        aquila.RunOptions(**privacy)
    assert replace(aquila.RunOptions(dp_noise_by="devices", **privacy), dp_noise=2.0).relay_uploads
