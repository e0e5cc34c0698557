"""A running federation from `aquila deploy init`: who gets access, and who does not."""

import subprocess

import pytest

pytest.importorskip("flwr", reason="not installed: pip install -e '.[flower]'")
import httpx

from aquila.deploy.federation import create
from aquila.deploy.plan import Plan
from aquila.flower.local_processes import FederationError, wait_until
from helpers.command_line import output
from helpers.real_federation import (
    ACTIVATED,
    SECONDS,
    ProcessGroup,
    free_ports,
    installed_environment,
    serve,
    tls_context,
    wait_for_output,
)

pytestmark = pytest.mark.deployment


@pytest.fixture
def processes(tmp_path):
    group = ProcessGroup(tmp_path, installed_environment(tmp_path))
    yield group
    assert not group.stop()


def test_only_registered_devices_get_access(tmp_path, processes):
    folder, port = tmp_path / "fed", free_ports(5)
    output("deploy", "init", str(folder), "--devices", "3", "--port", str(port))
    serve(processes, folder, port, tls=True)
    register = [folder / "server" / "register.sh", "keys/device-0.pub"]
    subprocess.run(register, env=processes.environment, check=True, timeout=SECONDS)

    registered = processes.start("registered", folder / "device-0" / "start.sh")
    unregistered = processes.start("unregistered", folder / "device-1" / "start.sh")
    script = folder / "device-2" / "start.sh"
    options = "--root-certificates ca.crt --auth-supernode-private-key device.key"
    script.write_text(script.read_text().replace(options, "--insecure"))
    unencrypted = processes.start("unencrypted", script, "--max-retries", 1)

    wait_for_output(registered, ACTIVATED)
    for refused in (unregistered, unencrypted):
        with pytest.raises(FederationError, match="exited unexpectedly"):
            wait_until(lambda: False, refused, SECONDS)
        text = refused.log.read_text()
        assert "Exit Code: 305" in text
        assert ACTIVATED not in text
        assert refused.handle.returncode == 1
    assert "Starting insecure channel" in unencrypted.log.read_text()
    assert "[code: 2004]" in unregistered.log.read_text()
    assert not registered.exited

    control = f"https://127.0.0.1:{port}/v1/control/register-node"
    assert httpx.post(control, verify=tls_context(folder)).status_code == 403


def test_insecure_federation_starts(tmp_path, processes):
    folder, port = tmp_path / "fed", free_ports(3)
    create(folder, Plan(1, port=port, insecure=True))
    serve(processes, folder, port, tls=False)
    wait_for_output(processes.start("device", folder / "device-0" / "start.sh"), ACTIVATED)
    assert httpx.post(f"http://127.0.0.1:{port}/v1/control/register-node").status_code == 403
