"""Schedules against the schedulers of torch, and the errors of wrong texts."""

from functools import partial

import pytest
import torch
from torch.optim import lr_scheduler

import aquila
from aquila.runtime.lr_schedule import (
    parse_schedule,
    resolve_schedule,
    schedule_function,
    schedule_name,
)

ROUNDS = 20


def torch_factors(make_scheduler):
    """Return the rates of a torch scheduler that starts at rate 1."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler = make_scheduler(optimizer)
    factors = []
    for _ in range(ROUNDS):
        factors.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return factors


def warmup_and_cosine(optimizer):
    warmup = lr_scheduler.LinearLR(optimizer, start_factor=1 / 4, total_iters=3)
    cosine = lr_scheduler.CosineAnnealingLR(optimizer, T_max=ROUNDS - 4)
    return lr_scheduler.SequentialLR(optimizer, [warmup, cosine], milestones=[4])


SCHEDULERS = {
    "constant": lambda o: lr_scheduler.ConstantLR(o, factor=1.0),
    "cosine:20": lambda o: lr_scheduler.CosineAnnealingLR(o, T_max=ROUNDS),
    "linear:20": lambda o: lr_scheduler.LinearLR(
        o, start_factor=1.0, end_factor=0.0, total_iters=ROUNDS
    ),
    "steps:6,12": lambda o: lr_scheduler.MultiStepLR(o, [6, 12], gamma=0.1),
    "steps:6,12:0.5": lambda o: lr_scheduler.MultiStepLR(o, [6, 12], gamma=0.5),
    "warmup:4+cosine:20": warmup_and_cosine,
}


@pytest.mark.parametrize("text", SCHEDULERS)
def test_factors_equal_those_of_torch(text):
    schedule = schedule_function(text)
    factors = [schedule(k) for k in range(ROUNDS)]
    assert factors == pytest.approx(torch_factors(SCHEDULERS[text]), rel=1e-9, abs=1e-12)
    assert all(factor > 0 for factor in factors)


def test_terms_are_multiplied():
    schedule = schedule_function("warmup:2+linear:10+steps:6:0.5")
    assert [schedule(k) for k in (0, 1, 2, 5, 6)] == pytest.approx([0.5, 1, 1, 5 / 8, 0.25])


def test_last_factor_is_kept_after_the_end():
    for text in ("cosine:10", "linear:10", "warmup:3+cosine:10"):
        schedule = schedule_function(text)
        assert schedule(9) == schedule(10) == schedule(500) > 0


@pytest.mark.parametrize(
    "text", ["constant", "cosine:7", "warmup:5+linear:9+steps:3,6", "steps:2:0.25", "warmup:3"]
)
def test_text_survives_parsing(text):
    assert str(parse_schedule(text)) == text


def test_factor_of_steps_keeps_its_digits():
    factor = 1 / 3
    resolved = resolve_schedule(f"cosine+steps:2:{factor!r}", 10)
    assert parse_schedule(resolved).step_factor == factor


def test_length_of_the_run_is_filled_in_once():
    assert resolve_schedule("warmup:5+cosine", 60) == "warmup:5+cosine:60"
    assert resolve_schedule("cosine:30", 60) == "cosine:30"
    assert resolve_schedule("steps:3", 60) == "steps:3"
    with pytest.raises(ValueError, match="needs the number of rounds, such as cosine:200"):
        schedule_function("cosine")


@pytest.mark.parametrize(
    "text",
    ["", "cosin", "steps", "steps:", "steps:0", "steps:3:0", "warmup", "warmup:-1", "cosine:x",
     "constant:3", "cosine+", "steps:3:nan"],
)  # fmt: skip
def test_wrong_text_is_named_with_what_is_allowed(text):
    with pytest.raises(ValueError, match=r"schedule: .* is not a schedule; allowed: constant, cos"):
        aquila.RunOptions(schedule=text)


@pytest.mark.parametrize("text", ["cosine+linear", "warmup:2+warmup:3", "steps:2+cosine+steps:3"])
def test_two_terms_of_one_kind_are_refused(text):
    with pytest.raises(ValueError, match="has two terms of one kind"):
        aquila.RunOptions(schedule=text)


def test_schedule_must_be_text_or_function():
    with pytest.raises(ValueError, match="server_schedule must be text or a function round"):
        aquila.RunOptions(server_schedule=0.5)


def halved(round_number):
    return 0.5**round_number


def scaled(factor, round_number):
    return factor / (1 + round_number)


def test_names_tell_the_arguments_of_a_partial_function():
    names = {schedule_name(partial(scaled, factor)) for factor in (0.5, 1.0)}
    assert len(names) == 2
    assert any(name.endswith("test_lr_schedule.scaled(0.5)") for name in names)


def test_function_is_a_schedule():
    assert schedule_function(halved)(3) == 0.125
    assert schedule_name(halved).endswith("test_lr_schedule.halved")
    options = aquila.RunOptions(schedule=halved)
    assert options.to_dict()["schedule"] == schedule_name(halved)
    assert options.for_rounds(5).schedule is halved


@pytest.mark.parametrize("factor", [0.0, -1.0, float("nan"), float("inf"), "x", None])
def test_function_must_return_positive_factors(factor):
    with pytest.raises(ValueError, match="for round 2; a factor must be above 0"):
        schedule_function(lambda _: factor)(2)


def test_run_without_rounds_has_a_schedule():
    assert aquila.RunOptions(schedule="cosine").for_rounds(0).schedule == "cosine:1"
