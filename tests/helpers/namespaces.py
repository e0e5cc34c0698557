"""Two network namespaces of Linux, connected by a cable of limited bandwidth."""

import ctypes
import os
import shutil
import subprocess
from contextlib import suppress

CLONE_NEWNET = 0x40000000


class TwoHosts:
    """Two namespaces; rank r runs in namespace r. Needs the rights of root."""

    def __init__(self, rate: str) -> None:
        self.names = [f"aq{os.getpid()}-{rank}" for rank in range(2)]
        self.devices = [f"aqv{os.getpid() % 10**6}-{rank}" for rank in range(2)]
        self._rate = rate

    def __enter__(self) -> "TwoHosts":
        try:
            for name in self.names:
                self._ip("netns", "add", name)
            first, second = self.devices
            self._ip("link", "add", first, "type", "veth", "peer", "name", second)
            for rank, (name, device) in enumerate(zip(self.names, self.devices, strict=True)):
                self._ip("link", "set", device, "netns", name)
                self._ip("-n", name, "address", "add", f"10.213.7.{rank + 1}/24", "dev", device)
                self._ip("-n", name, "link", "set", device, "up")
                self._ip("-n", name, "link", "set", "lo", "up")
                limit = ["rate", self._rate, "burst", "16kb", "latency", "400ms"]
                self._run("tc", "-n", name, "qdisc", "add", "dev", device, "root", "tbf", *limit)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        for name in self.names:
            with suppress(subprocess.CalledProcessError):
                self._ip("netns", "delete", name)

    @property
    def address(self) -> str:
        """Where the ranks meet."""
        return "tcp://10.213.7.1:29531"

    def enter(self, rank: int) -> None:
        """Move this process to the namespace of a rank."""
        with open(f"/var/run/netns/{self.names[rank]}") as namespace:
            if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), "setns")
        os.environ["GLOO_SOCKET_IFNAME"] = self.devices[rank]

    @staticmethod
    def are_possible() -> bool:
        """Whether this process may make namespaces."""
        if os.geteuid() != 0 or not (shutil.which("ip") and shutil.which("tc")):
            return False
        try:
            with TwoHosts("1mbit"):
                return True
        except (subprocess.CalledProcessError, OSError):
            return False

    @staticmethod
    def _run(*command: str) -> None:
        subprocess.run(command, check=True, capture_output=True)

    def _ip(self, *words: str) -> None:
        self._run("ip", *words)
