"""Speed of the simulator, compared with other simulators on the same work.

    python benchmarks/simulator.py --python PEERS/bin/python --out results/simulator.jsonl

In every round each device computes its full gradient, and the server takes a step along the mean.
Case `compute` is a convolutional network on 100 devices, where gradients take most of the time.
Case `overhead` is logistic regression on 1,000 devices, where everything else does. All simulators
get the same data, model and initial parameters, and each runs in its own process. Peers run with
the interpreter that --python names, with their defaults and the settings in benchmarks/peers that
favour them. Peers that are not installed there are left out.

A plain PyTorch loop runs before and after each simulator. Its time is the unit, so that a machine
that slows down affects both. "first" is the time from the start of the process to the end of the
first round, "round" the median of the later rounds. The JSON lines also have CPU seconds, which
other processes disturb less than wall-clock time. Memory is the peak of resident memory of the
process and its children; shared pages count once per process. If other processes use more than a
tenth of a core, the run is repeated. If that does not help, its ratios are marked "disturbed": they
are not reliable, and no goal is checked against them. "loss" is the mean over devices at the start
of the last round. The exit status is 1 if losses differ from the plain loop. With --check, it is
also 1 if a goal is missed or was not measured.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from datetime import date
from itertools import pairwise
from pathlib import Path

from machine import cpu_name
from peers.monitor import monitor, wait_for_quiet
from peers.simulators import OURS, OURS_FEDSGD, PEERS, PLAIN
from peers.table import add_speedups, check_goals, describe_failures, table_lines
from peers.workload import ALPHA, CASES, SEED, Workload, write_data

HERE = Path(__file__).resolve().parent
MODULES = ("torch", "flwr", "ray", "pfl", "fedlab")

ROUNDS = {"compute": 6, "overhead": 11}
QUICK_ROUNDS = 3
TIME_LIMIT = 1800
MAX_OTHER_CORES, QUIET_TIMEOUT_S, ATTEMPTS = 0.1, 20, 3
"""Cores that other processes may use, seconds to wait for that, and attempts at most."""

LOSS_TOLERANCE, DECREASE_TOLERANCE = 1e-3, 1e-2
"""Allowed relative differences of losses, and of their decrease since the first round."""


def installed_versions(python):
    """Return the versions of modules in an interpreter; None for missing ones."""
    program = (
        "import json, sys; from importlib import metadata, util; "
        "print(json.dumps({m: metadata.version(m) if util.find_spec(m) else None "
        "for m in sys.argv[1:]}))"
    )
    command = [python, "-c", program, *MODULES]
    return json.loads(subprocess.run(command, capture_output=True, check=True).stdout)


def available_peers(names, versions):
    """Return the peers to measure, and a line that names those left out."""
    absent = [n for n in names if any(versions[module] is None for module in PEERS[n].needs)]
    line = f"Left out, not installed: {', '.join(absent)}." if absent else ""
    return [PEERS[name] for name in names if name not in absent], line


def measure(simulator, workload, python, attempts):
    """Return the least disturbed of a few runs; the choice does not depend on speed."""
    runs = []
    for _ in range(attempts):
        wait_for_quiet(MAX_OTHER_CORES, QUIET_TIMEOUT_S)
        runs.append(measure_once(simulator, workload, python))
        print(f"{workload.case}: {simulator.label}: {describe_run(runs[-1])}", file=sys.stderr)
        if "failed" in runs[-1] or runs[-1]["other_cores"] <= MAX_OTHER_CORES:
            return runs[-1]
    return min(runs, key=lambda run: run["other_cores"])


def describe_run(run):
    if "failed" in run:
        return run["failed"]
    seconds = statistics.median(run["rounds_s"])
    return f"{seconds:.3f} s per round, other processes kept {run['other_cores']:.2f} cores busy"


def measure_once(simulator, workload, python):
    """Return the measurements of one simulator in its own process, or why it failed."""
    command = [python, "-m", "peers", simulator.module]
    command += [workload.case, str(workload.folder), str(workload.rounds)]
    paths = [str(HERE), str(HERE.parent / "src"), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        start = time.monotonic()
        process = subprocess.Popen(command, stdout=out, stderr=err, env=environment)
        used = monitor(process, TIME_LIMIT)
        printed, errors = read_from_start(out), read_from_start(err)
    if process.returncode:
        last = (errors.strip() or f"exit status {process.returncode}").splitlines()[-1]
        return {"failed": last}
    report = json.loads(printed.strip().splitlines()[-1])
    ends, cpu_ends = report.pop("ends"), report.pop("cpu_ends")
    times = {"first_s": ends[0] - start, "rounds_s": differences(ends)}
    cpu_times = {"first_cpu_s": cpu_ends[0], "rounds_cpu_s": differences(cpu_ends)}
    return report | times | cpu_times | asdict(used)


def differences(times):
    return [after - before for before, after in pairwise(times)]


def read_from_start(file):
    file.seek(0)
    return file.read()


def measure_case(case, simulators, rounds, python, attempts):
    """Return the rows of a case: the plain loop, then each simulator relative to it."""
    with tempfile.TemporaryDirectory() as folder:
        workload = Workload(case, Path(folder), rounds)
        write_data(case, workload.folder)
        plain, results = [measure(PLAIN, workload, sys.executable, attempts)], []
        for simulator in simulators:
            interpreter = python if simulator.needs else sys.executable
            results.append(measure(simulator, workload, interpreter, attempts))
            plain.append(measure(PLAIN, workload, sys.executable, attempts))
    if any("failed" in result for result in plain):
        raise SystemExit(f"the plain loop failed: {plain}")
    rows = [make_row(case, PLAIN, combine_runs(plain), plain)]
    for number, (simulator, result) in enumerate(zip(simulators, results, strict=True)):
        rows.append(make_row(case, simulator, result, plain[number : number + 2]))
    return rows


def combine_runs(runs):
    """Combine several runs of one simulator."""
    times = {
        name: [second for run in runs for second in run[name]]
        for name in ("rounds_s", "rounds_cpu_s")
    }
    firsts = {
        name: statistics.median(run[name] for run in runs) for name in ("first_s", "first_cpu_s")
    }
    most = {name: max(run[name] for run in runs) for name in ("peak_mib", "other_cores")}
    return runs[0] | times | firsts | most


def make_row(case, simulator, result, plain_runs):
    """Return a result with its time relative to the plain loops before and after it."""
    row = {"case": case, "simulator": simulator.module, "label": simulator.label, **result}
    if "failed" in result:
        return row
    plain = combine_runs(plain_runs)
    unit, cpu_unit = (statistics.median(plain[name]) for name in ("rounds_s", "rounds_cpu_s"))
    row["disturbed"] = max(run["other_cores"] for run in (result, *plain_runs)) > MAX_OTHER_CORES
    row["round_s"] = statistics.median(result["rounds_s"])
    row["relative_to_plain"] = row["round_s"] / unit
    row["cpu_relative_to_plain"] = statistics.median(result["rounds_cpu_s"]) / cpu_unit
    row["same_losses"] = losses_agree(result["losses"], plain_runs[0]["losses"])
    return row


def losses_agree(losses, expected):
    """Return whether losses, and their decrease, equal the expected ones."""
    return len(losses) == len(expected) and all(
        abs(loss - wanted) <= LOSS_TOLERANCE * abs(wanted)
        and abs((losses[0] - loss) - (expected[0] - wanted))
        <= DECREASE_TOLERANCE * loss_range(expected)
        for loss, wanted in zip(losses, expected, strict=True)
    )


def loss_range(losses):
    return max(losses) - min(losses)


def case_title(name, rounds):
    case = CASES[name]
    count = sum(p.numel() for p in Workload(name, Path(), 0).model().parameters())
    return (
        f"{name}: {case.devices:,} devices with {case.samples} samples each, {case.model} of "
        f"{count:,} parameters, {rounds} rounds, alpha {ALPHA}, seed {SEED}"
    )


def describe_machine(args, versions):
    """Return machine, versions, date and seed of the measurement."""
    ours = installed_versions(sys.executable)
    return {
        "cpu": cpu_name(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "torch": ours["torch"],
        "peers": {name: version for name, version in versions.items() if version},
        "date": date.today().isoformat(),
        "seed": SEED,
    }


def parse_args():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--case", default="both", choices=[*CASES, "both"])
    parser.add_argument("--rounds", type=int, help="default: 6 for compute, 11 for overhead")
    parser.add_argument("--peers", default=",".join(PEERS), help="comma-separated, default: all")
    parser.add_argument("--python", default=sys.executable, help="interpreter that has the peers")
    parser.add_argument("--out", help="file for JSON lines")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_ROUNDS} rounds, one attempt")
    parser.add_argument(
        "--check", action="store_true", help="exit with 1 unless every goal is reached"
    )
    args = parser.parse_args()
    args.peers = [name for name in args.peers.split(",") if name]
    if unknown := sorted(set(args.peers) - set(PEERS)):
        parser.error(f"unknown peers {', '.join(unknown)}; there are {', '.join(PEERS)}")
    if args.rounds is not None and args.rounds < 2:
        parser.error(f"rounds must be at least 2, not {args.rounds}")
    return args


def write_lines(path, lines):
    out = Path(path)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text("".join(json.dumps(line) + "\n" for line in lines))


def main():
    args = parse_args()
    versions = installed_versions(args.python)
    peers, note = available_peers(args.peers, versions)
    machine = describe_machine(args, versions)
    print(
        *(f"{name:<8}{value}" for name, value in machine.items()), *filter(None, [note]), sep="\n"
    )
    lines, wrong, missed = [{"kind": "machine", **machine}], [], False
    for case in CASES if args.case == "both" else [args.case]:
        rounds = args.rounds or (QUICK_ROUNDS if args.quick else ROUNDS[case])
        simulators, attempts = [OURS_FEDSGD, OURS, *peers], 1 if args.quick else ATTEMPTS
        rows = measure_case(case, simulators, rounds, args.python, attempts)
        add_speedups(rows)
        goals = list(check_goals(case, rows))
        print(
            "",
            case_title(case, rounds),
            *table_lines(rows),
            "",
            "Goals, with method aquila",
            sep="\n",
        )
        print(*(text for text, _ in goals), sep="\n", flush=True)
        lines += [{"kind": "simulator", "rounds": rounds, **row} for row in rows]
        wrong += describe_failures(rows)
        missed |= not all(reached for _, reached in goals)
    if args.out:
        write_lines(args.out, lines)
    print(*wrong, sep="\n", file=sys.stderr)
    sys.exit(1 if wrong or (args.check and missed) else 0)


if __name__ == "__main__":
    main()
