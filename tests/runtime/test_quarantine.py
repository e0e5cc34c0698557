"""One bad device does not end a run: it is replaced, put into quarantine, and tried again later."""

import math

import pytest
import torch

import aquila
from aquila import RunOptions
from aquila.core.packet import Dense, Packet, WireError
from aquila.core.wire import pack
from aquila.runtime.fleet_health import LONGEST_QUARANTINE, FleetHealth
from aquila.runtime.nan_guard import NonFiniteError
from aquila.runtime.persist import restore_server, server_to_bytes
from aquila.runtime.sample_limit import limit_samples
from aquila.runtime.server_session import ServerSession
from helpers.problems import ridge

PROBLEM = ridge(devices=6, dimension=20)
METHOD = aquila.create("fedsgd", alpha=0.5 / PROBLEM.smoothness())


def broken(theta):
    return math.nan, theta


def devices(*bad):
    return [broken if m in bad else local for m, local in enumerate(PROBLEM.devices)]


def train(made, rounds, **options):
    return aquila.simulate(METHOD, torch.zeros(20), made, rounds, options=RunOptions(**options))


def run(made, rounds=8, **options):
    return train(made, rounds, **options).records


def same_optimum(*bad):
    """Six devices whose losses all have their minimum at 1."""

    def good(theta):
        return float((theta - 1).square().sum()), theta - 1

    return [broken if m in bad else good for m in range(6)]


def test_one_nan_device_does_not_end_a_run_with_small_participation(caplog):
    result = train(same_optimum(2), rounds=30, participation=0.2)
    records = result.records
    assert len(records) == 30
    assert all(record.uploads == 1 for record in records)  # another device took its place
    assert (result.theta - 1).abs().max() < 0.1
    assert sum(record.lost for record in records) in (1, 2, 3, 4, 5)  # 1 order per failure
    assert "device 2 is in quarantine for 1 round after round" in caplog.text
    assert "the loss is nan" in caplog.text


def test_quarantine_doubles_and_is_recorded():
    records = run(devices(2), rounds=9)
    tried = [record.round for record in records if record.lost]
    assert tried == [0, 2, 5]
    assert [record.quarantined for record in records] == [
        [2], None, [2], [2], None, [2], [2], [2], [2],
    ]  # fmt: skip


def test_quarantine_has_a_longest_time_and_ends_with_success():
    health = FleetHealth.of(2)
    for _ in range(40):
        health = health.after_round(100, {1: "NaN"}, [0])
    assert health.quarantined(100 + LONGEST_QUARANTINE) == (1,)
    assert health.quarantined(101 + LONGEST_QUARANTINE) == ()
    health = health.after_round(200, {}, [1]).after_round(201, {1: "NaN"}, [])
    assert health.until[1] == 203


def test_run_ends_if_every_device_fails():
    with pytest.raises(NonFiniteError, match="device 0, round 0: the loss is nan"):
        run(devices(*range(6)))
    with pytest.raises(NonFiniteError, match="the loss is nan"):
        run(devices(*range(6)), rounds=20, participation=0.2)


def test_devices_in_quarantine_take_part_if_no_other_is_left():
    broken_rounds = {0: {0}, 1: {2}}
    calls = {0: 0, 1: 0}

    def flaky(number):
        def local(theta):
            calls[number] += 1
            good = calls[number] - 1 not in broken_rounds[number]
            return PROBLEM.devices[number](theta) if good else broken(theta)

        return local

    records = run([flaky(0), flaky(1)], rounds=6)
    assert [record.uploads for record in records] == [1, 1, 1, 1, 2, 2]


def test_runs_without_failures_have_no_new_fields(tmp_path):
    options = RunOptions(out=tmp_path)
    aquila.simulate(METHOD, torch.zeros(20), PROBLEM.devices, 2, options=options)
    text = (tmp_path / "records.jsonl").read_text()
    assert not any(n in text for n in ("rejected", "quarantined", "epsilon", "delta"))


def test_query_for_losses_puts_a_device_into_quarantine():
    records = run(devices(2), selection="pow_d", participation=0.5, candidates=6)
    assert records[0].quarantined == [2]
    assert [record.uploads for record in records] == [3] * 8


@pytest.mark.parametrize("error", [0.0, 0.1])
def test_replacements_compute_at_the_same_model(error):
    models = []

    def noting(theta):
        models.append(theta.clone())
        return 1.0, theta - torch.arange(20)

    made = [broken if m == 2 else noting for m in range(6)]
    result = train(made, rounds=12, participation=0.5, downlink_error=error)
    assert [record.uploads for record in result.records] == [3] * 12
    for first in range(0, 36, 3):
        assert torch.equal(models[first], models[first + 1])
        assert torch.equal(models[first], models[first + 2])


def test_quarantine_survives_a_checkpoint(tmp_path):
    whole = run(devices(2), rounds=9)
    options = RunOptions(out=tmp_path, checkpoint_every=1)
    aquila.simulate(METHOD, torch.zeros(20), devices(2), 4, options=options)
    resumed = aquila.simulate(
        METHOD, torch.zeros(20), devices(2), 9, options=RunOptions(out=tmp_path, resume=True)
    )
    assert resumed.records == whole


def test_quarantine_survives_the_file_of_a_server():
    fleet = aquila.Fleet.uniform(2, 5)
    first, second = (ServerSession(METHOD, torch.zeros(2), fleet, 0) for _ in range(2))
    orders = first.open_round()
    for device in (1, 2, 3, 4):
        vector = Dense(torch.full((2,), float(device)))
        first.receive(device, pack(Packet(0, vector, refers_to=orders[device].checksum)))
    first.report_failure(0, "NaN")
    first.close_round()
    restore_server(second, server_to_bytes(first))
    assert second.guard.health == first.guard.health
    assert sorted(second.open_round()) == [1, 2, 3, 4]


@pytest.mark.parametrize("value", [1e308, -1e308])
def test_scalars_that_overflow_averages_are_refused(value):
    server = ServerSession(METHOD, torch.zeros(2), aquila.Fleet.uniform(2, 2), 0)
    order = server.open_round()[0]
    reply = Packet(0, Dense(torch.ones(2)), {"loss": value}, refers_to=order.checksum)
    with pytest.raises(WireError, match=r"device 0 sent loss = .*is 1e\+150"):
        server.receive(0, pack(reply))


def test_loss_that_overflows_averages_counts_as_not_finite():
    records = run([lambda theta: (1e308, theta), *PROBLEM.devices[1:]])
    assert records[0].quarantined == [0]
    assert records[0].loss < 1e6


def test_reported_samples_are_limited(caplog):
    assert limit_samples([10, 20, 30, 10**9], 10) == [10, 20, 30, 250]
    assert "device 3 reports 1000000000 samples; 250 count" in caplog.text
    assert limit_samples([10, 20, 30, 200], 10) == [10, 20, 30, 200]
    assert limit_samples([0, -7, 30, 2**62], float("inf")) == [1, 1, 30, 2**62]
