"""Tables of distributed.py over several seeds: mean losses, and times on links that were run."""

from statistics import mean, median, stdev

from distributed_jobs import SETTING
from distributed_rivals import DENSE, RIVALS

REPEATED = tuple(name for name in SETTING if name != "seed")


def group_seeds(entries):
    """Return per setting the last points of the curves, per rival and link, then per seed."""
    groups = {}
    for entry in entries:
        setting = tuple(entry[key] for key in REPEATED)
        runs = groups.setdefault(setting, {})
        of_rival = runs.setdefault((entry["rival"], entry["link"] or 0), {})
        of_rival[entry["seed"]] = entry["curve"][-1]
    return groups


def dense_runs(runs, rival, link):
    """Return the last points of the dense rival with the same exchanges, per seed."""
    return runs.get((DENSE[RIVALS[rival][0]], link), {})


def mean_ratio(points, dense, column):
    """Return the mean of a column ÷ that of the dense runs, over the seeds that both have."""
    shared = points.keys() & dense.keys()
    if not shared:
        return None
    return mean(points[s][column] for s in shared) / mean(dense[s][column] for s in shared)


def print_setting(setting):
    print(f"\n{dict(zip(REPEATED, setting, strict=True))}\n")


def print_row(cells):
    print(f"| {' | '.join(cells)} |")


def print_means(entries):
    """Print the mean losses of the runs without a limit of the link."""
    for setting, runs in group_seeds(entries).items():
        print_setting(setting)
        names = ("rival", "seeds", "loss", "± sd", "÷ dense", "MB per rank", "dense MB ÷ this")
        print_row((*names, "validation loss", "÷ dense"))
        print("|---|" + "---:|" * (len(names) + 1))
        for (rival, link), points in runs.items():
            if link:
                continue
            dense = dense_runs(runs, rival, 0)
            losses = [point[1] for point in points.values()]
            spread = f"{stdev(losses):.4f}" if len(losses) > 1 else ""
            saving = mean_ratio(dense, points, 2)
            ratios = [mean_ratio(points, dense, column) for column in (1, 5)]
            quality, validation = (f"{ratio:.4f}" if ratio else "" for ratio in ratios)
            megabytes = mean(point[2] for point in points.values()) / 1e6
            last = mean(point[5] for point in points.values())
            cells = (f"{mean(losses):.4f}", spread, quality, f"{megabytes:,.3f}")
            cells += (f"{saving:,.4g}" if saving else "", f"{last:.4f}", validation)
            print_row((rival, str(len(points)), *cells))


def print_times(entries):
    """Print the median times of the rivals on each link, and their ratio to dense frames.

    The ratio is the median over the seeds of time ÷ dense time. Only measured times count.
    """
    for setting, runs in group_seeds(entries).items():
        links = sorted({link for _, link in runs}, key=lambda link: link or float("inf"))
        print_setting(setting)
        heads = [f"{link:g} Mbit/s" if link else "no limit" for link in links]
        print_row(("rival", "seeds", *(f"s, {head} | ÷ dense" for head in heads)))
        print("|---|" + "---:|" * (1 + 2 * len(links)))
        for rival in dict.fromkeys(rival for rival, _ in runs):
            cells = [cell for link in links for cell in time_cells(runs, rival, link)]
            seeds = max(len(points) for (name, _), points in runs.items() if name == rival)
            print_row((rival, str(seeds), *cells))


def time_cells(runs, rival, link):
    """Return the median time of a rival on a link, and the median of its ratio to dense."""
    points, dense = runs.get((rival, link), {}), dense_runs(runs, rival, link)
    if not points:
        return "", ""
    shared = points.keys() & dense.keys()
    ratio = f"{median(points[s][4] / dense[s][4] for s in shared):.2f}" if shared else ""
    return f"{median(point[4] for point in points.values()):.1f}", ratio
