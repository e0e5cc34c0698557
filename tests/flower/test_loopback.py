"""Processes of a deployment: started with bounded patience, stopped whatever happens."""

import os
import sys
import time

import pytest

from aquila.flower.loopback import MARK, FederationError, federation, start, strays, wait_until


def gone(name: str) -> bool:
    """Whether nothing of that name is running, a moment after it was killed."""
    end = time.monotonic() + 10
    while strays(name) and time.monotonic() < end:
        time.sleep(0.05)
    return not strays(name)


def test_a_process_that_ends_by_itself_is_quoted(tmp_path):
    process = start("part", [sys.executable, "-c", "print('out of disk')"], tmp_path, os.environ)
    with pytest.raises(FederationError, match="part ended by itself:\nout of disk"):
        wait_until(lambda: False, process, 60)


def test_a_process_that_takes_too_long_is_stopped(tmp_path):
    env = {**os.environ, MARK: tmp_path.name}
    process = start("part", ["sh", "-c", "sleep 600 & sleep 600"], tmp_path, env)
    with pytest.raises(FederationError, match="part was not ready after 1 s"):
        wait_until(lambda: False, process, 1)
    process.stop()
    assert process.ended
    assert gone(tmp_path.name)


def test_strays_are_found_by_their_name(tmp_path):
    env = {**os.environ, MARK: tmp_path.name}
    process = start("part", ["sleep", "600"], tmp_path, env)
    try:
        wait_until(lambda: strays(tmp_path.name) == [process.handle.pid], process, 10)
    finally:
        process.stop()
    assert gone(tmp_path.name)


@pytest.mark.deployment
def test_nothing_is_left_running_when_the_user_interrupts(tmp_path):
    names: list[str] = []

    def interrupted():
        with federation(1, tmp_path) as running:
            names.append(running.environment[MARK])
            assert strays(names[0])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert not strays(names[0])
