"""Nodes say which device they are, once; wrong answers are refused in one line."""

import pytest

pytest.importorskip("flwr", reason="not installed: pip install 'aquila-fl[flower]'")
from flwr.app import Error, Message
from grids import LocalGrid, Node

import aquila
import aquila.flower
from aquila.flower.roster import Roster

METHOD = aquila.create("aquila")
APP = aquila.flower.client_app(METHOD, lambda device, context: None)
HELLO = {"method": repr(METHOD)}


def roster_of(nodes, devices=3):
    roster = Roster(devices, HELLO)
    return roster, LocalGrid(nodes)


def test_nodes_find_their_seats_and_are_asked_once():
    roster, grid = roster_of({9 - m: Node(APP, {"partition-id": m}) for m in range(3)})
    for _ in range(3):
        assert roster.update(grid) == {0: 9, 1: 8, 2: 7}
    assert len(grid.sent) == 3


def test_the_number_may_be_called_device():
    roster, grid = roster_of({5: Node(APP, {"device": 1})})
    assert roster.update(grid) == {1: 5}


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"partition-id": 3}, "node 6 says it is device 3, but devices are 0 to 2"),
        ({"partition-id": 0}, "node 6 says it is device 0, which node 5 is already"),
        ({}, "node 6 cannot take part: this node has no device number"),
        ({"partition-id": -1}, "this node has no device number"),
        ({"partition-id": "1"}, "this node has no device number"),
    ],
)
def test_a_node_without_a_seat_is_told_why_once(config, said, log):
    roster, grid = roster_of({5: Node(APP, {"partition-id": 0}), 6: Node(APP, config)})
    for _ in range(3):
        assert roster.update(grid) == {0: 5}
    (line,) = [r.getMessage() for r in log.records if r.filename == "roster.py"]
    assert said in line
    assert not any(record.exc_info for record in log.records)


def test_a_seat_is_free_when_its_node_is_gone():
    nodes = {5: Node(APP, {"partition-id": 0}), 6: Node(APP, {"partition-id": 0})}
    roster, grid = roster_of(nodes)
    roster.update(grid)
    nodes[5].present = False
    assert roster.update(grid) == {0: 6}
    nodes[5].present = True
    assert roster.update(grid) == {0: 6}


def test_a_node_of_another_method_is_refused(log):
    other = aquila.flower.client_app(aquila.create("laq"), lambda device, context: None)
    roster, grid = roster_of({5: Node(other, {"partition-id": 0})})
    assert roster.update(grid) == {}
    assert "the server runs Method(name='aquila'" in log.text


def test_a_node_that_fails_is_asked_again(log):
    broken = Node(APP, {"partition-id": 0}, lambda r: failed(r, "app\nnot there"))
    roster, grid = roster_of({5: broken})
    for _ in range(3):
        assert roster.update(grid) == {}
    assert [r.getMessage() for r in log.records] == ["node 5 did not answer: app not there"]
    broken.fate = lambda reply: reply
    assert roster.update(grid) == {0: 5}


def failed(reply, reason):
    made = Message(Error(1, reason), reply_to=reply)
    made.metadata.__dict__["_reply_to_message_id"] = reply.metadata.reply_to_message_id
    return made


def test_waiting_ends():
    roster, grid = roster_of({5: Node(APP, {"partition-id": 1})})
    with pytest.raises(TimeoutError, match=r"1 of 3 devices came within 0.3 s; not there: 0, 2 "):
        roster.wait(grid, 3, 0.3)
