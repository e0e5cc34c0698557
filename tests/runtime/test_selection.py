"""Device selection: the rules against hand-computed choices, and runs with every method."""

import math
from collections import Counter

import pytest
import torch

import aquila
from aquila.core.fleet import Fleet
from aquila.core.packet import WireError
from aquila.core.random import Key, Purpose
from aquila.runtime.selection import LOSS, QUERY_LOSS, REPORT_LOSS, Selector
from aquila.runtime.server_session import ServerSession
from aquila.sim.oracle import FunctionOracle
from helpers import contract
from helpers.contract_runs import PROBLEM, create, every_method, theta0

DEVICES, FLEET = tuple(range(10)), Fleet.uniform(4, 10)
POWER_OF_CHOICE = ("pow_d", "cpow_d", "rpow_d")


def selector(rule, participation=0.3, candidates=0, seed=0):
    options = aquila.RunOptions(selection=rule, participation=participation, candidates=candidates)
    return Selector.of(options, len(DEVICES), seed)


@pytest.mark.parametrize("rule", POWER_OF_CHOICE)
def test_candidates_with_the_largest_losses_are_chosen(rule):
    losses = {device: float((7 * device) % 10) for device in DEVICES}
    for round_number in range(20):
        select = selector(rule, candidates=6)
        candidates = select.candidates_of(DEVICES, FLEET, round_number)
        assert len(set(candidates)) == 6
        expected = sorted(sorted(candidates, key=lambda d: losses[d])[-3:])
        assert list(select.choose(DEVICES, FLEET, losses, round_number)) == expected


def test_device_without_a_report_comes_first_only_with_stale_losses():
    losses = dict.fromkeys(range(8), 5.0)  # devices 8 and 9 are unknown
    assert {8, 9} <= set(selector("rpow_d", 0.3, 10).choose(DEVICES, FLEET, losses, 0))
    assert not {8, 9} & set(selector("pow_d", 0.3, 10).choose(DEVICES, FLEET, losses, 0))


def test_by_default_there_are_twice_as_many_candidates_as_selected():
    assert len(selector("pow_d").candidates_of(DEVICES, FLEET, 0)) == 6
    assert len(selector("pow_d", 0.8).candidates_of(DEVICES, FLEET, 0)) == 10


def test_weighted_selection_follows_the_weights():
    fleet = FLEET.with_weights([1.0] * 9 + [9.0])
    select = selector("weighted", participation=0.1)
    counts = Counter(select.choose(DEVICES, fleet, {}, k)[0] for k in range(2000))
    assert counts[9] == pytest.approx(1000, abs=120)
    assert counts[0] == pytest.approx(1000 / 9, abs=45)


def test_random_selection_keeps_its_choices():
    """The rule before there were others: a sample without replacement from the round's key."""
    for k in range(5):
        expected = Key((3, k, Purpose.PARTICIPATION)).sample(DEVICES, 3)
        assert selector("random", seed=3).choose(DEVICES, FLEET, {}, k) == expected


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"selection": "pow_d"}, "selection pow_d needs participation below 1"),
        ({"candidates": 5, "participation": 0.5}, "candidates needs selection pow_d"),
        (
            {"selection": "weighted", "candidates": 5, "participation": 0.5},
            "candidates needs selection pow_d",
        ),
        (
            {"selection": "rpow_d", "participation": 0.5, "candidates": 2},
            "candidates must be from 5, the devices per round, to 10, not 2",
        ),
        (
            {"selection": "cpow_d", "participation": 0.5, "downlink_error": 0.5},
            "selection cpow_d sends whole models to its candidates",
        ),
        ({"selection": "best"}, "selection must be one of random, weighted, pow_d"),
    ],
)
def test_options_that_do_not_fit_are_refused(options, error):
    with pytest.raises(ValueError, match=error):
        Selector.of(aquila.RunOptions(**options), 10, 0)


def assert_trains(row, rule):
    options = contract.run_options(row.name, selection=rule, participation=0.4, uplink_loss=0.1)
    # few devices have the two consecutive models that a change of MARINA needs
    more_full_rounds = {"p": 0.5} if row.name == "marina" else {}
    method = create(row, **more_full_rounds)
    run = aquila.simulate(method, theta0(), PROBLEM.devices, 30, options=options)
    losses = [PROBLEM.loss(theta.double()) for theta in (theta0(), run.theta)]
    assert losses[1] < 0.9 * losses[0]
    assert all(record.uploads + record.skips + record.lost == 2 for record in run.records)


@every_method
def test_every_method_trains_while_devices_report_losses(row):
    """Orders and replies have a scalar more."""
    assert_trains(row, "rpow_d")


@pytest.mark.parametrize("rule", ["pow_d", "cpow_d"])
@pytest.mark.parametrize("name", ["fedsgd", "aquila", "marina"])
def test_methods_train_after_queries(name, rule):
    """Sessions answer queries; methods do not see them."""
    assert_trains(contract.find_row(name), rule)


@pytest.mark.parametrize("rule", ["weighted", *POWER_OF_CHOICE])
def test_interrupted_run_resumes_with_the_same_choices(rule, tmp_path):
    options = {"selection": rule, "participation": 0.4}
    method = aquila.create("aquila", alpha=0.1)
    whole = aquila.simulate(
        method, theta0(), PROBLEM.devices, 12, options=aquila.RunOptions(**options)
    )

    def interrupt(record):
        if record.round == 5:
            raise KeyboardInterrupt

    folder = aquila.RunOptions(out=tmp_path, **options)
    with pytest.raises(KeyboardInterrupt):
        aquila.simulate(method, theta0(), PROBLEM.devices, 12, on_record=interrupt, options=folder)
    resumed = aquila.simulate(
        method, theta0(), PROBLEM.devices, 12,
        options=aquila.RunOptions(out=tmp_path, resume=True, **options),
    )  # fmt: skip
    assert resumed.records == whole.records
    assert torch.equal(resumed.theta, whole.theta)


class CountingOracle(FunctionOracle):
    """Notes what is computed."""

    def gradient(self, theta):
        self.computed.append("gradient")
        return super().gradient(theta)


class CountingOracleWithLoss(CountingOracle):
    """Also computes a loss without a gradient."""

    def loss(self, theta, all_samples):
        self.computed.append("all samples" if all_samples else "one minibatch")
        return self.function(theta)[0]


@pytest.mark.parametrize(
    ("rule", "kind", "computed"),
    [
        ("pow_d", CountingOracleWithLoss, {"gradient": 2, "all samples": 4}),
        ("cpow_d", CountingOracleWithLoss, {"gradient": 2, "one minibatch": 4}),
        ("rpow_d", CountingOracleWithLoss, {"gradient": 2}),
        ("pow_d", CountingOracle, {"gradient": 2 + 4}),
    ],
)
def test_queries_compute_what_their_rule_needs(rule, kind, computed):
    """Two of five devices take part, and four are candidates."""
    devices, noted = [kind(local) for local in PROBLEM.devices], []
    for device in devices:
        object.__setattr__(device, "computed", noted)
    options = aquila.RunOptions(selection=rule, participation=0.4)
    aquila.Simulation(aquila.create("fedsgd"), theta0(), devices, options=options).advance()
    assert Counter(noted) == computed


@pytest.mark.parametrize(("all_samples", "samples"), [(True, 50), (False, 20)])
def test_loss_of_a_module_is_the_mean_over_samples(all_samples, samples):
    x, y = torch.randn(50, 3, generator=torch.manual_seed(0)), torch.arange(50) % 2
    shard = aquila.problem(torch.nn.Linear(3, 2), [(x, y)], batch_size=20).devices[0]
    oracle, theta = shard.oracle(Key((0, 0, 0))), torch.linspace(-1, 1, 8)
    batches = list(oracle.batches(epoch=0))[: 3 if all_samples else 1]
    logits = torch.cat([b[0] for b in batches]) @ theta[:6].view(2, 3).T + theta[6:]
    targets = torch.cat([b[1] for b in batches])
    assert len(targets) == samples
    expected = torch.nn.functional.cross_entropy(logits, targets)
    assert oracle.loss(theta, all_samples) == pytest.approx(float(expected), rel=1e-5)


def test_queries_count_as_traffic():
    def first_record(**options):
        given = aquila.RunOptions(participation=0.4, **options)
        simulation = aquila.Simulation(
            aquila.create("fedsgd"), theta0(), PROBLEM.devices, options=given
        )
        return simulation.advance()

    plain, asked, reported = (
        first_record(selection=rule) for rule in ("random", "pow_d", "rpow_d")
    )
    model = plain.downlink_bytes / 2
    assert asked.downlink_bytes == pytest.approx(2 * model + 4 * model, abs=6 * 32)
    assert 4 * 10 < asked.uplink_bytes - plain.uplink_bytes < 4 * 30
    assert 0 < reported.uplink_bytes - plain.uplink_bytes < 2 * 24
    assert asked.uploads == 2


def make_session(rule="pow_d"):
    options = aquila.RunOptions(selection=rule, participation=0.4)
    fleet = Fleet.uniform(PROBLEM.dimension, 5)
    return ServerSession(aquila.create("fedsgd"), theta0(), fleet, 0, options)


def test_answers_from_others_are_refused():
    session = make_session()
    with pytest.raises(WireError, match="device 0 was not asked for its loss in round 0"):
        session.receive_loss(0, b"")
    asked = session.open_query()
    assert session.open_query() == asked
    missing = next(device for device in range(5) if device not in asked)
    with pytest.raises(WireError, match=f"device {missing} was not asked"):
        session.receive_loss(missing, b"")
    session.open_round()
    assert session.open_query() == {}


def test_rules_without_queries_ask_nothing():
    assert make_session("rpow_d").open_query() == {}
    assert make_session("random").open_query() == {}


def test_query_changes_no_state_of_a_device():
    options = aquila.RunOptions(selection="pow_d", participation=0.4)
    simulation = aquila.Simulation(
        aquila.create("aquila"), theta0(), PROBLEM.devices, options=options
    )
    device, query = next(iter(simulation.server.open_query().items()))
    session = simulation.devices[device]
    before = session.snapshot()
    answer = session.answer(query)
    assert session.snapshot() == before
    assert answer.scalars == {LOSS: pytest.approx(PROBLEM.local(device, theta0())[0])}
    assert answer.vector is None


def test_scalars_ask_only_when_a_rule_needs_it():
    assert selector("random").order_scalars == selector("pow_d").order_scalars == {}
    assert selector("rpow_d").order_scalars == {REPORT_LOSS: 1.0}
    assert selector("pow_d").query == {QUERY_LOSS: 1.0}
    assert selector("cpow_d").query == {QUERY_LOSS: 0.0}


@pytest.mark.parametrize("policy", ["stop", "skip"])
def test_loss_that_is_not_finite_follows_the_policy(policy):
    broken = [lambda theta: (math.nan, theta)] * 5
    options = aquila.RunOptions(selection="cpow_d", participation=0.4, on_nan=policy)
    simulation = aquila.Simulation(aquila.create("fedsgd"), theta0(), broken, options=options)
    if policy == "stop":
        with pytest.raises(aquila.NonFiniteError, match="the loss is nan"):
            simulation.advance()
    else:
        assert simulation.advance().refused == 2
