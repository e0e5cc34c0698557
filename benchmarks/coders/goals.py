"""Goals for size, speed and memory of AQUILA's frames."""

from coders.adapters import AquilaFrame

SIZE_GOAL, SIZE_SLACK = 1.02, 256
LONG_STREAM = 10**6
AQUILA_GOAL = 1.0
SPARSE_GOAL, SPARSE_ENTROPY = 2.0, 0.6
MEMORY_GOAL = 2.0


def size_limit(row):
    """Return the largest allowed size of a stream's frame in bytes."""
    return SIZE_GOAL * row["entropy"] * row["d"] / 8 + SIZE_SLACK


def missed_goals(rows):
    """Yield one sentence per missed goal."""
    for row in rows:
        name = f"{row['source']}, {row['grid']}, d = {row['d']:,}"
        for problem in missed_goals_of_row(row):
            yield f"{name}: {problem}"


def missed_goals_of_row(row):
    ours = row["coders"][AquilaFrame.name] if row["kind"] == "stream" else row
    if "bytes" in ours and ours["bytes"] > size_limit(row):
        yield f"{ours['bytes']:,} bytes, goal: at most {size_limit(row):,.0f}"
    goal = speed_goal(row)
    for way in ("encode", "decode"):
        if goal and ours[f"{way}_gb_s"] < goal:
            yield f"{way} {ours[f'{way}_gb_s']:.2f} GB/s, goal: at least {goal}"
        if row["kind"] == "memory" and row[f"{way}_peak"] > MEMORY_GOAL:
            yield f"{way} takes {row[f'{way}_peak']:.2f} x the codes, goal: at most {MEMORY_GOAL}"


def speed_goal(row):
    """Return the goal in GB/s, or None: fixed costs dominate short streams."""
    if row["kind"] != "stream" or row["d"] < LONG_STREAM:
        return None
    if row["grid"].startswith("AQUILA"):
        return AQUILA_GOAL
    sparse = row["grid"].startswith("zero") and row["entropy"] < SPARSE_ENTROPY
    return SPARSE_GOAL if sparse else None
