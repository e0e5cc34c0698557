"""Runs with a link model: simulated time, energy, deadlines and drop-out."""

import math
import re
from dataclasses import replace

import numpy as np
import pytest
import torch

import aquila
from aquila.core.link import DeviceLink
from aquila.runtime.options import RunOptions
from aquila.sim.network import Network
from aquila.sim.records import read_records, to_line
from helpers.problems import ridge

PROBLEM = ridge(devices=4, dimension=8)
METHOD = aquila.create("aquila", alpha=0.3 / PROBLEM.smoothness(), b_min=2)
THETA0 = torch.zeros(8)
LINK = DeviceLink(
    8000, 16000, latency=0.1, compute_time=2, transmit_power=3, receive_power=1, compute_power=0.5
)
SLOW = replace(LINK, compute_time=60)


def model(*links):
    return aquila.LinkModel.constant(links or [LINK] * 4)


def simulate(rounds=6, seed=0, **options):
    return aquila.simulate(
        METHOD, THETA0, PROBLEM.devices, rounds, seed, options=RunOptions(**options)
    )


def without_cost(records):
    return [replace(record, seconds=None, joules=None, late=None) for record in records]


def test_time_and_energy_of_a_round_by_hand():
    run = simulate(rounds=1, link=model(LINK, LINK, LINK, SLOW))
    record = run.records[0]
    down = record.downlink_bytes / 4
    times = [8 * down / 16000 + 0.1 + 2 + 0.1 + 8 * up / 8000 for up in record.uplink.values()]
    times[3] += 58
    assert record.seconds == pytest.approx(max(times))
    joules = sum(8 * down / 16000 + 3 * 8 * up / 8000 for up in record.uplink.values())
    assert record.joules == pytest.approx(joules + 0.5 * (2 + 2 + 2 + 60))
    assert record.late == 0


def test_records_without_a_link_model_are_unchanged():
    plain, timed = simulate(), simulate(link=model())
    assert without_cost(timed.records) == plain.records
    assert torch.equal(plain.theta, timed.theta)
    assert '"seconds"' not in to_line(plain.records[0])
    assert '"late": 0}' in to_line(timed.records[0])


def test_generous_deadline_changes_nothing():
    plain, timed = simulate(), simulate(link=model(), deadline=1000)
    assert without_cost(timed.records) == plain.records
    assert all(record.seconds < 1000 for record in timed.records)


def test_deadline_loses_exactly_the_late_replies():
    run = simulate(rounds=30, link=model(LINK, SLOW, LINK, LINK), deadline=10)
    for record in run.records:
        assert (record.late, record.lost) == (1, 1)
        assert record.seconds == 10
        assert set(record.uplink) == {0, 1, 2, 3}
        assert 1 not in record.levels
    assert run.records[-1].loss < 0.9 * run.records[0].loss
    assert run.records[0].joules > 0.5 * (2 + 2 + 2 + 60)


def test_server_and_devices_agree_although_replies_are_late():
    simulation = aquila.Simulation(
        METHOD, THETA0, PROBLEM.devices, 0,
        RunOptions(link=model(LINK, SLOW, LINK, LINK), deadline=10),
    )  # fmt: skip
    for _ in range(5):
        simulation.advance()
    assert simulation.server.acks[1].round == -1
    assert {ack.round for device, ack in enumerate(simulation.server.acks) if device != 1} == {4}


def test_deadline_at_the_exact_time_is_in_time():
    seconds = simulate(rounds=1, link=model()).records[0].seconds
    assert simulate(rounds=1, link=model(), deadline=seconds).records[0].late == 0
    assert simulate(rounds=1, link=model(), deadline=seconds * 0.99).records[0].late > 0


def test_drop_out_takes_devices_out_of_rounds():
    links = [replace(LINK, drop_out=0.5)] * 4
    run = simulate(rounds=100, link=model(*links))
    lost = sum(record.lost for record in run.records)
    assert 150 < lost < 250
    assert all(len(r.uplink) == 4 - r.lost and r.late == 0 for r in run.records)
    silent = [record for record in run.records if record.lost == 4]
    assert silent
    assert all((record.seconds, record.joules) == (0, 0) for record in silent)


def test_missing_reply_makes_the_server_wait_for_the_deadline():
    lossy = simulate(rounds=20, link=model(), deadline=100, uplink_loss=0.5)
    for record in lossy.records:
        assert (record.seconds == 100) == (record.lost > 0)
        assert record.late == 0


def test_device_without_coverage_takes_no_part():
    record = simulate(rounds=1, link=model(LINK, replace(LINK, uplink_rate=0), LINK, LINK))
    assert set(record.records[0].uplink) == {0, 2, 3}


def test_loss_of_messages_does_not_depend_on_the_link_model():
    plain = simulate(rounds=20, uplink_loss=0.3, downlink_loss=0.2)
    timed = simulate(rounds=20, uplink_loss=0.3, downlink_loss=0.2, link="mixed")
    assert without_cost(timed.records) == plain.records


def test_orders_follow_the_answers_of_the_candidates():
    options = {"participation": 0.5, "selection": "pow_d", "candidates": 4}
    plain = simulate(rounds=1, **options).records[0]
    timed = simulate(rounds=1, link=model(), **options).records[0]
    assert replace(timed, seconds=None, joules=None, late=None) == plain
    whole = simulate(rounds=1, participation=0.5, link=model()).records[0]
    # a candidate receives the model in a query, and two of them again in an order
    order, answer = whole.downlink_bytes / 2, min(timed.uplink.values())
    query = (timed.downlink_bytes - 2 * order) / 4
    waiting = 8 * query / 16000 + 0.2 + 8 * answer / 8000
    training = 8 * order / 16000 + 2.2 + 8 * (max(timed.uplink.values()) - answer) / 8000
    assert timed.seconds == pytest.approx(waiting + training, rel=0.02)
    radio = 8 * timed.downlink_bytes / 16000 + 3 * 8 * timed.uplink_bytes / 8000
    assert timed.joules == pytest.approx(radio + 0.5 * 2 * 2)


@pytest.mark.parametrize("executor", ["sequential", "threads"])
def test_run_follows_from_the_seed(executor):
    options = {"link": "mixed", "fading": "rayleigh", "deadline": 30.0}
    first, second = simulate(**options), simulate(**options, executor=executor)
    assert first.records == second.records
    assert simulate(seed=1, **options).records != first.records


def test_resumed_run_has_the_same_bits(tmp_path):
    links = [replace(LINK, jitter=5, drop_out=0.2)] * 4
    options = {"link": model(*links), "fading": "rayleigh", "deadline": 8.0}
    whole = simulate(rounds=8, **options)
    assert sum(record.late for record in whole.records) > 0
    simulate(rounds=4, out=tmp_path, **options)
    resumed = simulate(rounds=8, out=tmp_path, resume=True, **options)
    assert resumed.records == whole.records == read_records(tmp_path)
    assert torch.equal(resumed.theta, whole.theta)


@pytest.mark.parametrize(
    "changes", [{"deadline": 9.0}, {"fading": "none"}, {"link": "lte"}, {"compute_time": 1.0}]
)
def test_run_resumes_only_with_the_same_network(tmp_path, changes):
    options = {"link": model(), "fading": "rayleigh", "deadline": 8.0}
    simulate(rounds=2, out=tmp_path, **options)
    with pytest.raises(ValueError, match="cannot be resumed"):
        simulate(rounds=4, out=tmp_path, resume=True, **{**options, **changes})


def network(fading="none", access="orthogonal", link=LINK, devices=4, **values):
    links = aquila.LinkModel.constant([link] * devices)
    return Network(links, 0, fading, access, **values)


def test_states_are_drawn_per_round_and_device():
    jittery = network("rayleigh", link=replace(LINK, jitter=1))
    assert jittery.state(3, 1) == jittery.states(3, [0, 1])[1]
    assert jittery.state(3, 1) != jittery.state(4, 1)
    assert jittery.state(3, 1) != jittery.state(3, 2)
    calm = network(link=replace(LINK, jitter=1)).state(3, 1)
    assert calm.uplink_delay == jittery.state(3, 1).uplink_delay
    assert (calm.gain, calm.uplink_rate) == (1, 8000)


def test_means_of_the_draws():
    drawn = network("rayleigh", link=replace(LINK, jitter=2, drop_out=0.3), devices=1)
    states = [drawn.state(number, 0) for number in range(4000)]
    assert np.mean([s.uplink_rate for s in states]) == pytest.approx(8000, rel=0.03)
    assert np.mean([s.downlink_rate for s in states]) == pytest.approx(16000, rel=0.03)
    assert np.mean([s.gain for s in states]) == pytest.approx(1, rel=0.05)
    assert np.mean([s.uplink_delay for s in states]) == pytest.approx(2.1, rel=0.05)
    assert np.mean([s.present for s in states]) == pytest.approx(0.7, abs=0.03)
    up, down = ([getattr(s, f"{way}_rate") for s in states] for way in ("uplink", "downlink"))
    assert abs(np.corrcoef(up, down)[0, 1]) < 0.05


@pytest.mark.parametrize("fading", ["none", "rayleigh"])
def test_noma_gives_the_strongest_device_the_most_interference(fading):
    shared = network(fading, "noma")
    states = shared.states(0, [0, 1, 2, 3])
    bandwidth = shared._bandwidth(LINK)
    power = {device: state.snr / 4 for device, state in states.items()}
    for device, state in states.items():
        weaker = [d for d in states if (power[d], d) < (power[device], device)]
        ratio = power[device] / (1 + sum(power[d] for d in weaker))
        assert state.uplink_rate == pytest.approx(4 * bandwidth * math.log2(1 + ratio))
    assert states[0].downlink_rate == network(fading).state(0, 0).downlink_rate
    alone = network("none", "noma").state(0, 0)
    assert alone.uplink_rate == pytest.approx(8000)


def test_compute_time_of_the_options_replaces_that_of_the_links():
    slow = simulate(rounds=1, link=model(), compute_time=50).records[0]
    assert slow.seconds - simulate(rounds=1, link=model()).records[0].seconds == pytest.approx(48)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"deadline": 3.0}, "deadline needs a link model: set link"),
        ({"fading": "rayleigh"}, "fading needs a link model: set link"),
        ({"access": "noma"}, "access needs a link model: set link"),
        ({"compute_time": 1.0}, "compute_time needs a link model: set link"),
        ({"link": "wify"}, "link must be a preset, csv:FILE or empty, not 'wify'; did you mean"),
        ({"link": "csv:"}, "link csv: needs the path of a trace, such as csv:trace.csv"),
        ({"link": 3}, "link must be text or an aquila.LinkModel, not 3"),
        ({"link": "lte", "deadline": -1}, "deadline must be a number >= 0, not -1"),
    ],
)
def test_wrong_options_get_one_sentence(options, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        RunOptions(**options)


def test_mixed_fleet_cannot_share_a_band():
    with pytest.raises(ValueError, match="access noma needs devices that share one band"):
        simulate(link="mixed", access="noma")


def test_flower_refuses_a_link_model():
    pytest.importorskip("flwr")
    from aquila.flower.server import strategy

    with pytest.raises(ValueError, match="link is an option of the simulator"):
        strategy(METHOD, THETA0, 4, 2, options=RunOptions(link="lte"))
