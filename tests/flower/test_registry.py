"""Nodes report their device number once; invalid answers are refused with one log line."""

import pytest

pytest.importorskip("flwr", reason="not installed: pip install -e '.[flower]'")
from flwr.app import Error, Message
from local_grid import LocalGrid, Node

import aquila
import aquila.flower
from aquila.flower.registry import DeviceRegistry

METHOD = aquila.create("aquila")
APP = aquila.flower.client_app(METHOD, lambda device, context: None)
HELLO = {"method": repr(METHOD)}


def registry_of(nodes, devices=3):
    registry = DeviceRegistry(devices, HELLO)
    return registry, LocalGrid(nodes)


def test_nodes_are_assigned_and_queried_once():
    registry, grid = registry_of({9 - m: Node(APP, {"partition-id": m}) for m in range(3)})
    for _ in range(3):
        assert registry.update(grid) == {0: 9, 1: 8, 2: 7}
    assert len(grid.sent) == 3


def test_config_key_device_gives_the_number():
    registry, grid = registry_of({5: Node(APP, {"device": 1})})
    assert registry.update(grid) == {1: 5}


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"partition-id": 3}, "node 6 claims to be device 3, but valid numbers are 0 to 2"),
        ({"partition-id": 0}, "node 6 claims to be device 0, but node 5 already is"),
        ({}, "node 6 cannot take part: this node has no device number"),
        ({"partition-id": -1}, "this node has no device number"),
        ({"partition-id": "1"}, "this node has no device number"),
    ],
)
def test_reason_for_rejection_is_logged_once(config, expected, log):
    registry, grid = registry_of({5: Node(APP, {"partition-id": 0}), 6: Node(APP, config)})
    for _ in range(3):
        assert registry.update(grid) == {0: 5}
    (line,) = [r.getMessage() for r in log.records if r.filename == "registry.py"]
    assert expected in line
    assert not any(record.exc_info for record in log.records)


def test_number_is_free_after_its_node_disconnects():
    nodes = {5: Node(APP, {"partition-id": 0}), 6: Node(APP, {"partition-id": 0})}
    registry, grid = registry_of(nodes)
    registry.update(grid)
    nodes[5].connected = False
    assert registry.update(grid) == {0: 6}
    nodes[5].connected = True
    assert registry.update(grid) == {0: 6}


def test_node_with_different_method_is_refused(log):
    other = aquila.flower.client_app(aquila.create("laq"), lambda device, context: None)
    registry, grid = registry_of({5: Node(other, {"partition-id": 0})})
    assert registry.update(grid) == {}
    assert "the server runs Method(name='aquila'" in log.text


def test_failed_node_is_queried_again(log):
    broken = Node(APP, {"partition-id": 0}, lambda r: failed(r, "app\nnot found"))
    registry, grid = registry_of({5: broken})
    for _ in range(3):
        assert registry.update(grid) == {}
    assert [r.getMessage() for r in log.records] == ["node 5 did not answer: app not found"]
    broken.alter_reply = lambda reply: reply
    assert registry.update(grid) == {0: 5}


def failed(reply, reason):
    made = Message(Error(1, reason), reply_to=reply)
    made.metadata.__dict__["_reply_to_message_id"] = reply.metadata.reply_to_message_id
    return made


def test_waiting_times_out():
    registry, grid = registry_of({5: Node(APP, {"partition-id": 1})})
    with pytest.raises(
        TimeoutError, match=r"1 of 3 devices connected within 0.3 s; missing: 0, 2 "
    ):
        registry.wait(grid, 3, 0.3)
