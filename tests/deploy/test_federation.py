"""The files of a federation: complete, private to the owner, never overwritten by accident."""

import os
import stat
import subprocess
import tomllib

import pytest

pytest.importorskip("cryptography", reason="not installed: pip install -e '.[flower]'")
from aquila.deploy.federation import create, rekey_device, renew, upgrade
from aquila.deploy.plan import Plan, load_plan
from aquila.deploy.templates import INSECURE

SERVER = {
    "ca.crt", "server.crt", "server.key", "environment", "start.sh", "register.sh",
    "aquila-server.service", "flwr/config.toml", "keys/device-0.pub", "keys/device-1.pub",
    "signing.key", "server-signing.pub", "signing/device-0.pub", "signing/device-1.pub",
}  # fmt: skip
DEVICE = {
    "ca.crt", "device.key", "environment", "start.sh", "aquila-device@.service", "signing.key",
    "server-signing.pub",
}  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    create(tmp_path / "fed", Plan(2, ("fl.example.org",)))
    return tmp_path / "fed"


def contents(folder):
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_every_machine_gets_its_files(folder):
    assert {path.name for path in folder.iterdir()} == {
        "federation.json", "ca", "server", "device-0", "device-1",
    }  # fmt: skip
    assert set(contents(folder / "server")) == SERVER
    assert set(contents(folder / "device-1")) == DEVICE
    assert set(contents(folder / "ca")) == {"ca.crt", "ca.key"}


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_only_the_owner_can_read_files(tmp_path, umask):
    before = os.umask(umask)
    try:
        create(tmp_path / "fed", Plan(1))
    finally:
        os.umask(before)
    for path in (tmp_path / "fed", *(tmp_path / "fed").rglob("*")):
        runs = path.is_dir() or path.suffix == ".sh"
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if runs else 0o600), path


def test_each_private_key_is_in_one_file_only(folder):
    secret = {
        (folder / name).read_bytes()
        for name in (
            "ca/ca.key", "server/server.key", "device-0/device.key", "device-1/device.key",
            "server/signing.key", "device-0/signing.key", "device-1/signing.key",
        )
    }  # fmt: skip
    assert len(secret) == 7
    found = [name for name, content in contents(folder).items() if b"PRIVATE KEY" in content]
    assert len(found) == 7


def test_settings_of_server_and_device(folder):
    server = (folder / "server" / "environment").read_text().splitlines()
    device = (folder / "device-1" / "environment").read_text().splitlines()
    assert {"AQUILA_LISTEN=0.0.0.0", "AQUILA_PORT=8443"} <= set(server)
    assert {"AQUILA_DEVICE=1", "AQUILA_SERVER=fl.example.org:8443"} <= set(device)
    for lines in (server, device):
        assert "FLWR_TELEMETRY_ENABLED=0" in lines
    config = tomllib.loads((folder / "server" / "flwr" / "config.toml").read_text())
    assert config["superlink"]["federation"] == {
        "address": "127.0.0.1:8444",
        "root-certificates": str(folder / "server" / "ca.crt"),
    }


def test_folder_name_is_quoted_in_config(tmp_path):
    folder = tmp_path / 'my "fed"\\é'
    create(folder, Plan(1))
    config = tomllib.loads((folder / "server" / "flwr" / "config.toml").read_text())
    assert config["superlink"]["federation"]["root-certificates"].startswith(str(folder))


def test_all_placeholders_are_filled_in(folder):
    for name, content in contents(folder).items():
        assert b"@SECURITY@" not in content, name
        assert b"_OPTIONS@" not in content, name
        assert b"@HARDENING@" not in content, name
        assert b"@IDENTITY@" not in content, name


def test_security_is_on_by_default(folder):
    server = (folder / "server" / "start.sh").read_text()
    assert "--enable-supernode-auth" in server
    assert "--host 127.0.0.1 " in server
    assert not [name for name, text in contents(folder).items() if b"insecure" in text.lower()
                and name != "federation.json"]  # fmt: skip
    for unit in ("server/aquila-server.service", "device-0/aquila-device@.service"):
        lines = (folder / unit).read_text().splitlines()
        assert {"NoNewPrivileges=yes", "ProtectSystem=strict", "User=aquila"} <= set(lines)


def test_insecure_is_stated_in_every_file(tmp_path):
    create(tmp_path / "fed", Plan(1, insecure=True))
    written = contents(tmp_path / "fed")
    assert not [name for name in written if name.endswith((".key", ".crt", ".pub"))]
    for name, content in written.items():
        assert name == "federation.json" or INSECURE.encode() in content, name


@pytest.mark.parametrize("insecure", [False, True])
def test_scripts_have_valid_shell_syntax(tmp_path, insecure):
    create(tmp_path / "fed", Plan(1, insecure=insecure))
    for script in (tmp_path / "fed").rglob("*.sh"):
        subprocess.run(["bash", "-n", script], check=True)


def test_federation_is_overwritten_only_on_request(folder):
    before = contents(folder)
    with pytest.raises(ValueError, match="is not empty; --overwrite deletes"):
        create(folder, Plan(1))
    assert contents(folder) == before
    create(folder, Plan(1), overwrite=True)
    assert not (folder / "device-1").exists()
    assert contents(folder)["device-0/device.key"] != before["device-0/device.key"]


def test_other_files_are_never_deleted(folder):
    (folder / "thesis.tex").write_text("three years of work")
    before = contents(folder)
    with pytest.raises(ValueError, match=r"holds thesis\.tex, which is not part of a federation"):
        create(folder, Plan(1), overwrite=True)
    assert contents(folder) == before


def test_renew_changes_no_device_file(folder):
    before = contents(folder)
    renew(folder)
    changed = {name for name, content in contents(folder).items() if content != before[name]}
    assert changed == {"server/server.crt", "server/server.key"}


def test_rekey_changes_the_keys_of_one_device(folder):
    before = contents(folder)
    assert not rekey_device(folder, 1)
    changed = {name for name, content in contents(folder).items() if content != before[name]}
    assert changed == {
        "device-1/device.key", "server/keys/device-1.pub",
        "device-1/signing.key", "server/signing/device-1.pub",
    }  # fmt: skip


def test_rekey_adds_the_next_device(folder):
    assert rekey_device(folder, 2)
    assert set(contents(folder / "device-2")) == DEVICE
    assert load_plan(folder).devices == 3
    with pytest.raises(ValueError, match="device must be from 0 to 2, or 3 to add a device, not 5"):
        rekey_device(folder, 5)


def test_insecure_federation_has_nothing_to_renew(tmp_path):
    create(tmp_path, Plan(1, insecure=True))
    with pytest.raises(ValueError, match="insecure; it has no certificate"):
        renew(tmp_path)
    with pytest.raises(ValueError, match="insecure; its devices have no keys"):
        rekey_device(tmp_path, 0)


def test_upgrade_keeps_keys_and_adds_missing_ones(folder):
    before = contents(folder)
    for name in before:
        if "sign" in name:
            (folder / name).unlink()
    (folder / "federation.json").write_text(
        '{"devices": 2, "hosts": ["fl.example.org"], "port": 8443, "insecure": false}'
    )
    (folder / "server" / "start.sh").write_text("old")
    plan = upgrade(folder)
    after = contents(folder)
    assert plan == load_plan(folder) == Plan(2, ("fl.example.org",))
    assert set(after) == set(before)
    changed = {name for name in after if after[name] != before[name]}
    assert {name for name in changed if "sign" not in name} == set()
    assert len(changed) == 8
    assert upgrade(folder) == plan
    assert contents(folder) == after


def test_units_and_settings_limit_connections(folder):
    for unit in ("server/aquila-server.service", "device-0/aquila-device@.service"):
        assert "LimitNOFILE=65536" in (folder / unit).read_text().splitlines()
    settings = (folder / "server" / "environment").read_text()
    assert (
        "AQUILA_STATUS_PORT=18445\nAQUILA_MAX_CONNECTIONS=1024\nAQUILA_MAX_CONNECTIONS_PER_ADDRESS=256\n"
        in settings
    )
    assert Plan(5000).max_connections == 20_000
