"""Cases of bench/run for room flow: the three groups of experiments of the
paper, with emulated speeds, against an MPI version of the same solver.

A block (MPI: a rank's part) takes a given time, times its node's factor, most
of which is slept, to absolute deadlines; the cells are computed within it. So
sixteen nodes fit two cores, and a node that waits lends nobody its core.
"""

import itertools
import json
import os
import shutil
import signal
import statistics
import subprocess
import tempfile
import time

import flow_copies
import flow_hosts
import flow_small
import flow_speeds
import plot
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

    def words(self, ms, sweeps, factors, blocks, options=()):
        """The command."""
        side = SIDE // blocks
        return [POISE, "solve", "--json", "--sweeps", str(sweeps),
                "--block", str(side), "--block-time",
                f"{round(ms * 1e6 / blocks ** 2)}ns", "-n", str(self.nodes),
                "--slow", ",".join(map(str, factors)), *options, self.file,
                os.path.join(self.folder, "out.pgm")]

    def run(self, ms, sweeps, factors, blocks, options=()):
        """Milliseconds a sweep, and what solve says of the run. The start of
        the processes is not counted, as little as MPI's is."""
        run = subprocess.run(self.words(ms, sweeps, factors, blocks, options),
                             capture_output=True, text=True, check=True,
                             timeout=LIMIT_S)
        found = json.loads(run.stdout)
        took = (found["seconds"] - found["start_seconds"]) * 1e3 / sweeps
        return took, found

    def per_sweep(self, ms, sweeps, factors, blocks, options, skip):
        """The same, without the first `skip` sweeps, by when the map heard of
        their ends."""
        found = self.run(ms, skip + sweeps, factors, blocks, options)[1]
        marks = [m for m in found["progress"] if m["versions"] > skip]
        took = marks[-1]["seconds"] - marks[0]["seconds"]
        return took * 1e3 / (marks[-1]["versions"] - marks[0]["versions"])


class Figures:
    """Figures of one case: the median of some runs each, taken in turns, so that
    whatever else the machine does hits all alike. With a record (a file of
    lines) each run is kept, and one that is there already is not made again: a
    long case can be measured in pieces."""

    def __init__(self, case, runs, record):
        self.case, self.runs, self.record = case, runs, record
        self.found = {}
        if record and os.path.exists(record):
            with open(record, encoding="utf-8") as file:
                for line in file:
                    key, value = json.loads(line)
                    self.found.setdefault(key, []).append(value)

    def once(self, key, call):
        value = call()
        self.found.setdefault(key, []).append(value)
        if self.record:
            with open(self.record, "a", encoding="utf-8") as file:
                file.write(json.dumps([key, value]) + "\n")

    def all(self, row, call):
        """What that many calls return."""
        key = f"{self.case}: {row}"
        while len(self.found.get(key, [])) < self.runs:
            self.once(key, call)
        return self.found[key]

    def of(self, row, calls):
        """Medians of what the calls return, a dict by name; None: cannot be."""
        keys = {name: f"{self.case}: {row}: {name}" for name in calls}
        for turn in range(self.runs):
            for name, call in calls.items():
                if len(self.found.get(keys[name], [])) <= turn:
                    self.once(keys[name], call)
        return {name: None if self.found[key][0] is None
                else statistics.median(self.found[key])
                for name, key in keys.items()}


def text(value, digits=1):
    return "-" if value is None else f"{value:.{digits}f}"


def ratio(value, other):
    return "-" if value is None or other is None else f"{value / other:.3f}"


# ---- cases ------------------------------------------------------------------------
# Each returns a title, headings, rows and what is to be drawn: a name and the
# words of plot.chart.

def against_mpi(plate, ms, sweeps, factors):
    """The same sweeps by the three, with uniform chunks."""
    nodes = len(factors)
    return {"Poise": lambda: plate.run(ms, sweeps, factors, 4)[0],
            "MPI blocking": lambda: mpi(nodes, ms, sweeps, "blocking",
                                        factors),
            "MPI overlapped": lambda: mpi(nodes, ms, sweeps, "overlap",
                                          factors)}


HEADINGS = ["Poise", "MPI blocking", "MPI overlapped", "of blocking",
            "of overlapped"]


def row_of(label, found):
    mine, blocking, overlapped = found.values()
    return [label, *map(text, (mine, blocking, overlapped)),
            ratio(mine, blocking), ratio(mine, overlapped)]


def lines_add(lines, across, found, suffix=""):
    for name, value in found.items():
        if value is not None:
            lines.setdefault(name + suffix, []).append((across, value))


def scale(folder, figures):
    """5.1, figure 5(a): equal nodes, uniform chunks."""
    rows, lines, ms, sweeps = [], {}, 20, 60
    for nodes in GRIDS:
        found = figures.of(nodes, against_mpi(Plate(folder, nodes), ms, sweeps,
                                              [1] * nodes))
        rows.append(row_of(nodes, found))
        lines_add(lines, nodes, found)
    return ("Equal nodes, uniform chunks: ms a sweep of 20 ms",
            ["nodes", *HEADINGS], rows,
            [("flow-scale.svg", "Equal nodes: a sweep of 20 ms", "nodes", "ms",
              lines)])


def laggard(folder, figures):
    """5.1, figures 5(b) and (c): laggards, uniform chunks."""
    rows, charts, ms, plate = [], [], 20, Plate(folder, 16)
    for laggards in (1, 15):
        lines = {}
        for factor in (1, 2, 4, 8):
            factors, sweeps = slow(laggards, factor), 48 // factor + 6
            label = f"{laggards} of 16 x{factor}"
            found = figures.of(label, against_mpi(plate, ms, sweeps, factors))
            rows.append(row_of(label, found))
            lines_add(lines, factor, found)
        charts.append((f"flow-laggard-{laggards}.svg",
                       f"{laggards} of 16 nodes slow, uniform chunks",
                       "times as slow", "ms a sweep", lines))
    return ("Laggards, uniform chunks: ms a sweep of 20 ms",
            ["laggards", *HEADINGS], rows, charts)


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


def mix(folder, figures):
    """5.2, figure 6: nodes of three speeds, chunks by hand."""
    ms, sweeps, plate, calls = 80, 16, Plate(folder, 16), {}
    best = ideal(ms, MIX)
    layouts = {"(i) uniform": None, "(ii) rows": bands(1, 32),
               "(iii) four bands": bands(4, 8), "(iv) two bands": bands(2, 16)}
    for number, (label, chunks) in enumerate(layouts.items()):
        options = []
        if chunks:
            options = ["--chunks", os.path.join(folder, f"chunks{number}")]
            with open(options[1], "w", encoding="ascii") as file:
                file.write(chunks)
        calls[label] = lambda options=options: plate.run(ms, sweeps, MIX, 8,
                                                         options)[0]
    for how in ("blocking", "overlap"):
        calls[f"MPI {how}, uniform"] = lambda how=how: mpi(16, ms, sweeps, how,
                                                           MIX)
    found = figures.of("mix", calls)
    rows = [[label, text(took), ratio(took, best)]
            for label, took in found.items()]
    return (f"Nodes of three speeds: ms a sweep, ideal {best:.1f}",
            ["chunks", "ms", "of ideal"], rows, [])


def adapt(folder, figures):
    """5.3, figure 7: chunks made anew from what was measured."""
    rows, lines, plate = [], {}, Plate(folder, 16)
    cases = [("1 of 16 x2", slow(1, 2)), ("1 of 16 x4", slow(1, 4)),
             ("1 of 16 x8", slow(1, 8)), ("15 of 16 x4", slow(15, 4)),
             ("15 of 16 x8", slow(15, 8)), ("2 x1, 10 x2, 4 x4", MIX)]
    for label, factors in cases:
        for blocks, ms in ((4, 20), (8, 80)):
            best = ideal(ms, factors)
            # Three assignments of five versions, then what they led to.
            found = figures.of(f"{label}, {blocks ** 2} blocks", {
                policy: lambda policy=policy: plate.per_sweep(
                    ms, 960 // ms + 20, factors, blocks,
                    ["--adapt", "5", f"--ablation=policy={policy}"], 15)
                for policy in ("rate", "misses")})
            uniform = ms * max(factors)
            row = [label, blocks ** 2, text(best)]
            for took in (found["rate"], found["misses"], uniform):
                row += [text(took), ratio(took, best)]
            rows.append(row)
            if factors[-1] != factors[1] and factors != MIX and blocks == 8:
                found["uniform at best"] = uniform
                lines_add(lines, factors[-1], {
                    name: took / best for name, took in found.items()})
    return ("Chunks made anew: ms a sweep, after two of them",
            ["speeds", "blocks a node", "ideal", "by rate", "of ideal",
             "by misses", "of ideal", "uniform at best", "of ideal"], rows,
            [("flow-adapt.svg", "One of 16 nodes slow, 64 blocks a node",
              "times as slow", "of the ideal time", lines)])


# What the text of the paper says of its figures: DesyncFS' time over MPI's, and
# blocks a second before and after chunks were made anew once. Figure 6 has no
# numbers in the text.
PAPER = {"5a": {9: 1.133, 81: 1.111}, "5b": {1: 1.10, 4: 0.75, 8: 0.71},
         "5c": {1: 1.08, 8: 0.76}, "7": (105, 180)}


def paper_uniform(figure, folder, figures):
    """Figure 5: (a) over nodes, (b) one laggard, (c) fifteen."""
    lines, rows = {"paper's text": list(PAPER[figure].items())}, []
    laggards = {"5a": 0, "5b": 1, "5c": 15}[figure]
    for across in (1, 4, 9, 16) if figure == "5a" else (1, 2, 4, 8):
        nodes, factor = (across, 1) if figure == "5a" else (16, across)
        sweeps = 32 // factor + 6
        factors = slow(laggards, factor, nodes)
        calls = against_mpi(Plate(folder, nodes), 20, sweeps, factors)
        del calls["MPI overlapped"]
        found = figures.of(f"{figure} {across}", calls)
        mine, other = found.values()
        rows.append([figure, f"{across} nodes" if figure == "5a"
                     else f"x{across}", text(mine), text(other),
                     ratio(mine, other),
                     text(PAPER[figure].get(across), 3)])
        if other:
            lines_add(lines, across, {"Poise": mine / other})
    title, label = {
        "5a": ("Figure 5 (a): equal nodes", "nodes"),
        "5b": ("Figure 5 (b): one of 16 nodes slow", "times as slow"),
        "5c": ("Figure 5 (c): 15 of 16 nodes slow", "times as slow")}[figure]
    return rows, (f"flow-figure-{figure}.svg", title, label, "of MPI's time",
                  lines)


def paper_layouts(folder, figures):
    """Figure 6: four mappings of chunks onto nodes of three speeds."""
    _, _, found, _ = mix(folder, figures)
    uniform = next(float(ms) for label, ms, _ in found
                   if label == "(i) uniform")
    rows = [["6", label, ms, "-", ratio(float(ms), uniform), "-"]
            for label, ms, _ in found if ms != "-"]
    mpi_ms = [float(ms) for label, ms, _ in found
              if label == "MPI blocking, uniform" and ms != "-"]
    lines = {"Poise": [(n + 1, float(row[2])) for n, row in
                       enumerate(rows[:4])],
             "ideal": [(1, ideal(80, MIX)), (4, ideal(80, MIX))]}
    if mpi_ms:
        lines["MPI, uniform"] = [(1, mpi_ms[0]), (4, mpi_ms[0])]
    return rows, ("flow-figure-6.svg",
                  "Figure 6: mappings (i) to (iv), nodes of three speeds",
                  "mapping", "ms a sweep", lines)


def paper_rechunk(folder, figures):
    """Figure 7: one of 16 nodes four times as slow, chunks made anew once, in
    the middle."""
    sweeps, half = 80, 40
    plate = Plate(folder, 16)
    _, found = figures.all("7", lambda: plate.run(
        20, sweeps, slow(1, 4), 4, ["--adapt", str(half)]))[0]
    marks = {m["versions"]: m["seconds"] for m in found["progress"]}
    points = []
    # Of a few sweeps each, by when the map heard that they were over.
    known = sorted(marks)
    for before, now in zip(known[::5], known[5::5]):
        points.append(((now - 1) / sweeps, (now - before) * 256 /
                       (marks[now] - marks[before])))

    def rate(begin, end):
        inside = [v for v in known if begin <= v <= end]
        return ((inside[-1] - inside[0]) * 256 /
                (marks[inside[-1]] - marks[inside[0]]))

    first, last = rate(5, half - 5), rate(half + 10, sweeps)
    old, new = PAPER["7"]
    rows = [["7", "blocks a second before", text(first), "-", "1.000",
             f"{old} (1.000)"],
            ["7", "and after", text(last), "-", ratio(last, first),
             f"{new} ({new / old:.3f})"],
            ["7", "shares by speed", text(first * 15.25 / 4), "-", "3.813",
             "-"]]
    return rows, ("flow-figure-7.svg",
                  "Figure 7: chunks made anew in the middle", "share of the run",
                  "throughput, of that before",
                  {"Poise": [(x, y / first) for x, y in points],
                   "paper's text": [(0, 1), (0.5, 1), (0.5, new / old),
                             (1, new / old)]})


def paper(folder, figures):
    """Figures 5 to 7 of the paper, small, beside what it says itself."""
    rows, charts = [], []
    for figure in ("5a", "5b", "5c"):
        more, drawn = paper_uniform(figure, folder, figures)
        rows += more
        charts.append(drawn)
    for make in (paper_layouts, paper_rechunk):
        more, drawn = make(folder, figures)
        rows += more
        charts.append(drawn)
    return ("The paper's figures: ms a sweep (7: blocks a second)",
            ["figure", "what", "Poise", "MPI blocking", "ratio", "paper"], rows,
            charts)


# ---- deaths -----------------------------------------------------------------------

def hit(words, nodes, after_s, how):
    """Seconds of a run of which some nodes are killed after a while, blocks that
    were computed again, and the bytes of blocks that a node had at most."""
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as run:
        if nodes:
            time.sleep(after_s)
            with open(f"/proc/{run.pid}/task/{run.pid}/children",
                      encoding="ascii") as file:
                children = sorted(map(int, file.read().split()))
            for node in nodes:
                os.kill(children[node], how)
        out = run.communicate(timeout=LIMIT_S)[0]
    if run.returncode != 0:
        raise subprocess.CalledProcessError(run.returncode, words)
    found = json.loads(out)
    took = found["seconds"] - found["start_seconds"]
    return (took, sum(n["redone"] for n in found["nodes"]),
            max(n["peak_bytes"] for n in found["nodes"]), found["lines"])


DEATHS_MEMORY = 1 << 19  # bytes of blocks on each node


def recover(folder, figures):
    """Any two of four nodes die at nine tenths of a run."""
    def row(name, values, base):
        took, again, peak, lines = (statistics.median(v)
                                    for v in zip(*values))
        return [name, f"{took:.2f}", f"{took / base:.3f}", f"{again:.0f}",
                f"{peak / 2 ** 10:.0f}", f"{peak / DEATHS_MEMORY:.2f}",
                f"{lines:.0f}"]

    plate = Plate(folder, 4)
    memory = ["--memory", str(DEATHS_MEMORY)]
    never = plate.words(20, 200, [1] * 4, 4,
                        [*memory, "--replicate-every", "0"])
    words = plate.words(20, 200, [1] * 4, 4, memory)
    values = figures.all("no copies", lambda: hit(never, (), 0, 0))
    base = statistics.median(v[0] for v in values)
    rows = [row("no copies, nobody dies", values, base)]
    values = figures.all("copies", lambda: hit(words, (), 0, 0))
    rows.append(row("nobody dies", values, base))
    for nodes in [(1,), *itertools.combinations(range(4), 2)]:
        values = figures.all(f"kill {nodes}", lambda: hit(
            words, nodes, 0.9 * base, signal.SIGKILL))
        rows.append(row("killed: " + " and ".join(map(str, nodes)), values,
                        base))
    values = figures.all("term 1", lambda: hit(words, (1,), 0.9 * base,
                                               signal.SIGTERM))
    rows.append(row("SIGTERM: 1", values, base))
    return ("Deaths at nine tenths of 200 sweeps of 20 ms, four nodes of 16 "
            f"blocks and {DEATHS_MEMORY >> 10} KiB, medians",
            ["who", "s", "of the run without", "blocks again",
             "KiB at most", "of the limit", "lines"], rows, [])


CASES = {"flow-scale": scale, "flow-laggard": laggard, "flow-mix": mix,
         "flow-adapt": adapt, "flow-paper": paper, "flow-grain": flow_small.grain,
         "flow-recover": recover, "flow-copies": flow_copies.copies,
         "flow-sites": flow_hosts.sites, "flow-many": flow_hosts.many,
         "flow-speeds": flow_speeds.speeds}


def expand(names):
    """`flow` stands for all of them."""
    return [n for name in names
            for n in (CASES if name == "flow" else [name])]


def add_options(parser):
    parser.add_argument("--flow-runs", type=int, default=3,
                        help="runs of each figure of the flow cases "
                             "(default: 3), of which the median counts")
    parser.add_argument("--flow-record", metavar="FILE",
                        help="keep each run of the flow cases there, and do "
                             "not make those again that it holds")


def run_case(name, args, report, table):
    figures = Figures(name, args.flow_runs, args.flow_record)
    with tempfile.TemporaryDirectory(prefix="poise-flow-") as folder:
        title, headings, rows, charts = CASES[name](folder, figures)
    report.heading(title)
    report.say(lambda md: table(headings, rows, md))
    report.say(lambda md: f"`bench/run --case {name}`\n")
    for file, *words in charts if args.svg else []:
        os.makedirs(args.svg, exist_ok=True)
        plot.chart(os.path.join(args.svg, file), *words)
