"""Summary of the runs of `choosing.py`: the chosen step sizes, and one row per run."""

import json
from dataclasses import replace
from pathlib import Path

from choosing_runs import END_WINDOW, TASKS, TUNING_PRESET, TUNING_SEED, Case

from aquila.report.bytes_to_accuracy import WINDOW
from aquila.sim.compressed import find_file, read_file, write_file

LEVEL_FRACTION = 0.97
"""The level to reach, as a fraction of the quality of the dense run with the same seed."""
TOLERANCE = 0.01
"""Held-out accuracy that a larger step size may lose, because it needs fewer rounds."""


def case_of(run) -> Case:
    """Return the case that a run belongs to."""
    names = ("task", "split", "method", "seed", "alpha", "preset")
    return Case(options=tuple(run["options"].items()), **{name: run[name] for name in names})


def read_runs(path: Path) -> dict[Case, dict]:
    """Return the runs of a file, compressed or not. A line that a kill cut off is ignored."""
    found = find_file(path)
    text = "" if found is None else read_file(found).decode()
    lines = [line for line in text.splitlines(keepends=True) if line.endswith("\n")]
    return {case_of(run): run for run in map(json.loads, lines)}


def write_rows(path: Path, rows) -> None:
    """Replace a file with one line of JSON per row, compressed if its name ends in .gz."""
    write_file(path, "".join(json.dumps(row) + "\n" for row in rows).encode())


def best_alpha(runs, cases) -> float | None:
    """Return the step size to take; None unless all cases have run.

    With held-out images it is the largest whose accuracy is within a point of the best, otherwise
    the one with the lowest training loss.
    """
    cases = list(cases)
    if any(case not in runs for case in cases):
        return None
    by_accuracy = TASKS[cases[0].task].held_out > 0
    measure, sign = ("held_out", 1) if by_accuracy else ("train_loss", -1)
    found = {case.alpha: runs[case][measure] for case in cases}
    scores = {alpha: sign * value for alpha, value in found.items() if value is not None}
    if not scores:
        return min(found)
    lowest = max(scores.values()) - (TOLERANCE if by_accuracy else 0)
    return max(alpha for alpha, score in scores.items() if score >= lowest)


def dense_cases(name: str, split: str) -> list[Case]:
    """Return the runs that choose α₀."""
    task = TASKS[name]
    return [Case(name, split, task.dense, (), TUNING_SEED, alpha) for alpha in task.alphas]


def tuning_cases(name: str, split: str, variant, base: float, presets) -> list[Case]:
    """Return the runs that choose the step size of a method."""
    method, options = variant
    preset = TUNING_PRESET if TUNING_PRESET in presets else ""
    factors = (1.0,) if method == TASKS[name].dense else TASKS[name].factors_of(method)
    alphas = [float(f"{factor * base:.3g}") for factor in factors]
    return [Case(name, split, method, options, TUNING_SEED, alpha, preset) for alpha in alphas]


def final_cases(case: Case, alpha: float, presets, seeds) -> list[Case]:
    """Return the runs of the summary with the method, task and split of a case."""
    return [
        replace(case, alpha=alpha, seed=seed, preset=preset) for seed in seeds for preset in presets
    ]


def quality_end(run) -> float | None:
    """Return the mean quality of the last evaluations, None if there was none."""
    last = run["curve"]["quality"][-END_WINDOW:]
    return round(sum(last) / len(last), 5) if last else None


def reached(quality, level: float) -> int | None:
    """Return the number of the evaluation at which the moving average reaches a level."""
    for last in range(WINDOW, len(quality) + 1):
        if sum(quality[last - WINDOW : last]) / WINDOW >= level:
            return last - 1
    return None


def summary_row(run, dense) -> dict[str, object]:
    """Return the row of a run, next to the dense run of the same task, split and seed."""
    curve, setting = run["curve"], TASKS[run["task"]].setting
    dense_end = quality_end(dense)
    level = round(LEVEL_FRACTION * dense_end, 5)
    place = reached(curve["quality"], level)

    def at_level(values):
        return None if place is None else values[place]

    def at_end(values):
        return values[-1] if values else 0  # a run may diverge before its first evaluation

    return {
        "task": run["task"],
        "model": setting.model,
        "parameters": run["dimension"],
        "devices": setting.devices,
        "split": run["split"],
        "method": run["method"],
        "options": run["parameters"],
        "work": run["work"],
        "seed": run["seed"],
        "preset": run["preset"] or None,
        "rounds": run["rounds"],
        "diverged": run["diverged"],
        "quality_end": quality_end(run),
        "dense_method": dense["method"],
        "dense_quality_end": dense_end,
        "uplink_bytes": at_end(curve["uplink_bytes"]),
        "downlink_bytes": at_end(curve["downlink_bytes"]),
        "bytes_to_quality": {
            "level": level,
            "uplink_bytes": at_level(curve["uplink_bytes"]),
            "downlink_bytes": at_level(curve["downlink_bytes"]),
            "rounds": at_level(curve["rounds"]),
        },
        "links": {
            preset: {
                "seconds": at_end(curve["seconds"][preset]),
                "joules": at_end(curve["joules"][preset]),
                "seconds_to_quality": at_level(curve["seconds"][preset]),
                "joules_to_quality": at_level(curve["joules"][preset]),
            }
            for preset in curve["seconds"]
        },
        "machine": run["machine"],
    }


def summary_rows(runs, chosen) -> list[dict[str, object]]:
    """Return the rows of the runs with the chosen step sizes; `chosen` are their cases.

    A run without a dense run to compare with is left out.
    """
    dense = {
        (case.task, case.split, case.seed): runs[case]
        for case in chosen
        if case in runs and case.method == TASKS[case.task].dense
    }
    return [
        summary_row(runs[case], dense[case.task, case.split, case.seed])
        for case in chosen
        if case in runs and (case.task, case.split, case.seed) in dense
    ]
