"""A row of the paper's tables next to our runs of it: one line per method."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from aquila.report.labelled_run import LabelledRun
from aquila.report.paper import PaperRow
from aquila.report.runs import StoredRun

GIB = 2**30
"""The unit of the paper's tables."""


@dataclass(frozen=True)
class MethodLine:
    """One method in a row. A number is None if it was neither measured nor printed.

    Accuracies are in percent. A saving is the fraction that AQUILA saves compared with this method:
    by the printed numbers, by our b·d, and by real bytes.
    """

    method: str
    rounds: int | None = None
    test: float | None = None
    last_minibatch: float | None = None
    printed: float | None = None
    paper_gib: float | None = None
    printed_gib: float | None = None
    uplink_gib: float | None = None
    downlink_gib: float | None = None
    uploads: int | None = None
    skips: int | None = None
    printed_saving: float | None = None
    paper_saving: float | None = None
    uplink_saving: float | None = None
    differs: tuple[str, ...] = ()


def method_lines(row: PaperRow, found: Sequence[StoredRun]) -> list[MethodLine]:
    """Return lines for the methods that the paper prints, then for all other runs of the row."""
    runs = _select_runs(row, [run for run in found if row.matches(run)])
    lines = []
    for name in row.printed:
        own = [run for run in runs if row.label(run) == name]
        lines += [_make_line(row, run, runs) for run in own] or [_make_line_not_run(row, name)]
    others = [run for run in runs if row.label(run) not in row.printed]
    return lines + [_make_line(row, run, runs) for run in others]


def _select_runs(row: PaperRow, runs: Sequence[StoredRun]) -> list[StoredRun]:
    """Keep one run per method, seed and option `rows`.

    Prefer the folder with most of the methods that the paper prints, so that the methods of a row
    ran under the same conditions. Among equals, prefer the longest run.
    """
    labels = {(run.folder.parent, row.label(run)) for run in runs}
    printed_methods = Counter(folder for folder, label in labels if label in row.printed)
    best: dict[tuple[str, object, str], StoredRun] = {}
    for run in sorted(runs, key=lambda run: (printed_methods[run.folder.parent], run.rounds)):
        best[row.label(run), run.facts.get("seed"), row.rows_of(run)] = run
    return list(best.values())


def _make_line(row: PaperRow, run: StoredRun, runs: Sequence[StoredRun]) -> MethodLine:
    result, label, seed = run.result, row.label(run), run.facts.get("seed", 0)
    rows = row.rows_of(run)
    several = len({row.rows_of(other) for other in runs}) > 1
    test = result.last_metric("perplexity" if row.is_text else "test_accuracy")
    last = result.last_metric("last_minibatch_train_accuracy")
    printed, printed_gib = row.printed.get(label, (None, None))
    paper_saving, uplink_saving = _savings(row, run, runs)
    return MethodLine(
        method=label + (f" (seed {seed})" if seed else "") + (f" (rows {rows})" if several else ""),
        rounds=run.rounds,
        test=test if test is None or row.is_text else 100 * test,
        last_minibatch=None if last is None else 100 * last,
        printed=printed,
        paper_gib=result.paper_bits / 8 / GIB,
        printed_gib=printed_gib,
        uplink_gib=result.uplink_bytes / GIB,
        downlink_gib=result.downlink_bytes / GIB,
        uploads=result.uploads,
        skips=result.skips,
        printed_saving=_printed_saving(row, label),
        paper_saving=paper_saving,
        uplink_saving=uplink_saving,
        differs=tuple(row.differences(run)),
    )


def _make_line_not_run(row: PaperRow, name: str) -> MethodLine:
    printed, printed_gib = row.printed[name]
    saving = _printed_saving(row, name)
    return MethodLine(name, printed=printed, printed_gib=printed_gib, printed_saving=saving)


def _savings(
    row: PaperRow, run: StoredRun, runs: Sequence[StoredRun]
) -> tuple[float | None, float | None]:
    """Return what AQUILA saves over the rounds that both ran: by b·d, and by real bytes."""
    if run.method == "aquila":
        return None, None
    for other in runs:
        same_seed = other.facts.get("seed") == run.facts.get("seed")
        same_rows = row.rows_of(other) == row.rows_of(run)
        if row.label(other) == "aquila" and same_seed and same_rows:
            shorter = min(run.rounds, other.rounds)
            aquila, own = (LabelledRun(r.method, r.result.records[:shorter]) for r in (other, run))
            return (
                _saving(aquila.paper_bits, own.paper_bits),
                _saving(aquila.uplink_bytes, own.uplink_bytes),
            )
    return None, None


def _printed_saving(row: PaperRow, name: str) -> float | None:
    if name == "aquila" or name not in row.printed:
        return None
    return _saving(row.printed["aquila"][1], row.printed[name][1])


def _saving(aquila: float, other: float) -> float | None:
    return 1 - aquila / other if other else None
