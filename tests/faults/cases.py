"""Faults of real processes. Each case returns the log line that reports the fault."""

import re
from collections.abc import Callable

import torch

import aquila
from faults.bad_frames import EXPECTED_MESSAGES
from faults.faulty_federation import FaultyFederation, Script, no_faults
from faults.setup import METHOD, PROBLEM, theta0

SECONDS = 420.0


def node_killed(federation: FaultyFederation) -> str:
    """A SuperNode is killed during a turn and restarted with the state on its disk."""

    def script() -> Script:
        yield federation.rounds_closed(1)
        federation.set_fault("hold", 1)
        yield federation.turn_started(1)
        federation.kill_node(1)
        federation.clear_fault("hold", 1)
        federation.running.start_node(1)

    printed = federation.run(script(), SECONDS, rounds=9, deadline=30)
    federation.check(9)
    assert federation.records()[-1].lost == 0, "the device did not return"
    return line(printed, "round 1: device 1: no reply")


def state_lost(federation: FaultyFederation) -> str:
    """A SuperNode is stopped and restarted without its state."""

    def script() -> Script:
        yield federation.rounds_closed(2)
        federation.running.node(1).stop()
        federation.delete_state(1)
        federation.running.start_node(1)

    printed = federation.run(script(), SECONDS, rounds=6)
    federation.check(6)
    assert federation.records()[-1].lost == 0
    log = federation.running.node(1).log.read_text()
    line(printed, "6 of 6 done")
    return line(log, "from its initial state: the server acknowledges its reply to round")


def app_killed(federation: FaultyFederation) -> str:
    """The process that computes for a device is killed; Flower starts it again."""

    def script() -> Script:
        yield federation.rounds_closed(1)
        federation.set_fault("hold", 2)
        yield federation.turn_started(2)
        federation.kill_app(2)
        federation.clear_fault("hold", 2)

    printed = federation.run(script(), SECONDS, rounds=4)
    federation.check(4)
    return line(printed, "round 1: ")


def server_killed(federation: FaultyFederation) -> str:
    """The SuperLink and its run are killed during a round; a new run resumes from the folder."""

    def script() -> Script:
        yield federation.rounds_closed(2)
        federation.set_fault("hold", 0)
        yield federation.turn_started(0)
        federation.kill_server()
        federation.clear_fault("hold", 0)

    federation.run(script(), SECONDS, rounds=5)
    assert len(federation.records()) == 2
    federation.running.start_superlink()
    printed = federation.run(no_faults(), SECONDS, rounds=5)
    federation.check(5)
    undisturbed = aquila.simulate(METHOD, theta0(), PROBLEM.devices, 5)
    assert torch.equal(federation.theta(), undisturbed.theta)
    assert [r.notes.get("attempts", 1) for r in federation.records()] == [1, 1, 2, 1, 1]
    return line(printed, "round 2 was interrupted")


def replies_dropped(federation: FaultyFederation) -> str:
    """A fifth of the replies never arrive."""
    printed = federation.run(no_faults(), SECONDS, rounds=8, deadline=25, drop_every=5)
    federation.check(8)
    dropped = printed.count("dropped a reply in round")
    assert dropped >= 4
    assert sum(record.lost for record in federation.records()) >= dropped
    return line(printed, "no reply from device", ": no reply: ")


def bad_frames(federation: FaultyFederation) -> str:
    """One device sends garbage, forged frames and replayed frames."""
    federation.set_fault("bad-frame", 1, "\n".join(["replay", *EXPECTED_MESSAGES]))
    rounds = len(EXPECTED_MESSAGES) + 2
    printed = federation.run(no_faults(), SECONDS, rounds=rounds)
    federation.check(rounds)
    for message in EXPECTED_MESSAGES.values():
        line(printed, message)
    assert [record.lost for record in federation.records()] == [0, *[1] * len(EXPECTED_MESSAGES), 0]
    return line(printed, EXPECTED_MESSAGES["huge"])


def nan(federation: FaultyFederation) -> str:
    """The gradient of one device is NaN in some rounds."""

    def script() -> Script:
        yield federation.rounds_closed(1)
        federation.set_fault("nan", 0)
        yield federation.rounds_closed(3)
        federation.clear_fault("nan", 0)

    printed = federation.run(script(), SECONDS, rounds=5)
    federation.check(5)
    assert sum(record.lost for record in federation.records()) in (1, 2)
    return line(printed, "coordinates of the gradient are NaN")


def slow(federation: FaultyFederation) -> str:
    """One device misses the deadline; its memory is reused, and its late reply is refused."""

    def script() -> Script:
        yield federation.rounds_closed(1)
        federation.set_fault("hold", 2)
        yield federation.turn_started(2)
        yield federation.rounds_closed(3)
        federation.clear_fault("hold", 2)

    printed = federation.run(script(), SECONDS, rounds=7, deadline=30)
    federation.check(7)
    assert federation.records()[2].lost == 1
    assert federation.records()[-1].lost == 0
    return line(printed, "round 1: device 2: no reply", "no reply from device 2")


CASES: dict[str, Callable[[FaultyFederation], str]] = {
    "node-killed": node_killed,
    "state-lost": state_lost,
    "app-killed": app_killed,
    "server-killed": server_killed,
    "replies-dropped": replies_dropped,
    "bad-frames": bad_frames,
    "nan": nan,
    "slow": slow,
}


def line(printed: str, *wanted: str) -> str:
    """Return the first line that contains one of these texts, without colour codes."""
    found = [one for one in printed.splitlines() if any(word in one for word in wanted)]
    assert found, f"{wanted} is not in\n{printed}"
    return re.sub(r"^\x1b.*?:\s+", "", found[0])
