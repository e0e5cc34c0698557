"""Runs that end before their last round: by a target, by patience, or by a callback."""

import numpy as np
import pytest
import torch

import aquila
from aquila.sim.records import read_records
from aquila.sim.run_folder import CHECKPOINT_FILE
from helpers.problems import ridge

PROBLEM = ridge(devices=3, dimension=8)
METHOD = aquila.create("laq", alpha=0.3 / PROBLEM.smoothness())


def run(values, metric="accuracy", rounds=8, on_record=None, **options):
    """Run with an evaluation that returns one value after another."""
    returned = iter(values)
    return aquila.simulate(
        METHOD,
        torch.zeros(8),
        PROBLEM.devices,
        rounds,
        evaluate=lambda theta: {"other": 1.0, metric: next(returned)},
        on_record=on_record,
        options=aquila.RunOptions(**options),
    )


@pytest.mark.parametrize("metric", ["accuracy", "test_accuracy"])
def test_stops_when_an_accuracy_is_reached(metric):
    stopped = run([0.5, 0.7, 0.8, 0.9], metric, stop_at=0.8)
    assert len(stopped.records) == 3
    assert stopped.stopped == f"{metric} reached 0.8 after 3 rounds"


def test_accuracy_in_percent_is_refused():
    with pytest.raises(ValueError, match="stop_at is 90, but accuracy is at most 1; write 90 % as"):
        run([0.5, 0.7], stop_at=90)
    assert len(run([95.0, 80.0], "perplexity", stop_at=90).records) == 2


@pytest.mark.parametrize("metric", ["perplexity", "test_loss", "loss"])
def test_stops_when_a_loss_is_low_enough(metric):
    assert len(run([9.0, 4.0, 2.0, 1.0], metric, stop_at=3).records) == 3


def test_patience_counts_evaluations_without_improvement():
    stopped = run([0.5, 0.7, 0.7, 0.6, 0.9], patience=2)
    assert len(stopped.records) == 4
    assert stopped.stopped == (
        "accuracy has not improved in 2 evaluations; the best was 0.7 after 2 rounds"
    )
    assert stopped.best.round == 1
    assert len(run([0.5, 0.7, 0.7, 0.6, 0.9], patience=2, evaluate_every=2).records) == 8


def test_values_that_are_not_finite_count_as_no_improvement():
    nan = float("nan")
    assert len(run([0.5, nan, nan, 0.9], patience=2).records) == 3


def test_run_to_the_end_is_not_stopped():
    finished = run([0.1] * 8)
    assert (len(finished.records), finished.stopped) == (8, None)


def test_perplexity_is_the_main_metric_of_texts():
    values = [{"test_accuracy": 0.1 * n, "perplexity": 9.0 + n} for n in range(1, 5)]
    returned = iter(values)
    trained = aquila.simulate(
        METHOD, torch.zeros(8), PROBLEM.devices, 4, evaluate=lambda theta: next(returned)
    )
    assert (trained.best.metric, trained.best.round) == ("perplexity", 0)


def test_callback_may_return_a_bool_of_numpy():
    ended = run([0.1] * 8, on_record=lambda record: np.float64(record.round) > 1)
    assert len(ended.records) == 3


@pytest.mark.parametrize("every", [0, 1, 5])
def test_callback_that_returns_true_ends_the_run(tmp_path, every):
    seen = []

    def stop(record):
        seen.append(record.round)
        return record.round == 2

    # a count of characters is truthy, but does not end the run
    callbacks = [stop, lambda record: 7]
    ended = run([0.1] * 8, on_record=callbacks, out=tmp_path, checkpoint_every=every)
    assert seen == [0, 1, 2]
    assert ended.stopped == "on_record returned True"
    assert read_records(tmp_path) == ended.records
    assert (tmp_path / CHECKPOINT_FILE).exists() == bool(every)
    assert (tmp_path / "model.safetensors").exists()


def test_stopped_run_can_be_continued(tmp_path):
    values = [0.5, 0.7, 0.8, 0.9, 0.9, 0.9, 0.9, 0.9]
    whole = run(values)
    run(values, stop_at=0.8, out=tmp_path)
    same = run([], stop_at=0.8, out=tmp_path, resume=True)
    assert len(same.records) == 3
    assert same.stopped == "accuracy reached 0.8 after 3 rounds"
    longer = run(values[3:], out=tmp_path, resume=True)
    assert longer.records == whole.records
    assert torch.equal(longer.theta, whole.theta)


def test_patience_continues_after_an_interruption(tmp_path):
    values = [0.5, 0.7, 0.7, 0.6, 0.6, 0.6, 0.6, 0.6]

    def interrupt(record):
        if record.round == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(values, patience=3, out=tmp_path, on_record=interrupt)
    resumed = run(values[3:], patience=3, out=tmp_path, resume=True)
    assert len(resumed.records) == len(run(values, patience=3).records) == 5


def test_rules_without_a_metric_are_errors(tmp_path):
    options = aquila.RunOptions(patience=1, out=tmp_path / "run")
    with pytest.raises(ValueError, match="stop_at and patience need metrics: pass evaluate"):
        aquila.simulate(METHOD, torch.zeros(8), PROBLEM.devices, options=options)
    assert not (tmp_path / "run").exists()
    with pytest.raises(ValueError, match=r"need one of the metrics .*, but evaluate returned oth"):
        run([0.5], metric="size", stop_at=1)
    with pytest.raises(ValueError, match="stop_at must be a number >= 0, not -1"):
        aquila.RunOptions(stop_at=-1)


def test_callbacks_begin_and_close():
    class Log:
        def __init__(self):
            self.calls = []

        def begin(self, start):
            self.calls.append((start.method.name, start.rounds, len(start.records)))

        def __call__(self, record):
            self.calls.append(record.round)

        def close(self, complete):  # a user's own name of the argument
            self.calls.append(complete)

    log = Log()
    run([0.1] * 2, rounds=2, on_record=log)
    assert log.calls == [("laq", 2, 0), 0, 1, True]

    def fail(record):
        raise KeyboardInterrupt

    log = Log()
    with pytest.raises(KeyboardInterrupt):
        run([0.1] * 2, rounds=2, on_record=[log, fail])
    assert log.calls == [("laq", 2, 0), 0, False]
    with pytest.raises(TypeError, match="on_record must be a function of a record or a list"):
        run([], on_record=[3])


def test_run_prints_in_one_line():
    stopped = run([0.5, 0.7, 0.8], stop_at=0.8)
    assert str(stopped) == (
        "Run(8 parameters, 3 rounds, best accuracy 0.8, stopped: accuracy reached 0.8 after 3 "
        "rounds)"
    )
    assert str(stopped.best) == "BestModel(round=2, metric='accuracy', value=0.8)"
