"""Make the facts that `aquila advise` is based on, from committed results.

    python benchmarks/advice_facts.py

It reads `results/` and writes `src/aquila/advice/facts.json`, which is part of the package, and the
example and the table of `docs/choosing.md`. Run it after every change of these results; tests check
that both files are up to date:

    choosing/summary.jsonl    all methods on small tasks, several seeds
    recipes/, end_of_training/, table2/    large models; complete runs with a dense run next to them
    downlink_*.jsonl          models sent as coded differences

Numbers are means over the seeds. `up` and `down` are bytes per parameter, device and round.
"""

import argparse
import json
import statistics
from itertools import groupby
from pathlib import Path

from advice_page import updated_page

from aquila.methods import METHODS
from aquila.report.bytes_to_accuracy import accuracy_curve
from aquila.report.runs import find_runs
from aquila.sim.setting import Setting

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results"
FACTS = ROOT / "src" / "aquila" / "advice" / "facts.json"
PAGE = ROOT / "docs" / "choosing.md"
RUN_FOLDERS = ("recipes", "end_of_training", "table2")
MIN_ROUNDS = 100
"""Shorter runs say little about the quality at the end of training."""
LAST_EVALUATIONS = 5
DENSE_BYTES = 4
STUDY_FIELDS = ("task", "model", "parameters", "devices", "split")
SHOWN_SETTINGS = ("work", "epochs", "batch_size")
NOT_SHOWN = {
    "alpha", "data", "data_folder", "samples", "test_samples", "model", "devices", "split",
    "rounds", "seed", "device", "precision", "compile_model", "deterministic", "executor",
    "workers", "state_memory", "evaluate_every", "checkpoint_every", "widths", "init_from", "link",
}  # fmt: skip


def make_facts(results=RESULTS):
    """Return the facts as one JSON object."""
    studies = [*choosing_studies(results / "choosing" / "summary.jsonl"), *run_studies(results)]
    return {
        "studies": studies,
        "coded_downlink": coded_downlinks(results),
        "sizes": model_sizes(studies, results),
    }


def model_sizes(studies, results):
    """Return the parameters of all data sets and models with results, by `data/model`."""
    sizes = {f"{one['task']}/{one['model']}": one["parameters"] for one in studies}
    for path in sorted((results / "table2").rglob("run.json")):
        facts = json.loads(path.read_text())
        name = f"{facts['data']}/{facts['model']}"
        if name not in sizes:
            sizes[name] = run_row(find_runs(path.parent)[0])["parameters"]
    return dict(sorted(sizes.items()))


def choosing_studies(path):
    """Return one study per task, model and split of the comparison of all methods."""
    lines = path.read_text().splitlines() if path.exists() else []
    rows = [normal_row(json.loads(line)) for line in lines]
    studies = []
    for _, group in grouped(rows, lambda row: [row[name] for name in STUDY_FIELDS]):
        shared = {name: group[0][name] for name in STUDY_FIELDS}
        shared["rounds"] = max(row["rounds"] for row in group)
        dense = group[0]["dense_method"]
        settings = {"work": next(row["work"] for row in group if row["method"] == dense)}
        studies.append(study("results/choosing", shared, settings, dense, group))
    return studies


def normal_row(row):
    """Return a row of the summary with the name of the data set, and the step size apart."""
    options = {**row["options"]}
    alpha, _ = options.pop("alpha"), options.pop("work", None)
    data = row["task"].removesuffix(f"_{row['model']}")
    quality = None if row["diverged"] else row["quality_end"]
    rounds = max(1, row["rounds"])  # a run may diverge in its first round
    return {
        **row, "task": data, "options": options, "alpha": alpha, "quality_end": quality,
        "rounds": rounds,
    }  # fmt: skip


def grouped(rows, key):
    """Yield each key with its rows, in sorted order."""
    for _, group in groupby(sorted(rows, key=lambda row: json.dumps(key(row))), key):
        group = list(group)
        yield key(group[0]), group


def study(source, shared, settings, dense, rows):
    """Return the facts of one comparison with a dense method."""
    groups = grouped(rows, lambda row: [row["method"], row["options"]])
    (dense_alpha,) = {row["alpha"] for row in rows if row["method"] == dense}
    levels = [
        row["bytes_to_quality"]["level"] / row["dense_quality_end"]
        for row in rows
        if "bytes_to_quality" in row
    ]
    end = mean(row["dense_quality_end"] for row in rows)
    return {
        "source": source,
        **shared,
        "settings": settings,
        "dense": dense,
        "dense_quality": end,
        "level": float(f"{mean(levels):.3g}") if levels else None,
        "runs": [method_facts(shared, dense_alpha, same) for _, same in groups],
    }


def method_facts(shared, dense_alpha, rows):
    """Return the means of a method over the seeds. A diverged run counts as quality 0."""
    turns = [shared["parameters"] * shared["devices"] * row["rounds"] for row in rows]
    reached = [(row.get("bytes_to_quality") or {}).get("rounds") for row in rows]
    ends = [row["quality_end"] or 0.0 for row in rows]
    facts = {
        "method": rows[0]["method"],
        "options": rows[0]["options"],
        "alpha": rows[0]["alpha"],
        "alpha_factor": mean([rows[0]["alpha"] / dense_alpha]),
        "seeds": len({row["seed"] for row in rows}),
        "quality": mean(ends),
        "gap": mean(end - row["dense_quality_end"] for end, row in zip(ends, rows, strict=True)),
        "up": mean(row["uplink_bytes"] / n for row, n in zip(rows, turns, strict=True)),
        "down": mean(row["downlink_bytes"] / n for row, n in zip(rows, turns, strict=True)),
        "rounds_to_quality": None if None in reached else mean(reached),
        "links": link_facts(shared["devices"], rows),
        "relayed": any(row.get("relayed") for row in rows) or None,
    }
    return {name: value for name, value in facts.items() if value not in (None, {})} | {
        "options": facts["options"]
    }


def link_facts(devices, rows):
    """Return the seconds per round, and the joules per device and round, by link preset."""
    found = {}
    for preset in sorted({name for row in rows for name in row.get("links", {})}):
        costs = [(row["rounds"], row["links"][preset]) for row in rows if preset in row["links"]]
        found[preset] = [
            mean(cost["seconds"] / rounds for rounds, cost in costs),
            mean(cost["joules"] / rounds / devices for rounds, cost in costs),
        ]
    return found


def run_studies(results):
    """Return a study for each folder with complete runs, one of them dense."""
    folders = {
        path.parents[1]
        for name in RUN_FOLDERS
        for path in sorted((results / name).rglob("run.json"))
    }
    found = [folder_study(results.parent, folder) for folder in sorted(folders)]
    return [one for one in found if one is not None]


def folder_study(root, folder):
    """Return the study of a folder of runs, None without a long dense run."""
    rows = [run_row(run) for run in find_runs(folder)]
    dense = max(rows, key=lambda row: row["uplink_bytes"] / row["rounds"])
    rows = [row for row in rows if row["rounds"] == dense["rounds"]]
    if dense["rounds"] < MIN_ROUNDS or len(rows) == 1:
        return None
    shared = {name: dense[name] for name in (*STUDY_FIELDS, "rounds")}
    rows = [{**row, "dense_quality_end": dense["quality_end"]} for row in rows]
    settings = shown_settings(dense["setting"])
    return study(str(folder.relative_to(root)), shared, settings, dense["method"], rows)


def run_row(run):
    """Return a run in the form of the rows of choosing/summary.jsonl."""
    facts, records = run.facts, run.result.records
    largest = max(record.downlink_bytes for record in records)
    headers = max(record.downlink_header_bytes for record in records)
    accuracy = accuracy_curve(records).accuracy[-LAST_EVALUATIONS:]
    relayed = facts.get("relay_uploads", False)
    orders = sum(len(record.uplink) for record in records)
    whole = DENSE_BYTES * facts["dimension"] * orders if relayed else 0
    return {
        "task": facts["data"],
        "model": facts["model"],
        "parameters": (largest - headers) // facts["devices"] // DENSE_BYTES,
        "devices": facts["devices"],
        "split": facts["split"],
        "rounds": len(records),
        "method": run.method,
        "options": changed_options(run.method, facts["parameters"]),
        "alpha": facts["parameters"]["alpha"],
        "seed": facts["seed"],
        "setting": facts,
        "quality_end": mean(accuracy),
        "uplink_bytes": sum(record.uplink_bytes for record in records),
        "downlink_bytes": whole if relayed else sum(one.downlink_bytes for one in records),
        "relayed": relayed,
    }


def changed_options(method, parameters):
    """Return the parameters of a method that differ from its defaults and from the setting."""
    known = METHODS[method].parameters
    return {
        name: value
        for name, value in parameters.items()
        if name not in ("alpha", "work") and name in known and value != known[name].default
    }


def shown_settings(facts):
    """Return the settings of local and server training that a user may want to take over."""
    defaults = Setting().to_dict()
    return {
        name: facts[name]
        for name in defaults
        if name in facts
        and name not in NOT_SHOWN
        and (name in SHOWN_SETTINGS or facts[name] != defaults[name])
    }


def coded_downlinks(results):
    """Return, per method and task, the bytes of coded models compared with whole models.

    Errors that some tasks lack are left out, because a comparison needs all tasks.
    """
    found, files = [], sorted(results.glob("downlink_*.jsonl"))
    read = {path: [json.loads(line) for line in path.read_text().splitlines()] for path in files}
    errors = [{row["downlink_error"] for row in rows} - {0} for rows in read.values()]
    shared = set.intersection(*errors) if errors else set()
    for path, rows in read.items():
        whole = {row["seed"]: row for row in rows if row["downlink_error"] == 0}
        for error in sorted({row["downlink_error"] for row in rows} & shared):
            coded = [row for row in rows if row["downlink_error"] == error]
            found.append({
                "source": str(path.relative_to(results.parent)),
                "method": rows[0]["method"],
                "downlink_error": error,
                "seeds": len(coded),
                "ratio": mean(row["down_mb"] / whole[row["seed"]]["down_mb"] for row in coded),
                "gap": mean(row["accuracy"] - whole[row["seed"]]["accuracy"] for row in coded),
            })  # fmt: skip
    return found


def mean(values):
    """Return the mean with six significant digits, so that the file stays small."""
    return float(f"{statistics.fmean(values):.6g}")


def facts_text(facts):
    """Return the content of the file: one line per run, so that changes are easy to read."""
    lines = []
    for one in facts["studies"]:
        head = {name: value for name, value in one.items() if name != "runs"}
        runs = ",\n    ".join(json.dumps(run) for run in one["runs"])
        lines.append(f'  {json.dumps(head)[:-1]}, "runs": [\n    {runs}\n  ]}}')
    coded = ",\n  ".join(json.dumps(one) for one in facts["coded_downlink"])
    studies = ",\n".join(lines)
    return (
        f'{{"studies": [\n{studies}\n],\n"coded_downlink": [\n  {coded}\n],\n'
        f'"sizes": {json.dumps(facts["sizes"])}}}\n'
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.parse_args()
    FACTS.write_text(facts_text(make_facts()))
    PAGE.write_text(updated_page(PAGE.read_text()))
    print(f"{FACTS}\n{PAGE}")
