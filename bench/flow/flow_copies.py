"""What copies of blocks cost while nobody dies: the same job with them, as often
as pays, and without, by turns.
"""

import json
import math
import os
import random
import resource
import statistics
import subprocess

from measure import POISE

LIMIT_S = 120
# Cells on a side, on a side of a block, sweeps: about half a second each.
SIZES = ((256, 32, 2000), (512, 64, 800), (1024, 128, 200), (2048, 256, 40))
NODES = 3


def once(words):
    """Seconds on the clock, without the start of processes; of processors; and
    lines of copies."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run = subprocess.run(words, capture_output=True, text=True, check=True,
                         timeout=LIMIT_S)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    found = json.loads(run.stdout)
    return (found["seconds"] - found["start_seconds"],
            after.ru_utime + after.ru_stime - before.ru_utime -
            before.ru_stime, found["lines"])


def pair(never, copies, first):
    """Both, the one or the other first."""
    if first:
        without = once(never)
        return *without[:2], *once(copies)
    took = once(copies)
    return *once(never)[:2], *took


def interval(ratios):
    """Mean, and half of the 95 % interval, of what is added, in percent: by the
    logarithms of the ratios of pairs, drawn again 2,000 times."""
    logs = [math.log(r) for r in ratios]
    rng = random.Random(1)
    means = sorted(statistics.fmean(rng.choices(logs, k=len(logs)))
                   for _ in range(2000))
    middle = (math.exp(statistics.fmean(logs)) - 1) * 100
    low, high = ((math.exp(means[i]) - 1) * 100 for i in (50, 1949))
    return f"{middle:.1f} [{low:.1f}, {high:.1f}]"


def copies(folder, figures):
    """The rows of the table."""
    rows = []
    for side, block, sweeps in SIZES:
        path = os.path.join(folder, f"side{side}.pgm")
        with open(path, "wb") as file:
            file.write(b"P5 %d %d 255\n" % (side, side))
            file.write(bytes((x * 7 + y * 13) % 256 for y in range(side)
                             for x in range(side)))
        words = [POISE, "solve", "--json", "-n", str(NODES), "--sweeps",
                 str(sweeps), "--block", str(block), path,
                 os.path.join(folder, "out.pgm")]
        never = [*words[:3], "--replicate-every", "0", *words[3:]]
        turn = iter(range(1 << 30))
        values = figures.all(f"{side}", lambda never=never, words=words,
                             turn=turn: pair(never, words, next(turn) % 2))
        rows.append([f"{side} x {side}, blocks of {block}",
                     f"{statistics.median(v[0] for v in values):.3f}",
                     interval([v[2] / v[0] for v in values]),
                     interval([v[3] / v[1] for v in values]),
                     f"{statistics.median(v[4] for v in values):.0f}"])
    return ("What copies cost while nobody dies, three nodes on this machine: "
            "pairs of runs by turns",
            ["plate", "s without", "% of time [95 %]",
             "% of processors [95 %]", "lines"], rows, [])
