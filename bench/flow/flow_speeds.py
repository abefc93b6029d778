"""Nodes whose speeds change every five seconds: how soon their shares follow,
and whether they rest then.
"""

import os
import statistics
import subprocess

from measure import BUILD

LIMIT_S = 120
NODES, SIDE, BLOCK_MS, PERIOD_S, PERIODS = 16, 4, 2.5, 5, 3
WINDOW_S = 0.5  # of which a throughput is the mean
FOLLOWED = 0.9  # of what is possible
WITHIN_S = 2


def once(how, adapt, seed):
    """The factors of each period, and points (s, blocks, changes of chunks)."""
    run = subprocess.run(
        [os.path.join(BUILD, "bench", "flow_speeds"), str(NODES), str(SIDE),
         str(round(BLOCK_MS * 1e3)), str(PERIOD_S * 1000), str(PERIODS),
         str(adapt), how, str(seed)],
        capture_output=True, text=True, check=True, timeout=LIMIT_S)
    factors, points = [], []
    for line in run.stdout.splitlines():
        kind, *values = line.split()
        if kind == "factors":
            factors.append(list(map(int, values)))
        else:
            ns, blocks, changes = map(int, values)
            points.append((ns / 1e9, blocks, changes))
    return factors, points


def best_of(factors):
    """Blocks a second if shares are by speed."""
    return sum(1 / f for f in factors) * 1e3 / BLOCK_MS


def rate(points, at):
    """Blocks a second in the window that ends at this point; None: too short."""
    end = points[at]
    begin = next((p for p in reversed(points[:at])
                  if end[0] - p[0] >= WINDOW_S), None)
    return begin and (end[1] - begin[1]) / (end[0] - begin[0])


def follow(factors, points):
    """For each period: seconds from its begin to the begin of the first window
    that is as fast as FOLLOWED, then the mean and the slowest window of what
    comes WITHIN_S later, both of what is possible, and changes of chunks there.
    """
    rows = []
    for period, f in enumerate(factors):
        best, begin = best_of(f), period * PERIOD_S
        inside = [i for i, p in enumerate(points)
                  if begin + WINDOW_S <= p[0] < begin + PERIOD_S]
        fast = [points[i][0] for i in inside
                if (rate(points, i) or 0) >= FOLLOWED * best]
        late = [i for i in inside
                if points[i][0] >= begin + WITHIN_S + WINDOW_S]
        first, last = points[late[0]], points[late[-1]]
        rows.append((fast[0] - WINDOW_S - begin if fast else PERIOD_S,
                     (last[1] - first[1]) / (last[0] - first[0]) / best,
                     min(rate(points, i) for i in late) / best,
                     last[2] - first[2]))
    return rows


def lines_of(factors, points):
    """What is drawn: throughput over time, and what would be possible."""
    last = [p for p in factors for _ in (0, 1)]
    edges = [e for p in range(len(factors)) for e in (p, p + 1)]
    fast = [(points[i][0], rate(points, i)) for i in range(len(points))
            if rate(points, i) and points[i][0] <= PERIODS * PERIOD_S]
    return {"Poise": fast,
            "by speed": [(e * PERIOD_S, best_of(f))
                         for e, f in zip(edges, last)],
            "equal shares": [(e * PERIOD_S, NODES * 1e3 / BLOCK_MS / max(f))
                             for e, f in zip(edges, last)]}


def speeds(_, figures):
    """The rows of the table, and a chart of the first run of each kind."""
    rows, charts = [], []
    for how, adapt in (("one", 1), ("all", 1)):
        seeds = iter(range(1, 1 << 30))
        runs = figures.all(f"{how}, {adapt}", lambda how=how, adapt=adapt,
                           seeds=seeds: once(how, adapt, next(seeds)))
        found = [row for factors, points in runs
                 for row in follow(factors, points)[1:]]
        after, mean, least, changes = zip(*found)
        rows.append([
            {"one": "one x4, another each time", "all": "all drawn from "
             "x1, x2, x4"}[how], str(len(found)),
            f"{statistics.median(after):.2f} ({max(after):.2f})",
            f"{statistics.median(mean):.3f} ({min(mean):.3f})",
            f"{statistics.median(least):.3f} ({min(least):.3f})",
            f"{statistics.median(changes):.0f} ({max(changes)})"])
        charts.append((f"flow-speeds-{how}.svg",
                       "Speeds that change every 5 s, 16 nodes", "s",
                       "blocks a second", lines_of(*runs[0])))
    return (f"Speeds that change every {PERIOD_S} s, {NODES} nodes, medians "
            "(worst)",
            ["speeds", "changes", f"s until {FOLLOWED:.0%} of what is possible",
             f"mean after {WITHIN_S} s", "slowest half second then",
             "changes of chunks then"], rows, charts)
