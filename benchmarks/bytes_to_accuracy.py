"""Bytes to an accuracy: run experiments over several seeds, and print the table.

    python benchmarks/bytes_to_accuracy.py run experiments/bytes_to_accuracy/digits_*.toml \
        --seeds 0 1 2
    python benchmarks/bytes_to_accuracy.py table runs/bytes_to_accuracy
    python benchmarks/bytes_to_accuracy.py table results/resnet18_iid --level 0.78
    python benchmarks/bytes_to_accuracy.py both-directions \
        results/resnet18_iid results/downlink_resnet18 --level 0.78

`run` writes one JSON line per run, with the cost at every evaluation, to a file named after the
experiment. It skips runs that the file already has, so it can be interrupted and restarted.

`table` reads such files, or a folder of `aquila compare` or `aquila archive`. Without --level, the
level is the best accuracy that AQUILA reaches within three quarters of its rounds, per seed, so
that slower methods can still reach it. Accuracy is the mean of three consecutive evaluations
(`aquila.report.bytes_to_accuracy`). The table shows means over the seeds, with minimum and maximum
of the three ratios. A method that misses the level shows in how many seeds it reaches it.

`both-directions` also counts the downlink, and compares each run with AQUILA: whole models on the
downlink, and bits × coordinates on the uplink.
"""

import argparse
import json
import statistics
from dataclasses import asdict, replace
from pathlib import Path

from aquila.cli.method_spec import parse_method_spec
from aquila.report.bytes_to_accuracy import WINDOW, AccuracyCurve, accuracy_curve
from aquila.report.runs import find_runs
from aquila.report.units import format_bytes
from aquila.runtime.nan_guard import NonFiniteError
from aquila.sim.experiment import read_experiment
from aquila.sim.simulate import simulate

BASELINE = "aquila"
LEVEL_FRACTION = 0.75


def read_runs(path):
    """Return runs as (method, seed) -> curve; an incomplete last line is ignored."""
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
    """Run all methods that the output lacks, experiment by experiment and seed by seed."""
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
    """Append a run to a file."""
    facts = {"method": method, "seed": seed, "curve": asdict(accuracy_curve(records))}
    with path.open("a") as file:
        file.write(json.dumps(facts) + "\n")


def train(method, setting, problem):
    """Return the records of a run; a run that diverges ends early."""
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
    """Print one table per file."""
    for path in paths:
        runs = read_runs(path)
        seeds = sorted({seed for _, seed in runs})
        levels = {
            seed: level or best_early_accuracy(runs[BASELINE, seed])
            for seed in seeds
            if level or (BASELINE, seed) in runs
        }
        if not levels:
            raise SystemExit(
                f"{path} has no run of {BASELINE} to take the level from: give --level"
            )
        mean = statistics.mean(levels.values())
        measure, format_level = quality_measure(path)
        print(f"\n{path.stem}: test {measure} {format_level(mean)}, {len(levels)} seeds\n")
        print(
            "| method | rounds | uplink | paper | aquila's uplink / uplink | aquila's b·d / uplink "
            "| rounds / aquila's | best evaluation |"
        )
        print("|---|---:|---:|---:|---:|---:|---:|---:|")
        for method in dict.fromkeys(method for method, _ in runs):
            best = [max(curve.accuracy) for (name, _), curve in runs.items() if name == method]
            print(f"{table_row(method, runs, levels)} {format_level(statistics.mean(best))} |")


def quality_measure(path):
    """Return the measure of the runs, and a function that formats a level."""
    runs = find_runs(path) if path.is_dir() else []
    if any("perplexity" in run.result.records[-1].metrics for run in runs):
        return "perplexity", lambda level: f"{1 / level:.2f}"
    return "accuracy", lambda level: f"{level:.1%}"


def best_early_accuracy(curve):
    """Return the best accuracy within three quarters of the rounds of a run."""
    early = [k for k in curve.rounds[WINDOW - 1 :] if k <= LEVEL_FRACTION * curve.rounds[-1]]
    return max(curve.smoothed_accuracy[: len(early)])


def table_row(method, runs, levels):
    """Return the table row of a method, over the seeds that it has runs for."""
    seeds = [seed for seed in levels if (method, seed) in runs]
    spent = {seed: runs[method, seed].cost_to_reach(levels[seed]) for seed in seeds}
    reached = [seed for seed in seeds if spent[seed] is not None]
    if len(reached) < len(seeds):
        return f"| {method} | reached in {len(reached)} of {len(seeds)} | | | | | |"
    compared = [seed for seed in seeds if (BASELINE, seed) in runs]
    pairs = [(spent[seed], runs[BASELINE, seed].cost_to_reach(levels[seed])) for seed in compared]
    fewer = [y.uplink_bytes / s.uplink_bytes for s, y in pairs if y is not None]
    saving = [y.paper_bits / 8 / s.uplink_bytes for s, y in pairs if y is not None]
    longer = [s.rounds / y.rounds for s, y in pairs if y is not None]
    return (
        f"| {method} | {statistics.mean(s.rounds for s in spent.values()):.0f} "
        f"| {format_bytes(statistics.mean(s.uplink_bytes for s in spent.values()))} "
        f"| {format_bytes(statistics.mean(s.paper_bits for s in spent.values()) / 8)} "
        f"| {mean_and_range(fewer, 1)} | {mean_and_range(saving, 1)} "
        f"| {mean_and_range(longer, 2)} |"
    )


def print_both_directions(folders, level):
    """Print the bytes in both directions that runs need to reach a level."""
    spent = [(run, cost_both_ways(run, level)) for folder in folders for run in find_runs(folder)]
    own = [found for run, found in spent if run.result.label == BASELINE]
    if len(own) != 1:
        raise SystemExit(f"the folders must hold exactly one run of {BASELINE}, not {len(own)}")
    (baseline,) = own
    print("| method | downlink error | rounds | downlink | uplink | sum | aquila's sum / sum |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for run, found in spent:
        name = f"| {run.result.label} | {run.facts.get('downlink_error', 0):g} "
        if found is None:
            print(f"{name}| not reached | | | | |")
            continue
        rounds, down, up, _ = found
        saving = f"{(baseline[1] + baseline[3]) / (down + up):.1f}" if baseline else "-"
        costs = " | ".join(map(format_bytes, (down, up, down + up)))
        print(f"{name}| {rounds} | {costs} | {saving} |")


def cost_both_ways(run, level):
    """Return rounds, downlink bytes, uplink bytes and b·d bytes; None if not reached."""
    found = accuracy_curve(run.result.records).cost_to_reach(level)
    if found is None:
        return None
    down = sum(record.downlink_bytes for record in run.result.records[: found.rounds])
    return found.rounds, down, found.uplink_bytes, found.paper_bits / 8


def mean_and_range(values, digits):
    """Return mean, minimum and maximum as text."""
    if not values:
        return "-"
    ends = f" ({min(values):.{digits}f} to {max(values):.{digits}f})" if len(values) > 1 else ""
    return f"{statistics.mean(values):.{digits}f}{ends}"


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    run_parser = commands.add_parser("run", help="run all methods that the output lacks")
    run_parser.add_argument("experiments", nargs="+", type=Path)
    run_parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    run_parser.add_argument("--methods", nargs="+", help="default: the methods of the experiment")
    run_parser.add_argument("--out", type=Path, default=Path("runs/bytes_to_accuracy"))
    level = {
        "type": float,
        "help": "accuracy to reach, from 0 to 1 (language models: 1 / perplexity)",
    }
    table_parser = commands.add_parser("table", help="print the table of bytes to accuracy")
    table_parser.add_argument(
        "results", type=Path, help="a .jsonl file, a folder of them, or a folder of runs"
    )
    table_parser.add_argument("--level", **level)
    both_parser = commands.add_parser(
        "both-directions", help="print uplink and downlink bytes to accuracy"
    )
    both_parser.add_argument("folders", nargs="+", type=Path, help="folders of runs of one seed")
    both_parser.add_argument("--level", required=True, **level)
    return parser.parse_args()


def main():
    args = parse_args()
    if args.command == "run":
        run(args.experiments, args.seeds, args.methods, args.out)
    elif args.command == "both-directions":
        print_both_directions(args.folders, args.level)
    else:
        folder = args.results
        print_tables(sorted(folder.glob("*.jsonl")) or [folder], args.level)


if __name__ == "__main__":
    main()
