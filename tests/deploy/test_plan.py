"""Valid and invalid plans of a federation."""

import json

import pytest

from aquila.deploy.plan import MAX_DEVICES, PLAN_FILE, Plan, load_plan, plan_bytes


@pytest.mark.parametrize("host", ["fl.example.org", "server", "10.0.0.7", "fd00::7", "a-b.c3"])
def test_valid_hosts(host):
    assert host in Plan(1, (host,)).certificate_hosts


@pytest.mark.parametrize(
    "host",
    ["", "two words", "a..b", "-a.org", "a-.org", "*.example.org", "10.0.0.999", "a/b", "x\n",
     "fe80::1%eth0", "ä.org", "a" * 64, "$(reboot)", "https://a.org", "a.org:8443"],
)  # fmt: skip
def test_invalid_host_is_refused(host):
    with pytest.raises(ValueError, match="is not a valid host; give a name such as"):
        Plan(1, (host,))


@pytest.mark.parametrize("devices", [-1, 0, MAX_DEVICES + 1])
def test_invalid_number_of_devices_is_refused(devices):
    with pytest.raises(ValueError, match=f"devices must be from 1 to 10000, not {devices}"):
        Plan(devices)


@pytest.mark.parametrize("port", [0, 65535])
def test_invalid_port_is_refused(port):
    with pytest.raises(ValueError, match=f"port must be from 1 to 55533, not {port}"):
        Plan(1, port=port)


def test_all_ports_are_different():
    plan = Plan(MAX_DEVICES, port=55533)
    ports = [
        plan.port,
        plan.superlink_port,
        plan.status_port,
        *map(plan.runtime_port, range(plan.devices)),
    ]
    assert len(set(ports)) == len(ports)
    assert max(ports) < 2**16


@pytest.mark.parametrize(
    ("hosts", "listen", "server"),
    [
        (("127.0.0.1", "localhost"), "127.0.0.1", "127.0.0.1:8443"),
        (("::1",), "::1", "[::1]:8443"),
        (("fl.example.org", "127.0.0.1"), "0.0.0.0", "fl.example.org:8443"),
        (("fd00::7",), "::", "[fd00::7]:8443"),
    ],
)
def test_addresses_of_the_server(hosts, listen, server):
    plan = Plan(1, hosts)
    assert (plan.listen, plan.server) == (listen, server)


def test_plan_survives_its_file(tmp_path):
    plan = Plan(3, ("fl.example.org",), 9443, insecure=True)
    (tmp_path / PLAN_FILE).write_bytes(plan_bytes(plan))
    assert load_plan(tmp_path) == plan


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"hosts": ["a"], "devices": 0}', '{"x": 1}'])
def test_invalid_plan_file_is_refused(tmp_path, content):
    (tmp_path / PLAN_FILE).write_text(content)
    with pytest.raises(ValueError, match="does not describe a federation"):
        load_plan(tmp_path)


def test_folder_without_federation_is_refused(tmp_path):
    with pytest.raises(ValueError, match="holds no federation; create one with aquila deploy init"):
        load_plan(tmp_path)


def test_plan_of_an_earlier_version_has_no_signing_keys(tmp_path):
    saved = json.loads(plan_bytes(Plan(2)))
    assert saved.pop("signed")
    (tmp_path / PLAN_FILE).write_text(json.dumps(saved))
    assert load_plan(tmp_path) == Plan(2, signed=False)
