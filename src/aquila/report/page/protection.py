"""Notes of a report about bad devices and privacy."""

from collections.abc import Iterable, Iterator, Sequence

from aquila.report.page.runs import PageRun

MAX_LISTED = 10
"""Most devices that a note lists."""


def protection_notes(runs: Iterable[PageRun]) -> Iterator[str]:
    """Yield one sentence per run and fact: quarantine, rejected uploads, spent privacy."""
    for run in runs:
        if quarantined := _devices(record.quarantined for record in run.records):
            rounds = sum(record.quarantined is not None for record in run.records)
            yield (
                f"{run.label}: {_list(quarantined)} failed and {_were(quarantined)} in quarantine, "
                f"after {rounds} of {len(run.records)} rounds."
            )
        if rejected := _devices(record.rejected for record in run.records):
            count = sum(len(record.rejected or ()) for record in run.records)
            yield (
                f"{run.label}: {count} upload{'s' * (count > 1)} of {_list(rejected)} "
                "exceeded the norm limit of the fleet."
            )
        last = run.records[-1]
        if last.epsilon is not None and last.delta is not None:
            yield (
                f"{run.label}: differential privacy per device, epsilon {last.epsilon:.3g} at "
                f"delta {last.delta:g} after {len(run.records)} rounds."
            )


def _devices(groups: Iterable[Sequence[int] | None]) -> list[int]:
    return sorted({device for group in groups for device in group or ()})


def _list(devices: Sequence[int]) -> str:
    named = ", ".join(map(str, devices[:MAX_LISTED]))
    more = len(devices) - MAX_LISTED
    return f"device{'s' * (len(devices) > 1)} {named}" + (f" and {more} more" if more > 0 else "")


def _were(devices: Sequence[int]) -> str:
    return "were" if len(devices) > 1 else "was"
