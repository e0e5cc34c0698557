"""The tiles at the top of a report: quality, bytes, time, rounds and devices of one run."""

from collections.abc import Sequence
from dataclasses import dataclass

from aquila.report.costs import BOTH_WAYS, TIME, Cost
from aquila.report.labelled_run import FINAL_EVALUATIONS
from aquila.report.page.comparison import Comparison
from aquila.report.page.costs import REAL_TIME, UPLINK, PageCost
from aquila.report.page.format import format_ratio
from aquila.report.page.html import Html, tag
from aquila.report.page.measures import Measure, available_measures
from aquila.report.page.runs import PageRun
from aquila.report.units import SECOND_UNITS, SPACE, format_quantity

SIMILAR = 1.05
"""Ratio up to which two costs count as equal."""


@dataclass(frozen=True)
class Tile:
    """A number, what it is, and a remark."""

    name: str
    value: str
    remark: str = ""
    is_good: bool = False


def tiles_for(run: PageRun, other: PageRun | None, measure: Measure | None) -> list[Tile]:
    """Return the tiles of a run, compared with another one if there is one."""
    other = None if other is run else other
    tiles = [] if measure is None else [_quality_tile(run, other, measure)]
    tiles.append(_bytes_tile("bytes up", UPLINK.cost, run, other))
    tiles.append(_bytes_tile("bytes both ways", BOTH_WAYS, run, other))
    tiles += _time_tile(run, other)
    stopped = len(run.records) < run.planned_rounds
    planned = f"stopped, {run.planned_rounds} planned" if stopped else ""
    uploads, skips = run.result.uploads, run.result.skips
    tiles.append(
        Tile("rounds", f"{len(run.records):,}", planned or f"{uploads:,} uploads, {skips:,} skips")
    )
    size = run.facts.get("dimension")
    model = f"{size:,} parameters" if isinstance(size, int) else ""
    tiles.append(Tile("devices", f"{run.devices:,}", model))
    return tiles


def tiles_section(runs: Sequence[PageRun], comparison: Comparison | None) -> Html:
    """Return the tiles of the run of the headline."""
    run = comparison.lead if comparison else runs[0]
    measure = comparison.measure if comparison else next(iter(available_measures(runs)), None)
    tiles = tiles_for(run, comparison.reference if comparison else None, measure)
    seeds = f", mean of {len(run.members)} seeds" if run.members else ""
    return tag(
        "div",
        tag("p", tag("strong", run.label), f" over the whole run{seeds}", class_="tiles-title"),
        tag("dl", *(_tile(tile) for tile in tiles), class_="tiles"),
    )


def _tile(tile: Tile) -> Html:
    remark = tag("dd", tile.remark, class_="remark good" if tile.is_good else "remark")
    return tag("div", tag("dt", tile.name), tag("dd", tile.value), remark)


def _quality_tile(run: PageRun, other: PageRun | None, measure: Measure) -> Tile:
    value, compared = measure.final(run), None if other is None else measure.final(other)
    remark = f"mean of the last {FINAL_EVALUATIONS}"
    if value is None or compared is None or other is None:
        return Tile(measure.title, measure.format_value(value), remark)
    good = value >= compared if measure.higher_is_better else value <= compared
    if measure.is_fraction:
        remark = f"{100 * (value - compared):+.1f} points vs {other.label}".replace("-", "−", 1)
    else:
        remark = f"{measure.format_value(compared)} with {other.label}"
    return Tile(measure.title, measure.format_value(value), remark, good)


def _bytes_tile(name: str, cost: Cost, run: PageRun, other: PageRun | None) -> Tile:
    total = cost.total(run.records) or 0
    compared = None if other is None else cost.total(other.records)
    remark, good = _compared(total, compared, other)
    return Tile(name, cost.format_total(total, SPACE), remark, good)


def _time_tile(run: PageRun, other: PageRun | None) -> list[Tile]:
    """Return the simulated time if there is a link model, otherwise the real time, if known."""
    for cost in (TIME, REAL_TIME):
        time = PageCost(cost, cost.units[0])
        total = time.total(run)
        if total is None:
            continue
        if cost is REAL_TIME:
            remark = f"{format_quantity(total / len(run.records), SECOND_UNITS, SPACE)} per round"
            return [Tile(cost.title, time.format(total), remark)]
        remark, good = _compared(total, None if other is None else time.total(other), other)
        return [Tile(cost.title, time.format(total), remark, good)]
    return []


def _compared(total: float, compared: float | None, other: PageRun | None) -> tuple[str, bool]:
    if other is None or not compared or not total:
        return "", False
    if max(compared / total, total / compared) < SIMILAR:
        return f"as much as {other.label}", False
    if compared >= total:
        return f"{format_ratio(compared / total)} × less than {other.label}", True
    return f"{format_ratio(total / compared)} × as much as {other.label}", False
