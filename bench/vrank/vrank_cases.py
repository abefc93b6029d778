"""Cases of bench/run for virtual ranks: what switches, messages and
collectives take, and what overdecomposition wins over emulated latency."""

import math
import os
import re
import shlex
import shutil
import subprocess

from measure import BUILD, POISE, ROOT, Case, Command, run_once, table

YIELD = os.path.join(BUILD, "bench", "vrank_yield")
MPIS = {"ompi": "Open MPI", "mpich": "MPICH"}
COMPILERS = {"poise": [POISE, "cc"], "ompi": ["mpicc.openmpi"],
             "mpich": ["mpicc.mpich"]}
LAUNCHERS = {"ompi": ["mpirun.openmpi", "--oversubscribe"],
             "mpich": ["mpirun.mpich"]}
KIB = 1 << 10


# ---- programs -------------------------------------------------------------------

def program(name, by):
    """Where a program is that `by` compiled."""
    return os.path.join(BUILD, "bench", f"{name}.{by}")


def compile_all(_):
    """Every program by every compiler that is there."""
    for source in ("bench/vrank/vrank_mpi.c", "bench/vrank/vrank_big.c", "examples/sor.c"):
        name = os.path.basename(source)[:-2]
        for by, words in COMPILERS.items():
            if shutil.which(words[0]):
                subprocess.run([*words, "-O2", "-o", program(name, by),
                                os.path.join(ROOT, source), "-lm"], check=True)


def find_peers():
    """What run_case wants to know to be there."""
    return {by: path for by, path in (
        ("ompi", shutil.which("mpirun.openmpi")),
        ("mpich", shutil.which("mpirun.mpich")),
        ("vrank_yield", YIELD if os.access(YIELD, os.X_OK) else None)) if path}


def ranks(count, *words, mpi=None, processes=1, threads=1, options=()):
    """The words and the environment of a run of virtual ranks."""
    argv = [POISE, "run"]
    if processes > 1:
        argv += ["-n", str(processes)]
    if threads > 1:
        argv += ["-j", str(threads)]
    return ([*argv, "-V", str(count), *options, *words],
            {"POISE_MPI": mpi} if mpi else {})


# ---- figures ----------------------------------------------------------------------

def first_figure(output, _):
    return float(output.split()[0])


class Figure(Command):
    """A command that prints one figure."""

    def __init__(self, label, argv, unit, peer="poise", env=None,
                 take=first_figure):
        super().__init__(label, argv, peer, take, env=env)
        self.unit = unit


def digits(value):
    """Three of them, whatever the size."""
    if value is None:
        return "-"
    places = 2 - math.floor(math.log10(value)) if value > 0 else 2
    return f"{value:,.{min(max(places, 0), 4)}f}"


def figure_table(case, results, markdown):
    """Figures, and bars (ours, other or None, limit, whether it is a least).
    """
    rows = []
    for command in case.commands:
        result = results[command.label]
        if result.problem or not result.seconds:
            rows.append([command.label, result.problem or "no run", "", ""])
            continue
        rows.append([command.label, digits(result.median()),
                     f"{digits(min(result.seconds))}-"
                     f"{digits(max(result.seconds))}", command.unit])
    text = table(["", "median", "range", ""], rows, markdown)
    bars = []
    for ours, other, limit, least in case.bars:
        is_ = results[ours].median()
        if other and is_ is not None:
            base = results[other].median()
            is_ = is_ / base if base else None
        name = f"{ours} / {other}" if other else ours
        met = is_ is not None and (is_ >= limit if least else is_ <= limit)
        bars.append([name, digits(is_),
                     f"at {'least' if least else 'most'} {limit:.3g}",
                     "not measured" if is_ is None
                     else "met" if met else "MISSED"])
    if bars:
        text += "\n" + table(["bar", "is", "", ""], bars, markdown)
    return text


def yield_ns(count):
    def take(output, _):
        return float(re.search(rf"{count} ranks: +([0-9.]+) ns", output)[1])
    return take


def local_case():
    """Between virtual ranks of one process."""
    prog = program("vrank_mpi", "poise")

    def mine(label, count, *words, unit="us", threads=1):
        argv, env = ranks(count, prog, *words, threads=threads)
        return Figure(label, argv, unit, env=env)
    copy = "a copy of 1 MiB"
    return Case(
        "vrank-local", "Virtual ranks of one process", [], [
            Figure("yield, 2 ranks", [YIELD, "1"], "ns", "vrank_yield",
                   take=yield_ns(2)),
            Figure("yield, 1,024 ranks", [YIELD, "1"], "ns", "vrank_yield",
                   take=yield_ns(1024)),
            mine("8 bytes", 2, "near", "8"),
            mine("1 MiB", 2, "near", str(1 << 20)),
            mine(copy, 1, "copy", str(1 << 20)),
            mine("allreduce, 32 on 2 threads", 32, "allreduce", threads=2),
            mine("allreduce, 1,024 on 2 threads", 1024, "allreduce",
                 threads=2)],
        [("yield, 2 ranks", None, 21.6, False), ("8 bytes", None, 0.10, False),
         ("1 MiB", copy, 1.1, False),
         ("allreduce, 32 on 2 threads", None, 2.6, False),
         ("allreduce, 1,024 on 2 threads", None, 317, False)],
        note="Messages: one way, receives with both wildcards. The bars are "
             "0.8 of Argobots' 27 ns, and half of AMPI's 0.20, 5.2 and 634 us "
             "(figures of another day on this machine, not of this run).",
        tables=[figure_table], prepare=compile_all)


SIZES = {"8": "8 bytes", str(256 * KIB): "256 KiB", str(4096 * KIB): "4 MiB"}


def remote_case(mpi):
    """Between two processes, beside the MPI under it."""
    commands, bars = [], []
    for size, words in SIZES.items():
        what = "far" if size == "8" else "stream"
        unit = "us" if what == "far" else "GB/s"
        bare = f"{MPIS[mpi]}, {words}"
        commands.append(Figure(bare, [
            *LAUNCHERS[mpi], "-n", "2", program("vrank_mpi", mpi), what, size],
            unit, mpi))
        for v in (2, 8):
            label = f"poise, {v} ranks, {words}"
            argv, env = ranks(v, program("vrank_mpi", "poise"), what, size,
                              mpi=mpi, processes=2)
            commands.append(Figure(label, argv, unit, f"poise {mpi}", env))
            bars.append((label, bare, 0.95, True) if what == "stream" else
                        (label, bare, 1.5 if v == 2 else 2.0, False))
    return Case(f"vrank-{mpi}",
                f"Virtual ranks of two processes over {MPIS[mpi]}", [],
                commands, bars,
                note="One way, receives with both wildcards; 16 messages at a "
                     "time for GB/s.",
                tables=[figure_table], prepare=compile_all)


# ---- memory ---------------------------------------------------------------------

# Where memory groups are made, and what a group says of its peak: version 1 of
# the kernel's interface, and 2.
GROUPS = (("/sys/fs/cgroup/memory", "memory.max_usage_in_bytes"),
          ("/sys/fs/cgroup", "memory.peak"))


def memory_group():
    """(folder for a group of our own, name of its peak), or None."""
    for parent, peak in GROUPS:
        folder = os.path.join(parent, f"poise-bench-{os.getpid()}")
        try:
            os.mkdir(folder)
        except OSError:
            continue
        there = os.path.exists(os.path.join(folder, peak))
        os.rmdir(folder)
        if there:
            return folder, peak
    return None


class Group(Figure):
    """KiB that a command takes in a memory group of its own at the most, the
    kernel's page tables for it included."""

    def __init__(self, label, argv, group, env=None):
        super().__init__(label, argv, "KiB", "poise" if group else
                         "memory cgroup", env=env)
        if group:
            folder, peak = group
            self.shell = (
                f"mkdir {folder} && sh -c 'echo $$ >{folder}/cgroup.procs && "
                f"exec {shlex.join(argv)}' >/dev/null; "
                f"code=$?; expr $(cat {folder}/{peak}) / 1024; "
                f"rmdir {folder}; exit $code")

    def text(self):
        shell, self.shell = self.shell, None
        try:
            return super().text() + "   # in a memory cgroup of its own"
        finally:
            self.shell = shell


# Program -> its words, ranks, how often its constants are read.
MEMORY = {"a small program": ("vrank_mpi", ["memory"], 1024),
          "a program of 50 MB, a tenth read": ("vrank_big", ["10"], 256),
          "a program of 50 MB, all read": ("vrank_big", ["100"], 256)}


def memory_label(name, count, grouped):
    return f"{name}, {count:,} rank{'s' if count > 1 else ''}" + \
        (", cgroup" if grouped else "")


def memory_table(_, results, markdown):
    rows = []
    for name, (_, _, count) in MEMORY.items():
        row = [f"{name}, {count:,} ranks"]
        for grouped in (False, True):
            one = results[memory_label(name, 1, grouped)].median()
            all_ = results[memory_label(name, count, grouped)].median()
            each = None if one is None or all_ is None else \
                (all_ - one) / (count - 1)
            row += [digits(each), "not measured" if each is None
                    else "met" if each <= 100 else "MISSED"]
        rows.append(row)
    return table(["KiB for each rank", "pages", "at most 100",
                  "peak of its cgroup", "at most 100"], rows, markdown)


def memory_case():
    commands = []
    group = memory_group()
    for name, (prog, words, count) in MEMORY.items():
        for n in (1, count):
            argv, env = ranks(n, program(prog, "poise"), *words)
            commands.append(Figure(memory_label(name, n, False), argv, "KiB",
                                   env=env))
            commands.append(Group(memory_label(name, n, True), argv, group,
                                  env))
    return Case("vrank-memory", "Memory of virtual ranks", [], commands,
                tables=[figure_table, memory_table], prepare=compile_all,
                note="Pages: what a process has to itself (smaps_rollup), "
                     "after all ranks have met; data of their own they have "
                     "none. The peak of a memory cgroup has the kernel's page "
                     "tables in it: 8 bytes for each page of 4 KiB that a "
                     "rank reads, 100 KiB where all of 50 MB are read.")


# ---- overdecomposition --------------------------------------------------------------

PROCESSES = 2
PER_PROCESS = (1, 2, 4, 8, 16)
# Latency in ms -> computation in an iteration, in parts of it, and iterations.
SOR = {1: ((2 / 3, 2, 6), 60), 3.5: ((2,), 60), 18: ((2,), 15)}
# What an iteration waits for -> how often all agree, and options.
WAITS = {"neighbours": (0, []),
         "neighbours, by priority": (0, ["--policy", "priority"]),
         "allreduce": (1, []),
         "allreduce, by priority": (1, ["--policy", "priority"])}


def sor_ms(output, _):
    return float(re.search(r"ranks: ([0-9.]+) ms", output)[1])


def sor(v, n, iterations, every, *options):
    """SOR with `v` virtual ranks in each of the processes."""
    return ranks(v * PROCESSES, program("sor", "poise"), str(n),
                 str(iterations), str(every), mpi="ompi", processes=PROCESSES,
                 options=options)


def sor_size(ms, folder):
    """An edge of the plate with which an iteration takes so long."""
    edge = 2000
    for _ in range(3):  # points cost more outside of the cache
        argv, env = sor(1, edge, max(10, int(40 * (800 / edge)**2)), 0)
        took = min(sor_ms(out + err, 0) for _, _, _, out, err, _ in (
            run_once(Command("", argv, env=env), folder) for _ in range(3)))
        edge = int(edge * math.sqrt(ms / took))
    return edge


def sor_label(share, kind, v):
    return f"{share:.2g}d, {kind}, {v}"


def sor_model(delay, compute, v, kind):
    """The time of an iteration: an allreduce is one more latency, for all."""
    more = delay * WAITS[kind][0]
    return more + max(compute, 2 * delay + compute / v)


def sor_prepare(delay, shares, iterations):
    def prepare(case, folder):
        compile_all(folder)
        case.edges = {}
        for share in shares:
            edge = case.edges[share] = sor_size(share * delay, folder)
            runs = [(kind, v) for kind in WAITS for v in PER_PROCESS]
            for kind, v in [("alone", 1)] + runs:
                every, options = WAITS.get(kind, (0, []))
                if kind != "alone":
                    options = [*options, "--delay", f"{delay}ms"]
                argv, env = sor(v, edge, iterations, every, *options)
                case.commands.append(Figure(sor_label(share, kind, v), argv,
                                            "ms", "poise ompi", env, sor_ms))
    return prepare


def sor_rows(case, results):
    """(share, kind, v, result, compute, gain, model's gain)"""
    rows = []
    for share in case.edges:
        alone = results[sor_label(share, "alone", 1)].median()
        for kind in WAITS:
            base = results[sor_label(share, kind, 1)].median()
            for v in PER_PROCESS:
                result = results[sor_label(share, kind, v)]
                if not (alone and base and result.seconds):
                    continue
                model = sor_model(case.delay, alone, 1, kind) / \
                    sor_model(case.delay, alone, v, kind)
                rows.append((share, kind, v, result, alone,
                             base / result.median(), model))
    return rows


def sor_table(case, results, markdown):
    rows = []
    for share, kind, v, result, alone, gain, model in sor_rows(case, results):
        rows.append([f"{case.edges[share]:,}, {kind}, {v}",
                     digits(result.median()),
                     f"{digits(min(result.seconds))}-"
                     f"{digits(max(result.seconds))}",
                     digits(sor_model(case.delay, alone, v, kind)),
                     f"{gain:.2f}", f"{model:.2f}", f"{gain / model:.2f}",
                     "met" if gain / model >= 0.9 else "MISSED"])
    heads = ["edge, waits for, ranks per process", "ms", "range", "model",
             "gain", "model", "of it", "at least 0.9"]
    compute = [[f"{case.edges[share]:,}",
                digits(results[sor_label(share, "alone", 1)].median())]
               for share in case.edges]
    return table(["edge", "C in ms"], compute, markdown) + "\n" + \
        table(heads, rows, markdown)


def sor_summary(case, results, markdown):
    """What is won, and in brackets what the model says, for each number."""
    rows = []
    found = sor_rows(case, results)
    for share in case.edges:
        for kind in WAITS:
            mine = {v: (gain, model) for s, k, v, _, _, gain, model in found
                    if s == share and k == kind}
            if not mine:
                continue
            alone = results[sor_label(share, "alone", 1)].median()
            least = min(gain / model for gain, model in mine.values())
            best = max(mine, key=lambda v: mine[v][0])
            rows.append([f"C = {alone / case.delay:.2g} d, {kind}"] + [
                "{:.2f} ({:.2f})".format(*mine[v]) if v in mine else "-"
                for v in PER_PROCESS[1:]] + [
                    f"{mine[best][0] / mine[best][1]:.2f}", f"{least:.2f}"])
    heads = ["times faster, and by the model"] + [
        f"{v} ranks" for v in PER_PROCESS[1:]] + [
            "best: of the model", "worst: of it"]
    return table(heads, rows, markdown)


def sor_case(delay):
    shares, iterations = SOR[delay]
    case = Case(f"vrank-sor-{delay}",
                f"SOR, {PROCESSES} processes, {delay} ms of emulated latency",
                [], [], tables=[sor_summary, sor_table],
                note="Time of an iteration, and how many times faster than "
                     "with one rank per process. Model: (2d+C) / "
                     "max(C, 2d+C/v); with an allreduce in each iteration "
                     "another d above and below. C is the time without "
                     "latency, one rank per process.")
    case.delay = delay
    prepare = sor_prepare(delay, shares, iterations)
    case.prepare = lambda folder: prepare(case, folder)
    case.svg = sor_svg
    return case


def sor_bare_case():
    """Nothing to hide: what it costs to have more ranks than processors."""
    edge, iterations = "3000", "40"
    bare = "Open MPI, 2 ranks"
    commands = [Figure(bare, [*LAUNCHERS["ompi"], "-n", str(PROCESSES),
                              program("sor", "ompi"), edge, iterations],
                       "ms", "ompi", take=sor_ms)]
    for v in PER_PROCESS:
        argv, env = sor(v, edge, iterations, 1)
        commands.append(Figure(f"poise, {v * PROCESSES} ranks", argv, "ms",
                               "poise ompi", env, sor_ms))
    return Case("vrank-sor-0", "SOR of 3,000 x 3,000, no latency", [],
                commands, [("poise, 4 ranks", "poise, 2 ranks", 1.03, False),
                           ("poise, 4 ranks", bare, 1.03, False)],
                tables=[figure_table], prepare=compile_all)


# ---- plots ------------------------------------------------------------------------

WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 360, 260, 44, 40, 28
COLOURS = ("#1f77b4", "#d62728", "#2ca02c")
MOST = 2.1


def svg_x(v):
    span = math.log2(PER_PROCESS[-1])
    return LEFT + math.log2(v) / span * (WIDTH - LEFT - 20)


def svg_y(gain):
    return TOP + (MOST - gain) / (MOST - 0.8) * (HEIGHT - TOP - BOTTOM)


def svg_axes(title):
    parts = [f'<text x="{LEFT}" y="16" font-weight="bold">{title}</text>']
    for gain in (1, 1.25, 1.5, 1.75, 2):
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - 20}" y1="{svg_y(gain)}" '
                     f'y2="{svg_y(gain)}" stroke="#ddd"/><text x="{LEFT - 6}" '
                     f'y="{svg_y(gain) + 4}" text-anchor="end">{gain}</text>')
    for v in PER_PROCESS:
        parts.append(f'<text x="{svg_x(v)}" y="{HEIGHT - BOTTOM + 16}" '
                     f'text-anchor="middle">{v}</text>')
    parts.append(f'<text x="{(LEFT + WIDTH) / 2}" y="{HEIGHT - 6}" '
                 'text-anchor="middle">ranks per process</text>')
    return parts


def svg_lines(points, colour):
    """`points`: (v, gain, least, greatest, model)."""
    parts = []
    for index, dash in ((1, ""), (4, ' stroke-dasharray="4 3"')):
        line = " ".join(f"{svg_x(p[0]):.1f},{svg_y(p[index]):.1f}"
                        for p in points)
        parts.append(f'<polyline points="{line}" fill="none" '
                     f'stroke="{colour}"{dash}/>')
    for v, gain, least, most, _ in points:
        x = f"{svg_x(v):.1f}"
        parts.append(f'<line x1="{x}" x2="{x}" y1="{svg_y(least):.1f}" '
                     f'y2="{svg_y(most):.1f}" stroke="{colour}"/>'
                     f'<circle cx="{x}" cy="{svg_y(gain):.1f}" r="3" '
                     f'fill="{colour}"/>')
    return parts


def sor_svg(case, results):
    """The gain over ranks per process, measured and by the model (dashed)."""
    rows = sor_rows(case, results)
    parts = []
    for place, kind in enumerate(WAITS):
        parts.append(f'<g transform="translate({place * WIDTH} 0)">')
        parts += svg_axes(f"d = {case.delay} ms: {kind}")
        for colour, share in zip(COLOURS, case.edges):
            mine = [r for r in rows if r[0] == share and r[1] == kind]
            if not mine:
                continue
            base = mine[0][3].median()
            parts += svg_lines([
                (v, gain, base / max(result.seconds),
                 base / min(result.seconds), model)
                for _, _, v, result, _, gain, model in mine], colour)
            y = TOP + 8 + 14 * list(case.edges).index(share)
            ratio = mine[0][4] / case.delay
            parts.append(f'<text x="{LEFT + 8}" y="{y}" fill="{colour}">'
                         f'C = {ratio:.2g} d</text>')
        parts.append("</g>")
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{len(WAITS) * WIDTH}" '
            f'height="{HEIGHT}" font-family="sans-serif" font-size="11">'
            f'<rect width="100%" height="100%" fill="white"/>'
            + "\n".join(parts) + "</svg>\n")


def cases():
    return [local_case(), remote_case("ompi"), remote_case("mpich"),
            memory_case(), sor_bare_case()] + [sor_case(d) for d in SOR]
