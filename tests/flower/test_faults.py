"""Faults of devices and links: each is logged in one line, and the run continues."""

import math

import pytest

pytest.importorskip("flwr", reason="not installed: pip install -e '.[flower]'")
import torch
from flwr.app import ConfigRecord, Error, Message, RecordDict
from local_grid import Node, local_grid

import aquila
import aquila.flower
from aquila import RunOptions
from aquila.flower import Deployment, rounds
from aquila.flower.transport import content_of, frame_of
from helpers.problems import ridge

PROBLEM = ridge(devices=3, dimension=30)
METHOD = aquila.create("aquila", alpha=0.5 / PROBLEM.smoothness(), b_min=2)
FIRST, LAST = 23757, 39595  # node ids of devices 0 and 2


def make_device(device, context):
    return PROBLEM.devices[device]


def grid_of(make=make_device):
    return local_grid(aquila.flower.client_app(METHOD, make), 3)


def run(grid, rounds=6, seed=0, options=RunOptions(), on_record=None, **deployment):
    given = Deployment(**{"deadline_seconds": 0.3, "wait_seconds": 2.0, **deployment})
    strategy = aquila.flower.strategy(
        METHOD, torch.zeros(30), 3, rounds, seed, options=options, deployment=given
    )
    return strategy.start(grid, on_record)


def without_device_0(rounds=6):
    """The simulator's model when the replies of device 0 never arrive."""
    simulation = aquila.Simulation(METHOD, torch.zeros(30), PROBLEM.devices)
    simulation.link = type("LossyLink", (), {
        "order_arrives": lambda self, key: True,
        "reply_arrives": lambda self, key: key.path[2] != 0,
    })()  # fmt: skip
    for _ in range(rounds):
        simulation.advance()
    return simulation.theta


def to_orders(change):
    """Apply a change to replies to orders, not to replies to queries."""
    return lambda reply: change(reply) if reply.metadata.message_type == "train.aquila" else reply


def with_frame(reply, frame):
    reply.content = content_of({}, {"f": frame})
    return reply


INVALID_REPLIES = {
    "garbage": (lambda reply: with_frame(reply, b"garbage" * 10), "not a frame"),
    "cut short": (lambda r: with_frame(r, frame_of(r.content, "f")[:-1]), "damaged"),
    "oversize": (lambda reply: with_frame(reply, bytes(10**6)), "frame of 1000000 bytes"),
    "empty": (lambda reply: with_frame(reply, b""), "cut short"),
    "no record": (lambda r: Message(RecordDict(), reply_to=r), "has no config record"),
    "other type": (
        lambda r: Message(RecordDict({"a": ConfigRecord({"f": "text"})}), reply_to=r),
        "has no 'f' of type bytes",
    ),
    "error": (
        lambda reply: Message(Error(5, "Node\nUnavailable"), reply_to=reply),
        "no reply: Node Unavailable",
    ),
    "nothing": (lambda reply: None, "no reply from device 0 within 0.3 s"),
}


def redirected(change):
    """Make a replaced reply still answer the order."""

    def changed(reply):
        made = change(reply)
        if made is not None:
            number = reply.metadata.reply_to_message_id
            made.metadata.__dict__["_reply_to_message_id"] = number
        return made

    return to_orders(changed)


@pytest.mark.parametrize("kind", INVALID_REPLIES)
def test_invalid_reply_counts_as_lost(kind, log):
    change, expected = INVALID_REPLIES[kind]
    grid = grid_of()
    grid.nodes[FIRST].alter_reply = redirected(change)
    result = run(grid)
    assert torch.equal(result.theta, without_device_0())
    assert [record.lost for record in result.records] == [1] * 6
    lines = [r.getMessage() for r in log.records if expected in r.getMessage()]
    assert len(lines) == 6
    assert all("\n" not in line for line in lines)


def test_replayed_reply_is_refused(log):
    earlier: list[bytes] = []

    def replay(reply):
        earlier.append(frame_of(reply.content, "f"))
        return with_frame(reply, earlier[0])

    grid = grid_of()
    grid.nodes[FIRST].alter_reply = to_orders(replay)
    result = run(grid)
    assert [record.lost for record in result.records] == [0, 1, 1, 1, 1, 1]
    assert "reply to round 0 arrived in round 1" in log.text


def nan_on_0(device, context):
    if device == 0:
        return lambda theta: (1.0, theta * math.nan)
    return PROBLEM.devices[device]


def wrong_shape_on_0(device, context):
    return (lambda theta: (1.0, theta[:5])) if device == 0 else PROBLEM.devices[device]


def failing_on_0(device, context):
    def fail(theta):
        raise KeyError("no\nsuch file")

    return fail if device == 0 else PROBLEM.devices[device]


def absent_on_0(device, context):
    if device == 0:
        raise FileNotFoundError("the data of this device is missing")
    return PROBLEM.devices[device]


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (nan_on_0, "device 0: device 0, round 2: 30 of 30 coordinates of the gradient are NaN"),
        (wrong_shape_on_0, "device 0: device 0, round 2: the gradient is (5,)"),
        (failing_on_0, "device 0: KeyError: 'no\\nsuch file'"),
        (absent_on_0, "device 0: the data of this device is missing"),
    ],
)
def test_user_error_is_one_line_in_server_log(make, expected, log):
    result = run(grid_of(make))
    assert torch.equal(result.theta, without_device_0())
    lines = [r.getMessage() for r in log.records if r.filename == "rounds.py"]
    assert [line.split(":")[0] for line in lines] == ["round 0", "round 2", "round 5"]
    assert lines[1].startswith(f"round 2: {expected}")
    assert [record.quarantined for record in result.records] == [[0], None, [0], [0], None, [0]]
    assert any(r.exc_info for r in log.records) == (make in (failing_on_0, absent_on_0))


def test_run_stops_if_every_device_fails():
    with pytest.raises(RuntimeError, match=r"every device failed in round 0: device 0, round 0:"):
        run(grid_of(lambda device, context: lambda theta: (math.nan, theta)))


def test_model_changes_without_replies():
    models = []
    grid = grid_of()

    def drop_replies(record):
        models.append(record.metrics["first"])
        for node in grid.nodes.values():
            node.alter_reply = to_orders(lambda reply: None)

    run = aquila.flower.strategy(
        METHOD,
        torch.zeros(30),
        devices=3,
        rounds=3,
        evaluate=lambda theta: {"first": float(theta[0])},
        deployment=Deployment(deadline_seconds=0.3),
    )
    result = run.start(grid, on_record=drop_replies)
    assert [record.lost for record in result.records] == [0, 3, 3]
    assert len(set(models)) == 3


def test_late_device_takes_part_once_connected():
    grid = grid_of()
    grid.nodes[LAST].connected = False

    def connect(record):
        grid.nodes[LAST].connected = record.round >= 1

    result = run(grid, 5, min_devices=2, on_record=connect)
    assert [record.lost for record in result.records] == [1, 1, 0, 0, 0]


def test_device_returns_as_another_node():
    grid = grid_of()

    def change(record):
        if record.round == 1:
            grid.nodes[LAST].connected = False
        if record.round == 3:
            grid.nodes[99] = Node(grid.nodes[LAST].app, {"partition-id": 2})

    result = run(grid, 6, on_record=change)
    assert [record.lost for record in result.records] == [0, 0, 1, 1, 0, 0]


def test_run_without_devices_times_out():
    grid = grid_of()

    def disconnect(record):
        for node in grid.nodes.values():
            node.connected = False

    with pytest.raises(
        TimeoutError, match=r"0 of 1 devices connected within 0.5 s; missing: 0, 1, 2"
    ):
        run(grid, on_record=disconnect, wait_seconds=0.5)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"devices": 0}, "the run has 0 devices"),
        ({"rounds": -1}, "rounds must be a whole number >= 0, not -1"),
        ({"seed": -1}, "seed must be from 0"),
        ({"deployment": Deployment(min_devices=4)}, "min_devices must be from 1 to 3, not 4"),
        ({"options": RunOptions(fleet=aquila.Fleet.uniform(30, 4))}, "a fleet of 4 devices"),
        ({"options": RunOptions(uplink_loss=0.1)}, "uplink_loss is an option of the simulator"),
        ({"options": RunOptions(workers=2)}, "workers is an option of the sim"),
    ],
)
def test_invalid_option_is_named(options, expected):
    settings = {"devices": 3, "rounds": 1, **options}
    with pytest.raises(ValueError, match=expected):
        aquila.flower.strategy(METHOD, torch.zeros(30), **settings)


def test_deadline_must_be_above_0():
    with pytest.raises(ValueError, match="must be above 0"):
        Deployment(deadline_seconds=0)


def test_invalid_method_and_model_are_named():
    with pytest.raises(TypeError, match="method must be the result of aquila"):
        aquila.flower.strategy("aquila", torch.zeros(3), devices=1, rounds=1)
    with pytest.raises(ValueError, match="flat float32 or float64 vector"):
        aquila.flower.strategy(METHOD, torch.zeros(3, 3), devices=1, rounds=1)


def test_folder_of_different_run_is_refused(tmp_path):
    run(grid_of(), 2, options=RunOptions(out=tmp_path))
    with pytest.raises(ValueError, match=r"holds a different run .* seed 5 \(saved: seed 0\)"):
        run(grid_of(), 3, options=RunOptions(out=tmp_path), seed=5)


def test_run_with_different_slices_is_refused(tmp_path):
    def start(coordinates):
        fleet = aquila.Fleet(30, [0, 1, 1], [None, coordinates])
        run(grid_of(), 0, options=RunOptions(out=tmp_path, fleet=fleet))

    start(torch.arange(10))
    start(torch.arange(10))
    with pytest.raises(ValueError, match=r"holds a different run .* slices all, 10 x .* \(saved"):
        start(torch.arange(10, 20))


def test_damaged_checkpoint_is_refused(tmp_path):
    run(grid_of(), 2, options=RunOptions(out=tmp_path))
    path = tmp_path / "server.state"
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(ValueError, match="cannot be resumed"):
        run(grid_of(), 3, options=RunOptions(out=tmp_path))


def test_large_replies_are_pulled_in_small_groups(monkeypatch):
    monkeypatch.setattr(rounds, "MIN_PULL", 2)
    monkeypatch.setattr(rounds, "PULL_BYTES", 1)
    grid, pulled = grid_of(), []
    pull = grid.pull_messages
    monkeypatch.setattr(grid, "pull_messages", lambda ids: pulled.append(len(ids)) or pull(ids))
    result = run(grid)
    assert pulled[1:] == [2, 1] * 6  # after the query for device numbers
    assert result.theta.equal(run(grid_of()).theta)
