"""The cases of bench/run that search graphs: `poise bfs` against its peers,
against a plain queue, and one optimisation after the other.

Runs of a case are interleaved, --repeat times, and medians are given with the
least and the greatest. Peers (--peer NAME=PATH): gapbs (GAP's bfs), riken
(`runnable` of RIKEN-RCCS/Graph500-BFS), reference (graph500_reference_bfs of
Graph500's version 3), replicated (graph500_mpi_replicated of version 2).
igraph is build/bench/bfs_igraph, which is built where its library is.

Edges are counted as Graph500 does, duplicates and loops too, for all: GAP and
igraph tell seconds only, which are divided into the edges that Poise counts in
the same graph.
"""

import argparse
import json
import os
import random
import re
import shlex
import shutil
import statistics
import subprocess
import sys

import plot

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
POISE = os.path.join(ROOT, "build", "poise")
IGRAPH = os.path.join(ROOT, "build", "bench", "bfs_igraph")
QUEUE = os.path.join(ROOT, "build", "bench", "bfs_queue")
PACKAGE = re.compile(r"(?:^|[,|]\s*)([a-z0-9][^\s,|:(]*)")
EXCHANGES = ["private", "leader", "shared-in", "shared-all", "parallel"]


class Run:
    """A row of a table; `read` makes its figures of what was printed."""

    def __init__(self, label, argv, read, env=None, peer=None):
        self.label, self.argv, self.read = label, argv, read
        self.env, self.peer = env or {}, peer
        self.got, self.problem = [], None

    def text(self):
        words = [f"{k}={shlex.quote(v)}" for k, v in self.env.items()]
        return " ".join(words + [shlex.quote(os.path.basename(a) if "/" in a
                                             else a) for a in self.argv])

    def median(self, key):
        values = [got[key] for got in self.got if got.get(key) is not None]
        return statistics.median(values) if values else None

    def spread(self, key):
        values = [got[key] for got in self.got if got.get(key) is not None]
        return (min(values), max(values)) if values else None


# Switches: parents by inner numbers, and frontiers always sent as bitmaps.
INNER = "--ablation=labels=no"
BITMAPS = "--ablation=sparse=no"


def exchanged(how):
    return f"--ablation=exchange={how}"


def mpirun(ranks, *argv):
    return ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe",
            "--bind-to", "none", "-n", str(ranks), *argv]


# ---- what programs print ----------------------------------------------------

def read_poise(output):
    said = json.loads(output[output.index("{"):])
    levels = said.get("levels", [])
    runs = len(said["runs"])
    steps = max(sum(level["bottom_up"] for level in levels), 1)

    def total(key):
        return sum(level[key] * level["searches"] for level in levels)

    def total_up(key):
        return sum(level["bottom_up_" + key] * level["bottom_up"]
                   for level in levels if level["bottom_up"])
    return {
        "ms": 1e3 * said["mean_time"],
        "edges": said["mean_nedge"],
        "build": said["construction_time"],
        "exchange": 1e3 * total("exchange_seconds") / runs,
        "stall": 1e3 * total("stall_seconds") / runs,
        "up": 1e3 * total_up("seconds") / runs,
        "up_share": 100 * total_up("exchange_seconds") / runs /
                    said["mean_time"],
        "up_exchange": 1e3 * total_up("exchange_seconds") / steps,
        "up_stall": 1e3 * total_up("stall_seconds") / steps,
        "up_work": 1e3 * (total_up("seconds") - total_up("exchange_seconds") -
                          total_up("stall_seconds")) / runs,
        "bytes": total("bytes_sent") / runs,
        "up_bytes": total_up("bytes_sent") / steps,
        "models": said.get("models_not_measured", []),
    }


def read_gapbs(output):
    return {"ms": 1e3 * float(re.search(r"Average Time:\s+([0-9.e-]+)",
                                        output)[1])}


def read_graph500(output):
    def figure(name):
        found = re.search(rf"^(?:bfs +)?{name}:\s+(?:! +)?([0-9.e+-]+)",
                          output, re.M)
        return float(found[1]) if found else None
    teps = figure("harmonic_mean_TEPS") or 0
    return {"ms": 1e3 * figure("mean_time"), "teps": teps,
            "build": figure("construction_time")}


def read_seconds(output):
    """igraph's and the queue's: one number."""
    return {"ms": 1e3 * float(output.split()[0])}


def read_load(output):
    said = json.loads(output[output.index("{"):])
    return {"ms": 1e3 * said["read_seconds"]}


def read_gapbs_load(output):
    return {"ms": 1e3 * float(re.search(r"Read Time:\s*([\d.]+)", output)[1])}


# ---- the cases --------------------------------------------------------------

def poise(scale, *words, ranks=0, threads=1, topology=None, label=None):
    argv = [POISE, "bfs", "--scale", str(scale), "--no-validate", "--json",
            "--levels", "--no-progress", "-j", str(threads), *words]
    env = {"POISE_TOPOLOGY": topology} if topology else {}
    return Run(label or "poise bfs", mpirun(ranks, *argv) if ranks else argv,
               read_poise, env)


def converted(*words):
    subprocess.run([POISE, "bfs", "convert", *words], check=True,
                   stdout=subprocess.DEVNULL)


def made(options, name, make):
    """The path of a file that `make(path)` writes unless it is there."""
    path = os.path.join(options.dir, name)
    if not os.path.exists(path):
        make(path)
    return path


def kronecker(options, suffix):
    return made(options, f"s{options.scale}.{suffix}",
                lambda path: converted("--scale", str(options.scale), path))


def grid_edges(side=1000):
    for y in range(side):
        for x in range(side):
            at = y * side + x
            if x + 1 < side:
                yield at, at + 1
            if y + 1 < side:
                yield at, at + side


def path_edges(numbers):
    return zip(numbers, numbers[1:])


def package_edges():
    """Who depends on whom in Debian's archive, as this machine knows it."""
    text = subprocess.run(["apt-cache", "dumpavail"], check=True,
                          capture_output=True, text=True).stdout
    numbers, name = {}, None
    for line in text.splitlines():
        key, _, value = line.partition(": ")
        if key == "Package":
            name = numbers.setdefault(value.strip(), len(numbers))
        elif key in ("Depends", "Pre-Depends"):
            for other in PACKAGE.findall(value):
                yield name, numbers.setdefault(other, len(numbers))


def shape(options, name, edges):
    """A graph of GAP's format, every edge both ways."""
    def make(path):
        text = path + ".txt"
        with open(text, "w", encoding="ascii") as file:
            file.writelines(f"{u} {v}\n" for u, v in edges())
        converted("--undirected", text, path)
        os.remove(text)
    return made(options, f"{name}.sg", make)


def peers_case(options):
    scale = options.scale
    graph = kronecker(options, "sg")
    peers = options.peers
    two = {"OMP_NUM_THREADS": "2"}
    return [
        poise(scale, INNER, threads=2,
              label="**poise bfs --no-labels**"),
        poise(scale, threads=2, label="**poise bfs**"),
        poise(scale, INNER, ranks=2,
              label="poise bfs --no-labels, 2 ranks"),
        poise(scale, ranks=2, label="poise bfs, 2 ranks"),
        Run("GAP", [peers.get("gapbs", ""), "-f", graph, "-n", "64"],
            read_gapbs, two, "gapbs"),
        Run("RIKEN", mpirun(1, peers.get("riken", ""), str(scale), "-A", "-C",
                            "-v", "1", "-n", "64"), read_graph500, two,
            "riken"),
        Run("igraph, 4 roots", [IGRAPH, graph, "4"], read_seconds,
            peer="igraph"),
    ]


def reference_case(options):
    peers, scale = options.peers, options.scale
    skip = {"SKIP_VALIDATION": "1"}
    return [
        poise(scale, ranks=2, label="**poise bfs, 2 ranks**"),
        Run("Graph500 v3 reference, 2 ranks",
            mpirun(2, peers.get("reference", ""), str(scale), "16"),
            read_graph500, skip, "reference"),
        Run("Graph500 v2 mpi_replicated, 2 ranks",
            mpirun(2, peers.get("replicated", ""), str(scale), "16"),
            read_graph500, {**skip, "OMP_NUM_THREADS": "1"}, "replicated"),
    ]


def node_counts(options, default):
    return [int(word) for word in (options.nodes or default).split(",")]


def laid_out(options, nodes, each):
    """A made-up machine: nodes of so many domains, a network of that latency,
    and nothing between processes of a node."""
    late = options.latency
    return f"1x{nodes}x{each}:0,0,{late},{late}"


def ablation_case(options):
    """Figure 9: each row has all that those above it have."""
    rows = []
    fine = ["--ablation=granularity=64", BITMAPS]
    for nodes in node_counts(options, "2,4"):
        def row(label, exchange, *words, nodes=nodes, each=2, threads=1):
            rows.append(poise(
                options.scale, exchanged(exchange), "--roots=8", *words,
                ranks=nodes * each, threads=threads,
                topology=laid_out(options, nodes, each),
                label=f"{nodes} nodes: {label}"))
        row("a process a node, not bound, private queues", "private",
            *fine, "--map=none", each=1, threads=2)
        row("a process a domain, bound", "private", *fine)
        row("... gather, leaders, broadcast", "leader", *fine)
        row("+ share in_queue", "shared-in", *fine)
        row("+ share all", "shared-all", *fine)
        row("+ parallel allgather", "parallel", *fine)
        row("+ granularity 256", "parallel", "--ablation=granularity=256",
            BITMAPS)
        row("+ granularity by itself", "parallel", BITMAPS)
        row("+ positions of thin frontiers", "parallel")
    return rows


def weak_case(options):
    """Figures 12 to 15: a node more is as much graph more."""
    rows = []
    for nodes in node_counts(options, "1,2,4,8"):
        scale = options.scale + nodes.bit_length() - 1
        rows.append(poise(
            scale, exchanged("private"), "--roots=8", BITMAPS,
            "--map=none", ranks=nodes, threads=2,
            topology=laid_out(options, nodes, 1),
            label=f"{nodes} nodes, scale {scale}, one process each"))
        for exchange in EXCHANGES + ["parallel, positions"]:
            way, _, sparse = exchange.partition(",")
            rows.append(poise(
                scale, exchanged(way), "--roots=8",
                *([] if sparse else [BITMAPS]), ranks=2 * nodes,
                topology=laid_out(options, nodes, 2),
                label=f"{nodes} nodes, scale {scale}, {exchange}"))
    return rows


def machine(nodes, sockets, latency):
    """That of the paper, roughly: eight sockets a node, two ports."""
    return (f"--model=nodes={nodes},sockets={sockets},latency={latency},"
            "bandwidth=6G,stream=2G,copy=8G")


def model_case(options):
    """Figures 4 and 12 to 15 from the model, of one search measured here; the
    rows are made once that is done."""
    words = [machine(nodes, 8, "2us")
             for nodes in node_counts(options, "1,2,4,8,16")]
    words += [machine(2, each, "2us") for each in (1, 2, 4, 8)]
    return [poise(options.scale, "--roots=16", *words, label="measured here")]


GRANULARITIES = (64, 128, 256, 512, 1024, 2048, 4096)


def granularity_case(options):
    """Figure 16."""
    rows = [poise(options.scale, INNER, threads=2, label="by itself")]
    for size in GRANULARITIES:
        rows.append(poise(options.scale, INNER,
                          f"--ablation=granularity={size}", threads=2,
                          label=str(size)))
    return rows


def granularity_nodes_case(options):
    """Figure 16, where it was measured: on nodes, with parallel allgathers."""
    rows = []
    for nodes in node_counts(options, "2,4"):
        for size in GRANULARITIES + (0,):
            rows.append(poise(
                options.scale, exchanged("parallel"), "--roots=8",
                BITMAPS, *([f"--ablation=granularity={size}"] if size else []),
                ranks=2 * nodes, topology=laid_out(options, nodes, 2),
                label=f"{nodes} nodes: {size or 'by itself'}"))
    return rows


def processes_case(options):
    """Figure 4: how many processes of a node talk to another node."""
    rows = []
    for each in (1, 2, 4):
        for exchange in ("shared-all", "parallel"):
            rows.append(poise(
                options.scale, exchanged(exchange), "--roots=8",
                "--method=bottom-up", ranks=2 * each,
                topology=laid_out(options, 2, each),
                label=f"2 nodes of {each}, {exchange}"))
    return rows


def map_case(options):
    """Figure 10: how processes are laid on the domains of this machine."""
    cores = os.cpu_count()
    rows = [poise(options.scale, f"--map={way}", threads=cores,
                  label=f"1 process, {way}") for way in ("none", "interleave")]
    each = 2
    while each <= cores:
        for way in ("none", "domain"):
            rows.append(poise(options.scale, f"--map={way}", ranks=each,
                              threads=cores // each,
                              label=f"{each} processes, {way}"))
        each *= 2
    return rows


def frontier_case(options):
    """All levels bottom-up: the times of a level are means over searches, of
    which some may go down where others go up."""
    return [poise(options.scale, exchanged(exchange), "--roots=8",
                  INNER, "--method=bottom-up", ranks=2, label=exchange)
            for exchange in EXCHANGES]


def busy_case(options):
    return [poise(options.scale, INNER, threads=threads,
                  label=f"{threads} threads" if threads > 1 else "1 thread")
            for threads in (1, 2)]


def thin_case(options):
    """Orders, and kernels that can be switched off."""
    rows = [poise(options.scale, INNER, threads=2, label="all on")]
    for word in ("--ablation=simd=no", "--ablation=first=no",
                 "--ablation=fuse=no", "--order=keep",
                 "--method=top-down", "--method=bottom-up"):
        rows.append(poise(options.scale, INNER, word, "--roots=8",
                          threads=2, label=word))
    return rows


def on_file(graph, label, *words, roots=64):
    return Run(label, [POISE, "bfs", graph, f"--roots={roots}",
                       "--no-validate", "--json", "--no-progress", "-j", "2",
                       *words], read_poise)


def shapes_case(options):
    """Graphs that are not skewed, and one that people have."""
    gapbs = options.peers.get("gapbs", "")
    rows = []
    for name, edges in (("grid", grid_edges), ("packages", package_edges)):
        graph = shape(options, name, edges)
        rows += [
            on_file(graph, f"**{name}: poise bfs --no-labels**",
                    INNER),
            on_file(graph, f"{name}: poise bfs"),
            Run(f"{name}: GAP", [gapbs, "-f", graph, "-n", "64"], read_gapbs,
                {"OMP_NUM_THREADS": "2"}, "gapbs")]
    return rows


def path_case(options):
    """The highest diameter: each level is one vertex."""
    numbers = list(range(1000000))
    shuffled = numbers[:]
    random.Random(1).shuffle(shuffled)
    rows = []
    for name, order in (("path", numbers), ("shuffled", shuffled)):
        graph = shape(options, name, lambda order=order: path_edges(order))
        rows += [on_file(graph, f"**{name}: poise bfs --no-labels**",
                         INNER, roots=4),
                 Run(f"{name}: a plain queue", [QUEUE, graph, "4"],
                     read_seconds)]
    return rows


FORMATS = {
    "edge list (.el)": "el",
    "edge list, gzip": "el.gz",
    "Matrix Market (.mtx)": "mtx",
    "METIS (.graph)": "graph",
    "DIMACS (.gr)": "gr",
    "GAP (.sg)": "sg",
    "Poise (.pg)": "pg",
}


def packed(source, path):
    with open(path + ".part", "wb") as out:
        subprocess.run(["gzip", "-1", "-c", source], check=True, stdout=out)
    os.rename(path + ".part", path)


def bare(source, path):
    """GAP's reader knows no comments: the first two lines are left out."""
    with open(source, "rb") as file, open(path, "wb") as out:
        file.readline()
        file.readline()
        shutil.copyfileobj(file, out, 1 << 24)


def load_case(options):
    """The smallest graph is written: what is measured is the reading."""
    scratch = os.path.join(options.dir, "scratch.pg")
    edges = kronecker(options, "el")
    rows = []

    def add(label, path, threads):
        run = Run(f"{label}, {threads} thread{'s' * (threads > 1)}",
                  [POISE, "bfs", "convert", "--json", "--no-progress",
                   f"--threads={threads}", path, scratch], read_load)
        run.size = os.path.getsize(path)
        rows.append(run)
    for label, suffix in FORMATS.items():
        path = made(options, f"s{options.scale}.{suffix}",
                    lambda path: packed(edges, path)) \
            if suffix == "el.gz" else kronecker(options, suffix)
        add(label, path, 1)
        add(label, path, 2)
    plain = made(options, f"s{options.scale}.bare.el",
                 lambda path: bare(edges, path))
    rows.append(Run("GAP, edge list", [options.peers.get("gapbs", ""), "-f",
                                       plain, "-s", "-n", "1"],
                    read_gapbs_load, {"OMP_NUM_THREADS": "1"}, "gapbs"))
    rows[-1].size = os.path.getsize(plain)
    return rows


# Name -> (title, rows, scale unless told, columns: heading and key).
MS = [("ms a search", "ms"), ("least-greatest", "spread")]
PARTS = [("bytes a search", "bytes"), ("bytes a level bottom-up", "up_bytes"),
         ("its exchange, ms", "up_exchange"),
         ("wait before it, ms", "up_stall"),
         ("ms a search", "ms"), ("share of these exchanges", "up_share"),
         ("of all exchanges and waits", "share")]
CASES = {
    "bfs-peers": ("Searches against peers", peers_case, 20,
                  MS + [("GTEPS", "gteps"), ("over GAP", "over"),
                        ("construction, s", "build")]),
    "bfs-reference": ("Searches against the reference", reference_case, 18,
                      MS + [("GTEPS", "gteps"), ("over the first", "over")]),
    "bfs-ablation": ("Searches, one optimisation after the other",
                     ablation_case, 16, PARTS),
    "bfs-weak": ("Searches, weak scaling", weak_case, 14, PARTS),
    "bfs-model": ("Searches of larger machines, by the model: not measured",
                  model_case, 18, []),
    "bfs-processes": ("Searches, processes of a node", processes_case, 18,
                      PARTS),
    "bfs-map": ("Searches, processes on domains", map_case, 20, MS),
    "bfs-granularity": ("Searches, granularity of the summary",
                        granularity_case, 22, MS + [("bottom-up, ms", "up")]),
    "bfs-granularity-nodes": (
        "Searches, granularity of the summary between nodes",
        granularity_nodes_case, 20,
        [("bytes a level bottom-up", "up_bytes"),
         ("its exchange, ms", "up_exchange"),
         ("wait before it, ms", "up_stall"),
         ("computation bottom-up, ms a search", "up_work")]),
    "bfs-kernels": ("Searches, what each trick gives", thin_case, 20, MS),
    "bfs-frontier": ("Searches, the frontier between 2 ranks of a node",
                     frontier_case, 24,
                     MS + [("exchange of a level, ms", "up_exchange"),
                           ("wait before it, ms", "up_stall"),
                           ("bytes a search", "bytes")]),
    "bfs-busy": ("Searches beside a busy process on each core", busy_case, 20,
                 MS),
    "bfs-shapes": ("Searches of graphs that are not skewed", shapes_case, 0,
                   MS + [("over GAP", "above")]),
    "bfs-path": ("Searches of a path of 1,000,000 vertices", path_case, 0,
                 MS),
    "bfs-load": ("Reading graphs", load_case, 20,
                 MS + [("MB/s", "rate")]),
}


# ---- running ----------------------------------------------------------------

def start_busy():
    return [subprocess.Popen([sys.executable, "-c", "while True: pass"])
            for _ in range(os.cpu_count())]


def run_once(run):
    env = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1",
           "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "LC_ALL": "C", **run.env}
    done = subprocess.run(run.argv, env=env, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, check=False)
    if done.returncode:
        run.problem = f"exit code {done.returncode}"
        return
    try:
        run.got.append(run.read(done.stdout + done.stderr))
    except (ValueError, TypeError, KeyError, ArithmeticError) as error:
        run.problem = f"not understood: {error}"


def run_rows(options, name, rows):
    for run in rows:
        if run.peer == "igraph":
            there = os.path.exists(IGRAPH)
        else:
            there = not run.peer or run.peer in options.peers
        run.problem = None if there else "not available"
    busy = start_busy() if name == "bfs-busy" else []
    try:
        for _ in range(options.repeat):
            for run in rows:
                if not run.problem:
                    run_once(run)
    finally:
        for process in busy:
            process.kill()
            process.wait()


# ---- tables -----------------------------------------------------------------

def ratio_of(rows, run, key):
    """`over`: GAP's time (or the first's) by this one's; `above`: by that of
    the next row of GAP's below it."""
    base = {row.label: row for row in rows}.get("GAP", rows[0])
    if key == "above":
        following = rows[rows.index(run) + 1:]
        base = next((row for row in following if row.peer == "gapbs"), None)
        if run.peer or not base:
            return "-"
    other = base.median("ms")
    return f"{other / run.median('ms'):.2f}" if other else "-"


def cell(rows, run, key):
    ms = run.median("ms")
    if key == "spread":
        least, greatest = run.spread("ms")
        return f"{least:.2f}-{greatest:.2f}"
    if key in ("over", "above"):
        return ratio_of(rows, run, key)
    if key == "gteps":
        return f"{rows[0].median('edges') / ms / 1e6:.2f}"
    if key == "rate":
        return f"{run.size / ms / 1e3:.0f}"
    if key == "share":
        wait = run.median("exchange") + run.median("stall")
        return f"{100 * wait / ms:.0f} %"
    value = run.median(key)
    if key == "up_share":
        return f"{value:.0f} %"
    if value is None:
        return "-"
    return f"{value:,.0f}" if "bytes" in key else f"{value:.3g}"


def model_tables(options, run):
    """Headings and cells of the machines that grow, and of two nodes with more
    and more processes."""
    models = run.got[-1]["models"]
    grow = len(node_counts(options, "1,2,4,8,16"))
    rows = []
    for model in models[:grow]:
        for way in model["exchanges"]:
            rows.append([
                f"{model['nodes']} nodes of {model['sockets']}, "
                f"{way['exchange']}",
                f"{1e3 * way['seconds']:.2f}",
                f"{100 * way['exchange_seconds'] / way['seconds']:.0f} %",
                f"{1e6 * way['bottom_up_exchange_seconds']:.0f}",
                f"{way['bottom_up_bytes'] / way['bottom_up_exchanges']:,.0f}",
                f"{way['TEPS'] / 1e9:.2f}"])
    yield ["model, not measured", "ms a search", "share of exchange",
           "us an exchange of bitmaps", "its bytes", "GTEPS"], rows
    rows = []
    for model in models[grow:]:
        for way in model["exchanges"]:
            if way["exchange"] not in ("shared-all", "parallel"):
                continue
            size = way["bottom_up_bytes"] / way["bottom_up_exchanges"]
            took = way["bottom_up_exchange_seconds"]
            rows.append([f"2 nodes of {model['sockets']}, {way['exchange']}",
                         f"{size / model['nodes']:,.0f}",
                         f"{size / model['nodes'] / took / 1e9:.2f}"])
    yield ["model, not measured", "bytes out of a node", "GB/s"], rows


def draw_model(options, run):
    """Figures 14 and 15, as the model has them."""
    shares, speeds = {}, {}
    for model in run.got[-1]["models"][:-4]:
        for way in model["exchanges"]:
            name = way["exchange"]
            share = 100 * way["exchange_seconds"] / way["seconds"]
            shares.setdefault(name, []).append((model["nodes"], share))
            speeds.setdefault(name, []).append((model["nodes"],
                                                way["TEPS"] / 1e9))
    folder = options.svg
    os.makedirs(folder, exist_ok=True)
    plot.chart(os.path.join(folder, "bfs-model-share.svg"),
               "Share of exchange, %, by the model: not measured", "nodes",
               "%", shares)
    plot.chart(os.path.join(folder, "bfs-model-speed.svg"),
               "Speed, the graph grows with the nodes, by the model: not "
               "measured", "nodes", "GTEPS", speeds)


def show_model(options, run, report, table):
    if not run.got:
        report.say(lambda md: run.problem or "no run")
        return
    for heads, cells in model_tables(options, run):
        report.say(lambda md, heads=heads, cells=cells: table(heads, cells,
                                                              md))
    if options.svg:
        draw_model(options, run)


def show(options, name, rows, report, table):
    title, _, _, columns = CASES[name]
    scale = f", scale {options.scale}" if options.scale else ""
    report.heading(f"{title}{scale}, {options.repeat} rounds")
    cells = [[run.label] + ([cell(rows, run, key) for _, key in columns]
                            if run.got else [run.problem or "no run"] +
                            [""] * (len(columns) - 1)) for run in rows]
    heads = [""] + [head for head, _ in columns]
    if name == "bfs-model":
        show_model(options, rows[0], report, table)
    else:
        report.say(lambda md: table(heads, cells, md))

    def commands(md):
        lines = [f"{run.label}: {run.text()}" for run in rows]
        if md:
            return "<details><summary>commands</summary>\n\n```\n" + \
                "\n".join(lines) + "\n```\n</details>\n"
        return "\n".join("  " + line for line in lines)
    report.say(commands)


# ---- for bench/run ----------------------------------------------------------

PEERS = ("gapbs", "riken", "reference", "replicated")


def add_options(parser):
    group = parser.add_argument_group("cases bfs-...")
    group.add_argument("--scale", type=int, help="instead of the case's own")
    group.add_argument("--nodes", metavar="N,...",
                       help="emulated nodes of bfs-ablation and bfs-weak, "
                            "modelled ones of bfs-model")
    group.add_argument("--latency", default="5ms", metavar="TIME",
                       help="of messages between emulated nodes [5ms]")
    group.add_argument("--rows", default="", metavar="REGEX",
                       help="only the rows with labels like this")


def run_case(name, args, peers, report, table):
    options = argparse.Namespace(**vars(args))
    options.peers = peers
    _, make, scale, _ = CASES[name]
    options.scale = args.scale if args.scale and scale else scale
    rows = [run for run in make(options)
            if re.search(options.rows, run.label)]
    run_rows(options, name, rows)
    show(options, name, rows, report, table)
