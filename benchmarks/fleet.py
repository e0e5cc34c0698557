"""Time and memory of rounds with a large fleet on one machine.

    python benchmarks/fleet.py --devices 100000 --dimension 10000 --participation 0.1

Every device pulls the model towards a centre of its own, which is drawn from its key when it is
needed, so that the data take no memory. Prints one JSON line: seconds to set up, seconds a round,
and resident memory in MiB after the set-up and at its highest; `--state-memory` is the limit in MiB
above which devices' states go to a file (0: always).
"""

import argparse
import json
import resource
import time

import torch

import aquila


class Pull:
    """f_m(θ) = ½ ||θ - c_m||², the centre c_m being drawn anew at every call."""

    samples = 1
    keeps_to_itself = True

    def __init__(self, device):
        self.device = device

    def gradient(self, theta):
        generator = torch.Generator().manual_seed(self.device)
        way = theta - torch.randn(theta.shape, generator=generator)
        return float(way @ way) / 2, way

    def train(self, theta, alpha):
        return self.gradient(theta)


def memory(line):
    """Return a line of the process's status in MiB."""
    with open("/proc/self/status") as status:
        return next(int(row.split()[1]) // 1024 for row in status if row.startswith(line))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--devices", type=int, default=100_000)
    parser.add_argument("--dimension", type=int, default=10_000)
    parser.add_argument("--participation", type=float, default=0.1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--method", default="aquila")
    parser.add_argument("--state-memory", type=int)
    given = parser.parse_args()

    torch.set_num_threads(1)
    limit = None if given.state_memory is None else given.state_memory * 2**20
    pulls = [Pull(device) for device in range(given.devices)]
    before, start = memory("VmRSS"), time.perf_counter()
    run = aquila.Simulation(
        aquila.create(given.method, alpha=0.5),
        torch.zeros(given.dimension),
        pulls,
        workers=1,
        participation=given.participation,
        state_memory=limit,
    )
    setup, seconds, anonymous = time.perf_counter() - start, [], []
    after = memory("VmRSS")
    for _ in range(given.rounds):
        start = time.perf_counter()
        record = run.advance()
        seconds.append(round(time.perf_counter() - start, 3))
        anonymous.append(memory("RssAnon"))
    print(
        json.dumps(
            {
                **vars(given),
                "torch": torch.__version__,
                "setup_s": round(setup, 3),
                "setup_mib": after - before,
                "round_s": seconds,
                "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
                "anonymous_mib": anonymous,
                "uploads": record.uploads,
                "uplink_bytes": record.uplink_bytes,
            }
        )
    )


if __name__ == "__main__":
    main()
