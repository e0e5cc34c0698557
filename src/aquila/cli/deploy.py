"""`aquila deploy`: the files and the proxy of a real federation on Flower."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

FOLDER_PATH = click.Path(file_okay=False, path_type=Path)
FILE_PATH = click.Path(exists=True, dir_okay=False, path_type=Path)
MISSING_EXTRA_MESSAGE = (
    "aquila deploy needs more than is installed: pip install 'aquila-fl[flower]'"
)


@click.group()
def deploy() -> None:
    """Make a federation of real machines: certificates, keys, scripts and units."""


@deploy.command()
@click.argument("folder", type=FOLDER_PATH)
@click.option("--devices", type=int, required=True, help="Number of devices, M.")
@click.option(
    "--host",
    "hosts",
    multiple=True,
    help="Name or address of the server, the first for devices.  [default: this machine alone]",
)
@click.option("--port", default=8443, show_default=True, help="The server's port.")
@click.option("--insecure", is_flag=True, help="No encryption and no keys: for tests only.")
@click.option("--overwrite", is_flag=True, help="Throw away the federation in the folder.")
def init(
    folder: Path, devices: int, hosts: tuple[str, ...], port: int, insecure: bool, overwrite: bool
) -> None:
    """Write all files of a federation to FOLDER.

    The server gets a certificate from an authority of its own, every device a key. Private keys are
    readable by you alone.
    """
    from aquila.deploy.plan import LOOPBACK, Plan

    plan = Plan(devices, tuple(host.lower() for host in hosts) or LOOPBACK, port, insecure)
    with _require_extra():
        from aquila.deploy import federation

        certificate = federation.create(folder, plan, overwrite)
    click.echo(f"{folder} holds a federation of {devices} devices; its server is {plan.server}")
    if certificate is None:
        warning = "Warning: insecure: nothing is encrypted and nobody proves who they are"
        click.echo(warning, err=True)
    else:
        click.echo(
            f"Certificate for {', '.join(plan.certificate_hosts)} until {certificate.expires_on}"
        )
    _next_steps(folder, insecure)


@deploy.command()
@click.argument("folder", type=FOLDER_PATH)
def renew(folder: Path) -> None:
    """Give the server in FOLDER a new certificate; nothing changes for devices."""
    with _require_extra():
        from aquila.deploy import federation

        certificate = federation.renew(folder)
    click.echo(f"Certificate until {certificate.expires_on}; start the server again to use it")


@deploy.command()
@click.argument("folder", type=FOLDER_PATH)
@click.argument("device", type=int)
def rekey(folder: Path, device: int) -> None:
    """Give DEVICE of the federation in FOLDER a new key, or add the next device."""
    with _require_extra():
        from aquila.deploy import federation

        added = federation.rekey_device(folder, device)
    click.echo(f"{folder}/device-{device} holds {'a new device' if added else 'a new key'}; next:")
    click.echo(f"  {folder}/server/register.sh keys/device-{device}.pub")


@deploy.command()
@click.option("--listen", required=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(1, 65535), required=True, help="Port to listen on.")
@click.option("--superlink", required=True, help="Address and port of the SuperLink.")
@click.option("--ssl-ca-certfile", type=FILE_PATH, help="The authority's certificate.")
@click.option("--ssl-certfile", type=FILE_PATH, help="The server's certificate.")
@click.option("--ssl-keyfile", type=FILE_PATH, help="The server's key.")
@click.option("--insecure", is_flag=True, help="No encryption: for tests only.")
def proxy(
    listen: str,
    port: int,
    superlink: str,
    ssl_ca_certfile: Path | None,
    ssl_certfile: Path | None,
    ssl_keyfile: Path | None,
    insecure: bool,
) -> None:
    """Let devices, and nobody else, reach a SuperLink that listens on loopback.

    The server's start.sh runs this.
    """
    tls = None
    if not insecure:
        if ssl_ca_certfile is None or ssl_certfile is None or ssl_keyfile is None:
            raise ValueError("the proxy needs --ssl-ca-certfile, --ssl-certfile and --ssl-keyfile")
        tls = ssl_ca_certfile, ssl_certfile, ssl_keyfile
    with _require_extra():
        from aquila.deploy.proxy import serve

        serve(listen, port, superlink, tls)


@contextmanager
def _require_extra() -> Iterator[None]:
    """Say in one sentence what to install, where something is missing."""
    try:
        yield
    except ModuleNotFoundError as missing:
        if missing.name not in ("cryptography", "httpx", "uvicorn"):
            raise
        raise click.ClickException(MISSING_EXTRA_MESSAGE) from None


def _next_steps(folder: Path, insecure: bool) -> None:
    click.echo("Next, with Flower's programs on the PATH:")
    click.echo(f"  {folder}/server/start.sh       on the server's machine")
    if not insecure:
        click.echo(f"  {folder}/server/register.sh    there too, once the server runs")
    click.echo(f"  {folder}/device-0/start.sh     on the machine of device 0; others likewise")
