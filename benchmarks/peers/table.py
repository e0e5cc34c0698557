"""Tables and goals of benchmarks/simulator.py."""

from peers.simulators import OURS, OURS_FEDSGD, PEERS, PLAIN

SPEEDUP_GOALS = {
    "compute": {"flower": 2.8, "pfl": 2.0, "fedlab": 1.7},
    "overhead": {"flower": 20.0, "pfl": 5.0},
}
OUTSIDE_GOALS = {"compute": 0.08}
FIRST_ROUND_GOALS = {"overhead": 2.0}


def add_speedups(rows):
    """Add to each row how many times faster method aquila is."""
    ours = by_name(rows).get(OURS.module, {}).get("relative_to_plain")
    for row in rows:
        if ours and "relative_to_plain" in row:
            row["speedup"] = row["relative_to_plain"] / ours


def by_name(rows):
    return {row["simulator"]: row for row in rows}


def check_goals(case, rows):
    """Yield a line per goal of a case, and whether it is reached; None if not measured."""
    named = {name: row for name, row in by_name(rows).items() if not row.get("disturbed")}
    ours = named.get(OURS.module, {})
    for peer, goal in SPEEDUP_GOALS[case].items():
        speedup = named.get(PEERS[peer].module, {}).get("speedup") if ours else None
        yield goal_line(f"times faster than {PEERS[peer].label}, at least", goal, speedup, 1)
    if case in OUTSIDE_GOALS:
        fraction = ours.get("outside_fraction")
        yield goal_line("fraction outside gradients, at most", OUTSIDE_GOALS[case], fraction, -1)
    if case in FIRST_ROUND_GOALS:
        goal, first = FIRST_ROUND_GOALS[case], ours.get("first_s")
        yield goal_line("seconds to the end of the first round, at most", goal, first, -1)


def goal_line(text, goal, measured, sign):
    """Return a line with a goal and the measured value, and whether the goal is reached.

    `sign` is 1 if more is better, and -1 if less is better.
    """
    reached = None if measured is None else sign * measured >= sign * goal
    word = {None: "not measured", True: "reached", False: "MISSED"}[reached]
    value = "-" if measured is None else f"{measured:.3g}"
    return f"{text + f' {goal:g}':<56}{value:>8}  {word}", reached


def table_lines(rows):
    """Yield the lines of the table of a case."""
    heading = f"{'':<24}{'first, s':>10}{'round, s':>10}{'of plain':>10}{'aquila is':>12}"
    yield f"{heading}{'peak, MiB':>11}{'loss':>10}"
    for row in rows:
        if "failed" in row:
            yield f"{row['label']:<24}  failed: {row['failed']}"
            continue
        speedup = f"{row['speedup']:.2f} x" if "speedup" in row else "-"
        yield (
            f"{row['label']:<24}{row['first_s']:>10.2f}{row['round_s']:>10.3f}"
            f"{row['relative_to_plain']:>10.2f}{speedup:>12}{row['peak_mib']:>11.0f}{row['losses'][-1]:>10.5f}"
            f"{'  disturbed' if row['disturbed'] else ''}"
        )


def describe_failures(rows):
    """Yield one line per simulator that failed or whose losses differ from the plain loop."""
    known = {c.module: c for c in (PLAIN, OURS, OURS_FEDSGD, *PEERS.values())}
    for row in rows:
        if "failed" in row:
            yield f"{row['case']}: {row['label']} failed"
        elif known[row["simulator"]].same_losses and not row["same_losses"]:
            yield f"{row['case']}: the losses of {row['label']} differ from the plain loop"
