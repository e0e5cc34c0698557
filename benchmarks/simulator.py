"""Speed of the simulator beside others on the same work.

    python benchmarks/simulator.py --python PEERS/bin/python --out results/simulator.jsonl

In every round each device computes its full gradient and the server takes a step along the mean.
Case `compute` is a convolutional network on 100 devices, where gradients take the time; `overhead`
is logistic regression on 1,000 devices, where all else does. Everyone has the same data, model
and first parameters, and a process of its own. Peers run with the interpreter that --python names,
as they come, with what their files in benchmarks/peers do in their favour; those that are not
installed there are left out.

A plain loop in PyTorch runs before and after each simulator and is the unit of its time, so that
a machine that slows down meanwhile slows both. "first" is from the start of the process to the end
of the first round, "round" the median of the later ones. Memory is the peak of what the process
and its children have resident; pages that they share count in each. Where others keep more than
a tenth of a core busy meanwhile, threads that wait for each other are slowed many times over, so
such a run is made again, and its ratios are marked disturbed if that does not help: then they mean
nothing, and no goal is judged by them. "loss" is the mean over
the devices at the start of the last round, and the exit status is 1 if someone's losses are not
those of the plain loop. With --check, it is also 1 if a goal is missed or could not be measured.
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
from dataclasses import asdict, dataclass
from datetime import date
from itertools import pairwise
from pathlib import Path

from peers.monitor import monitor, wait_for_quiet
from peers.workload import ALPHA, CASES, SEED, Workload, write_data

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Simulator:
    """`module` names a file in benchmarks/peers; `needs` are modules that must be installed."""

    module: str
    label: str
    needs: tuple[str, ...] = ()
    same_losses: bool = True


PLAIN = Simulator("plain", "plain PyTorch")
OURS = Simulator("ours:aquila", "aquila", same_losses=False)
OURS_FEDSGD = Simulator("ours:fedsgd", "aquila, method fedsgd")
PEERS = {
    "flower": Simulator("flower", "Flower", ("flwr", "ray")),
    "pfl": Simulator("pfl", "pfl", ("pfl",)),
    "fedlab": Simulator("fedlab", "FedLab", ("fedlab",)),
}
MODULES = ("torch", "flwr", "ray", "pfl", "fedlab")

ROUNDS = {"compute": 6, "overhead": 11}
QUICK_ROUNDS = 3
TIME_LIMIT = 1800
MAX_OTHER_CORES, QUIET_TIMEOUT_S, ATTEMPTS = 0.1, 20, 3
"""Cores others may keep busy beside a run, seconds to wait for that an attempt, runs at most."""

LOSS_TOLERANCE, DECREASE_TOLERANCE = 1e-3, 1e-2
"""Allowed relative differences of losses, and of how far they have fallen since the first round."""

SPEEDUP_GOALS = {
    "compute": {"flower": 2.8, "pfl": 2.0, "fedlab": 1.7},
    "overhead": {"flower": 20.0, "pfl": 5.0},
}
OUTSIDE_GOALS = {"compute": 0.08}
FIRST_ROUND_GOALS = {"overhead": 2.0}


def installed_versions(python):
    """Versions of the modules that an interpreter finds, None for those it does not."""
    program = (
        "import json, sys; from importlib import metadata, util; "
        "print(json.dumps({m: metadata.version(m) if util.find_spec(m) else None "
        "for m in sys.argv[1:]}))"
    )
    command = [python, "-c", program, *MODULES]
    return json.loads(subprocess.run(command, capture_output=True, check=True).stdout)


def available_peers(names, versions):
    """The peers to measure, and a line on those that are left out."""
    absent = [n for n in names if any(versions[module] is None for module in PEERS[n].needs)]
    line = f"Left out, not installed: {', '.join(absent)}." if absent else ""
    return [PEERS[name] for name in names if name not in absent], line


def measure(simulator, workload, python, attempts):
    """The least disturbed of a few runs; which one it is does not depend on its speed."""
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
    return f"{seconds:.3f} s a round, others kept {run['other_cores']:.2f} cores busy"


def measure_once(simulator, workload, python):
    """What one simulator tells of its work in a process of its own, or why it did not finish."""
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
    ends = report.pop("ends")
    rounds = [after - before for before, after in pairwise(ends)]
    return report | {"first_s": ends[0] - start, "rounds_s": rounds, **asdict(used)}


def read_from_start(file):
    file.seek(0)
    return file.read()


def measure_case(case, simulators, rounds, python, attempts):
    """Rows of a case: the plain loop first, then everyone with their ratio to it."""
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
    """Several runs of one simulator as one."""
    seconds = [second for run in runs for second in run["rounds_s"]]
    first = statistics.median(run["first_s"] for run in runs)
    peak, others = (max(run[field] for run in runs) for field in ("peak_mib", "other_cores"))
    more = {"first_s": first, "rounds_s": seconds, "peak_mib": peak, "other_cores": others}
    return runs[0] | more


def make_row(case, simulator, result, plain_runs):
    """A simulator's result, its time in units of the plain loops around it, and its losses'."""
    row = {"case": case, "simulator": simulator.module, "label": simulator.label, **result}
    if "failed" in result:
        return row
    unit = statistics.median(combine_runs(plain_runs)["rounds_s"])
    row["disturbed"] = max(run["other_cores"] for run in (result, *plain_runs)) > MAX_OTHER_CORES
    row["round_s"] = statistics.median(result["rounds_s"])
    row["relative_to_plain"] = row["round_s"] / unit
    row["same_losses"] = losses_agree(result["losses"], plain_runs[0]["losses"])
    return row


def losses_agree(losses, expected):
    """Whether losses, and how far they have fallen, are those expected."""
    return len(losses) == len(expected) and all(
        abs(loss - wanted) <= LOSS_TOLERANCE * abs(wanted)
        and abs((losses[0] - loss) - (expected[0] - wanted))
        <= DECREASE_TOLERANCE * loss_range(expected)
        for loss, wanted in zip(losses, expected, strict=True)
    )


def loss_range(losses):
    return max(losses) - min(losses)


def add_speedups(rows):
    """Say in each row how many times faster than it ours is."""
    ours = by_name(rows).get(OURS.module, {}).get("relative_to_plain")
    for row in rows:
        if ours and "relative_to_plain" in row:
            row["speedup"] = row["relative_to_plain"] / ours


def by_name(rows):
    return {row["simulator"]: row for row in rows}


def check_goals(case, rows):
    """Lines on the goals of a case, each with whether it is reached; None if nobody can tell."""
    named = {name: row for name, row in by_name(rows).items() if not row.get("disturbed")}
    ours = named.get(OURS.module, {})
    for peer, goal in SPEEDUP_GOALS[case].items():
        speedup = named.get(PEERS[peer].module, {}).get("speedup") if ours else None
        yield goal_line(f"times faster than {PEERS[peer].label}, at least", goal, speedup, 1)
    if case in OUTSIDE_GOALS:
        share = ours.get("outside_fraction")
        yield goal_line("share outside gradients, at most", OUTSIDE_GOALS[case], share, -1)
    if case in FIRST_ROUND_GOALS:
        goal, first = FIRST_ROUND_GOALS[case], ours.get("first_s")
        yield goal_line("seconds to the end of the first round, at most", goal, first, -1)


def goal_line(text, goal, measured, sign):
    """A goal beside what was measured; `sign` is 1 where more is better, and -1 where less is."""
    reached = None if measured is None else sign * measured >= sign * goal
    word = {None: "not measured", True: "reached", False: "MISSED"}[reached]
    value = "-" if measured is None else f"{measured:.3g}"
    return f"{text + f' {goal:g}':<56}{value:>8}  {word}", reached


def table_lines(rows):
    """Lines of the table of a case."""
    heading = f"{'':<24}{'first, s':>10}{'round, s':>10}{'of plain':>10}{'aquila is':>12}"
    yield f"{heading}{'peak, MiB':>11}{'loss':>10}"
    for row in rows:
        if "failed" in row:
            yield f"{row['label']:<24}  failed: {row['failed']}"
            continue
        speedup = f"{row['speedup']:.2f} x" if "speedup" in row else "-"
        yield (
            f"{row['label']:<24}{row['first_s']:>10.2f}{row['round_s']:>10.3f}"
            f"{row['relative_to_plain']:>10.2f}{speedup:>12}{row['peak_mib']:>11.0f}{row['losses'][-1]:>10.5f}"
            f"{'  disturbed' if row['disturbed'] else ''}"
        )


def case_title(name, rounds):
    case = CASES[name]
    count = sum(p.numel() for p in Workload(name, Path(), 0).model().parameters())
    return (
        f"{name}: {case.devices:,} devices with {case.samples} samples each, {case.model} of "
        f"{count:,} parameters, {rounds} rounds, alpha {ALPHA}, seed {SEED}"
    )


def describe_failures(rows):
    """Lines on simulators that failed or did other work than the plain loop."""
    known = {c.module: c for c in (PLAIN, OURS, OURS_FEDSGD, *PEERS.values())}
    for row in rows:
        if "failed" in row:
            yield f"{row['case']}: {row['label']} failed"
        elif known[row["simulator"]].same_losses and not row["same_losses"]:
            yield f"{row['case']}: the losses of {row['label']} are not those of the plain loop"


def describe_machine(args, versions):
    """Where, when and with which versions the numbers were measured."""
    known = Path("/proc/cpuinfo")
    lines = known.read_text().splitlines() if known.is_file() else []
    names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    ours = installed_versions(sys.executable)
    return {
        "cpu": names[0] if names else platform.processor() or platform.machine(),
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
    parser.add_argument("--rounds", type=int, help="6 of compute and 11 of overhead")
    parser.add_argument("--peers", default=",".join(PEERS), help="some of flower,pfl,fedlab")
    parser.add_argument("--python", default=sys.executable, help="interpreter of the peers")
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
