"""A device host runs many SuperNodes and their client apps in forked processes."""

import os
import signal
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("flwr", reason="not installed: pip install -e '.[flower]'")
import httpx

from aquila.flower import device_host
from aquila.flower.device_host import DeviceHost, device_numbers, main
from aquila.flower.local_processes import FEDERATION_VARIABLE, leftover_processes
from aquila.flower.loopback import federation

APP = Path(__file__).parents[2] / "benchmarks" / "flower_app"


@pytest.mark.parametrize(("text", "numbers"), [("3", [0, 1, 2]), ("7-9", [7, 8, 9]), ("4-4", [4])])
def test_device_numbers(text, numbers):
    assert list(device_numbers(text)) == numbers


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--devices", "some"], "'some' is not a number of devices such as 50"),
        (["--devices", "0"], "'0' is not a number of devices"),
        (["--devices", "5-3"], "'5-3' is not a number of devices"),
        (["--devices", "2", "--slots", "0"], "--slots must be at least 1, not 0"),
        (["--devices", "2", "--", "--port", "1"], "--port is set by the device host; leave it out"),
        (["--devices", "2", "--preload", "no_such"], "--preload no_such: No module named"),
    ],
)
def test_bad_arguments_are_refused(arguments, message, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["device_host", *arguments])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 2
    assert message in capsys.readouterr().err


@pytest.fixture
def host(monkeypatch):
    """Return a host of three devices with two slots, whose programs only sleep."""
    monkeypatch.setattr(device_host, "flower_supernode", lambda: time.sleep(60))
    monkeypatch.setattr(device_host, "flwr_clientapp", lambda: time.sleep(60))
    monkeypatch.setattr(device_host, "POLL_SECONDS", 0.0)
    monkeypatch.setattr(device_host, "RESTART_SECONDS", 0.0)
    monkeypatch.setattr(DeviceHost, "_acquire", lambda self, node: "token")
    handler = signal.getsignal(signal.SIGTERM)
    host = DeviceHost(range(3), ["--insecure"], slots=2)
    yield host
    host.stop()
    signal.signal(signal.SIGTERM, handler)


def test_slots_limit_the_client_apps(host):
    host.step()
    assert all(node.process and not node.app for node in host.nodes)
    host.step()
    host.step()
    assert [bool(node.app) for node in host.nodes] == [True, True, False]
    os.kill(host.nodes[0].app, signal.SIGKILL)
    os.waitid(os.P_PID, host.nodes[0].app, os.WEXITED | os.WNOWAIT)
    monitored = host.nodes[1].app
    host.step()
    assert sum(bool(node.app) for node in host.nodes) == 2
    assert host.nodes[1].app == monitored


def test_ended_node_starts_again(host, caplog):
    host.step()
    first = host.nodes[1].process
    os.kill(first, signal.SIGKILL)
    os.waitid(os.P_PID, first, os.WEXITED | os.WNOWAIT)
    host.step()
    assert host.nodes[1].process not in (0, first)
    assert "the SuperNode of device 1 ended with status 9; it starts again in 0 s" in caplog.text


@pytest.mark.parametrize(
    ("error", "warnings"),
    [
        (httpx.ConnectError("refused"), 0),
        (httpx.HTTPStatusError("401", request=None, response=None), 1),
    ],
)
def test_node_that_gives_no_message_is_asked_again_later(error, warnings, caplog):
    def refuse(request):
        raise error

    host = DeviceHost([4], [], slots=1)
    (node,) = host.nodes
    node.process, node.client = 1, SimpleNamespace(AcquireTask=refuse)
    host._start_app(node)
    assert node.app == 0
    assert node.next_time > time.monotonic() + 4
    assert caplog.text.count("the SuperNode of device 4 refuses its host") == warnings


def test_forked_program_gets_arguments_and_identity(tmp_path, monkeypatch):
    monkeypatch.setenv("AQUILA_IDENTITY", "keys/device-{device}")
    result = tmp_path / "result"

    def program():
        result.write_text(f"{sys.argv[1:]} {os.environ['AQUILA_IDENTITY']}")
        sys.exit(3)

    process = device_host.fork("app-7", program, ["--token", "x"], 7)
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 3
    assert result.read_text() == "['--token', 'x'] keys/device-7"


def test_forked_program_ends_with_its_host():
    read, write = os.pipe()
    host = os.fork()
    if host == 0:
        child = device_host.fork("node-0", lambda: time.sleep(60), [], 0)
        os.write(write, str(child).encode())
        os._exit(0)
    child = int(os.read(read, 20))
    os.close(read)
    os.close(write)
    end = time.monotonic() + 20
    while is_running(child) and time.monotonic() < end:
        time.sleep(0.1)
    assert not is_running(child)
    os.waitpid(host, 0)


def is_running(process):
    """Whether a process runs. One that has ended stays in the list until somebody waits for it."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


@pytest.mark.deployment
def test_federation_trains_in_a_device_host(tmp_path):
    with federation(2, tmp_path, shared_host=True) as running:
        name = running.environment[FEDERATION_VARIABLE]
        nodes = [Path(f"/proc/{p}/comm").read_text().strip() for p in leftover_processes(name)]
        assert {"node-0", "node-1"} <= set(nodes)
        config = {"devices": 2, "coordinates": 50, "rounds": 2}
        printed = running.run(APP, config, 120)
    assert printed.count("2 uploads, 0 skips, 0 lost") == 2
    assert not leftover_processes(name)
