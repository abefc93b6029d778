"""Cases of bench/run on emulated networks: how exact the emulator is, and what
collectives and a relaxation cost over it. All of them want root."""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import plot
from measure import BUILD, POISE, ROOT

NORDIC = os.path.join(ROOT, "examples", "nordic.wan")
SIZES = [1, 64, 512, 1400, 4096, 16384, 65536, 262144, 1048576]


def built(name):
    return os.path.join(BUILD, "bench", name)


class Table:
    """What a case found: rows under headings, and words below them."""

    def __init__(self, title, headings, rows, note=""):
        self.title, self.headings = title, headings
        self.rows, self.note = rows, note


class Bed:
    """A testbed for as long as a with statement lasts."""

    def __init__(self, text):
        self.wan = [POISE, "wan", "--name", f"bench-{os.getpid()}"]
        self.text = text
        self.port = 9000

    def __enter__(self):
        with tempfile.NamedTemporaryFile("w", suffix=".wan") as file:
            file.write(self.text)
            file.flush()
            subprocess.run(self.wan + ["up", file.name], check=True)
        return self

    def __exit__(self, *error):
        subprocess.run(self.wan + ["down"], check=True)

    def start(self, host, *words):
        return subprocess.Popen(self.wan + ["exec", host, *words],
                                stdout=subprocess.PIPE, text=True)

    def serve(self, host, *words):
        """A server, once it has said that it is ready."""
        server = self.start(host, *words)
        server.stdout.readline()
        return server

    def mpi(self, flavour, ranks, *words, env=None, lateness=False):
        """`lateness`: however late the gateway is, the run is valid."""
        run = subprocess.run(
            self.wan + (["--max-lateness", "100000"] if lateness else []) +
            ["--mpi", flavour, "-n", str(ranks), "run", *words],
            capture_output=True, text=True, timeout=600, check=False,
            env=dict(os.environ, **(env or {})))
        if run.returncode:
            raise RuntimeError(f"{words}: {run.stderr.strip()[-400:]}")
        self.said = run.stdout
        return run.stdout + run.stderr

    def late_us(self):
        """Mean and worst lateness of the gateway, packets lost to queues."""
        run = subprocess.run(self.wan + ["--json", "status"], check=True,
                             capture_output=True, text=True)
        links = json.loads(run.stdout)["links"]
        packets = sum(link["packets"] for link in links) or 1
        return (sum(link["late_ns"] for link in links) / 1e3 / packets,
                max(link["late_most_ns"] for link in links) / 1e3,
                sum(link["dropped"] for link in links))


def stop(servers):
    for server in servers:
        server.kill()
        server.wait()
        server.stdout.close()


def pings(bed, pairs, seconds, sizes):
    """For each pair at once: {size: (median, least, p99 us, Mbit/s)}."""
    bed.port += 1  # the last server may still be ending
    port = str(bed.port)
    servers = [bed.serve(there, built("pingpong"), "serve", port)
               for here, there in pairs]
    clients = [bed.start(here, built("pingpong"), there, port, str(seconds),
                         *map(str, sizes)) for here, there in pairs]
    found = []
    for client in clients:
        lines = [line.split() for line in
                 client.communicate()[0].splitlines()]
        found.append({int(w[0]): tuple(map(float, w[1:5])) for w in lines})
    stop(servers)
    return found


# ---- the emulator ---------------------------------------------------------------

def precision(options):
    """Ping-pong of 64 bytes over latencies."""
    rows = []
    for ms in (0.1, 1, 5, 17.5):
        with Bed(f"site a 1\nsite b 1\nlink a b {ms}ms 1Gbit\n") as bed:
            us = pings(bed, [("a0", "b0")], options.seconds, [64])[0][64]
            late = bed.late_us()
        rows.append([f"{ms} ms", f"{us[0] / 1e3:.4f}",
                     f"{100 * (us[0] / (ms * 1e3) - 1):+.2f} %",
                     f"{us[1] / 1e3:.4f}", f"{us[2] / 1e3:.3f}",
                     f"{late[0]:.1f}", f"{late[1]:.0f}"])
    return [Table("One-way latency of 64 bytes", [
        "link", "median ms", "error", "least", "99 %",
        "gateway late, mean us", "worst us"], rows,
        "Half of the round trip over TCP, as the programs see it.")]


def sizes(options):
    """Latency and bandwidth over message sizes, on two links of the paper's
    topology."""
    tables, latency, rate = [], {}, {}
    links = {"Trondheim-Tromsø, 8.94 ms 5.57 Mbit/s": ("8.94ms 5.57Mbit", 8.94,
                                                      5.57),
             "1 ms 1 Gbit/s": ("1ms 1Gbit", 1, 1000)}
    for name, (words, ms, mbit) in links.items():
        with Bed(f"site a 1\nsite b 1\nlink a b {words} queue 4M\n") as bed:
            # A message must not take seconds.
            fit = [size for size in SIZES if size * 8e-6 / mbit < 0.5]
            found = pings(bed, [("a0", "b0")], options.seconds, fit)[0]
        rows = []
        for size, (median, _, p99, got) in found.items():
            wire = size + 52 * max(1, -(-size // 1448))
            ideal = ms + wire * 8 / mbit / 1e3
            rows.append([size, f"{median / 1e3:.3f}", f"{ideal:.3f}",
                         f"{p99 / 1e3:.3f}", f"{got:.3f}"])
        tables.append(Table(f"Ping-pong over message sizes, {name}",
                            ["bytes", "one-way ms", "latency + bytes / "
                             "bandwidth", "p99", "Mbit/s"], rows))
        latency[name] = [(s, v[0] / 1e3) for s, v in found.items()]
        rate[name] = [(s, v[3]) for s, v in found.items()]
    options.chart("wan-latency.svg", "Ping-pong: one-way latency",
                  "bytes", "ms", latency, (True, True))
    options.chart("wan-bandwidth.svg", "Ping-pong: bandwidth", "bytes",
                  "Mbit/s", rate, (True, True))
    return tables


def links(options):
    """Ping-pongs between 1 to 20 pairs of sites at once: 2 to 40 links."""
    rows, medians, worst = [], [], []
    for pairs in (1, 2, 5, 10, 20):
        names = [chr(ord("a") + i) for i in range(pairs)]
        text = "".join(f"site {n}p 1\nsite {n}q 1\n" for n in names)
        both = [(f"{n}p0", f"{n}q0") for n in names]
        with Bed(text + "default 3.555ms 8.6Mbit\n") as bed:
            found = [f[64] for f in pings(bed, both, options.seconds, [64])]
            late = bed.late_us()
        middle = [f[0] / 1e3 for f in found]
        rows.append([2 * pairs, f"{statistics.median(middle):.4f}",
                     f"{max(middle):.4f}",
                     f"{max(f[2] for f in found) / 1e3:.3f}",
                     f"{late[0]:.1f}", f"{late[1]:.0f}"])
        medians.append((2 * pairs, statistics.median(middle)))
        worst.append((2 * pairs, max(f[2] for f in found) / 1e3))
    options.chart("wan-links.svg", "Links at once, 3.555 ms each", "links",
                  "one-way ms", {"median": medians, "worst 99 %": worst})
    return [Table("Links at once (Aalborg-Odense, 3.555 ms one-way)", [
        "links", "median ms", "worst pair's median", "worst pair's p99",
        "gateway late, mean us", "worst us"], rows)]


def transfers(options):
    """iperf3 over limited links, and as much as a gateway carries."""
    rows = []
    for ms, words, mbit in ((1, "10Mbit", 10), (10, "100Mbit", 100),
                            (1, "500Mbit", 500), (0.1, "1500Mbit", 1500),
                            (0.1, "10Gbit", None)):
        with Bed(f"site a 1\nsite b 1\nlink a b {ms}ms {words} queue 8M\n") \
                as bed:
            server = bed.start("b0", "iperf3", "-s", "-1")
            time.sleep(0.3)
            client = bed.start("a0", "iperf3", "-J", "-t",
                               str(max(options.seconds, 3)), "-c", "b0")
            got = json.loads(client.communicate()[0])
            late = bed.late_us()
            stop([server])
        good = got["end"]["sum_received"]["bits_per_second"] / 1e6
        # 1,448 bytes of each packet of 1,500 are the program's.
        share = f"{100 * good * 1500 / 1448 / mbit:.1f} %" if mbit else "-"
        rows.append([f"{ms} ms, {words}", f"{good:.1f}", share,
                     got["end"]["sum_sent"].get("retransmits", "-"),
                     f"{late[0]:.1f}", f"{late[1]:.0f}", late[2]])
    return [Table("iperf3 (TCP, one stream) through one gateway", [
        "link", "Mbit/s", "of the line, with headers", "sent again",
        "gateway late, mean us", "worst us", "dropped"], rows)]


# Asked for: words of the link, packets, gap in us, bytes; and what should come
# of it: median and 99 % of the delay in ms, Mbit/s, lost, behind a later one.
FIDELITY = [
    ("1 ms", "1ms unlimited", 2000, 1000, 64, (1, 1), None, 0, 0),
    ("20 ms", "20ms unlimited", 2000, 1000, 64, (20, 20), None, 0, 0),
    ("20 ms, jitter in [0, 10 ms]", "20ms unlimited jitter 10ms order any",
     4000, 1000, 64, (25, 29.9), None, 0, None),
    ("20 ms, normal jitter of 2 ms",
     "20ms unlimited jitter 2ms distribution normal order any", 4000, 1000,
     64, (20, 24.65), None, 0, None),
    ("1 ms, 10 Mbit/s", "1ms 10Mbit queue 8M", 1000, 100, 1222, None, 10, 0,
     0),
    ("1 ms, 100 Mbit/s", "1ms 100Mbit queue 8M", 5000, 50, 1222, None, 100, 0,
     0),
    ("5 ms, 5 % lost", "5ms unlimited loss 5%", 5000, 500, 64, (5, 5), None,
     0.05, 0),
    ("5 ms, bursts of 4, 3.85 % lost", "5ms unlimited gemodel 1%,25%", 10000,
     300, 64, (5, 5), None, 0.0385, 0),
    ("5 ms, 10 % do not wait", "5ms unlimited reorder 10%", 4000, 1000, 64,
     (5, 5), None, 0, None),
]


def one_way(bed, words):
    """Send datagrams from a0 to b0: the receiver's figures."""
    bed.port += 1
    server = bed.serve("b0", built("oneway"), "serve", str(bed.port))
    bed.start("a0", built("oneway"), "b0", str(bed.port),
              *map(str, words)).communicate()
    line = server.communicate()[0]
    return [float(word) for word in line.split()]


def fidelity(options):
    """What was asked for, and what came of it, quiet and beside a load."""
    tables = []
    for name, load in (("quiet", 0), ("beside two processes a core that "
                                      "compute", 2 * (os.cpu_count() or 1))):
        busy = [subprocess.Popen(["sh", "-c", "while :; do :; done"])
                for _ in range(load)]
        rows = []
        try:
            for title, link, count, gap, size, wait, mbit, lost, behind in \
                    FIDELITY:
                with Bed("site a 1\nsite b 1\nseed 42\n"
                         f"link a -> b {link}\n"
                         "link b -> a 1ms unlimited\n") as bed:
                    got = one_way(bed, (count, gap, size))
                    status = json.loads(subprocess.run(
                        bed.wan + ["--json", "status"], check=True,
                        capture_output=True, text=True).stdout)
                way = next(one for one in status["links"]
                           if (one["from"], one["to"]) == ("a", "b"))
                share = 100 * way["late_ns"] / (way["delay_ns"] or 1)
                rows.append([
                    title,
                    "-" if not wait else f"{wait[0]:g} / {wait[1]:g}",
                    f"{got[5] / 1e3:.3f} / {got[6] / 1e3:.3f}",
                    "-" if not mbit else f"{mbit} : {got[8] / 1e6:.2f}",
                    f"{100 * lost:g} : {100 * got[1] / count:.2f}",
                    ("-" if behind is None else f"{100 * behind:g}") +
                    f" : {100 * got[2] / count:.2f}",
                    f"{way['late_p50_ns'] / 1e3:.0f} / "
                    f"{way['late_p99_ns'] / 1e3:.0f}",
                    f"{share:.2f} %" + (", invalid" if share > 10 else "")])
        finally:
            for process in busy:
                process.kill()
                process.wait()
        tables.append(Table(
            f"Asked for and measured, one-way datagrams, {name}",
            ["link", "asked: 50 / 99 % ms", "measured", "Mbit/s asked : is",
             "% lost asked : is", "% overtaken asked : is",
             "gateway late, 50 / 99 % us", "late, of the delay"], rows,
            "Hosts share a clock, so delays are one-way; they include waking "
            "up the receiver."))
    return tables


# ---- collectives over it ----------------------------------------------------------

def sites_file(folder, names):
    path = os.path.join(folder, "sites")
    with open(path, "w", encoding="ascii") as file:
        file.writelines(f"{name}* {name}\n" for name in names)
    os.chmod(folder, 0o755)
    return {"POISE_SITES": path}


def coll_rows(output):
    """Lines that coll_wan prints as 'NAME|CELL|CELL'."""
    return [line.split("|") for line in output.splitlines() if "|" in line]


def coll(text, names, ranks, words, flavours=("ompi",)):
    """The rows of coll_wan on a testbed, by MPI."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        env = sites_file(folder, names)
        for flavour in flavours:
            if not os.access(built(f"coll_wan_{flavour}"), os.X_OK):
                continue
            with Bed(text) as bed:
                found[flavour] = coll_rows(bed.mpi(
                    flavour, ranks, built(f"coll_wan_{flavour}"),
                    *map(str, words), env=env))
    return found


THREE = "site a {0}\nsite b {0}\nsite c {0}\ndefault 20ms 100Mbit\n"
# One host a site: each is a process of virtual ranks.
FAR = "site a 1\nsite b 1\nsite c 1\ndefault 20ms 100Mbit\n"
ONE = "site a 3\n"
WAYS = ["way", "median ms", "least", "worst", "one-way latencies"]


def allreduce(options):
    """Allreduces of 8 bytes on three sites, and on the paper's topology."""
    tables = []
    for title, text, names, ranks, ms in (
            ("three sites of two hosts, 20 ms one-way", THREE.format(2),
             "abc", 6, 20),
            ("three sites of two ranks on one host, 20 ms one-way",
             THREE.format(1), "abc", 6, 20),
            ("the Nordic topology, eight hosts on four sites",
             open(NORDIC, encoding="utf-8").read().replace(" 4\n", " 2\n"),
             ("aalborg", "odense", "tromso", "trondheim"), 8, 18.355)):
        for flavour, rows in coll(text, names, ranks,
                                  ["table", options.calls],
                                  ("ompi", "mpich")).items():
            rows = [row + [f"{float(row[1]) / ms:.3f}"] for row in rows]
            tables.append(Table(
                f"Allreduce of 8 bytes, {title}, {flavour}", WAYS, rows,
                f"The greatest one-way latency is {ms} ms."))
    return tables


def placements(options):
    """From every placement of six ranks on three sites."""
    found = coll(THREE.format(2), "abc", 6, ["placements", 7])
    return [Table("Allreduce of 8 bytes from every placement of six ranks on "
                  "three sites 20 ms apart, median ms of the slowest rank",
                  ["sites of ranks 0 to 5", "Open MPI", "site", "magpie"],
                  rows) for rows in found.values()]


def noise(options):
    """The noise-allreduce benchmark: 30 ms of computation, an allreduce."""
    found = coll(THREE.format(2), "abc", 6, ["noise", 60, 30, 40])
    return [Table("30 ms of computation and an allreduce, three sites 20 ms "
                  "apart", ["way", "ms an iteration", "faster than site",
                            "of the possible"], rows,
                  "The possible is (C + round trip) / C = 2.33. The paper's "
                  "2.4 includes a fault in one of its clusters. Computation "
                  "is sleep, since the ranks are more than the processors.")
            for rows in found.values()]


def replay(options):
    """Conditional allreduces of what a relaxation reduces (figures 4, 5)."""
    tables = []
    text = open(NORDIC, encoding="utf-8").read().replace(" 4\n", " 2\n")
    names = ("aalborg", "odense", "tromso", "trondheim")
    for data in ("heat", "tridiagonal", "random"):
        rows = coll(text, names, 8, ["replay", data, options.points, 5])
        rows = rows.get("ompi", [])
        shares = [row[1:] for row in rows if row[0] == "share"]
        lines = {}
        for row in rows:
            if row[0] == "time":
                lines.setdefault(row[1], []).append(
                    (float(row[2]), max(float(row[3]), 1e-3)))
        options.chart(f"coll-{data}.svg", f"Time until the truth is known: "
                      f"{data}", "iteration", "ms", lines, (False, True),
                      dots=True)
        tables.append(Table(
            f"How truths were found: {data}, Nordic topology, eight ranks",
            ["site", "calls", "own values", "prefetched", "waited",
             "median ms", "mean ms", "worst ms"], shares))
    return tables


def sor(options):
    """A relaxation over three sites with each method, and with all."""
    rows = []
    n, iterations = str(options.plate), "60"
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        program = os.path.join(folder, "sor_sites")
        subprocess.run(
            [POISE, "cc", "-O2", f"-I{BUILD}/include", "-o", program,
             os.path.join(ROOT, "examples", "sor_sites.c"), "-lm"],
            check=True)
        env = sites_file(folder, "abc")
        found = []
        for text, where in ((ONE, "one cluster"), (FAR, "three sites")):
            with Bed(text) as bed:
                for many in (3, 12):
                    for way in ("mpi", "tree", "if"):
                        out = bed.mpi("ompi", 3, POISE, "run", "-V",
                                      str(many), program, way, "heat", n,
                                      iterations, env=env)
                        ms = [float(line.split()[2])
                              for line in out.splitlines()
                              if "ms an iteration" in line]
                        found.append((where, many, way, ms[0]))
    base = found[0][3]
    names = {"mpi": "MPI's allreduce", "tree": "a tree for the sites",
             "if": "conditional"}
    for where, many, way, ms in found:
        rows.append([f"{where}, {many} virtual ranks, {names[way]}",
                     f"{ms:.2f}", f"{ms / base:.2f}"])
    return [Table(f"A relaxation of {n} by {n} points, three processes, sites "
                  "20 ms apart", ["", "ms an iteration",
                                  "of the first"], rows,
                  "Each iteration exchanges rows between neighbours twice, "
                  "which costs two crossings whatever the allreduce does.")]


# Clusters to tune for: as the paper's Blade and 4W, and sites that are not
# equally far from each other. A poor tree to begin with, and the default one.
# Links of 2 ms are long beside what the gateway is late by, and all of it takes
# some six minutes.
TUNED = [
    ("6 hosts of one rank, 2 ms", "site a 6 lan 2ms 50Mbit\n", 6, "binary"),
    ("4 hosts of two ranks, 2 ms", "site a 4 lan 2ms 50Mbit\n", 8, "flat"),
    ("three sites of two hosts, 1 ms inside, 3, 9 and 9 ms between",
     "site a 2 lan 1ms 50Mbit\nsite b 2 lan 1ms 50Mbit\n"
     "site c 2 lan 1ms 50Mbit\nlink a b 3ms 50Mbit\n"
     "link b c 9ms 50Mbit\nlink a c 9ms 50Mbit\n", 6, "binary"),
]
# Calls with each tree: of those that are only compared, and of those from which
# is learned.
TUNED_CALLS = {"measure": 5, "rule": 11, "analysis": 11}
# The other operations, of which cluster.
TUNED_MORE = "4 hosts of two ranks, 2 ms"
TUNED_OTHERS = ("broadcast", "reduce", "barrier", "allgather")


def tune_once(bed, ranks, tree, method, operation="allreduce"):
    """What poise tune says of both sizes, and how many seconds it took."""
    sizes = [] if operation == "barrier" else ["--size", "8", "--size", "4K"]
    start = time.monotonic()
    # How late the gateway was is a row of the table.
    bed.mpi("ompi", ranks, POISE, "tune", "--json", *sizes, "--operation",
            operation, "--method", method, "--iterations",
            str(TUNED_CALLS[method]), *(["--tree", tree] if tree else []),
            lateness=True)
    took = time.monotonic() - start
    print(f"{operation}, {method} from {tree or 'default'}: {took:.0f} s",
          file=sys.stderr)
    return json.loads(bed.said)["sizes"], took


def rule_ms(size):
    """Of the rule's tree, whether or not it is faster than the first one."""
    return size["steps"][-1]["call_ns"] / 1e6


def tune_selectors(bed, ranks, poor):
    """Rows: by which trees a cluster begins, and what each of the three
    selectors makes of it."""
    best, best_s = tune_once(bed, ranks, None, "measure")
    rule, rule_s = tune_once(bed, ranks, None, "rule")
    rows = []
    for tree in (poor, None):
        found, found_s = tune_once(bed, ranks, tree, "analysis")
        for i, size in enumerate(found):
            rows.append([
                tree or "default", size["bytes"],
                f"{size['first_ns'] / 1e6:.2f}",
                f"{rule_ms(rule[i]):.2f} / {rule_s / 2:.0f} s",
                f"{best[i]['best_ns'] / 1e6:.2f} / {best[i]['trials']} / "
                f"{best_s / 2:.0f} s",
                f"{size['best_ns'] / 1e6:.2f} / {size['trials']} / "
                f"{found_s / 2:.0f} s",
                f"{size['first_ns'] / size['best_ns']:.2f}",
                f"{size['best_ns'] / best[i]['best_ns']:.3f}"])
    return rows


def tune_others(bed, ranks, poor):
    rows = []
    for operation in TUNED_OTHERS:
        found, _ = tune_once(bed, ranks, poor, "analysis", operation)
        rows += [[operation, "-" if operation == "barrier" else size["bytes"],
                  f"{size['first_ns'] / 1e6:.2f}",
                  f"{size['best_ns'] / 1e6:.2f} / {size['trials']}",
                  f"{size['first_ns'] / size['best_ns']:.2f}"]
                 for size in found]
    return rows


def tune(options):
    """Trees by which a cluster begins, and by each of the three selectors."""
    tables = []
    for title, text, ranks, poor in TUNED:
        with Bed(text) as bed:
            rows = tune_selectors(bed, ranks, poor)
            others = (tune_others(bed, ranks, poor) if title == TUNED_MORE
                      else [])
            late, most, _ = bed.late_us()
        note = (f"The gateway was late by {late:.0f} us on average, by "
                f"{most / 1e3:.1f} ms at most.")
        tables.append(Table(
            f"Allreduce tuned: {title}",
            ["tree at first", "bytes", "ms at first", "rule: ms / time",
             "all measured: ms / trees / time",
             "analysis: ms / trees / time", "gain", "of the best"], rows, note))
        if others:
            tables.append(Table(
                f"Other operations tuned, from {poor}: {title}",
                ["operation", "bytes", "ms at first", "then: ms / trees",
                 "gain"], others, note))
    return tables


CASES = {"wan-tune": tune, "wan-precision": precision, "wan-fidelity": fidelity, "wan-sizes": sizes, "wan-links": links,
         "wan-transfers": transfers, "wan-allreduce": allreduce,
         "wan-placements": placements, "wan-noise": noise,
         "wan-replay": replay, "wan-sor": sor}


# ---- for bench/run ---------------------------------------------------------------

class Options:
    """What a case is told."""

    def __init__(self, args):
        self.seconds = args.seconds
        self.calls = 20
        self.points = 400
        self.plate = 1500
        self.folder = args.svg

    def chart(self, name, *words, **more):
        if self.folder:
            plot.chart(os.path.join(self.folder, name), *words, **more)


def add_options(parser):
    parser.add_argument("--seconds", type=float, default=2, metavar="N",
                        help="how long each point of the cases on emulated\n"
                             "networks is measured [2]")


def run_case(name, args, report, table):
    """Run a case, and say how to have it again."""
    if os.geteuid() != 0:
        report.say(lambda md: f"{name}: not root: no emulated network\n")
        return
    for found in CASES[name](Options(args)):
        report.heading(found.title)
        report.say(lambda md, found=found: table(found.headings, found.rows,
                                                 md))
        if found.note:
            report.say(lambda md, found=found: found.note + "\n")
    report.say(lambda md: f"`bench/run --case {name}`\n")
