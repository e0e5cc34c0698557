import dataclasses
import subprocess
import sys

import pytest

from aquila.runtime.options import RunOptions, option_parameters

PYTHON_ONLY = {"fleet", "out", "resume", "identity", "facts", "partition"}


def test_plain_fields_can_be_set_from_text_and_python_fields_cannot():
    names = {field.name for field in dataclasses.fields(RunOptions)}
    assert set(option_parameters()) == names - PYTHON_ONLY
    assert set(RunOptions().to_dict()) == names - PYTHON_ONLY


def test_defaults_are_valid_and_restored_from_a_mapping():
    options = RunOptions(participation=0.5, on_nan="skip", workers=3)
    assert RunOptions(**options.to_dict()) == options


def test_values_take_the_type_of_their_field():
    options = RunOptions(participation=1, workers="2")
    assert (options.participation, type(options.participation)) == (1.0, float)
    assert options.workers == 2


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"participation": 0.0}, "participation must be a number > 0 and <= 1, not 0.0"),
        ({"downlink_error": float("nan")}, "downlink_error must be a number from 0 to 0.99, not"),
        ({"uplink_loss": 1.1}, "uplink_loss must be a number from 0 to 1, not 1.1"),
        ({"downlink_loss": -0.1}, "downlink_loss must be a number from 0 to 1, not -0.1"),
        ({"on_nan": "ignore"}, "on_nan must be one of quarantine, stop, skip, not 'ignore'"),
        ({"executor": "processes"}, "executor must be one of auto, sequential, batched, threads"),
        (
            {"server_momentum": 0.5},
            "server_momentum belongs to server_optimizer momentum, nesterov, adam, yogi, not sgd",
        ),
        (
            {"server_optimizer": "momentum", "server_tau": 0.1},
            "server_tau belongs to server_optimizer adam, yogi, not momentum",
        ),
        ({"workers": -1}, "workers must be a whole number >= 0, not -1"),
        ({"state_memory": -1}, "state_memory must be a number >= 0, not -1"),
        ({"evaluate_every": 0}, "evaluate_every must be a whole number >= 1, not 0"),
        ({"checkpoint_every": -1}, "checkpoint_every must be a whole number >= 0, not -1"),
    ],
)
def test_invalid_values_are_named(given, message):
    with pytest.raises(ValueError, match=message):
        RunOptions(**given)


def test_importing_the_options_does_not_import_torch():
    code = "import sys, aquila.runtime.options; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
