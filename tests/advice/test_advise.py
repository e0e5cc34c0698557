"""Advice on hand-made facts: the nearest comparison, the choice, limits and arithmetic."""

from dataclasses import replace

import pytest

from aquila.advice.advise import advise
from aquila.advice.situation import Situation
from aquila.advice.text import describe
from aquila.core.link import DeviceLink
from aquila.runtime.link_model import LinkModel
from aquila.runtime.options import RunOptions
from helpers.advice import CODED, facts, result, study

RUNS = (
    result("topk", -0.004, 0.01),
    result("laq", 0.001, 0.1),
    result("signsgd", -0.05, 0.001, alpha_factor=0.02),
)
CNN = study(runs=RUNS)
SAME = Situation(parameters=10_000, model="cnn", split="iid", rounds=100)


def text_of(advice):
    return " ".join(describe(advice))


def on_link(uplink_rate=8e3, **changed):
    """Options with links on which a device uploads 1,000 bytes per second and receives 4,000."""
    link = DeviceLink(
        uplink_rate=uplink_rate,
        downlink_rate=32e3,
        transmit_power=2.0,
        receive_power=0.5,
        **changed,
    )
    return RunOptions(link=LinkModel.constant([link] * 10))


def test_cheapest_method_that_keeps_the_quality_wins():
    advice = advise(SAME, facts(CNN))
    assert (advice.choice.result.spec, advice.runner_up.result.spec) == ("topk", "laq")
    assert (advice.sureness, advice.fits, advice.choice.downlink.error) == ("high", True, 0.0)


def test_tolerance_decides_what_keeps_the_quality():
    chosen = [
        advise(replace(SAME, tolerance=points), facts(CNN)).choice.result.spec
        for points in (0.3, 0.5, 6)
    ]
    assert chosen == ["laq", "topk", "signsgd"]


def test_bytes_are_rate_times_parameters_times_rounds():
    advice = advise(replace(SAME, parameters=20_000, rounds=200, devices=40), facts(CNN))
    expected = advice.choice.expected
    # 100 bytes per reply for 10,000 parameters, 33 of them are the header
    assert expected.up == pytest.approx((2 * 67 + 33) * 200)
    assert expected.down == 4 * 20_000 * 200
    assert (advice.dense.up, advice.dense.devices) == (4 * 20_000 * 200, 40)
    assert expected.seconds is None


def test_devices_that_rarely_take_part_send_less():
    advice = advise(replace(SAME, options=RunOptions(participation=0.2)), facts(CNN, coded=CODED))
    assert advice.choice.expected.up == pytest.approx(0.01 * 10_000 * 100 * 0.2)
    assert advice.choice.downlink.error == 0  # coded differences need the model of the last round


def test_time_and_energy_on_a_link():
    advice = advise(replace(SAME, options=on_link(compute_time=3, compute_power=1)), facts(CNN))
    # per round: 40,000 bytes down in 10 s, 3 s of work, 100 bytes up in 0.1 s
    assert advice.choice.expected.seconds == pytest.approx(100 * 13.1)
    assert advice.choice.expected.joules == pytest.approx(100 * 10 * (10 * 0.5 + 3 + 0.1 * 2))
    assert advice.dense.seconds == pytest.approx(100 * (10 + 3 + 40))


def test_slowest_device_sets_the_time():
    links = [DeviceLink(8e6, 32e6)] * 9 + [DeviceLink(8e3, 32e3)]
    slow = RunOptions(link=LinkModel.constant(links))
    assert advise(replace(SAME, options=slow), facts(CNN)).dense.seconds == pytest.approx(100 * 50)


def test_measured_times_of_the_same_link_are_used():
    measured = result("topk", 0.0, 0.01, links={"own": (7.0, 2.0)})
    advice = advise(replace(SAME, options=on_link()), facts(study(runs=(measured,))))
    assert (advice.choice.expected.seconds, advice.choice.expected.joules) == (700, 2000)


def test_coded_downlink_is_advised_where_it_saves_time():
    advice = advise(replace(SAME, options=on_link()), facts(CNN, coded=CODED))
    assert advice.choice.downlink.error == 0.5  # 0.7 lost two points in one result
    assert advice.choice.expected.down == pytest.approx(0.05 * 4 * 10_000 * 100)  # the worst ratio
    assert advice.sureness == "medium"
    assert advise(SAME, facts(CNN, coded=CODED)).choice.downlink.error == 0


RELAYED = result("topk", 0.0, 0.01, relayed=True)
RELAYING = RunOptions(relay_uploads=True)


def test_uploads_are_relayed_if_devices_may_see_them():
    only, asked = facts(study(runs=(RELAYED,))), replace(SAME, options=RELAYING, max_mb=0.5)
    advice = advise(asked, only)
    assert (advice.choice.downlink.relays, advice.choice.downlink.error) == (True, 0.5)
    # 10 uploads of 100 bytes in 99 rounds, and a first model of 8.5 bits per parameter
    assert advice.choice.expected.down == pytest.approx(99 * 10 * 100 + 10_625)
    assert (advice.fits, advice.sureness) == (True, "high")
    assert "pass uploads on, relay_uploads=true with downlink_error=0.5." in text_of(advice)
    whole = advise(SAME, only)
    assert whole.choice.downlink.is_whole
    assert (
        "if devices may see each other's uploads, add relay_uploads=true and downlink_error=0.5"
    ) in text_of(whole)
    assert whole.relayed_down == advice.choice.expected.down


def test_devices_that_rarely_take_part_get_all_uploads_since_their_last_turn():
    rare = RunOptions(participation=0.2, relay_uploads=True)
    choice = advise(replace(SAME, options=rare), facts(study(runs=(RELAYED,)))).choice
    assert (choice.downlink.relays, choice.downlink.error) == (True, 0.0)
    assert choice.expected.down == pytest.approx(19 * 10 * 100 + 40_000)


@pytest.mark.parametrize(
    ("changed", "relays"),
    [
        ({}, True),
        ({"parameters": 5_000_000}, False),
        ({"devices": 500}, False),
        ({"settings": {"work": "epochs", "widths": "1"}}, True),
        ({"settings": {"work": "gradient"}}, False),
        ({"settings": {"widths": "1,0.5"}}, False),
        ({"settings": {"server_optimizer": "adam"}}, False),
        ({"settings": {"upload_limit": "median"}}, False),
    ],
)
def test_relaying_must_be_possible_and_pay(changed, relays):
    asked = replace(SAME, options=RELAYING, **changed)
    choice = advise(asked, facts(study(runs=(RELAYED,)))).choice
    assert choice.downlink.relays is relays


@pytest.mark.parametrize(("devices", "relays"), [(10, True), (30, False)])
def test_the_cheaper_of_relayed_uploads_and_coded_models_is_advised(devices, relays):
    """30 uploads of a hundredth of the model are more than a coded one, of a twentieth."""
    asked = replace(SAME, devices=devices, options=RELAYING, max_mb=0.5)
    choice = advise(asked, facts(study(runs=(RELAYED,)), coded=CODED)).choice
    assert (choice.downlink.relays, choice.downlink.error) == (relays, 0.5)


def test_limit_of_megabytes_counts_both_directions():
    plain = advise(replace(SAME, max_mb=4.1), facts(CNN, coded=CODED))
    assert (plain.choice.result.spec, plain.choice.downlink.error) == ("topk", 0.0)
    coded = advise(replace(SAME, max_mb=0.3), facts(CNN, coded=CODED))
    assert (coded.choice.result.spec, coded.choice.downlink.error) == ("topk", 0.5)
    worse = advise(replace(SAME, max_mb=0.205), facts(CNN, coded=CODED))
    assert (worse.choice.result.spec, worse.fits) == ("signsgd", True)
    never = advise(replace(SAME, max_mb=0.1), facts(CNN, coded=CODED))
    assert (never.choice.result.spec, never.fits) == ("topk", False)


def test_limit_of_hours_needs_a_faster_method():
    # 10 bytes per second: the 100 bytes of topk take 10 s, a header 3.3 s, and the model 10 s
    within = replace(SAME, options=on_link(uplink_rate=80), max_hours=100 * 15 / 3600)
    advice = advise(within, facts(CNN))
    assert (advice.choice.result.spec, advice.fits) == ("signsgd", True)


def test_methods_that_read_links_need_a_link():
    reading = study(runs=(result("aqed", 0.0, 0.001), result("laq", 0.0, 0.1)))
    assert advise(SAME, facts(reading)).choice.result.spec == "laq"
    assert advise(replace(SAME, options=on_link()), facts(reading)).choice.result.spec == "aqed"


def test_other_comparisons_count_if_none_is_the_same():
    other = study("resnet18", runs=(result("topk", -0.03, 0.01),), parameters=11_000_000)
    near = replace(SAME, model="", parameters=50_000)
    advice = advise(near, facts(CNN, other))
    assert (advice.choice.result.spec, advice.sureness) == ("laq", "medium")
    assert advise(SAME, facts(CNN, other)).choice.result.spec == "topk"


def test_dense_uploads_are_advised_if_nothing_else_keeps_the_quality():
    lossy = study(runs=(result("laq", -0.02, 0.1), result("topk", -0.03, 0.01)))
    said = (
        "No compressed method kept the quality in the comparison. The next best is laq, 2.0 points"
    )
    texts = [
        " ".join(describe(advise(replace(SAME, tolerance=points), facts(lossy))))
        for points in (0.5, 2)
    ]
    assert [said in text for text in texts] == [True, False]


def test_variants_of_the_nearest_comparison_count():
    """A parameter that was never tried on a similar task does not hide what happened there."""
    near = study(runs=(result("laq", -0.04, 0.01, options={"bits": 2}), result("topk", 0.0, 0.1)))
    far = study("mlp", runs=(result("laq", 0.0, 0.01, options={"bits": 8}),), parameters=1_000)
    asked = replace(SAME, rounds=1_000)
    assert advise(asked, facts(near, far)).choice.result.spec == "topk"
    assert advise(asked, facts(far)).choice.result.spec == "laq:bits=8"


@pytest.mark.parametrize(
    ("changed", "sureness", "source", "difference"),
    [
        ({}, "high", "results/cnn_iid", None),
        ({"data": "cifar10"}, "high", "results/cnn_iid", None),
        ({"data": "digits"}, "medium", "results/cnn_iid", "the data cifar10"),
        ({"settings": {"work": "epochs"}}, "high", "results/cnn_iid", None),
        (
            {"settings": {"work": "gradient"}}, "medium", "results/cnn_iid",
            "local work epochs instead of gradient",
        ),
        ({"devices": 90}, "medium", "results/cnn_iid", "10 devices per round instead of 90"),
        ({"rounds": 2000}, "medium", "results/cnn_iid", "100 rounds instead of 2,000"),
        ({"split": "dirichlet:0.3"}, "high", "results/cnn_dirichlet:0.3", None),
        (
            {"split": "classes:2"}, "medium", "results/cnn_dirichlet:0.3",
            "split dirichlet:0.3 instead of classes:2",
        ),
        (
            {"model": "", "parameters": 5_000_000}, "low", "results/cnn_iid",
            "10,000 parameters instead of 5,000,000",
        ),
    ],
)  # fmt: skip
def test_sureness_follows_the_nearest_comparison(changed, sureness, source, difference):
    known = facts(CNN, study(split="dirichlet:0.3", runs=RUNS))
    advice = advise(replace(SAME, **changed), known)
    match = advice.choice.match
    assert (advice.sureness, match.study.source) == (sureness, source)
    assert match.differences == (() if difference is None else (difference,))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"parameters": 0}, "parameters must be a whole number >= 1, not 0"),
        ({"split": "shards:2"}, "there is no split 'shards:2'"),
        ({"max_mb": -1.0}, "max_mb must be a number > 0, not -1"),
        ({"options": RunOptions(link="csv:none.csv")}, "there is no trace none.csv"),
        ({"max_hours": 2.0}, "max_hours needs the links of the devices: set link"),
        ({"tolerance": 200.0}, "tolerance must be a number from 0 to 100, not 200"),
    ],
)
def test_bad_situations_are_refused(changed, message):
    with pytest.raises(ValueError, match=message):
        replace(SAME, **changed)


def test_links_without_coverage_are_refused():
    with pytest.raises(ValueError, match="no device takes part"):
        advise(replace(SAME, options=on_link(uplink_rate=0)), facts(CNN))
