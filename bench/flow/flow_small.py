"""How small tasks may be, for several patterns of dependencies, beside an MPI
program written by hand. With a record each run is kept, so that the case can be
measured in pieces.
"""

import os
import shutil
import subprocess

from measure import BUILD

LIMIT_S = 200
PATTERNS = ("trivial", "stencil", "sweep", "fft", "tree", "random")
WIDTH = "8"
# Nodes and threads, or ranks of MPI.
WAYS = {"1 thread": (0, 1), "2 threads": (0, 2), "2 nodes": (2, 1),
        "MPI, 1 rank": 1, "MPI, 2 ranks": 2}
MPI = os.path.join(BUILD, "bench", "flow_grain_mpi_ompi")


def can_run(way):
    return way.startswith("MPI") is False or (
        os.access(MPI, os.X_OK) and shutil.which("mpirun.openmpi"))


def once(pattern, way):
    """METG, and for each size of task its line: both in microseconds."""
    how = WAYS[way]
    words = [pattern, WIDTH, "2000" if way == "2 nodes" else "20000"]
    if isinstance(how, int):
        words = ["mpirun.openmpi", "--bind-to", "core", "-n", str(how), MPI,
                 *words]
    else:
        words = [os.path.join(BUILD, "bench", "flow_grain"), *words,
                 *map(str, how)]
    env = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1",
               OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    run = subprocess.run(words, capture_output=True, text=True, check=True,
                         timeout=LIMIT_S, env=env, stdin=subprocess.DEVNULL)
    *points, metg = run.stdout.split("\n")[:-1]
    return float(metg.split()[1]), [tuple(map(float, p.split()))
                                    for p in points]


def metg_text(metg, smallest):
    """METG below the smallest size is not known."""
    return f"{metg:.2f}" if metg > 0 else f"< {smallest:.2f}"


def grain(_, figures):
    """The rows of the table, and a chart for each way."""
    rows, charts = [], []
    ways = [way for way in WAYS if can_run(way)]
    lines = {way: {} for way in ways}
    for pattern in PATTERNS:
        row = [pattern]
        for way in ways:
            runs = figures.all(f"{pattern}, {way}",
                               lambda way=way, pattern=pattern: once(
                                   pattern, way))
            points = list(zip(*(run[1] for run in runs)))
            metg = [run[0] for run in runs]
            smallest = points[-1][0][0]
            low, high = (metg_text(f(metg), smallest) for f in (min, max))
            row += [low if low == high else f"{low}, {high}",
                    f"{min(p[1] for p in points[-1]):.2f}"]
            lines[way][pattern] = [(p[0][0], max(x[2] for x in p))
                                   for p in points]
        rows.append(row)
    for way, drawn in lines.items():
        name = way.replace(",", "").replace(" ", "-").lower()
        charts.append((f"flow-grain-{name}.svg",
                       f"Efficiency, {way}, 8 blocks a version",
                       "us of work in a task", "efficiency", drawn,
                       (True, False)))
    return ("METG (50 %), least and most of the runs, and the least that the "
            "smallest task takes of a thread, us",
            ["pattern"] + [f"{way} {what}" for way in ways
                           for what in ("METG", "floor")], rows, charts)
