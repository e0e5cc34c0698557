"""Bytes to an accuracy: run the experiments of a folder over several seeds, and make the table.

    python benchmarks/bytes_to_accuracy.py run experiments/bytes_to_accuracy/digits_*.toml \
        --seeds 0 1 2
    python benchmarks/bytes_to_accuracy.py table results/bytes_to_accuracy
    python benchmarks/bytes_to_accuracy.py table results/resnet18_iid --level 0.78
    python benchmarks/bytes_to_accuracy.py both \
        results/resnet18_iid results/downlink_resnet18 --level 0.78

`run` writes one JSON line a run, with what was spent at every evaluation, to a file named after
the experiment, and leaves out runs that are already there: started again, it goes on where it was.
`table` also reads the folder of an `aquila compare`, or what was kept of it. It takes as level,
seed by seed, the best that AQUILA as printed reaches in three quarters of its rounds, so that
slower methods have time to get there, unless a level is given. Accuracy is the mean of three
evaluations in a row (`aquila.report.bytes_to_accuracy`). Printed are means over the seeds and,
for the two ratios, the least and the largest; the row of a method that does not always get there
says in how many seeds it does. `both` counts the bytes down as well, and compares each run with
AQUILA's among them: whole models down, and bits times coordinates up.
"""

import argparse
import json
import statistics
from dataclasses import asdict, replace
from pathlib import Path

from aquila.cli.method_spec import parse_method_spec
from aquila.report.bytes_to_accuracy import WINDOW, AccuracyCurve, accuracy_curve
from aquila.report.runs import find_runs
from aquila.runtime.nan_guard import NonFiniteError
from aquila.sim.experiment import read_experiment
from aquila.sim.simulate import simulate

BASELINE = "aquila"
LEVEL_FRACTION = 0.75
KIB, MIB = 2**10, 2**20


def read_runs(path):
    """Return runs as (method, seed) -> curve; a line cut short counts for nothing."""
    if path.is_dir():
        return {
            (run.result.label, run.facts["seed"]): accuracy_curve(run.result.records)
            for run in find_runs(path)
            if run.folder.parent == path
        }
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    runs = [json.loads(line) for line in lines if line.endswith("\n")]
    return {
        (run["method"], run["seed"]): AccuracyCurve(
            **{n: tuple(v) for n, v in run["curve"].items()}
        )
        for run in runs
    }


def run(paths, seeds, methods, out):
    """Run what is missing, experiment by experiment and seed by seed."""
    out.mkdir(parents=True, exist_ok=True)
    for path in paths:
        target = out / f"{path.stem}.jsonl"
        for seed in seeds:
            experiment = read_experiment(path, {"seed": seed})
            specs = [parse_method_spec(text) for text in methods or experiment.compare]
            done = read_runs(target)
            missing = [spec for spec in specs if (spec.label, seed) not in done]
            problem = experiment.setting.problem()[0] if missing else None
            for spec in missing:
                records = train(spec.create(experiment), experiment.setting, problem)
                append_run(target, spec.label, seed, records)
                print(f"{path.stem}, seed {seed}: {spec.label}", flush=True)


def append_run(path, method, seed, records):
    """Add a run to a file."""
    facts = {"method": method, "seed": seed, "curve": asdict(accuracy_curve(records))}
    with path.open("a") as file:
        file.write(json.dumps(facts) + "\n")


def train(method, setting, problem):
    """Return the records of a run; one that diverges ends early."""
    records = []
    try:
        simulate(
            method,
            problem.theta0,
            problem.devices,
            setting.rounds,
            setting.seed,
            evaluate=problem.evaluate,
            on_record=records.append,
            options=replace(setting.options, fleet=problem.fleet),
        )
    except NonFiniteError as error:
        print(f"stopped: {error}")
    return records


def print_tables(paths, level):
    """Print one table a file."""
    for path in paths:
        runs = read_runs(path)
        seeds = sorted({seed for _, seed in runs})
        levels = {
            seed: level or best_early_accuracy(runs[BASELINE, seed])
            for seed in seeds
            if level or (BASELINE, seed) in runs
        }
        if not levels:
            raise SystemExit(f"{path} has no run of {BASELINE} to take a level from: give --level")
        mean = statistics.mean(levels.values())
        measure, format_level = quality_measure(path)
        print(f"\n{path.stem}: test {measure} {format_level(mean)}, {len(levels)} seeds\n")
        print(
            "| method | rounds | uplink KiB | paper KiB | aquila b·d / uplink | rounds / aquila's "
            "| best evaluation |"
        )
        print("|---|---:|---:|---:|---:|---:|---:|")
        for method in dict.fromkeys(method for method, _ in runs):
            best = [max(curve.accuracy) for (name, _), curve in runs.items() if name == method]
            print(f"{table_row(method, runs, levels)} {format_level(statistics.mean(best))} |")


def quality_measure(path):
    """Return what runs are measured by, and how a level of it is written."""
    runs = find_runs(path) if path.is_dir() else []
    if any("perplexity" in run.result.records[-1].metrics for run in runs):
        return "perplexity", lambda level: f"{1 / level:.2f}"
    return "accuracy", lambda level: f"{level:.1%}"


def best_early_accuracy(curve):
    """Return the best accuracy of a run in three quarters of its rounds."""
    early = [k for k in curve.rounds[WINDOW - 1 :] if k <= LEVEL_FRACTION * curve.rounds[-1]]
    return max(curve.smoothed_accuracy[: len(early)])


def table_row(method, runs, levels):
    """Return a row of the table, over the seeds that there are runs of."""
    seeds = [seed for seed in levels if (method, seed) in runs]
    spent = {seed: runs[method, seed].cost_to_reach(levels[seed]) for seed in seeds}
    reached = [seed for seed in seeds if spent[seed] is not None]
    if len(reached) < len(seeds):
        return f"| {method} | reached in {len(reached)} of {len(seeds)} | | | | |"
    compared = [seed for seed in seeds if (BASELINE, seed) in runs]
    pairs = [(spent[seed], runs[BASELINE, seed].cost_to_reach(levels[seed])) for seed in compared]
    saving = [y.paper_bits / 8 / s.uplink_bytes for s, y in pairs if y is not None]
    longer = [s.rounds / y.rounds for s, y in pairs if y is not None]
    return (
        f"| {method} | {statistics.mean(s.rounds for s in spent.values()):.0f} "
        f"| {statistics.mean(s.uplink_bytes for s in spent.values()) / KIB:.0f} "
        f"| {statistics.mean(s.paper_bits for s in spent.values()) / 8 / KIB:.0f} "
        f"| {mean_and_range(saving, 1)} | {mean_and_range(longer, 2)} |"
    )


def print_both_directions(folders, level):
    """Print what runs spent in both directions to get to a level."""
    spent = [(run, cost_both_ways(run, level)) for folder in folders for run in find_runs(folder)]
    own = [found for run, found in spent if run.result.label == BASELINE]
    if len(own) != 1:
        raise SystemExit(f"the folders must hold one run of {BASELINE}, not {len(own)}")
    (baseline,) = own
    print("| method | downlink | rounds | down MiB | up MiB | aquila's both ways / both ways |")
    print("|---|---:|---:|---:|---:|---:|")
    for run, found in spent:
        name = f"| {run.result.label} | {run.facts.get('downlink_error', 0):g} "
        if found is None:
            print(f"{name}| not reached | | | |")
            continue
        rounds, down, up, _ = found
        saving = f"{(baseline[1] + baseline[3]) / (down + up):.1f}" if baseline else "-"
        print(f"{name}| {rounds} | {down / MIB:.0f} | {up / MIB:.1f} | {saving} |")


def cost_both_ways(run, level):
    """Return rounds, bytes down, bytes up, and those of the papers' count, or None."""
    found = accuracy_curve(run.result.records).cost_to_reach(level)
    if found is None:
        return None
    down = sum(record.downlink_bytes for record in run.result.records[: found.rounds])
    return found.rounds, down, found.uplink_bytes, found.paper_bits / 8


def mean_and_range(values, digits):
    """Return mean, least and largest."""
    if not values:
        return "-"
    ends = f" ({min(values):.{digits}f} to {max(values):.{digits}f})" if len(values) > 1 else ""
    return f"{statistics.mean(values):.{digits}f}{ends}"


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    run_parser = commands.add_parser("run", help="run what is missing")
    run_parser.add_argument("experiments", nargs="+", type=Path)
    run_parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    run_parser.add_argument("--methods", nargs="+", help="default: those of the experiment")
    run_parser.add_argument("--out", type=Path, default=Path("results/bytes_to_accuracy"))
    level = {"type": float, "help": "accuracy to reach, from 0 to 1 (texts: 1 / perplexity)"}
    table_parser = commands.add_parser("table", help="print the table of bytes to accuracy")
    table_parser.add_argument("results", type=Path, help="a file, a folder of them, or one of runs")
    table_parser.add_argument("--level", **level)
    both_parser = commands.add_parser("both", help="print the bytes of both directions to accuracy")
    both_parser.add_argument("folders", nargs="+", type=Path, help="folders of runs of one seed")
    both_parser.add_argument("--level", required=True, **level)
    return parser.parse_args()


if __name__ == "__main__":
    args = parse_args()
    if args.command == "run":
        run(args.experiments, args.seeds, args.methods, args.out)
    elif args.command == "both":
        print_both_directions(args.folders, args.level)
    else:
        folder = args.results
        print_tables(sorted(folder.glob("*.jsonl")) or [folder], args.level)
