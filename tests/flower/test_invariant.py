"""q̄ stays the mean of the devices' memories under faults of messages and files."""

import math

import pytest

pytest.importorskip("flwr", reason="not installed: pip install -e '.[flower]'")
import torch
from flwr.app import Message
from local_grid import LocalGrid, local_grid

import aquila
import aquila.flower
from aquila.runtime.server_session import ServerSession
from faults.bad_frames import EXPECTED_MESSAGES, with_bad_frame
from faults.consistency import assert_consistent
from faults.lossy_grid import LossyGrid
from faults.setup import DEVICES, METHOD, PROBLEM, theta0

FIRST = 23757  # node id of device 0


class LocalRun:
    """A run on nodes of this process, whose files a test can read and delete."""

    def __init__(self, folder):
        self.run_folder, self.states = folder / "run", folder / "state" / "aquila" / "flower"
        self.bad_gradients = False
        self.grid = local_grid(aquila.flower.client_app(METHOD, self._device), DEVICES)

    def _device(self, device, context):
        def answer(theta):
            loss, gradient = PROBLEM.devices[device](theta)
            return loss, gradient * math.nan if self.bad_gradients and device == 0 else gradient

        return answer

    def run(self, rounds, on_record=lambda record: None, grid=None):
        strategy = aquila.flower.strategy(
            METHOD,
            theta0(),
            devices=DEVICES,
            rounds=rounds,
            options=aquila.RunOptions(out=self.run_folder),
            deployment=aquila.flower.Deployment(deadline_seconds=0.05, wait_seconds=5),
        )
        return strategy.start(grid or self.grid, on_record)

    def check(self):
        assert_consistent(self.run_folder, self.states, METHOD, theta0(), DEVICES)

    def alter_replies(self, change):
        """Alter the replies of device 0 to orders."""

        def altered(reply: Message) -> Message | None:
            return change(reply) if reply.metadata.message_type == "train.aquila" else reply

        self.grid.nodes[FIRST].alter_reply = altered

    @property
    def state(self):
        (path,) = self.states.glob("*/device-0.state")
        return path


@pytest.fixture
def local_run(tmp_path):
    return LocalRun(tmp_path)


def losses(result):
    return [record.lost for record in result.records]


@pytest.mark.parametrize("kind", EXPECTED_MESSAGES)
def test_forged_frames_are_refused(kind, local_run, tmp_path, log):
    (tmp_path / "bad-frame-0").write_text("\n".join(["replay", kind, kind]))
    local_run.alter_replies(lambda reply: with_bad_frame(reply, 0, tmp_path))
    assert losses(local_run.run(5)) == [0, 1, 1, 0, 0]
    local_run.check()
    lines = [r.getMessage() for r in log.records if EXPECTED_MESSAGES[kind] in r.getMessage()]
    assert [line.split(":")[0] for line in lines] == ["round 1", "round 2"]


def test_lost_replies(local_run, log):
    lost = losses(local_run.run(30, grid=LossyGrid(local_run.grid, 5)))
    assert sum(lost) == 18
    assert log.text.count("no reply from device") == sum(lost)
    local_run.check()


def test_nan_gradients(local_run):
    def inject_nan(record):
        local_run.bad_gradients = record.round in (0, 1, 4)

    assert losses(local_run.run(6, inject_nan)) == [0, 1, 0, 0, 0, 1]  # quarantined in round 2
    local_run.check()


def test_late_replies(local_run):
    late: list[Message] = []

    def delay(reply):
        late.append(reply)
        return reply if len(late) not in (2, 3) else None

    local_run.alter_replies(delay)
    assert losses(local_run.run(5)) == [0, 1, 1, 0, 0]
    local_run.check()


def test_lost_device_state(local_run, log):
    def lose(record):
        if record.round in (2, 4):
            local_run.state.unlink()

    result = local_run.run(7, lose)
    assert losses(result) == [0] * 7
    assert log.text.count("from its initial state: the server acknowledges its reply") == 2
    local_run.check()


def test_old_device_state_restored_from_backup(local_run):
    kept = []

    def restore(record):
        kept.append(local_run.state.read_bytes())
        if record.round == 4:
            local_run.state.write_bytes(kept[1])

    assert losses(local_run.run(7, restore)) == [0] * 7
    local_run.check()


class CrashingGrid(LocalGrid):
    """A grid that fails when the replies of one round have arrived, as if the server died."""

    def __init__(self, nodes, crash_round):
        super().__init__(nodes)
        self.crash_round = str(crash_round)

    def pull_messages(self, message_ids):
        replies = super().pull_messages(message_ids)
        if any(reply.metadata.group_id == self.crash_round for reply in replies):
            raise ConnectionError("the server died")
        return replies


def test_server_killed_twice_in_a_round_and_resumed(local_run, log):
    for _ in range(2):
        with pytest.raises(ConnectionError):
            local_run.run(6, grid=CrashingGrid(local_run.grid.nodes, 3))
    result = local_run.run(6)
    local_run.check()
    undisturbed = aquila.simulate(METHOD, theta0(), PROBLEM.devices, 6)
    assert torch.equal(result.theta, undisturbed.theta)
    assert [record.notes.get("attempts", 1) for record in result.records] == [1, 1, 1, 3, 1, 1]
    assert [r.uplink for r in result.records] == [r.uplink for r in undisturbed.records]
    assert log.text.count("round 3 was interrupted; its orders are sent again") == 2


def test_check_detects_memory_counted_twice(local_run, monkeypatch):
    monkeypatch.setattr(ServerSession, "_is_fresh_start", lambda self, device, reply: False)

    def lose(record):
        if record.round == 2:
            local_run.state.unlink()

    local_run.run(5, lose)
    with pytest.raises(AssertionError, match="not close"):
        local_run.check()
