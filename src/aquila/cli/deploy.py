"""`aquila deploy`: set up a federation of real machines on Flower, and run its proxy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from aquila.cli.named_path import NamedPath
from aquila.runtime.install_hint import install_hint

FOLDER_PATH = NamedPath(file_okay=False, path_type=Path)
FILE_PATH = NamedPath(exists=True, dir_okay=False, path_type=Path)


@click.group()
def deploy() -> None:
    """Set up a federation of real machines on Flower.

    The commands write certificates, keys, scripts and systemd units.
    """


@deploy.command()
@click.argument("folder", type=FOLDER_PATH)
@click.option("--devices", type=int, required=True, help="Number of devices, M.")
@click.option(
    "--host",
    "hosts",
    multiple=True,
    help="Name or address of the server; devices use the first.  [default: loopback only]",
)
@click.option("--port", default=8443, show_default=True, help="Port that devices connect to.")
@click.option("--insecure", is_flag=True, help="Use no encryption and no keys. For tests only.")
@click.option("--unsigned", is_flag=True, help="Do not sign messages; saves 64 bytes per message.")
@click.option("--overwrite", is_flag=True, help="Replace the federation in the folder.")
def init(
    folder: Path,
    devices: int,
    hosts: tuple[str, ...],
    port: int,
    insecure: bool,
    unsigned: bool,
    overwrite: bool,
) -> None:
    """Write all files of a federation to FOLDER.

    The federation gets its own certificate authority, a certificate for the server and a key per
    device. Only you can read the private keys.
    """
    from aquila.deploy.plan import LOOPBACK, Plan

    plan = Plan(
        devices, tuple(host.lower() for host in hosts) or LOOPBACK, port, insecure, not unsigned
    )
    with _require_extra():
        from aquila.deploy import federation

        certificate = federation.create(folder, plan, overwrite)
    click.echo(f"Wrote a federation of {devices} devices to {folder}; its server is {plan.server}")
    if certificate is None:
        warning = "Warning: insecure: no encryption, and devices are not authenticated"
        click.echo(warning, err=True)
    else:
        click.echo(
            f"Certificate for {', '.join(plan.certificate_hosts)}, valid until "
            f"{certificate.expires_on}"
        )
    _print_next_steps(folder, insecure)


@deploy.command()
@click.argument("folder", type=FOLDER_PATH)
def renew(folder: Path) -> None:
    """Renew the server's certificate of the federation in FOLDER.

    The devices' files stay valid.
    """
    with _require_extra():
        from aquila.deploy import federation

        certificate = federation.renew(folder)
    click.echo(f"Certificate valid until {certificate.expires_on}; restart the server to use it")


@deploy.command(short_help="Rewrite the scripts of a federation for this version.")
@click.argument("folder", type=FOLDER_PATH)
def upgrade(folder: Path) -> None:
    """Rewrite the scripts of the federation in FOLDER with those of this version.

    Certificates and keys stay valid. Missing signing keys are added.
    """
    with _require_extra():
        from aquila.deploy import federation

        plan = federation.upgrade(folder)
    click.echo(
        f"Wrote the files of {plan.devices} devices and the server; copy server/ and device-N/ to "
        "their machines again"
    )


@deploy.command()
@click.argument("folder", type=FOLDER_PATH)
@click.argument("device", type=int)
def rekey(folder: Path, device: int) -> None:
    """Create a new key for DEVICE of the federation in FOLDER.

    If DEVICE is the next free number, add a device.
    """
    with _require_extra():
        from aquila.deploy import federation

        added = federation.rekey_device(folder, device)
    click.echo(
        f"Wrote {'a new device' if added else 'a new key'} to {folder}/device-{device}. Next, run:"
    )
    click.echo(f"  {folder}/server/register.sh keys/device-{device}.pub")


@deploy.command()
@click.option("--listen", required=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(1, 65535), required=True, help="Port to listen on.")
@click.option("--superlink", required=True, help="Address and port of the SuperLink.")
@click.option("--ssl-ca-certfile", type=FILE_PATH, help="Certificate of the authority.")
@click.option("--ssl-certfile", type=FILE_PATH, help="Certificate of the server.")
@click.option("--ssl-keyfile", type=FILE_PATH, help="Private key of the server.")
@click.option("--keys", type=FOLDER_PATH, help="Folder of the devices' public keys.")
@click.option(
    "--max-connections", default=1024, show_default=True, help="Connections that may be open."
)
@click.option(
    "--max-connections-per-address",
    default=256,
    show_default=True,
    help="Connections that one address may have open.",
)
@click.option("--status-port", type=click.IntRange(1, 65535), help="Serve /health and /metrics.")
@click.option("--runs", type=FOLDER_PATH, help="Folder of the runs that /metrics shows.")
@click.option(
    "--log-format", type=click.Choice(["text", "json"]), default="text", help="Form of log lines."
)
@click.option("--insecure", is_flag=True, help="Use no encryption and no keys. For tests only.")
def proxy(
    listen: str,
    port: int,
    superlink: str,
    insecure: bool,
    max_connections: int,
    max_connections_per_address: int,
    **others: Any,
) -> None:
    """Forward devices' requests to a SuperLink on loopback.

    All other requests are rejected. The server's start.sh runs this command.
    """
    names = ("ssl_ca_certfile", "ssl_certfile", "ssl_keyfile", "keys")
    authority, certificate, key, keys = (others[name] for name in names)
    if insecure:
        authority = certificate = key = keys = None
    elif authority is None or certificate is None or key is None or keys is None:
        raise ValueError(
            "the proxy needs --ssl-ca-certfile, --ssl-certfile, --ssl-keyfile and --keys"
        )
    with _require_extra():
        from aquila.deploy.limits import Limits
        from aquila.deploy.log_format import set_up_logging
        from aquila.deploy.proxy import Tls, serve

        set_up_logging(others["log_format"])
        limits = Limits(max_connections, max_connections_per_address)
        tls = Tls(authority, certificate, key) if authority and certificate and key else None
        status = (others["status_port"], others["runs"]) if others["status_port"] else None
        serve((listen, port), superlink, tls, keys, limits, status)


@contextmanager
def _require_extra() -> Iterator[None]:
    """Turn a missing package into one sentence that says what to install."""
    try:
        yield
    except ModuleNotFoundError as missing:
        if missing.name not in ("cryptography", "h11", "httpx"):
            raise
        raise click.ClickException(
            f"aquila deploy needs packages that are not installed: {install_hint('flower')}"
        ) from None


def _print_next_steps(folder: Path, insecure: bool) -> None:
    click.echo("Next, with Flower's commands on the PATH, run:")
    click.echo(f"  {folder}/server/start.sh       on the server")
    if not insecure:
        click.echo(f"  {folder}/server/register.sh    on the server, once it is running")
    click.echo(f"  {folder}/device-0/start.sh     on device 0, and likewise on the others")
