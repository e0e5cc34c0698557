"""What can go wrong with real processes. Each case says what the run must say about it."""

import re
from collections.abc import Callable

import torch

import aquila
from faults.scene import METHOD, PROBLEM, theta0
from faults.spoiling import SAID
from faults.stage import Script, Stage, nothing

SECONDS = 420.0


def node_killed(stage: Stage) -> str:
    """A SuperNode is killed in its turn and started again, with the state on its disk."""

    def script() -> Script:
        yield stage.closed(1)
        stage.tell("hold", 1)
        yield stage.working(1)
        stage.kill_node(1)
        stage.untell("hold", 1)
        stage.running.start_node(1)

    printed = stage.play(script(), SECONDS, rounds=9, deadline=30)
    stage.check(9)
    assert stage.records()[-1].lost == 0, "the device did not come back"
    return line(printed, "round 1: device 1: no reply")


def state_lost(stage: Stage) -> str:
    """A SuperNode is stopped and started again on an empty disk."""

    def script() -> Script:
        yield stage.closed(2)
        stage.running.node(1).stop()
        stage.lose_state(1)
        stage.running.start_node(1)

    printed = stage.play(script(), SECONDS, rounds=6)
    stage.check(6)
    assert stage.records()[-1].lost == 0
    log = stage.running.node(1).log.read_text()
    line(printed, "6 of 6 done")
    return line(log, "from its initial state: the server acknowledges its reply to round")


def app_killed(stage: Stage) -> str:
    """The process that a device computes in is killed; Flower starts it again."""

    def script() -> Script:
        yield stage.closed(1)
        stage.tell("hold", 2)
        yield stage.working(2)
        stage.kill_app(2)
        stage.untell("hold", 2)

    printed = stage.play(script(), SECONDS, rounds=4)
    stage.check(4)
    return line(printed, "round 1: ")


def server_killed(stage: Stage) -> str:
    """The SuperLink and its run are killed in a round; a new run goes on from the folder."""

    def script() -> Script:
        yield stage.closed(2)
        stage.tell("hold", 0)
        yield stage.working(0)
        stage.kill_server()
        stage.untell("hold", 0)

    stage.play(script(), SECONDS, rounds=5)
    assert len(stage.records()) == 2
    stage.running.start_superlink()
    printed = stage.play(nothing(), SECONDS, rounds=5)
    stage.check(5)
    undisturbed = aquila.simulate(METHOD, theta0(), PROBLEM.devices, 5)
    assert torch.equal(stage.theta(), undisturbed.theta)
    assert [r.notes.get("attempts", 1) for r in stage.records()] == [1, 1, 2, 1, 1]
    return line(printed, "round 2 was begun before")


def replies_dropped(stage: Stage) -> str:
    """A fifth of the replies never arrive."""
    printed = stage.play(nothing(), SECONDS, rounds=8, deadline=25, drop_every=5)
    stage.check(8)
    dropped = printed.count("was dropped")
    assert dropped >= 4
    assert sum(record.lost for record in stage.records()) >= dropped
    return line(printed, "no reply of device", ": no reply: ")


def liar(stage: Stage) -> str:
    """One device sends garbage, frames that lie, and old frames."""
    stage.tell("spoil", 1, "\n".join(["replay", *SAID]))
    rounds = len(SAID) + 2
    printed = stage.play(nothing(), SECONDS, rounds=rounds)
    stage.check(rounds)
    for said in SAID.values():
        line(printed, said)
    assert [record.lost for record in stage.records()] == [0, *[1] * len(SAID), 0]
    return line(printed, SAID["huge"])


def nan(stage: Stage) -> str:
    """The gradient of one device is not a number in some rounds."""

    def script() -> Script:
        yield stage.closed(1)
        stage.tell("nan", 0)
        yield stage.closed(3)
        stage.untell("nan", 0)

    printed = stage.play(script(), SECONDS, rounds=5)
    stage.check(5)
    assert sum(record.lost for record in stage.records()) in (1, 2, 3)
    return line(printed, "coordinates of the gradient are NaN")


def slow(stage: Stage) -> str:
    """One device is far slower than the others; its memory is reused, its late reply refused."""

    def script() -> Script:
        yield stage.closed(1)
        stage.tell("hold", 2)
        yield stage.working(2)
        yield stage.closed(3)
        stage.untell("hold", 2)

    printed = stage.play(script(), SECONDS, rounds=7, deadline=30)
    stage.check(7)
    assert stage.records()[2].lost == 1
    assert stage.records()[-1].lost == 0
    return line(printed, "round 1: device 2: no reply", "no reply of device 2")


CASES: dict[str, Callable[[Stage], str]] = {
    "node-killed": node_killed,
    "state-lost": state_lost,
    "app-killed": app_killed,
    "server-killed": server_killed,
    "replies-dropped": replies_dropped,
    "liar": liar,
    "nan": nan,
    "slow": slow,
}


def line(printed: str, *wanted: str) -> str:
    """Return the first line that says what happened, in one of these ways, without its colours."""
    found = [one for one in printed.splitlines() if any(word in one for word in wanted)]
    assert found, f"{wanted} is not in\n{printed}"
    return re.sub(r"^\x1b.*?:\s+", "", found[0])
