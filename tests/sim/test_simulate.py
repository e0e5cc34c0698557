import gc
import json
import weakref

import numpy as np
import pytest
import torch

import aquila
from aquila.sim.records import RECORDS_FILE, read_records
from aquila.sim.run_folder import CHECKPOINT_FILE
from helpers.problems import ridge

PROBLEM = ridge(devices=3, dimension=8)
METHOD = aquila.create("aquila", alpha=0.3 / PROBLEM.smoothness(), b_min=2)
THETA0 = torch.zeros(8)


def simulate(rounds=6, seed=0, evaluate=None, on_record=None, **options):
    return aquila.simulate(
        METHOD,
        THETA0,
        PROBLEM.devices,
        rounds,
        seed,
        evaluate=evaluate,
        on_record=on_record,
        options=aquila.RunOptions(**options),
    )


def test_records_describe_each_round():
    run = simulate()
    assert [r.round for r in run.records] == list(range(6))
    first = run.records[0]
    assert first.loss == pytest.approx(PROBLEM.loss(THETA0.double()), rel=1e-6)
    assert first.uploads == 3
    assert first.uploads + first.skips + first.lost + first.refused == 3
    assert set(first.levels) == set(first.uplink) == {0, 1, 2}
    assert first.uplink_bytes == sum(first.uplink.values())
    assert first.paper_bits == sum(level * 8 for level in first.levels.values())
    assert first.mean_level == sum(first.levels.values()) / 3
    assert 0 < first.error_ratio < 1


def test_initial_model_is_not_changed():
    simulate()
    assert not THETA0.any()


def test_records_stream_to_disk_as_json_lines(tmp_path):
    lines_seen = []

    def count(record):
        lines_seen.append(len((tmp_path / RECORDS_FILE).read_text().splitlines()))

    run = simulate(out=tmp_path, on_record=count)
    assert lines_seen == [1, 2, 3, 4, 5, 6]
    assert read_records(tmp_path) == run.records
    assert json.loads((tmp_path / RECORDS_FILE).read_text().splitlines()[0])["round"] == 0


@pytest.mark.parametrize("interrupted_after", range(7))
def test_resumes_from_any_round(tmp_path, interrupted_after):
    whole = simulate()
    simulate(rounds=interrupted_after, out=tmp_path, checkpoint_every=2)
    resumed = simulate(out=tmp_path, resume=True, checkpoint_every=2)
    assert resumed.records == whole.records
    assert torch.equal(resumed.theta, whole.theta)
    assert read_records(tmp_path) == whole.records


def test_resumes_after_a_truncated_line(tmp_path):
    whole = simulate(out=tmp_path, checkpoint_every=4)
    simulate_path = tmp_path / "second"
    simulate(rounds=4, out=simulate_path, checkpoint_every=4)
    with (simulate_path / RECORDS_FILE).open("a") as file:
        file.write('{"round": 4, "lo')
    resumed = simulate(out=simulate_path, resume=True)
    assert resumed.records == whole.records


def test_finished_run_is_not_repeated(tmp_path):
    whole = simulate(out=tmp_path)
    again = simulate(out=tmp_path, resume=True, on_record=lambda record: pytest.fail("ran again"))
    assert again.records == whole.records
    assert torch.equal(again.theta, whole.theta)


def test_folder_with_a_run_is_not_overwritten(tmp_path):
    simulate(out=tmp_path)
    before = (tmp_path / RECORDS_FILE).read_bytes()
    with pytest.raises(ValueError, match="already holds a run; set resume=True to continue it, or"):
        simulate(out=tmp_path)
    assert (tmp_path / RECORDS_FILE).read_bytes() == before


def test_checkpoints_can_be_switched_off(tmp_path):
    simulate(rounds=12, out=tmp_path, checkpoint_every=0)
    assert not (tmp_path / CHECKPOINT_FILE).exists()


def test_another_run_cannot_be_resumed(tmp_path):
    simulate(out=tmp_path)
    with pytest.raises(ValueError, match="of another run"):
        simulate(out=tmp_path, resume=True, seed=1)
    other = aquila.create("laq")
    with pytest.raises(ValueError, match=r"of another run.*method laq .*saved: method aquila"):
        aquila.simulate(
            other, THETA0, PROBLEM.devices, options=aquila.RunOptions(out=tmp_path, resume=True)
        )


def test_another_setting_or_model_cannot_be_resumed(tmp_path):
    simulate(out=tmp_path, identity="batches of 10\nmodel ridge")
    with pytest.raises(ValueError, match="of another run"):
        simulate(out=tmp_path, identity="batches of 20\nmodel ridge", resume=True)
    other = aquila.RunOptions(identity="batches of 10\nmodel ridge", out=tmp_path, resume=True)
    with pytest.raises(ValueError, match=r"resumed: model \d[^;]* \(saved: model \d[^;]*\)$"):
        aquila.simulate(METHOD, THETA0 + 1, PROBLEM.devices, 6, options=other)


def test_incomplete_checkpoint_is_an_error(tmp_path):
    simulate(out=tmp_path)
    with np.load(tmp_path / CHECKPOINT_FILE) as file:
        arrays = dict(file)
    for missing in ("acks", "last_rounds", "theta.", "server.q_bar.", "states.0", "states.0.q."):
        rest = {name: array for name, array in arrays.items() if name != missing}
        np.savez(tmp_path / CHECKPOINT_FILE, **rest)
        with pytest.raises(ValueError, match="is not a complete checkpoint"):
            simulate(out=tmp_path, resume=True)
    np.savez(tmp_path / CHECKPOINT_FILE, **{**arrays, "states.0.q.": np.zeros((3, 1), np.float32)})
    with pytest.raises(ValueError, match=r"q has shape \(1,\), not \(8,\)"):
        simulate(out=tmp_path, resume=True)
    np.savez(tmp_path / CHECKPOINT_FILE, **{**arrays, "states.0.q.": arrays["states.0.q."][:2]})
    with pytest.raises(ValueError, match="is not a complete checkpoint"):
        simulate(out=tmp_path, resume=True)


@pytest.mark.parametrize("content", [b"", b"not a checkpoint", b"PK\x03\x04 broken"])
def test_damaged_checkpoint_is_an_error(tmp_path, content):
    simulate(out=tmp_path)
    (tmp_path / CHECKPOINT_FILE).write_bytes(content)
    with pytest.raises(ValueError, match=r"checkpoint\.npz is not a checkpoint"):
        simulate(out=tmp_path, resume=True)


def test_checkpoint_with_pickles_is_an_error(tmp_path):
    simulate(out=tmp_path)
    np.savez(tmp_path / CHECKPOINT_FILE, fingerprint=np.array([{"a": 1}], dtype=object))
    with pytest.raises(ValueError, match="is not a checkpoint"):
        simulate(out=tmp_path, resume=True)


def test_missing_records_are_an_error(tmp_path):
    simulate(out=tmp_path)
    (tmp_path / RECORDS_FILE).write_text("")
    with pytest.raises(ValueError, match="has 0 records"):
        simulate(out=tmp_path, resume=True)


def test_finished_run_is_freed_without_garbage_collection():
    run = aquila.Simulation(METHOD, THETA0, PROBLEM.devices)
    run.advance()
    gone = weakref.ref(run)
    gc.disable()
    try:
        del run
        assert gone() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("line", ["[]", "garbage", "{}", '{"round": 3}'])
def test_damaged_record_is_an_error(tmp_path, line):
    simulate(out=tmp_path)
    lines = (tmp_path / RECORDS_FILE).read_text().splitlines()
    (tmp_path / RECORDS_FILE).write_text("\n".join([lines[0], line, *lines[2:]]) + "\n")
    with pytest.raises(ValueError, match="line 2, is not the record of round 1"):
        simulate(out=tmp_path, resume=True)


def test_records_without_a_checkpoint_are_not_deleted(tmp_path):
    simulate(out=tmp_path)
    (tmp_path / CHECKPOINT_FILE).unlink()
    before = (tmp_path / RECORDS_FILE).read_bytes()
    with pytest.raises(ValueError, match="holds records but no checkpoint"):
        simulate(out=tmp_path, resume=True)
    assert (tmp_path / RECORDS_FILE).read_bytes() == before


def test_invalid_arguments_are_errors(tmp_path):
    simulate(out=tmp_path)
    with pytest.raises(ValueError, match="already holds 6 rounds"):
        simulate(out=tmp_path, rounds=3, resume=True)
    with pytest.raises(ValueError, match="rounds must be a whole number >= 0, not -1"):
        simulate(rounds=-1)
    with pytest.raises(ValueError, match=r"rounds must be a whole number >= 0, not 2\.5"):
        simulate(rounds=2.5)
    with pytest.raises(ValueError, match="seed must be a whole number >= 0, not 'a'"):
        aquila.simulate(METHOD, THETA0, PROBLEM.devices, seed="a")
    with pytest.raises(TypeError, match=r"options must be aquila.RunOptions\(...\)"):
        aquila.simulate(METHOD, THETA0, PROBLEM.devices, options={"workers": 1})
    with pytest.raises(TypeError, match="devices must be a list of devices, not function"):
        aquila.simulate(METHOD, THETA0, lambda theta: (0.0, theta))
    with pytest.raises(TypeError, match="evaluate must be a function theta -> metrics, not 3"):
        aquila.simulate(METHOD, THETA0, PROBLEM.devices, evaluate=3)
    with pytest.raises(TypeError, match="evaluate must return numbers by name"):
        aquila.simulate(METHOD, THETA0, PROBLEM.devices, evaluate=lambda theta: 0.5)
    with pytest.raises(TypeError, match="device 0, round 0: the loss must be one number"):
        aquila.simulate(METHOD, THETA0, [lambda theta: (theta, theta)])
    with pytest.raises(ValueError, match="out must be the path of a folder, not 5"):
        aquila.RunOptions(out=5)
    with pytest.raises(TypeError, match="method must be the result of"):
        aquila.simulate("aquila", THETA0, PROBLEM.devices)
    with pytest.raises(TypeError, match="theta0 must be a torch tensor, not list"):
        aquila.simulate(METHOD, [0.0], PROBLEM.devices)
    with pytest.raises(
        TypeError, match=r"device 0, round 0: a device must return \(loss, gradient\)"
    ):
        aquila.simulate(METHOD, THETA0, [lambda theta: theta])


def test_resume_needs_a_folder():
    with pytest.raises(ValueError, match="resume=True needs the folder"):
        simulate(resume=True)


def test_evaluates_every_few_rounds_and_at_the_end():
    run = simulate(evaluate=lambda theta: {"size": float(theta.norm())}, evaluate_every=4)
    assert [r.round for r in run.records if r.metrics] == [3, 5]
    assert run.records[-1].metrics["size"] == pytest.approx(float(run.theta.norm()))


def test_lost_replies_and_orders_are_counted():
    run = simulate(rounds=100, uplink_loss=0.25, downlink_loss=0.25)
    lost = sum(r.lost for r in run.records)
    assert 0.35 < lost / 300 < 0.52
    assert all(r.uploads + r.skips + r.lost == 3 for r in run.records)


@pytest.mark.parametrize(
    ("theta", "problem"),
    [
        (torch.zeros(2, 4), "flat float32 or float64"),
        (torch.zeros(8, dtype=torch.float16), "flat float32 or float64"),
        (torch.zeros(0), "flat float32 or float64"),
        (torch.full((8,), float("nan")), "NaN or infinite"),
    ],
)
def test_invalid_initial_models_are_errors(theta, problem):
    with pytest.raises(ValueError, match=problem):
        aquila.simulate(METHOD, theta, PROBLEM.devices)


def test_invalid_devices_are_errors():
    with pytest.raises(ValueError, match="at least one device"):
        aquila.simulate(METHOD, THETA0, [])
    with pytest.raises(TypeError, match="a device is a function"):
        aquila.simulate(METHOD, THETA0, [3])


def test_accepts_user_defined_oracles():
    class Mine:
        samples = 7

        def gradient(self, theta):
            return 1.0, theta - 1

        def train(self, theta, alpha):
            return 1.0, theta - 1

    run = aquila.simulate(aquila.create("fedavg", alpha=0.5), torch.zeros(3), [Mine()], rounds=30)
    torch.testing.assert_close(run.theta, torch.ones(3))
