"""Parameters of a factory: accepted values and error messages."""

import math
from typing import Annotated, Literal

import pytest

from aquila.core.parameter import Bounds, check_arguments, parameters, spelling_hint


def factory(
    alpha: Annotated[float, Bounds("step size", above=0)] = 0.1,
    beta: Annotated[float, Bounds("weight", low=0, high=1)] = 0.25,
    bits: Annotated[int, Bounds("width", 2, 31)] = 6,
    period: Annotated[int, Bounds("rounds", 1)] = 10,
    norm: Annotated[Literal["max", "l2"], "norm of the grid"] = "max",
    decay: Annotated[float, Bounds("shrinks", above=0, high=1)] = 0.5,
):
    return alpha, beta, bits, period, norm, decay


def check(**given):
    return check_arguments("qsgd", factory, given)


def test_parameters_come_from_the_signature():
    known = parameters(factory)
    assert list(known) == ["alpha", "beta", "bits", "period", "norm", "decay"]
    assert [p.default for p in known.values()] == [0.1, 0.25, 6, 10, "max", 0.5]
    assert known["bits"].type is int
    assert known["norm"].choices == ("max", "l2")
    assert known["alpha"].help == "step size"
    assert known["norm"].help == "norm of the grid"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("alpha", "a number > 0"),
        ("beta", "a number from 0 to 1"),
        ("bits", "a whole number from 2 to 31"),
        ("period", "a whole number >= 1"),
        ("norm", "one of max, l2"),
        ("decay", "a number > 0 and <= 1"),
    ],
)
def test_parameters_describe_what_they_allow(name, text):
    assert str(parameters(factory)[name]) == text


@pytest.mark.parametrize(
    ("name", "given", "value"),
    [
        ("beta", 0.5, 0.5),
        ("beta", "0.25", 0.25),
        ("beta", 0, 0.0),
        ("beta", 1, 1.0),
        ("alpha", "1e-3", 0.001),
        ("bits", 2, 2),
        ("bits", "31", 31),
        ("bits", 8.0, 8),
        ("period", 10**6, 10**6),
        ("norm", "l2", "l2"),
        ("decay", 1, 1.0),
    ],
)
def test_allowed_value_is_converted_to_its_type(name, given, value):
    checked = check(**{name: given})
    assert checked == {name: value}
    assert type(checked[name]) is parameters(factory)[name].type


def test_only_given_parameters_are_returned():
    assert check() == {}
    assert check(beta=0.5, bits=4) == {"beta": 0.5, "bits": 4}


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("alpha", 0),
        ("alpha", -0.1),
        ("alpha", math.nan),
        ("alpha", math.inf),
        ("alpha", "nan"),
        ("alpha", "inf"),
        ("alpha", "fast"),
        ("alpha", ""),
        ("alpha", None),
        ("alpha", True),
        ("alpha", [0.1]),
        ("alpha", 1j),
        ("alpha", 10**400),
        ("beta", -1e-9),
        ("beta", 1.0000001),
        ("bits", 1),
        ("bits", 32),
        ("bits", 6.5),
        ("bits", "6.5"),
        ("bits", True),
        ("bits", math.nan),
        ("bits", 10**400),
        ("period", 0),
        ("norm", "l3"),
        ("norm", 2),
        ("norm", None),
        ("norm", ["max"]),
        ("decay", 0),
        ("decay", 1.5),
    ],
)
def test_error_names_the_allowed_values(name, given):
    with pytest.raises(ValueError, match=f"^qsgd: {name} must be ") as refusal:
        check(**{name: given})
    allowed = str(parameters(factory)[name])
    assert str(refusal.value) == f"qsgd: {name} must be {allowed}, not {given!r}"


@pytest.mark.parametrize(
    ("typo", "meant"), [("betta", "beta"), ("bit", "bits"), ("perriod", "period")]
)
def test_error_for_an_unknown_name_suggests_the_nearest(typo, meant):
    with pytest.raises(ValueError, match=f"qsgd has no parameter '{typo}'") as refusal:
        check(**{typo: 1})
    assert f"did you mean '{meant}'?" in str(refusal.value)


def test_error_for_an_unknown_name_lists_all_parameters():
    with pytest.raises(ValueError, match="alpha, beta, bits, period, norm, decay"):
        check(zzz=1)


def test_no_hint_without_a_similar_name():
    assert "did you mean" not in spelling_hint("zzz", ["alpha", "beta"])
    assert "did you mean 'alpha'?" in spelling_hint("alpa", ["alpha", "beta"])


def test_parameters_that_are_not_annotated_are_left_out():
    def factory_with_objects(bits: Annotated[int, Bounds("bits", 1)] = 4, fleet: object = None):
        return bits, fleet

    assert list(parameters(factory_with_objects)) == ["bits"]
    with pytest.raises(ValueError, match="qsgd has no parameter 'fleet'"):
        check_arguments("qsgd", factory_with_objects, {"fleet": 3})
