"""Progress and trackers as callbacks of a run in Python."""

import pytest
import torch

import aquila
from aquila.report.run_callbacks import _facts
from aquila.report.trackers import TrackedRun
from aquila.sim.callbacks import RunStart
from helpers.problems import ridge

PROBLEM = ridge(devices=3, dimension=8)
METHOD = aquila.create("laq", alpha=0.3 / PROBLEM.smoothness())


def simulate(on_record, rounds=4, **options):
    return aquila.simulate(
        METHOD,
        torch.zeros(8),
        PROBLEM.devices,
        rounds,
        on_record=on_record,
        options=aquila.RunOptions(**options),
    )


def test_progress_prints_lines(capsys, tmp_path):
    simulate(aquila.progress(), rounds=2, out=tmp_path)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:3] for line in lines] == [["laq", "round", f"{n}/2"] for n in (1, 2)]
    simulate(aquila.progress("mine"), rounds=4, out=tmp_path, resume=True)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:3] for line in lines] == [["mine", "round", f"{n}/4"] for n in (3, 4)]


def test_trackers_need_a_target():
    with pytest.raises(ValueError, match="needs a TensorBoard folder or the address of MLflow"):
        aquila.trackers()


def test_tensorboard_gets_every_round(tmp_path):
    pytest.importorskip("tensorboard", reason="needs the extra [tensorboard]")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    board, out = tmp_path / "board", tmp_path / "run"

    def losses(name):
        events = EventAccumulator(str(board / name))
        events.Reload()
        return [(scalar.step, scalar.value) for scalar in events.Scalars("loss")]

    first = simulate(aquila.trackers(board, settings={"data": "ridge"}), out=out)
    expected = [(record.round, pytest.approx(record.loss)) for record in first.records]
    assert losses("laq") == expected
    resumed = simulate([aquila.trackers(str(board))], rounds=6, out=out, resume=True)
    assert len(losses("laq")) == len(resumed.records) == 6
    with pytest.raises(ValueError, match="laq already holds a run"):
        simulate(aquila.trackers(board))
    simulate(aquila.trackers(board, overwrite=True))
    assert losses("laq") == expected
    simulate(aquila.trackers(board, name="second"))
    assert losses("second") == expected


def test_trackers_know_the_method_and_the_options(monkeypatch, tmp_path):
    opened: list[TrackedRun] = []

    class Tracker:
        title = "list"

        def __init__(self, folder):
            self.finished = []

        def reserve_name(self, name, overwrite): ...

        def open(self, run, resume):
            opened.append(run)
            return self

        def known_rounds(self, rounds):
            return 0

        def log(self, round_number, values):
            raise OSError("no space left")

        def close(self, finished): ...

    monkeypatch.setattr("aquila.report.trackers.tensorboard.TensorBoard", Tracker)
    tracker = aquila.trackers(tmp_path, settings={"data": "ridge"})
    with pytest.warns(RuntimeWarning, match="logging to list stopped; a resumed run logs"):
        simulate(tracker, out=tmp_path / "run", uplink_loss=0.1)
    (run,) = opened
    assert run.folder == tmp_path / "run"
    assert run.facts["method"] == "laq"
    assert run.facts["method.alpha"] == METHOD.device.alpha
    assert (run.facts["uplink_loss"], run.facts["seed"], run.facts["data"]) == (0.1, 0, "ridge")


def test_refused_run_leaves_the_log_of_the_last_one_alone(monkeypatch, tmp_path):
    ends = []

    class Tracker:
        title = "list"

        def __init__(self, folder):
            self.names = set()

        def reserve_name(self, name, overwrite):
            if name in self.names:
                raise ValueError("already holds a run")
            self.names.add(name)

        def open(self, run, resume):
            return self

        def known_rounds(self, rounds):
            return 0

        def log(self, round_number, values): ...

        def close(self, finished):
            ends.append(finished)

    monkeypatch.setattr("aquila.report.trackers.tensorboard.TensorBoard", Tracker)
    tracker = aquila.trackers(tmp_path)
    simulate(tracker)
    with pytest.raises(ValueError, match="already holds a run"):
        simulate(tracker)
    assert ends == [True]


def test_trackers_know_the_parameters_of_wrapped_methods():
    facts = _facts(RunStart(aquila.create("ladaq", alpha=0.25), 1, 0, aquila.RunOptions()))
    assert facts["method.alpha"] == 0.25


def test_callbacks_know_the_local_training():
    class Log:
        def begin(self, start):
            self.work = start.work

        def __call__(self, record): ...

    training = aquila.LocalTraining(momentum=0.9)
    shards = [(torch.zeros(6, 2), torch.zeros(6, dtype=torch.int64))] * 2
    problem = aquila.problem(torch.nn.Linear(2, 2), shards, batch_size=3, training=training)
    log = Log()
    problem.train(aquila.create("fedavg"), rounds=1, on_record=log)
    assert log.work == {"batch_size": 3, "epochs": 1, **training.to_dict()}
    simulate(log)
    assert log.work == {}
