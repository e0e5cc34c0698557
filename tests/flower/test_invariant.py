"""Whatever happens to messages and files, q̄ stays the mean of what the devices remember."""

import math

import pytest

pytest.importorskip("flwr", reason="not installed: pip install 'aquila-fl[flower]'")
import torch
from flwr.app import Message
from grids import LocalGrid, local_grid

import aquila
import aquila.flower
from aquila.runtime.session import ServerSession
from faults.consistency import assert_consistent
from faults.losses import LossyGrid
from faults.scene import DEVICES, METHOD, PROBLEM, theta0
from faults.spoiling import SAID, spoiled

FIRST = 23757  # node id of device 0


class Theatre:
    """A run on nodes of this process whose files can be looked at and taken away."""

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
            METHOD, theta0(), devices=DEVICES, rounds=rounds, deadline_seconds=0.05,
            wait_seconds=5, checkpoint_folder=self.run_folder, on_record=on_record,
        )  # fmt: skip
        return strategy.start(grid or self.grid)

    def check(self):
        assert_consistent(self.run_folder, self.states, METHOD, theta0(), DEVICES)

    def fate(self, change):
        """Let a fate meet what device 0 answers to orders."""

        def met(reply: Message) -> Message | None:
            return change(reply) if reply.metadata.message_type == "train.aquila" else reply

        self.grid.nodes[FIRST].fate = met

    @property
    def state(self):
        (path,) = self.states.glob("*/device-0.state")
        return path


@pytest.fixture
def theatre(tmp_path):
    return Theatre(tmp_path)


def losses(result):
    return [record.lost for record in result.records]


@pytest.mark.parametrize("lie", SAID)
def test_a_device_that_lies(lie, theatre, tmp_path, log):
    (tmp_path / "spoil-0").write_text("\n".join(["replay", lie, lie]))
    theatre.fate(lambda reply: spoiled(reply, 0, tmp_path))
    assert losses(theatre.run(5)) == [0, 1, 1, 0, 0]
    theatre.check()
    lines = [r.getMessage() for r in log.records if SAID[lie] in r.getMessage()]
    assert [line.split(":")[0] for line in lines] == ["round 1", "round 2"]


def test_a_fifth_of_the_replies_is_dropped(theatre, log):
    lost = losses(theatre.run(30, grid=LossyGrid(theatre.grid, 5)))
    assert sum(lost) == 18
    assert log.text.count("no reply of device") == sum(lost)
    theatre.check()


def test_gradients_that_are_no_numbers(theatre):
    def spoil(record):
        theatre.bad_gradients = record.round in (0, 1, 4)

    assert losses(theatre.run(6, spoil)) == [0, 1, 1, 0, 0, 1]
    theatre.check()


def test_a_slow_device_whose_memory_is_reused(theatre):
    late: list[Message] = []

    def delay(reply):
        late.append(reply)
        return reply if len(late) not in (2, 3) else None

    theatre.fate(delay)
    assert losses(theatre.run(5)) == [0, 1, 1, 0, 0]
    theatre.check()


def test_a_state_that_is_lost_for_good(theatre, log):
    def lose(record):
        if record.round in (2, 4):
            theatre.state.unlink()

    result = theatre.run(7, lose)
    assert losses(result) == [0] * 7
    assert log.text.count("from its initial state: the server acknowledges its reply") == 2
    theatre.check()


def test_an_old_state_from_a_backup(theatre):
    kept = []

    def put_back(record):
        kept.append(theatre.state.read_bytes())
        if record.round == 4:
            theatre.state.write_bytes(kept[1])

    assert losses(theatre.run(7, put_back)) == [0] * 7
    theatre.check()


class Dying(LocalGrid):
    """A grid whose server dies when all replies of a round are there."""

    def __init__(self, nodes, round):
        super().__init__(nodes)
        self.round = str(round)

    def pull_messages(self, message_ids):
        replies = super().pull_messages(message_ids)
        if any(reply.metadata.group_id == self.round for reply in replies):
            raise ConnectionError("the server is gone")
        return replies


def test_a_server_that_dies_in_a_round_and_goes_on(theatre, log):
    for _ in range(2):
        with pytest.raises(ConnectionError):
            theatre.run(6, grid=Dying(theatre.grid.nodes, 3))
    result = theatre.run(6)
    theatre.check()
    undisturbed = aquila.simulate(METHOD, theta0(), PROBLEM.devices, 6)
    assert torch.equal(result.theta, undisturbed.theta)
    assert [record.notes.get("attempts", 1) for record in result.records] == [1, 1, 1, 3, 1, 1]
    assert [r.uplink for r in result.records] == [r.uplink for r in undisturbed.records]
    assert log.text.count("round 3 was begun before: its messages are sent again") == 2


def test_the_check_finds_a_memory_that_is_counted_twice(theatre, monkeypatch):
    monkeypatch.setattr(ServerSession, "_starts_anew", lambda self, device, reply: False)

    def lose(record):
        if record.round == 2:
            theatre.state.unlink()

    theatre.run(5, lose)
    with pytest.raises(AssertionError, match="not close"):
        theatre.check()
