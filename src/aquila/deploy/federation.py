"""The folder of a federation. Only its owner can read the files.

federation.json     the plan: devices, hosts, port, security
ca/                 certificate and key of the certificate authority
server/             files for the server's machine
device-0/, ...      files for the machine of each device
"""

import os
import re
import shutil
from dataclasses import replace
from pathlib import Path

from aquila.deploy.certificates import (
    Certificate,
    KeyPair,
    issue_server_certificate,
    make_authority,
    make_key_pair,
    make_signing_pair,
    read_certificate,
)
from aquila.deploy.plan import MAX_CONNECTIONS_PER_ADDRESS, PLAN_FILE, Plan, load_plan, plan_bytes
from aquila.deploy.templates import environment_file, fill_template, flower_config

SERVER_SIGNING_FILES = "signing.key", "server-signing.pub"
_FEDERATION_FILES = re.compile(rf"ca|server|device-\d+|{re.escape(PLAN_FILE)}")


def create(folder: Path, plan: Plan, overwrite: bool = False) -> Certificate | None:
    """Write all files of a federation.

    Returns:
        The server's certificate, or None for an insecure federation.
    """
    folder = folder.absolute()
    _clear(folder, overwrite)
    _make_folder(folder)
    _write(folder / PLAN_FILE, plan_bytes(plan))
    _make_folder(folder / "server", "keys", "flwr")
    certificate = None if plan.insecure else _write_certificates(folder, plan)
    if plan.signs_messages:
        _make_folder(folder / "server", "signing")
        _write_pair(make_signing_pair(), folder / "server", SERVER_SIGNING_FILES)
    _write_server(folder / "server", plan)
    for device in range(plan.devices):
        _write_device(folder, plan, device)
    return certificate


def renew(folder: Path) -> Certificate:
    """Issue a new server certificate and key. The devices' files stay valid."""
    plan = load_plan(folder)
    if plan.insecure:
        raise ValueError(f"the federation in {folder} is insecure; it has no certificate to renew")
    files = folder / "ca" / "ca.crt", folder / "ca" / "ca.key"
    authority = read_certificate(*(path.read_bytes() for path in files))
    return _write_server_certificate(folder, authority, plan)


def upgrade(folder: Path) -> Plan:
    """Rewrite scripts, units and settings with those of this version, and add missing keys.

    Certificates and existing keys stay as they are.

    Returns:
        The new plan.
    """
    folder = folder.absolute()
    plan = replace(load_plan(folder), signed=True)
    server = folder / "server"
    if plan.signs_messages and not (server / SERVER_SIGNING_FILES[0]).exists():
        _make_folder(server, "signing")
        _write_pair(make_signing_pair(), server, SERVER_SIGNING_FILES)
    _write_server(server, plan)
    for device in range(plan.devices):
        if plan.signs_messages and not (folder / f"device-{device}" / "signing.key").exists():
            _write_signing_keys(folder, device)
        _write_device_scripts(folder / f"device-{device}", plan, device)
    _write(folder / PLAN_FILE, plan_bytes(plan))
    return plan


def rekey_device(folder: Path, device: int) -> bool:
    """Create a new key for a device, or add the next device.

    Returns:
        Whether a device was added.
    """
    plan = load_plan(folder)
    if not 0 <= device <= plan.devices:
        raise ValueError(
            f"device must be from 0 to {plan.devices - 1}, or {plan.devices} to add a device, "
            f"not {device}"
        )
    if plan.insecure:
        raise ValueError(f"the federation in {folder} is insecure; its devices have no keys")
    added = device == plan.devices
    if added:
        _write_device(folder, plan, device)
        _write(folder / PLAN_FILE, plan_bytes(replace(plan, devices=device + 1)))
    else:
        _write_keys(folder, plan, device)
    return added


def _clear(folder: Path, overwrite: bool) -> None:
    """Delete an earlier federation if `overwrite` is set. Refuse to delete any other file."""
    names = sorted(path.name for path in folder.iterdir()) if folder.exists() else []
    if names and not overwrite:
        raise ValueError(f"{folder} is not empty; --overwrite deletes the federation in it")
    if foreign := [name for name in names if not _FEDERATION_FILES.fullmatch(name)]:
        raise ValueError(f"{folder} holds {foreign[0]}, which is not part of a federation")
    for name in names:
        path = folder / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def _write_certificates(folder: Path, plan: Plan) -> Certificate:
    authority = make_authority()
    _make_folder(folder / "ca")
    _write(folder / "ca" / "ca.crt", authority.certificate)
    _write(folder / "ca" / "ca.key", authority.key)
    _write(folder / "server" / "ca.crt", authority.certificate)
    return _write_server_certificate(folder, authority, plan)


def _write_server_certificate(folder: Path, authority: Certificate, plan: Plan) -> Certificate:
    certificate = issue_server_certificate(authority, plan.certificate_hosts)
    _write(folder / "server" / "server.key", certificate.key)
    _write(folder / "server" / "server.crt", certificate.certificate)
    return certificate


def _write_server(folder: Path, plan: Plan) -> None:
    settings: dict[str, str | int] = {
        "AQUILA_LISTEN": plan.listen,
        "AQUILA_PORT": plan.port,
        "AQUILA_SUPERLINK_PORT": plan.superlink_port,
        "AQUILA_STATUS_PORT": plan.status_port,
        "AQUILA_MAX_CONNECTIONS": plan.max_connections,
        "AQUILA_MAX_CONNECTIONS_PER_ADDRESS": MAX_CONNECTIONS_PER_ADDRESS,
    }
    _write(folder / "environment", environment_file(plan, settings))
    _write(folder / "flwr" / "config.toml", flower_config(plan, folder / "ca.crt"))
    _write(folder / "start.sh", fill_template("server.sh", plan), 0o700)
    _write(folder / "register.sh", fill_template("register.sh", plan), 0o700)
    _write(folder / "aquila-server.service", fill_template("aquila-server.service", plan))


def _write_device(federation: Path, plan: Plan, device: int) -> None:
    folder = federation / f"device-{device}"
    _make_folder(folder)
    if not plan.insecure:
        _write_keys(federation, plan, device)
        _write(folder / "ca.crt", (federation / "server" / "ca.crt").read_bytes())
    _write_device_scripts(folder, plan, device)


def _write_device_scripts(folder: Path, plan: Plan, device: int) -> None:
    settings: dict[str, str | int] = {
        "AQUILA_DEVICE": device,
        "AQUILA_SERVER": plan.server,
        "AQUILA_RUNTIME_PORT": plan.runtime_port(device),
    }
    _write(folder / "environment", environment_file(plan, settings))
    _write(folder / "start.sh", fill_template("device.sh", plan), 0o700)
    _write(folder / "aquila-device@.service", fill_template("aquila-device@.service", plan))


def _write_keys(federation: Path, plan: Plan, device: int) -> None:
    own, name = f"device-{device}", f"device-{device}.pub"
    _write_pair(make_key_pair(), federation, (f"{own}/device.key", f"server/keys/{name}"))
    if plan.signs_messages:
        _write_signing_keys(federation, device)


def _write_signing_keys(federation: Path, device: int) -> None:
    files = f"device-{device}/signing.key", f"server/signing/device-{device}.pub"
    _write_pair(make_signing_pair(), federation, files)
    server_key = (federation / "server" / SERVER_SIGNING_FILES[1]).read_bytes()
    _write(federation / f"device-{device}" / "server-signing.pub", server_key)


def _write_pair(pair: KeyPair, folder: Path, names: tuple[str, str]) -> None:
    _write(folder / names[0], pair.private)
    _write(folder / names[1], pair.public)


def _make_folder(folder: Path, *subfolders: str) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)
    for name in subfolders:
        _make_folder(folder / name)


def _write(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Write a file that other users cannot read at any time, not even during the write."""
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
