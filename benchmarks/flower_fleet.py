"""Memory, time per round and Flower's bytes of a real federation with many SuperNodes.

python benchmarks/flower_fleet.py --devices 50
python benchmarks/flower_fleet.py --devices 5 --coordinates 11000000 --method qsgd --separate

It starts one SuperLink and one SuperNode per device on loopback. The SuperNodes share a device
host, unless they are separate. Try a few devices first: the memory grows with their number.
"""

import argparse
import json
import re
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from machine import cpu_name

APP = Path(__file__).parent / "flower_app"
RUN_CONFIG = ("devices", "coordinates", "method", "rounds")
SAMPLE_SECONDS = 5.0
SUPERNODE = "flower-supernode"
HOSTED = {"node": SUPERNODE, "app": "flwr-clientapp"}
"""Programs of the processes that a device host names after its devices."""
LINE = re.compile(
    r"round (?P<round>\d+): .*?(?P<uploads>\d+) uploads, (?P<skips>\d+) skips, (?P<lost>\d+) lost, "
    r"uplink (?P<uplink_bytes>\d+) bytes \+ (?P<flower_bytes>\d+) of Flower overhead.*?"
    r"(?P<seconds>[\d.]+) s, \d+ of"
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--devices", type=int, default=50)
    parser.add_argument("--coordinates", type=int, default=2410)
    parser.add_argument("--method", default="aquila")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--separate", action="store_true", help="start the SuperNodes separately")
    parser.add_argument("--seconds", type=float, default=3600.0, help="time limit of the run")
    options = parser.parse_args()
    from aquila.flower.local_processes import FEDERATION_VARIABLE, leftover_processes
    from aquila.flower.loopback import federation

    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        with federation(options.devices, Path(folder), shared_host=not options.separate) as running:
            started = time.monotonic() - began
            name = running.environment[FEDERATION_VARIABLE]
            memory = PeakMemory(lambda: leftover_processes(name))
            config = {name: getattr(options, name) for name in RUN_CONFIG}
            printed = running.run(APP, config, options.seconds, memory.sample)
    result = {
        **config, "separate": options.separate, "start_seconds": round(started, 1),
        "peak_mib": memory.peaks,
        "mib_per_supernode": round(memory.peaks.get(SUPERNODE, 0) / options.devices, 1),
        "rounds_run": [read_line(line) for line in LINE.finditer(printed)], "machine": cpu_name(),
    }  # fmt: skip
    print(json.dumps(result))


def read_line(line: re.Match[str]) -> dict[str, float]:
    """Return the numbers in the log line of a round."""
    return {name: float(value) for name, value in line.groupdict().items()}


class PeakMemory:
    """The largest memory of the processes by kind, in MiB. Shared pages count once."""

    def __init__(self, processes: Callable[[], list[int]]) -> None:
        self.peaks: dict[str, int] = {}
        self._processes = processes
        self._next = 0.0

    def sample(self, _: str) -> None:
        """Measure, unless the last measurement is recent."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + SAMPLE_SECONDS
        used: dict[str, int] = {"all": 0}
        for process in self._processes():
            with suppress(OSError, StopIteration):
                kind, size = kind_of(process), memory_of(process)
                used[kind] = used.get(kind, 0) + size
                used["all"] += size
        for kind, size in used.items():
            self.peaks[kind] = max(self.peaks.get(kind, 0), size)


def kind_of(process: int) -> str:
    """Return which program of Flower a process is."""
    hosted, _, device = Path(f"/proc/{process}/comm").read_text().strip().partition("-")
    if hosted in HOSTED and device.isdigit():
        return HOSTED[hosted]
    words = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
    names = [Path(word.decode(errors="replace")).name for word in words[:3]]
    if b"aquila.flower.device_host" in words:
        return "device-host"
    return next((name for name in names if name.startswith(("flwr", "flower"))), "other")


def memory_of(process: int) -> int:
    """Return the memory of a process in MiB; each page is divided among its users."""
    lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("Pss:")).split()[1]) // 1024


if __name__ == "__main__":
    main()
