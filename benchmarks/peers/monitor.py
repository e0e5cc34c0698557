"""What a process and its children take of the machine, and what others take meanwhile.

A neighbour on one core makes threads that wait for each other many times slower, and not all
simulators alike. So every run is told how much others computed beside it.
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
    """Peak MiB resident, pages that processes share counted in each, and cores others kept busy."""

    peak_mib: float
    other_cores: float


def monitor(process, limit):
    """Wait for a process, `limit` seconds at most, and tell what it and others took meanwhile."""
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
    """A process and all that it or its children ever started, even if another parent has them."""

    def __init__(self, root):
        self.cpu_seconds = {root: 0.0}  # seconds of computing, kept when a member has ended

    def update(self):
        """Bring the seconds up to date and return how many pages are resident now."""
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
    """Yield number, and (parent, resident pages, seconds of computing) of every process."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended meanwhile
            continue
        seconds = (int(fields[11]) + int(fields[12])) / TICK
        yield int(path.parent.name), (int(fields[1]), int(fields[21]), seconds)


def wait_for_quiet(cores, timeout):
    """Wait until others keep less than so many cores busy for a second; give up after a while."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        start, busy_before = time.monotonic(), machine_seconds()
        time.sleep(1)
        if (machine_seconds() - busy_before) / (time.monotonic() - start) < cores:
            return


def machine_seconds():
    """Seconds that all cores have worked or were lent to other machines; 0 without /proc."""
    known = Path("/proc/stat")
    if not known.is_file():
        return 0.0
    user, nice, system, _, _, irq, softirq, steal = map(
        int, known.read_text().splitlines()[0].split()[1:9]
    )
    return (user + nice + system + irq + softirq + steal) / TICK
