"""The plan of a federation: number of devices, the server's hosts and port, security."""

import json
import re
from dataclasses import asdict, dataclass
from ipaddress import ip_address
from pathlib import Path

LOOPBACK = ("127.0.0.1", "localhost")
"""Hosts in every certificate. The SuperLink and the proxy connect through them."""

ANY_ADDRESS = "0.0.0.0"  # nosec B104
MAX_DEVICES = 10_000
MIN_CONNECTIONS = 1024
MAX_CONNECTIONS_PER_ADDRESS = 256
PLAN_FILE = "federation.json"
_LABEL_PATTERN = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_HOST_NAME = re.compile(rf"(?=.{{1,253}}$)({_LABEL_PATTERN}\.)*(?=[a-z]){_LABEL_PATTERN}")


@dataclass(frozen=True)
class Plan:
    """The plan of a federation. Devices connect to the first host.

    `signed`: the server and the devices sign every message, unless the federation is insecure.
    """

    devices: int
    hosts: tuple[str, ...] = LOOPBACK
    port: int = 8443
    insecure: bool = False
    signed: bool = True

    def __post_init__(self) -> None:
        if not 1 <= self.devices <= MAX_DEVICES:
            raise ValueError(f"devices must be from 1 to {MAX_DEVICES}, not {self.devices}")
        max_port = 2**16 - 1 - MAX_DEVICES - 2  # the ports of SuperLink and SuperNodes follow
        if not 1 <= self.port <= max_port:
            raise ValueError(f"port must be from 1 to {max_port}, not {self.port}")
        for host in self.hosts:
            if not _is_address(host) and not _HOST_NAME.fullmatch(host):
                raise ValueError(
                    f"{host!r} is not a valid host; give a name such as fl.example.org or an IP "
                    "address"
                )

    @property
    def certificate_hosts(self) -> tuple[str, ...]:
        """All hosts that the server's certificate is valid for."""
        return tuple(dict.fromkeys((*self.hosts, *LOOPBACK)))

    @property
    def server(self) -> str:
        """The host and port that devices connect to."""
        host = self.hosts[0]
        return f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"

    @property
    def listen(self) -> str:
        """The address that the server listens on: loopback if all hosts are, else every address."""
        if all(map(_is_loopback, self.hosts)):
            return "127.0.0.1" if self.hosts[0] != "::1" else "::1"
        return "::" if any(":" in host for host in self.hosts) else ANY_ADDRESS

    @property
    def superlink_port(self) -> int:
        """The port of the SuperLink on loopback."""
        return self.port + 1

    @property
    def status_port(self) -> int:
        """The port of the server's status page on loopback, after those of all devices."""
        return self.port + 2 + MAX_DEVICES

    @property
    def signs_messages(self) -> bool:
        """Whether the server and the devices have keys that sign messages."""
        return self.signed and not self.insecure

    @property
    def max_connections(self) -> int:
        """How many connections the proxy keeps open: four per device, but at least 1,024."""
        return max(MIN_CONNECTIONS, 4 * self.devices)

    def runtime_port(self, device: int) -> int:
        """Return the loopback port of a device's SuperNode, unique on a shared machine."""
        return self.port + 2 + device


def plan_bytes(plan: Plan) -> bytes:
    """Return the plan as the content of its file."""
    return (json.dumps(asdict(plan), indent=2) + "\n").encode()


def load_plan(folder: Path) -> Plan:
    """Return the plan of the federation in a folder."""
    try:
        saved = json.loads((folder / PLAN_FILE).read_text())
        # a federation of an earlier version has no signing keys
        return Plan(**{"signed": False, **saved, "hosts": tuple(saved["hosts"])})
    except FileNotFoundError:
        raise ValueError(
            f"{folder} holds no federation; create one with aquila deploy init"
        ) from None
    except (KeyError, RecursionError, TypeError, ValueError) as error:
        raise ValueError(f"{folder / PLAN_FILE} does not describe a federation: {error}") from None


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return "%" not in host


def _is_loopback(host: str) -> bool:
    return host == "localhost" or (_is_address(host) and ip_address(host).is_loopback)
