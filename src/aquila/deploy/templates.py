"""The contents of a federation's files: settings, scripts and systemd units."""

import json
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

from aquila.deploy.plan import Plan

CONNECTION = "federation"

OFFLINE_SETTINGS = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
}
"""Settings that stop Flower and Ray from installing packages and from calling other machines."""

_IDENTITY = "export AQUILA_IDENTITY=$PWD  # the keys that sign messages are in this folder"

SECURE = "Secure: connections are encrypted, and every device authenticates with its key."
INSECURE = (
    "INSECURE: connections are neither encrypted nor authenticated. For tests on one machine only."
)


def flower_config(plan: Plan, ca: Path) -> bytes:
    """Return Flower's config.toml, with which administrators on the server reach the SuperLink."""
    quoted = json.dumps(str(ca), ensure_ascii=False)
    trust = "insecure = true" if plan.insecure else f"root-certificates = {quoted}"
    return (
        f"# {_security(plan)}\n"
        f'[superlink]\ndefault = "{CONNECTION}"\n\n[superlink.{CONNECTION}]\n'
        f'address = "127.0.0.1:{plan.superlink_port}"\n{trust}\n'
    ).encode()


def environment_file(plan: Plan, settings: Mapping[str, str | int]) -> bytes:
    """Return the settings of a server or device as a file of shell variables."""
    lines = [f"{name}={value}" for name, value in {**settings, **OFFLINE_SETTINGS}.items()]
    return "\n".join([f"# {_security(plan)}", *lines, ""]).encode()


def fill_template(name: str, plan: Plan) -> bytes:
    """Return a script or unit from `resources` with all placeholders filled in."""
    resources = files("aquila.deploy") / "resources"
    tls = "--ssl-ca-certfile ca.crt --ssl-certfile server.crt --ssl-keyfile server.key"
    values = {
        "SECURITY": _security(plan),
        "IDENTITY": _IDENTITY if plan.signs_messages else "# Messages are not signed.",
        "HARDENING": (resources / "hardening.conf").read_text(),
        "SUPERLINK_OPTIONS": "--insecure" if plan.insecure else f"--enable-supernode-auth {tls}",
        "PROXY_OPTIONS": "--insecure" if plan.insecure else f"{tls} --keys keys",
        "SUPERNODE_OPTIONS": (
            "--insecure"
            if plan.insecure
            else "--root-certificates ca.crt --auth-supernode-private-key device.key"
        ),
    }
    text = (resources / name).read_text()
    for key, value in values.items():
        text = text.replace(f"@{key}@", value)
    return text.encode()


def _security(plan: Plan) -> str:
    return INSECURE if plan.insecure else SECURE
