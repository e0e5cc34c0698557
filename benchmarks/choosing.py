"""Every method to the end of training: quality, bytes, time and energy.

    python benchmarks/choosing.py --task digits_mlp
    python benchmarks/choosing.py --task cifar10_cnn --data-folder FOLDER --jobs 10

One line per run goes to `runs_TASK.jsonl` in the folder of --out. Runs that it has are skipped, so
the command can be interrupted and repeated. --archive compresses the file at the end.
`summary.jsonl` has a row per task, split, method and seed. `choosing_figures.py` draws it.

Step sizes are chosen with seed 0, per split, and without the test images. On CIFAR-10, 1,000
training images that no device has decide: the largest step size whose accuracy at the end is within
a point of the best. The digits are too few for this, so the lowest training loss decides. The dense
method tries three or four step sizes, and its choice is α₀. All other methods try α₀ and α₀/3,
signSGD α₀/50 and α₀/150. Other parameters are those of the papers where they state them, else our
defaults.

A link model changes no bytes. So most methods run once, and the link model computes time and energy
from the bytes of each round. Methods that read the links run once per link model.
"""

import argparse
import json
import os
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

from choosing_runs import SPLITS, TASKS, presets_of, run_case, variants
from choosing_summary import (
    best_alpha,
    dense_cases,
    final_cases,
    quality_end,
    read_runs,
    summary_rows,
    tuning_cases,
    write_rows,
)

from aquila.sim.compressed import plain_and_compressed

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


class Comparison:
    """The runs of one task, and the file that holds them."""

    def __init__(self, task: str, args) -> None:
        self.task, self.args = task, args
        self.path = args.out / f"runs_{task}.jsonl"
        self.runs = read_runs(self.path)
        known = variants(TASKS[task].setting.rounds)
        self.variants = [variant for variant in known if self.is_chosen(variant[0])]

    def is_chosen(self, method: str) -> bool:
        """Whether a method takes part. The dense method always does."""
        return not self.args.only or method in (*self.args.only, TASKS[self.task].dense)

    def finish(self) -> None:
        """Run all that is missing: the grid of the dense method, the step sizes, the rest."""
        write_rows(self.path, self.runs.values())
        self.run_missing("grid", [c for split in SPLITS for c in dense_cases(self.task, split)])
        self.run_missing("step sizes", [case for cases in self.tuning() for case in cases])
        self.run_missing("runs", self.final())

    def archive(self) -> None:
        """Replace the file of runs by a compressed one."""
        plain, compressed = plain_and_compressed(self.path)
        write_rows(compressed, self.runs.values())
        plain.unlink()

    def tuning(self):
        """Return the runs that choose step sizes, per split and method, as far as α₀ is known."""
        found = []
        for split in SPLITS:
            base = best_alpha(self.runs, dense_cases(self.task, split))
            if base is not None:
                found += [
                    tuning_cases(self.task, split, variant, base, presets_of(variant[0]))
                    for variant in self.variants
                ]
        return found

    def final(self):
        """Return the runs of the summary, as far as step sizes are chosen."""
        found = []
        for cases in self.tuning():
            alpha = best_alpha(self.runs, cases)
            if alpha is not None:
                presets = presets_of(cases[0].method)
                found += final_cases(cases[0], alpha, presets, self.args.seeds)
        return found

    def run_missing(self, phase: str, cases) -> None:
        """Run the cases that the file lacks, and append each run when it ends."""
        missing = [case for case in dict.fromkeys(cases) if case not in self.runs]
        # runs on the same data follow each other, because a process keeps the data it has loaded
        missing.sort(key=lambda case: (case.split, case.seed))
        for number, (case, run) in enumerate(self.results(missing), start=1):
            self.runs[case] = run
            with self.path.open("a") as file:
                file.write(json.dumps(run) + "\n")
            quality = quality_end(run)
            shown = "-" if quality is None else f"{quality:.1%}"
            print(
                f"{phase} {number}/{len(missing)}: {case}: {shown}, {run['minutes']} min",
                flush=True,
            )

    def results(self, cases):
        """Yield each case with its run, in the order in which they end."""
        folder = self.args.data_folder
        if self.args.jobs == 1:
            yield from ((case, run_case(case, folder)) for case in cases)
            return
        pool = ProcessPoolExecutor(self.args.jobs, mp_context=get_context("spawn"))
        try:
            futures = {pool.submit(run_case, case, folder): case for case in cases}
            for future in as_completed(futures):
                yield futures[future], future.result()
        finally:
            pool.shutdown(cancel_futures=True)


def write_summary(out: Path, seeds) -> int:
    """Write the summary of all tasks that the folder has runs of; return the number of rows."""
    args = argparse.Namespace(out=out, only=(), seeds=seeds)
    comparisons = [Comparison(task, args) for task in TASKS]
    rows = [row for one in comparisons for row in summary_rows(one.runs, one.final())]
    write_rows(out / "summary.jsonl", rows)
    return len(rows)


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--task", choices=TASKS, action="append", help="default: all")
    parser.add_argument("--data-folder", default="", help="folder of CIFAR-10")
    parser.add_argument("--only", nargs="+", default=(), metavar="METHOD", help="default: all")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--jobs", type=int, default=1, help="processes, each with one thread")
    parser.add_argument("--archive", action="store_true", help="compress the runs at the end")
    parser.add_argument("--out", type=Path, default=Path("results/choosing"))
    return parser.parse_args()


def main():
    args = parse_args()
    for name in THREAD_VARIABLES:
        os.environ[name] = "1"
    args.out.mkdir(parents=True, exist_ok=True)
    try:
        for task in args.task or TASKS:
            comparison = Comparison(task, args)
            comparison.finish()
            if args.archive:
                comparison.archive()
    finally:
        print(f"{args.out / 'summary.jsonl'}: {write_summary(args.out, args.seeds)} rows")


if __name__ == "__main__":
    main()
