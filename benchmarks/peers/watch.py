"""What a process and its children take of the machine, and what others take meanwhile.

A neighbour on one core makes threads that wait for each other many times slower, and not all
contestants alike. So every run is told how much others computed beside it.
"""

import os
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

EVERY = 0.2
TICK, PAGE = (os.sysconf(name) for name in ("SC_CLK_TCK", "SC_PAGE_SIZE"))


@dataclass(frozen=True)
class Watched:
    """Peak MiB resident, pages that processes share counted in each, and cores others kept busy."""

    peak_mib: float
    others: float


def watch(process, limit):
    """Wait for a process, `limit` seconds at most, and tell what it and others took meanwhile."""
    start, busy, family = time.monotonic(), machine_seconds(), Family(process.pid)
    peak, seconds, others = 0, 0.0, 0.0
    while process.poll() is None:
        peak = max(peak, family.look())
        seconds = time.monotonic() - start
        others = machine_seconds() - busy - sum(family.spent.values())
        time.sleep(EVERY)
        if seconds > limit:
            process.kill()
    return Watched(peak * PAGE / 2**20, max(0.0, others) / max(seconds, EVERY))


class Family:
    """A process and all that it or its children ever started, even if another parent has them."""

    def __init__(self, root):
        self.spent = {root: 0.0}  # seconds of computing, kept when a member has ended

    def look(self):
        """Bring the seconds up to date and return how many pages are resident now."""
        seen = dict(processes())
        children = defaultdict(list)
        for number, (parent, _, _) in seen.items():
            children[parent].append(number)
        unseen, members = list(self.spent), set()
        while unseen:
            member = unseen.pop()
            if member not in members:
                members.add(member)
                unseen += children[member]
        alive = members & seen.keys()
        self.spent |= {member: seen[member][2] for member in alive}
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


def wait_for_quiet(cores, patience):
    """Wait until others keep less than so many cores busy for a second; give up after a while."""
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        start, busy = time.monotonic(), machine_seconds()
        time.sleep(1)
        if (machine_seconds() - busy) / (time.monotonic() - start) < cores:
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
