"""Time and memory of rounds with a large fleet on one machine.

    python benchmarks/large_fleet.py --devices 100000 --dimension 10000 --participation 0.1
    python benchmarks/large_fleet.py --case million-devices    # or: million-parameters

Every device pulls the model towards its own centre, which is generated on demand, so that the data
take no memory. Prints one JSON line: seconds for the set-up, seconds and CPU seconds per round, and
resident memory in MiB after the set-up and at its peak. CPU seconds include those of the oracles,
which draw their centres. Device states above `--state-memory` MiB go to a file.
"""

import argparse
import json
import resource
import time

import torch

import aquila

CASES = {
    "million-devices": {"devices": 1_000_000, "dimension": 10_000, "participation": 0.001},
    "million-parameters": {"devices": 10_000, "dimension": 1_000_000, "participation": 0.01},
}


class CentreOracle:
    """f_m(θ) = ½ ||θ - c_m||²; the centre c_m is generated at every call."""

    samples = 1
    returns_fresh_memory = True

    def __init__(self, device):
        self.device = device

    def gradient(self, theta):
        generator = torch.Generator().manual_seed(self.device)
        difference = theta - torch.randn(theta.shape, generator=generator)
        return float(difference @ difference) / 2, difference

    def train(self, theta, alpha):
        return self.gradient(theta)


def status_mib(line):
    """Return a field of /proc/self/status in MiB."""
    with open("/proc/self/status") as status:
        return next(int(row.split()[1]) // 1024 for row in status if row.startswith(line))


def parse_args():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--case", choices=CASES, help="devices, dimension and participation")
    parser.add_argument("--devices", type=int, default=100_000)
    parser.add_argument("--dimension", type=int, default=10_000)
    parser.add_argument("--participation", type=float, default=0.1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--method", default="aquila")
    parser.add_argument("--state-memory", type=float, default=0.0)
    args = parser.parse_args()
    vars(args).update(CASES.get(args.case, {}))
    return args


def main():
    args = parse_args()
    torch.set_num_threads(1)
    centre_oracles = [CentreOracle(device) for device in range(args.devices)]
    mib_before, start = status_mib("VmRSS"), time.perf_counter()
    run = aquila.Simulation(
        aquila.create(args.method, alpha=0.5),
        torch.zeros(args.dimension),
        centre_oracles,
        options=aquila.RunOptions(
            workers=1, participation=args.participation, state_memory=args.state_memory
        ),
    )
    setup, seconds, cpu_seconds, anonymous = time.perf_counter() - start, [], [], []
    mib_after = status_mib("VmRSS")
    for _ in range(args.rounds):
        start, cpu_start = time.perf_counter(), time.process_time()
        record = run.advance()
        seconds.append(round(time.perf_counter() - start, 3))
        cpu_seconds.append(round(time.process_time() - cpu_start, 3))
        anonymous.append(status_mib("RssAnon"))
    print(
        json.dumps(
            {
                **vars(args),
                "torch": torch.__version__,
                "setup_s": round(setup, 3),
                "setup_mib": mib_after - mib_before,
                "round_s": seconds,
                "cpu_s": cpu_seconds,
                "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
                "anonymous_mib": anonymous,
                "uploads": record.uploads,
                "uplink_bytes": record.uplink_bytes,
            }
        )
    )


if __name__ == "__main__":
    main()
