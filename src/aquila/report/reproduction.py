"""A row of the paper's tables beside our runs of it: one line a method."""

from collections.abc import Sequence
from dataclasses import dataclass

from aquila.report.paper import Row
from aquila.report.runs import FoundRun

GIB = 2**30


@dataclass(frozen=True)
class Line:
    """A method in a row. None where nobody has measured or printed a number.

    Accuracies are in percent. The savings are what AQUILA saves against this method, as a share:
    by the printed numbers, by our count of the papers' bits, and by real bytes.
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


def lines(row: Row, found: Sequence[FoundRun]) -> list[Line]:
    """Return the methods that the paper prints, run or not, and then whatever else was run."""
    runs = _longest([run for run in found if row.holds(run)])
    made = []
    for name in row.printed:
        own = [run for run in runs if run.result.label == name]
        made += [_line(row, run, runs) for run in own] or [_line_not_run(row, name)]
    others = [run for run in runs if run.result.label not in row.printed]
    return made + [_line(row, run, runs) for run in others]


def _longest(runs: Sequence[FoundRun]) -> list[FoundRun]:
    """Keep the longest run of each method and seed."""
    best: dict[tuple[str, object], FoundRun] = {}
    for run in runs:
        key = (run.result.label, run.facts.get("seed"))
        if key not in best or run.rounds > best[key].rounds:
            best[key] = run
    return list(best.values())


def _line(row: Row, run: FoundRun, runs: Sequence[FoundRun]) -> Line:
    result, seed = run.result, run.facts.get("seed", 0)
    test = result.last_metric("perplexity" if row.text else "test_accuracy")
    last = result.last_metric("last_minibatch_train_accuracy")
    printed, printed_gib = row.printed.get(result.label, (None, None))
    aquila = _rival(run, runs)
    paper_saving = uplink_saving = None
    if aquila is not None:
        paper_saving = _saving(aquila.result.paper_bits, result.paper_bits)
        uplink_saving = _saving(aquila.result.uplink_bytes, result.uplink_bytes)
    return Line(
        method=result.label + (f" (seed {seed})" if seed else ""),
        rounds=run.rounds,
        test=test if test is None or row.text else 100 * test,
        last_minibatch=None if last is None else 100 * last,
        printed=printed,
        paper_gib=result.paper_bits / 8 / GIB,
        printed_gib=printed_gib,
        uplink_gib=result.uplink_bytes / GIB,
        downlink_gib=result.downlink_bytes / GIB,
        uploads=result.uploads,
        skips=result.skips,
        printed_saving=_printed_saving(row, result.label),
        paper_saving=paper_saving,
        uplink_saving=uplink_saving,
        differs=tuple(row.differences(run)),
    )


def _line_not_run(row: Row, name: str) -> Line:
    printed, printed_gib = row.printed[name]
    saving = _printed_saving(row, name)
    return Line(name, printed=printed, printed_gib=printed_gib, printed_saving=saving)


def _rival(run: FoundRun, runs: Sequence[FoundRun]) -> FoundRun | None:
    """Return the AQUILA run that a run can be compared with: as long, of the same seed."""
    if run.method == "aquila":
        return None
    same = (
        other
        for other in runs
        if other.result.label == "aquila"
        and other.rounds == run.rounds
        and other.facts.get("seed") == run.facts.get("seed")
    )
    return next(same, None)


def _printed_saving(row: Row, name: str) -> float | None:
    if name == "aquila" or name not in row.printed:
        return None
    return _saving(row.printed["aquila"][1], row.printed[name][1])


def _saving(cost: float, of: float) -> float | None:
    return 1 - cost / of if of else None
