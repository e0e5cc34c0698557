"""Speed of the simulator beside others on the same work.

    python benchmarks/simulator.py --python PEERS/bin/python --out results/simulator.jsonl

In every round each device computes its full gradient and the server takes a step along the mean.
Case `compute` is a convolutional network on 100 devices, where gradients take the time; `overhead`
is logistic regression on 1,000 devices, where all else does. Everyone has the same data, model
and first parameters, and a process of its own. Peers run with the interpreter that --python names,
as they come, with what their files in benchmarks/peers do in their favour; those that are not
installed there are left out.

A plain loop in PyTorch runs before and after each contestant and is the unit of its time, so that
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

from peers.watch import wait_for_quiet, watch
from peers.work import ALPHA, CASES, SEED, Work, write_data

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Contestant:
    """`runs` names a file in benchmarks/peers; `needs` are modules that must be installed."""

    runs: str
    label: str
    needs: tuple[str, ...] = ()
    same_losses: bool = True


PLAIN = Contestant("plain", "plain PyTorch")
OURS = Contestant("ours:aquila", "aquila", same_losses=False)
OURS_UNCODED = Contestant("ours:fedsgd", "aquila, method fedsgd")
PEERS = {
    "flower": Contestant("flower", "Flower", ("flwr", "ray")),
    "pfl": Contestant("pfl", "pfl", ("pfl",)),
    "fedlab": Contestant("fedlab", "FedLab", ("fedlab",)),
}
MODULES = ("torch", "flwr", "ray", "pfl", "fedlab")

ROUNDS = {"compute": 6, "overhead": 11}
QUICK_ROUNDS = 3
TIME_LIMIT = 1800
QUIET, PATIENCE, ATTEMPTS = 0.1, 20, 3
"""Cores others may keep busy beside a run, seconds to wait for that an attempt, runs at most."""

LOSS_SLACK, FALL_SLACK = 1e-3, 1e-2
"""Allowed relative differences of losses, and of how far they have fallen since the first round."""

TIMES_GOALS = {
    "compute": {"flower": 2.8, "pfl": 2.0, "fedlab": 1.7},
    "overhead": {"flower": 20.0, "pfl": 5.0},
}
OUTSIDE_GOALS = {"compute": 0.08}
FIRST_ROUND_GOALS = {"overhead": 2.0}


def installed(python):
    """Versions of the modules that an interpreter finds, None for those it does not."""
    program = (
        "import json, sys; from importlib import metadata, util; "
        "print(json.dumps({m: metadata.version(m) if util.find_spec(m) else None "
        "for m in sys.argv[1:]}))"
    )
    command = [python, "-c", program, *MODULES]
    return json.loads(subprocess.run(command, capture_output=True, check=True).stdout)


def present(names, versions):
    """The peers to measure, and a line on those that are left out."""
    absent = [n for n in names if any(versions[module] is None for module in PEERS[n].needs)]
    line = f"Left out, not installed: {', '.join(absent)}." if absent else ""
    return [PEERS[name] for name in names if name not in absent], line


def measure(contestant, work, python, attempts):
    """The least disturbed of a few runs; which one it is does not depend on its speed."""
    runs = []
    for _ in range(attempts):
        wait_for_quiet(QUIET, PATIENCE)
        runs.append(measure_once(contestant, work, python))
        print(f"{work.case}: {contestant.label}: {progress_of(runs[-1])}", file=sys.stderr)
        if "failed" in runs[-1] or runs[-1]["others"] <= QUIET:
            return runs[-1]
    return min(runs, key=lambda run: run["others"])


def progress_of(run):
    if "failed" in run:
        return run["failed"]
    seconds = statistics.median(run["rounds_s"])
    return f"{seconds:.3f} s a round, others kept {run['others']:.2f} cores busy"


def measure_once(contestant, work, python):
    """What one contestant tells of its work in a process of its own, or why it did not finish."""
    command = [python, "-m", "peers", contestant.runs]
    command += [work.case, str(work.folder), str(work.rounds)]
    paths = [str(HERE), str(HERE.parent / "src"), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        start = time.monotonic()
        process = subprocess.Popen(command, stdout=out, stderr=err, env=environment)
        watched = watch(process, TIME_LIMIT)
        said, complaint = whole(out), whole(err)
    if process.returncode:
        last = (complaint.strip() or f"exit status {process.returncode}").splitlines()[-1]
        return {"failed": last}
    told = json.loads(said.strip().splitlines()[-1])
    ends = told.pop("ends")
    rounds = [after - before for before, after in pairwise(ends)]
    return told | {"first_s": ends[0] - start, "rounds_s": rounds, **asdict(watched)}


def whole(file):
    file.seek(0)
    return file.read()


def measure_case(case, contestants, rounds, python, attempts):
    """Rows of a case: the plain loop first, then everyone with their ratio to it."""
    with tempfile.TemporaryDirectory() as folder:
        work = Work(case, Path(folder), rounds)
        write_data(case, work.folder)
        plain, results = [measure(PLAIN, work, sys.executable, attempts)], []
        for contestant in contestants:
            whose = python if contestant.needs else sys.executable
            results.append(measure(contestant, work, whose, attempts))
            plain.append(measure(PLAIN, work, sys.executable, attempts))
    if any("failed" in result for result in plain):
        raise SystemExit(f"the plain loop failed: {plain}")
    rows = [row_of(case, PLAIN, summary_of(plain), plain)]
    for number, (contestant, result) in enumerate(zip(contestants, results, strict=True)):
        rows.append(row_of(case, contestant, result, plain[number : number + 2]))
    return rows


def summary_of(runs):
    """Several runs of one contestant as one."""
    seconds = [second for run in runs for second in run["rounds_s"]]
    first = statistics.median(run["first_s"] for run in runs)
    peak, others = (max(run[field] for run in runs) for field in ("peak_mib", "others"))
    more = {"first_s": first, "rounds_s": seconds, "peak_mib": peak, "others": others}
    return runs[0] | more


def row_of(case, contestant, result, around):
    """A contestant's result, its time in units of the plain loops around it, and its losses'."""
    row = {"case": case, "contestant": contestant.runs, "label": contestant.label, **result}
    if "failed" in result:
        return row
    unit = statistics.median(summary_of(around)["rounds_s"])
    row["disturbed"] = max(run["others"] for run in (result, *around)) > QUIET
    row["round_s"] = statistics.median(result["rounds_s"])
    row["of_plain"] = row["round_s"] / unit
    row["same_losses"] = agree(result["losses"], around[0]["losses"])
    return row


def agree(losses, expected):
    """Whether losses, and how far they have fallen, are those expected."""
    return len(losses) == len(expected) and all(
        abs(loss - wanted) <= LOSS_SLACK * abs(wanted)
        and abs((losses[0] - loss) - (expected[0] - wanted)) <= FALL_SLACK * fallen(expected)
        for loss, wanted in zip(losses, expected, strict=True)
    )


def fallen(losses):
    return max(losses) - min(losses)


def add_times(rows):
    """Say in each row how many times faster than it ours is."""
    ours = by_name(rows).get(OURS.runs, {}).get("of_plain")
    for row in rows:
        if ours and "of_plain" in row:
            row["times"] = row["of_plain"] / ours


def by_name(rows):
    return {row["contestant"]: row for row in rows}


def goals_of(case, rows):
    """Lines on the goals of a case, each with whether it is reached; None if nobody can tell."""
    named = {name: row for name, row in by_name(rows).items() if not row.get("disturbed")}
    ours = named.get(OURS.runs, {})
    for peer, goal in TIMES_GOALS[case].items():
        times = named.get(PEERS[peer].runs, {}).get("times") if ours else None
        yield goal_line(f"times faster than {PEERS[peer].label}, at least", goal, times, 1)
    if case in OUTSIDE_GOALS:
        share = ours.get("outside_share")
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


def table_of(rows):
    """Lines of the table of a case."""
    heading = f"{'':<24}{'first, s':>10}{'round, s':>10}{'of plain':>10}{'aquila is':>12}"
    yield f"{heading}{'peak, MiB':>11}{'loss':>10}"
    for row in rows:
        if "failed" in row:
            yield f"{row['label']:<24}  failed: {row['failed']}"
            continue
        times = f"{row['times']:.2f} x" if "times" in row else "-"
        yield (
            f"{row['label']:<24}{row['first_s']:>10.2f}{row['round_s']:>10.3f}"
            f"{row['of_plain']:>10.2f}{times:>12}{row['peak_mib']:>11.0f}{row['losses'][-1]:>10.5f}"
            f"{'  disturbed' if row['disturbed'] else ''}"
        )


def title_of(name, rounds):
    case = CASES[name]
    count = sum(p.numel() for p in Work(name, Path(), 0).model().parameters())
    return (
        f"{name}: {case.devices:,} devices with {case.samples} samples each, {case.model} of "
        f"{count:,} parameters, {rounds} rounds, alpha {ALPHA}, seed {SEED}"
    )


def astray(rows):
    """Lines on contestants that failed or did other work than the plain loop."""
    known = {c.runs: c for c in (PLAIN, OURS, OURS_UNCODED, *PEERS.values())}
    for row in rows:
        if "failed" in row:
            yield f"{row['case']}: {row['label']} failed"
        elif known[row["contestant"]].same_losses and not row["same_losses"]:
            yield f"{row['case']}: the losses of {row['label']} are not those of the plain loop"


def machine_of(given, versions):
    """Where, when and with which versions the numbers were measured."""
    known = Path("/proc/cpuinfo")
    lines = known.read_text().splitlines() if known.is_file() else []
    names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    ours = installed(sys.executable)
    return {
        "cpu": names[0] if names else platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "torch": ours["torch"],
        "peers": {name: version for name, version in versions.items() if version},
        "date": date.today().isoformat(),
        "seed": SEED,
    }


def arguments():
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
    given = parser.parse_args()
    given.peers = [name for name in given.peers.split(",") if name]
    if unknown := sorted(set(given.peers) - set(PEERS)):
        parser.error(f"unknown peers {', '.join(unknown)}; there are {', '.join(PEERS)}")
    if given.rounds is not None and given.rounds < 2:
        parser.error(f"rounds must be at least 2, not {given.rounds}")
    return given


def write_lines(path, lines):
    out = Path(path)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text("".join(json.dumps(line) + "\n" for line in lines))


def main():
    given = arguments()
    versions = installed(given.python)
    peers, note = present(given.peers, versions)
    machine = machine_of(given, versions)
    print(
        *(f"{name:<8}{value}" for name, value in machine.items()), *filter(None, [note]), sep="\n"
    )
    lines, wrong, missed = [{"kind": "machine", **machine}], [], False
    for case in CASES if given.case == "both" else [given.case]:
        rounds = given.rounds or (QUICK_ROUNDS if given.quick else ROUNDS[case])
        contestants, attempts = [OURS_UNCODED, OURS, *peers], 1 if given.quick else ATTEMPTS
        rows = measure_case(case, contestants, rounds, given.python, attempts)
        add_times(rows)
        goals = list(goals_of(case, rows))
        print(
            "", title_of(case, rounds), *table_of(rows), "", "Goals, with method aquila", sep="\n"
        )
        print(*(text for text, _ in goals), sep="\n", flush=True)
        lines += [{"kind": "contestant", "rounds": rounds, **row} for row in rows]
        wrong += astray(rows)
        missed |= not all(reached for _, reached in goals)
    if given.out:
        write_lines(given.out, lines)
    print(*wrong, sep="\n", file=sys.stderr)
    sys.exit(1 if wrong or (given.check and missed) else 0)


if __name__ == "__main__":
    main()
