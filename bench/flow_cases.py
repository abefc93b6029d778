"""Cases of bench/run for room flow: the three groups of experiments of the
paper, with emulated speeds, against an MPI version of the same solver.

A block (MPI: a rank's part) takes a given time, times its node's factor, most
of which is slept, to absolute deadlines; the cells are computed within it. So
sixteen nodes fit two cores, and a node that waits lends nobody its core.
"""

import json
import os
import shutil
import statistics
import subprocess
import tempfile

from measure import BUILD, POISE

MPI = os.path.join(BUILD, "bench", "flow_mpi_ompi")
SIDE = 64  # cells of a node's part, to a side
GRIDS = {1: (1, 1), 4: (2, 2), 9: (3, 3), 16: (4, 4)}
MIX = [1] * 2 + [2] * 10 + [4] * 4
LIMIT_S = 200  # for one run


def slow(laggards, factor, nodes=16):
    """The factors of nodes, of which the last ones lag."""
    return [1] * (nodes - laggards) + [factor] * laggards


def ideal(ms, factors):
    """Milliseconds a sweep if the work is shared by speed."""
    return ms * len(factors) / sum(1 / f for f in factors)


# ---- runs -------------------------------------------------------------------------

def mpi(nodes, ms, sweeps, how, factors):
    if not os.access(MPI, os.X_OK) or not shutil.which("mpirun.openmpi"):
        return None
    down, across = GRIDS[nodes]
    env = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1",
               OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    run = subprocess.run(
        ["mpirun.openmpi", "--oversubscribe", "--bind-to", "none", "--mca",
         "mpi_yield_when_idle", "1", "-n", str(nodes), MPI, str(down),
         str(across), str(SIDE), str(sweeps), str(ms), how,
         *map(str, factors)],
        capture_output=True, text=True, check=True, timeout=LIMIT_S, env=env)
    return float(run.stdout)


class Plate:
    """A plate for so many nodes, and the chunks of a layout, as files."""

    def __init__(self, folder, nodes):
        self.nodes = nodes
        self.down, self.across = GRIDS[nodes]
        self.folder = folder
        self.file = os.path.join(folder, f"plate{nodes}.pgm")
        with open(self.file, "wb") as file:
            width, height = self.across * SIDE, self.down * SIDE
            file.write(b"P5 %d %d 255\n" % (width, height))
            file.write(bytes((x * 7 + y * 13) % 256 for y in range(height)
                             for x in range(width)))

    def run(self, ms, sweeps, factors, blocks, options=()):
        """Milliseconds a sweep, and what solve says of the run. The start of
        the processes is not counted, as little as MPI's is."""
        side = SIDE // blocks
        words = [POISE, "solve", "--json", "--sweeps", str(sweeps),
                 "--block", str(side), "--block-time",
                 f"{round(ms * 1e6 / blocks ** 2)}ns", "-n", str(self.nodes),
                 "--slow", ",".join(map(str, factors)), *options, self.file,
                 os.path.join(self.folder, "out.pgm")]
        run = subprocess.run(words, capture_output=True, text=True, check=True,
                             timeout=LIMIT_S)
        found = json.loads(run.stdout)
        took = (found["seconds"] - found["start_seconds"]) * 1e3 / sweeps
        return took, found

    def per_sweep(self, ms, sweeps, factors, blocks, options, skip):
        """The same, without the first `skip` sweeps: by two runs."""
        first = self.run(ms, skip, factors, blocks, options)[0] * skip
        rest = self.run(ms, skip + sweeps, factors, blocks, options)
        return (rest[0] * (skip + sweeps) - first) / sweeps, rest[1]


def median(runs, function):
    found = [function() for _ in range(runs)]
    return statistics.median(found) if found[0] is not None else None


def text(value, digits=1):
    return "-" if value is None else f"{value:.{digits}f}"


def ratio(value, other):
    return "-" if value is None or other is None else f"{value / other:.3f}"


# ---- cases ------------------------------------------------------------------------

def scale(folder, args):
    """5.1, figure 5(a): equal nodes, uniform chunks."""
    rows, ms, sweeps = [], 20, 60
    for nodes in GRIDS:
        plate, ones = Plate(folder, nodes), [1] * nodes
        found = [median(args.flow_runs, call) for call in (
            lambda: plate.run(ms, sweeps, ones, 4)[0],
            lambda: mpi(nodes, ms, sweeps, "blocking", ones),
            lambda: mpi(nodes, ms, sweeps, "overlap", ones))]
        rows.append([nodes, *map(text, found), ratio(found[0], found[1]),
                     ratio(found[0], found[2])])
    return ("Equal nodes, uniform chunks: ms a sweep of 20 ms",
            ["nodes", "Poise", "MPI blocking", "MPI overlapped", "of blocking",
             "of overlapped"], rows)


def laggard(folder, args):
    """5.1, figures 5(b) and (c): laggards, uniform chunks."""
    rows, ms, plate = [], 20, Plate(folder, 16)
    for laggards in (1, 15):
        for factor in (1, 2, 4, 8):
            factors, sweeps = slow(laggards, factor), 48 // factor + 6
            found = [median(args.flow_runs, call) for call in (
                lambda: plate.run(ms, sweeps, factors, 4)[0],
                lambda: mpi(16, ms, sweeps, "blocking", factors),
                lambda: mpi(16, ms, sweeps, "overlap", factors))]
            rows.append([f"{laggards} of 16 x{factor}", *map(text, found),
                         ratio(found[0], found[1]), ratio(found[0], found[2])])
    return ("Laggards, uniform chunks: ms a sweep of 20 ms",
            ["laggards", "Poise", "MPI blocking", "MPI overlapped",
             "of blocking", "of overlapped"], rows)


def bands(count, width):
    """Chunks whose area goes with the speed of MIX: `count` bands of columns,
    in which nodes stand on top of each other."""
    fast, middle, slow_ones = [0, 1], list(range(2, 12)), list(range(12, 16))
    height = {**{n: 128 // width for n in fast},
              **{n: 64 // width for n in middle},
              **{n: 32 // width for n in slow_ones}}
    if count == 4:
        piles = [[0, 2, 3], [1, 4, 5], [6, 7, 8, 12, 13], [9, 10, 11, 14, 15]]
    elif count == 2:
        piles = [[0, *middle[:5], 12, 13], [1, *middle[5:], 14, 15]]
    else:
        piles = [[*fast, *middle, *slow_ones]]
    lines = []
    for b, pile in enumerate(piles):
        row = 0
        for node in pile:
            lines.append(f"{node} {row}-{row + height[node]} "
                         f"{b * width}-{(b + 1) * width}")
            row += height[node]
    return "\n".join(lines) + "\n"


def mix(folder, args):
    """5.2, figure 6: nodes of three speeds, chunks by hand."""
    ms, sweeps, plate, rows = 80, 16, Plate(folder, 16), []
    best = ideal(ms, MIX)
    layouts = [("(i) uniform", None), ("(ii) rows", bands(1, 32)),
               ("(iii) four bands", bands(4, 8)),
               ("(iv) two bands", bands(2, 16))]
    for label, chunks in layouts:
        options = []
        if chunks:
            options = ["--chunks", os.path.join(folder, "chunks")]
            with open(options[1], "w", encoding="ascii") as file:
                file.write(chunks)
        took = median(args.flow_runs, lambda options=options: plate.run(
            ms, sweeps, MIX, 8, options)[0])
        rows.append([label, text(took), ratio(took, best)])
    for how in ("blocking", "overlap"):
        took = median(args.flow_runs,
                      lambda how=how: mpi(16, ms, sweeps, how, MIX))
        rows.append([f"MPI {how}, uniform", text(took), ratio(took, best)])
    return (f"Nodes of three speeds: ms a sweep, ideal {best:.1f}",
            ["chunks", "ms", "of ideal"], rows)


def adapt(folder, args):
    """5.3, figure 7: chunks made anew from what was measured."""
    rows, plate = [], Plate(folder, 16)
    cases = [("1 of 16 x2", slow(1, 2)), ("1 of 16 x4", slow(1, 4)),
             ("1 of 16 x8", slow(1, 8)), ("15 of 16 x4", slow(15, 4)),
             ("15 of 16 x8", slow(15, 8)), ("2 x1, 10 x2, 4 x4", MIX)]
    for label, factors in cases:
        for blocks, ms in ((4, 20), (8, 80)):
            best = ideal(ms, factors)
            row = [label, blocks ** 2, text(best)]
            for policy in ("rate", "misses"):
                # Two assignments of five versions, then what they led to.
                options = ["--adapt", "5", "--policy", policy]
                took = median(args.flow_runs, lambda: plate.per_sweep(
                    ms, 20, factors, blocks, options, 10)[0])
                row += [text(took), ratio(took, best)]
            row += [text(ms * max(factors)),
                    ratio(ms * max(factors), best)]
            rows.append(row)
    return ("Chunks made anew: ms a sweep, after two of them",
            ["speeds", "blocks a node", "ideal", "by rate", "of ideal",
             "by misses", "of ideal", "uniform at best", "of ideal"], rows)


def grain(_, args):
    """How small tasks may be, for several patterns of dependencies."""
    rows = []
    ways = (("1 thread", 0, 1), ("2 threads", 0, 2), ("2 nodes", 2, 1))
    for pattern in ("trivial", "stencil", "sweep", "fft", "tree", "random"):
        row = [pattern]
        for _, nodes, threads in ways:
            figures = []
            for _ in range(args.flow_runs):
                run = subprocess.run(
                    [os.path.join(BUILD, "bench", "flow_grain"), pattern, "8",
                     "1500", str(nodes), str(threads)], capture_output=True,
                    text=True, check=True, timeout=LIMIT_S)
                lines = run.stdout.split("\n")
                figures.append((float(lines[-2].split()[1]),
                                float(lines[-3].split()[1])))
            row += [f"{min(f[0] for f in figures):.2f}",
                    f"{min(f[1] for f in figures):.2f}"]
        rows.append(row)
    return ("METG (50 %) and what the smallest task takes, us, best of runs",
            ["pattern"] + [f"{way[0]} {what}" for way in ways
                           for what in ("METG", "floor")], rows)


CASES = {"flow-grain": grain, "flow-scale": scale, "flow-laggard": laggard, "flow-mix": mix,
         "flow-adapt": adapt}


def add_options(parser):
    parser.add_argument("--flow-runs", type=int, default=3,
                        help="runs of each figure of the flow cases "
                             "(default: 3), of which the median counts")


def run_case(name, args, report, table):
    with tempfile.TemporaryDirectory(prefix="poise-flow-") as folder:
        title, headings, rows = CASES[name](folder, args)
    report.heading(title)
    report.say(lambda md: table(headings, rows, md))
    report.say(lambda md: f"`bench/run --case {name}`\n")
