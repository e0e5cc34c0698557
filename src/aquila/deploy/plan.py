"""What a federation is to be: who takes part, where the server is, and how it is secured."""

import json
import re
from dataclasses import asdict, dataclass
from ipaddress import ip_address
from pathlib import Path

LOOPBACK = ("127.0.0.1", "localhost")
"""Hosts that are in every certificate: the server's parts reach each other by them."""

ANY_ADDRESS = "0.0.0.0"  # nosec B104
MAX_DEVICES = 10_000
PLAN_FILE = "federation.json"
_LABEL = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_NAME = re.compile(rf"(?=.{{1,253}}$)({_LABEL}\.)*(?=[a-z]){_LABEL}")


@dataclass(frozen=True)
class Plan:
    """A federation; devices reach the server at the first of its hosts."""

    devices: int
    hosts: tuple[str, ...] = LOOPBACK
    port: int = 8443
    insecure: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.devices <= MAX_DEVICES:
            raise ValueError(f"devices must be from 1 to {MAX_DEVICES}, not {self.devices}")
        last = 2**16 - 1 - MAX_DEVICES - 2
        if not 1 <= self.port <= last:
            raise ValueError(f"port must be from 1 to {last}, not {self.port}")
        for host in self.hosts:
            if not _is_address(host) and not _NAME.fullmatch(host):
                raise ValueError(
                    f"{host!r} is no host; give a name such as fl.example.org or an IP address"
                )

    @property
    def certificate_hosts(self) -> tuple[str, ...]:
        """All hosts that the server's certificate is for."""
        return tuple(dict.fromkeys((*self.hosts, *LOOPBACK)))

    @property
    def server(self) -> str:
        """Where devices reach the server, host and port."""
        host = self.hosts[0]
        return f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"

    @property
    def listen(self) -> str:
        """The address that the server listens on: all, unless it is for this machine alone."""
        if all(map(_is_loopback, self.hosts)):
            return "127.0.0.1" if self.hosts[0] != "::1" else "::1"
        return "::" if any(":" in host for host in self.hosts) else ANY_ADDRESS

    @property
    def superlink_port(self) -> int:
        """The SuperLink's port on loopback."""
        return self.port + 1

    def runtime_port(self, device: int) -> int:
        """Port on loopback of a device's SuperNode; all devices may be on one machine."""
        return self.port + 2 + device


def plan_bytes(plan: Plan) -> bytes:
    """Return the plan as a file holds it."""
    return (json.dumps(asdict(plan), indent=2) + "\n").encode()


def load_plan(folder: Path) -> Plan:
    """Return the plan of the federation in a folder."""
    try:
        saved = json.loads((folder / PLAN_FILE).read_text())
        return Plan(**{**saved, "hosts": tuple(saved["hosts"])})
    except FileNotFoundError:
        raise ValueError(f"{folder} holds no federation; aquila deploy init makes one") from None
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{folder / PLAN_FILE} does not describe a federation: {error}") from None


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return "%" not in host


def _is_loopback(host: str) -> bool:
    return host == "localhost" or (_is_address(host) and ip_address(host).is_loopback)
