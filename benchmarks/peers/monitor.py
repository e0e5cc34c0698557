"""Measures the resources of a process tree, and the CPU use of all other processes.

Another process on one core slows down threads that wait for each other many times, and not all
simulators equally. So every run records how much other processes computed meanwhile.
"""

import os
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

POLL_SECONDS = 0.2
TICK, PAGE = (os.sysconf(name) for name in ("SC_CLK_TCK", "SC_PAGE_SIZE"))


@dataclass(frozen=True)
class ResourceUse:
    """Peak resident MiB, with shared pages counted per process, and cores used by others."""

    peak_mib: float
    other_cores: float


def monitor(process, limit):
    """Wait for a process, at most `limit` seconds, and return the resource use meanwhile."""
    start, busy_before, tree = time.monotonic(), machine_seconds(), ProcessTree(process.pid)
    peak, seconds, other_cores = 0, 0.0, 0.0
    while process.poll() is None:
        peak = max(peak, tree.update())
        seconds = time.monotonic() - start
        other_cores = machine_seconds() - busy_before - sum(tree.cpu_seconds.values())
        time.sleep(POLL_SECONDS)
        if seconds > limit:
            process.kill()
    return ResourceUse(peak * PAGE / 2**20, max(0.0, other_cores) / max(seconds, POLL_SECONDS))


class ProcessTree:
    """A process and all its descendants, including those that were re-parented."""

    def __init__(self, root):
        self.cpu_seconds = {root: 0.0}  # kept after a process has ended

    def update(self):
        """Update the CPU seconds, and return the number of resident pages."""
        seen = dict(processes())
        children = defaultdict(list)
        for number, (parent, _, _) in seen.items():
            children[parent].append(number)
        to_visit, members = list(self.cpu_seconds), set()
        while to_visit:
            member = to_visit.pop()
            if member not in members:
                members.add(member)
                to_visit += children[member]
        alive = members & seen.keys()
        self.cpu_seconds |= {member: seen[member][2] for member in alive}
        return sum(seen[member][1] for member in alive)


def processes():
    """Yield process id, and (parent, resident pages, CPU seconds), of every process."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # the process has ended
            continue
        seconds = (int(fields[11]) + int(fields[12])) / TICK
        yield int(path.parent.name), (int(fields[1]), int(fields[21]), seconds)


def wait_for_quiet(cores, timeout):
    """Wait until fewer than `cores` cores are busy for a second, at most `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        start, busy_before = time.monotonic(), machine_seconds()
        time.sleep(1)
        if (machine_seconds() - busy_before) / (time.monotonic() - start) < cores:
            return


def machine_seconds():
    """Return busy and stolen seconds over all cores; 0 without /proc."""
    known = Path("/proc/stat")
    if not known.is_file():
        return 0.0
    user, nice, system, _, _, irq, softirq, steal = map(
        int, known.read_text().splitlines()[0].split()[1:9]
    )
    return (user + nice + system + irq + softirq + steal) / TICK
