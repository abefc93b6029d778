"""The cases of bench/run on data larger than memory: 'sort-*' and 'listrank*'.

Every command runs in a control group whose memory is limited to an eighth of
its input, page cache included, on files of one disk, with dropped caches.
Peers: GNU sort; STXXL by bench/extmem/sort_stxxl.cpp, compiled here against Debian's
libstxxl-dev, and against another one given by --peer stxxl=PREFIX (where it
was installed). The bound is what the disk does with the input written and read
twice (bench/extmem/disk_passes.c).
"""

import json
import os
import shutil
import statistics
import subprocess
import time

from measure import BUILD, MIB, POISE, ROOT

PASSES = os.path.join(BUILD, "bench", "disk_passes")
CHASE = os.path.join(BUILD, "bench", "chase")
STXXL_SOURCE = os.path.join(ROOT, "bench", "extmem", "sort_stxxl.cpp")

# Case -> (title, type, key of the bound, bars: (peer, least ratio)).
SORTS = {
    "sort-u32": ("Sort of u32", "u32", "small_pages", 4.0),
    "sort-u64": ("Sort of u64", "u64", "huge_pages", 3.0),
    "sort-record": ("Sort of records of 100 bytes, key of 10",
                    "record:100,0,10", "huge_pages", 1.4),
    "sort-lines": ("Sort of lines of text", "lines", "huge_pages", 2.0),
}
NAMES = list(SORTS) + ["sort-flat", "sort-scale", "sort-processes", "listrank",
                       "listrank-scale", "listrank-processes"]
# Mean bytes of an item, to make files of a given size.
ITEM_BYTES = {"u32": 4, "u64": 8, "record:100,0,10": 100, "lines": 50.5}
BOUND_SHARE = 0.45


class Group:
    """A control group of limited memory; v1 or v2, whichever is writable."""

    def __init__(self, limit):
        name = f"poise-bench-{os.getpid()}-{time.monotonic_ns()}"
        v1 = "/sys/fs/cgroup/memory"
        self.is_v1 = os.path.isdir(v1)
        self.path = os.path.join(v1 if self.is_v1 else "/sys/fs/cgroup", name)
        os.mkdir(self.path)
        self.write("memory.limit_in_bytes" if self.is_v1 else "memory.max",
                   limit)

    def write(self, name, value):
        with open(os.path.join(self.path, name), "w",
                  encoding="ascii") as file:
            file.write(str(value))

    def peak(self):
        """Most memory at a time, page cache included."""
        name = "memory.max_usage_in_bytes" if self.is_v1 else "memory.peak"
        try:
            with open(os.path.join(self.path, name),
                      encoding="ascii") as file:
                return int(file.read())
        except OSError:
            return 0

    def close(self):
        os.rmdir(self.path)


def limited(argv, limit, env=None):
    """(wall seconds, peak bytes of the group, stdout, problem or None)."""
    subprocess.run(["sync"], check=True)
    with open("/proc/sys/vm/drop_caches", "w", encoding="ascii") as file:
        file.write("3\n")
    group = Group(limit)
    try:
        begin = time.monotonic()
        done = subprocess.run(
            ["sh", "-c", 'echo $$ >"$0/cgroup.procs"; exec "$@"', group.path,
             *argv], env=dict(os.environ, LC_ALL="C", **(env or {})),
            capture_output=True, text=True, check=False)
        wall = time.monotonic() - begin
        peak = group.peak()
    finally:
        for _ in range(50):
            try:
                group.close()
                break
            except OSError:
                time.sleep(0.1)
    problem = None
    if done.returncode:
        words = (done.stderr or "").strip().splitlines()
        problem = f"exit code {done.returncode}: " + \
            (words[-1][:100] if words else "")
    return wall, peak, done.stdout, problem


class Row:
    def __init__(self, label, run):
        self.label, self.run = label, run
        self.seconds, self.peak, self.more = [], 0, ""
        self.problem = None

    def once(self):
        if self.problem:
            return
        seconds, peak, self.problem, self.more = self.run()
        if not self.problem:
            self.seconds.append(seconds)
            self.peak = max(self.peak, peak)

    def median(self):
        return statistics.median(self.seconds) if self.seconds else None


# ---- what is run ---------------------------------------------------------------

def build_stxxl(place, prefix):
    """The peer's program, or None."""
    out = os.path.join(place, "sort_stxxl" + ("_given" if prefix else ""))
    flags = ["-O3", "-march=native", "-DNDEBUG", "-fopenmp", "-std=c++14", "-w"]
    libs = ["-lstxxl", "-lpthread"]
    if prefix:
        lib = os.path.join(prefix, "lib")
        flags += ["-I", os.path.join(prefix, "include")]
        libs = ["-L", lib, "-Wl,-rpath," + lib] + libs
    if not shutil.which("g++"):
        return None
    if os.path.exists(out) and \
            os.path.getmtime(out) > os.path.getmtime(STXXL_SOURCE):
        return out
    for parallel in (["-DSTXXL_PARALLEL_MODE_EXPLICIT", "-D_GLIBCXX_PARALLEL"],
                     ["-DSTXXL_PARALLEL_MODE_EXPLICIT"], []):
        done = subprocess.run(["g++", *flags, *parallel, STXXL_SOURCE, "-o",
                               out, *libs], capture_output=True, text=True,
                              check=False)
        if done.returncode == 0:
            return out
    return None


def make_input(place, kind, size):
    path = os.path.join(place, "in." + kind.split(":")[0])
    note = path + ".size"
    if os.path.exists(note):
        with open(note, encoding="ascii") as file:
            if file.read() == str(size):
                return path
    count = int(size / ITEM_BYTES[kind])
    subprocess.run([POISE, "sort", "--generate", str(count), "--type", kind,
                    path], check=True)
    with open(note, "w", encoding="ascii") as file:
        file.write(str(size))
    return path


def poise_run(argv, limit, out, inside=False):
    """`inside`: count what the command says it took, not its start."""
    def run():
        wall, peak, text, problem = limited(argv, limit)
        if os.path.exists(out):
            os.unlink(out)
        more = ""
        if not problem and "{" in text:
            result = json.loads(text[text.index("{"):])
            more = f"{result['read_bytes'] / MIB:.0f} + " \
                f"{result['written_bytes'] / MIB:.0f}"
            wall = result["seconds"] if inside else wall
        return wall, peak, problem, more
    return run


def poise_sort(source, out, kind, limit, *flags):
    # A sixteenth of the group for the program itself and its stacks.
    return poise_run([POISE, "sort", "--type", kind, "--json", "--memory",
                      str(limit - limit // 16), *flags, source, "-o", out],
                     limit, out)


def stxxl_sort(program, source, kind, limit, place, size):
    """STXXL takes more than it is told to: as much as the group bears."""
    shares = [0.6, 0.5, 0.4, 0.3]
    config = os.path.join(place, "stxxl.config")
    disk = os.path.join(place, "stxxl.disk")

    def run():
        with open(config, "w", encoding="ascii") as file:
            file.write(f"disk={disk},{size * 2 // MIB + 512}MiB,syscall "
                       "unlink direct=on\n")
        word = kind.split(":")[0]
        while True:
            wall, peak, text, problem = limited(
                [program, word, source, str(int(limit * shares[0]))], limit,
                {"STXXLCFG": config, "STXXLLOGFILE": config + ".log",
                 "STXXLERRLOGFILE": config + ".errlog"})
            if not problem or len(shares) == 1:
                break
            del shares[0]
        for path in (disk, config, config + ".log", config + ".errlog"):
            if os.path.exists(path):
                os.unlink(path)
        if problem:
            return wall, peak, problem, ""
        seconds = [line for line in text.splitlines() if '"seconds"' in line]
        return json.loads(seconds[-1])["seconds"], peak, None, \
            f"told {limit * shares[0] / MIB:.0f} MiB"
    return run


def gnu_sort(source, out, limit, place):
    def run():
        wall, peak, _, problem = limited(
            ["sort", "--parallel=2", "-S", str(limit * 9 // 16 // 1024) + "K",
             "-T", place, "-o", out, source], limit)
        if os.path.exists(out):
            os.unlink(out)
        return wall, peak, problem, ""
    return run


# ---- cases ---------------------------------------------------------------------

def rounds_of(rows, repeat, peer_repeat):
    for number in range(repeat):
        for row, is_peer in rows:
            if number < (peer_repeat if is_peer else repeat):
                row.once()


def rows_table(table, rows, size):
    cells = []
    for row in rows:
        if not row.seconds:
            cells.append([row.label, row.problem or "no run", "", "", "", ""])
            continue
        cells.append([row.label, f"{row.median():.2f}",
                      f"{min(row.seconds):.2f}-{max(row.seconds):.2f}",
                      f"{size / row.median() / 1e6:.0f}",
                      f"{row.peak / MIB:.0f}", row.more])
    return lambda md: table(["", "median s", "range", "MB/s",
                             "peak MiB, cache too", "MiB read + written, or memory"],
                            cells, md)


def bar(label, is_, least):
    return [label, f"{is_:.2f}", f"{least:.3g}",
            "met" if is_ >= least else "MISSED"]


def disk_bound(place, size, rounds):
    done = subprocess.run([PASSES, place, str(size), str(rounds)],
                          capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def show_sort(report, table, name, place, size, repeat, peers):
    title, kind, pages, least = SORTS[name]
    source = make_input(place, kind, size)
    size = os.path.getsize(source)
    limit = size // 8
    out = os.path.join(place, "out")
    ours = Row("poise sort, 2 threads",
               poise_sort(source, out, kind, limit, "--threads=2"))
    rows = [(ours, False)]
    if name == "sort-lines":
        rows.append((Row("GNU sort, 2 threads",
                         gnu_sort(source, out, limit, place)), True))
    else:
        for prefix in ([None] + ([peers["stxxl"]] if "stxxl" in peers else [])):
            program = build_stxxl(place, prefix)
            label = "STXXL " + ("given" if prefix else "of Debian")
            if program:
                rows.append((Row(label, stxxl_sort(
                    program, source, kind, limit, place, size)), True))
            else:
                report.say(lambda md: f"{label}: not available\n")
    before = disk_bound(place, size, 1)
    rounds_of(rows, repeat, max(1, repeat // 2))
    after = disk_bound(place, size, 1)
    bound = {key: statistics.mean([before[key]["mb_per_s"],
                                   after[key]["mb_per_s"]]) for key in before}
    report.heading(f"{title}, {size / MIB:.0f} MiB, {limit / MIB:.0f} MiB of "
                   "memory")
    report.say(rows_table(table, [row for row, _ in rows], size))
    bars = []
    if ours.median():
        rate = size / ours.median() / 1e6
        for row, is_peer in rows:
            if is_peer and row.median():
                bars.append(bar(f"times {row.label}",
                                row.median() / ours.median(), least))
        for key, value in bound.items():
            label = f"of the bound, {key.replace('_', ' ')} ({value:.0f} MB/s)"
            bars.append(bar(label, rate / value, BOUND_SHARE)
                        if key == pages
                        else [label, f"{rate / value:.2f}", "-", ""])
    report.say(lambda md: table(["", "is", "at least", ""], bars, md))


def show_flat(report, table, place, size, repeat):
    """u64 from a quarter of memory to 16 times memory."""
    source = make_input(place, "u64", size)
    out = os.path.join(place, "out")
    cells = []
    for times in (0.25, 0.5, 1, 2, 4, 8, 16):
        limit = int(size / times)
        row = Row("", poise_sort(source, out, "u64", limit, "--threads=2"))
        for _ in range(repeat):
            row.once()
        cells.append([f"{times:g}", f"{row.median():.2f}"
                      if row.median() else row.problem,
                      f"{row.median() / size * 8e9:.1f}"
                      if row.median() else "", row.more])
    report.heading(f"Sort of u64, {size / MIB:.0f} MiB, over memory")
    report.say(lambda md: table(["data / memory", "median s", "ns an item",
                                 "MiB read + written"], cells, md))


def scale_sizes(size):
    """A quarter to 16 times a sixteenth of `size`."""
    return [size >> shift for shift in range(6, -1, -1)]


def show_sort_scale(report, table, place, size, repeat):
    """A sixteenth of `size` as memory, and files from a quarter of that up."""
    limit = size // 16
    kinds = ["u32", "u64", "record:100,0,10"]
    out = os.path.join(place, "out")
    cells = []
    for some in scale_sizes(size):
        cell = [f"{some / MIB:g}", f"{some / limit:g}"]
        rows = []
        for kind in kinds:
            source = make_input(place, kind, some)
            rows.append(Row(kind, poise_sort(source, out, kind, limit,
                                             "--threads=2")))
            for _ in range(repeat):
                rows[-1].once()
        cell += [f"{row.median() / some * ITEM_BYTES[kind] * 1e9:.1f}"
                 if row.median() else row.problem
                 for row, kind in zip(rows, kinds)]
        cell += [f"{row.median() / some * 1e9:.2f}" if row.median() else ""
                 for row in rows]
        cells.append(cell)
    report.heading(f"Sort over data, {limit / MIB:g} MiB of memory")
    report.say(lambda md: table(
        ["MiB", "data / memory", "u32, ns an item", "u64", "record of 100",
         "u32, ns a byte", "u64", "record"], cells, md))


def show_rank_scale(report, table, place, size, repeat):
    limit = size // 16
    out = os.path.join(place, "ranks")
    path = os.path.join(place, "list.scale")
    cells = []
    for some in scale_sizes(size):
        nodes = some // 8
        subprocess.run([POISE, "listrank", "--generate", str(nodes), path],
                       check=True)
        row = Row("", poise_run([POISE, "listrank", "--json", "--threads=2",
                                 "--memory", str(limit - limit // 16),
                                 path, out],
                                limit, out))
        for _ in range(repeat):
            row.once()
        os.unlink(path)
        cells.append([f"{some / MIB:g}", f"{some / limit:g}",
                      f"{row.median():.2f}" if row.median() else row.problem,
                      f"{row.median() / nodes * 1e9:.1f}"
                      if row.median() else "",
                      row.more])
    report.heading(f"List ranking over data, {limit / MIB:g} MiB of memory, "
                   "random order")
    report.say(lambda md: table(["MiB", "data / memory", "median s",
                                 "ns a node", "MiB read + written"], cells,
                                md))


def processes(argv, limit, out, machines=False):
    """Runs on 1, 2 and 4 processes, and on 2 threads of one; without the start
    of MPI. `machines`: also as if each process had a machine of its own."""
    launcher = ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe",
                "--bind-to", "none", "-n"]
    rows = [Row(f"one process, {n} thread{'s' if n > 1 else ''}",
                poise_run([argv[0], argv[1], f"--threads={n}", *argv[2:]],
                          limit, out, True)) for n in (1, 2)]
    for ranks in (2, 4):
        rows.append(Row(f"{ranks} processes of one thread", poise_run(
            [*launcher, str(ranks), argv[0], argv[1], "--threads=1",
             *argv[2:]], limit, out, True)))
    for ranks in (2, 4) if machines else ():
        rows.append(Row(f"{ranks} processes as of {ranks} machines", poise_run(
            [*launcher, str(ranks), "env", f"POISE_TOPOLOGY=1x{ranks}x1",
             argv[0], argv[1], "--threads=1", *argv[2:]], limit, out, True)))
    return rows


def show_processes(report, table, name, place, size, repeat):
    """The memory is an eighth of the data, whoever has it. The control group
    is larger: MPI itself takes about 20 MiB a process."""
    limit = size // 8
    if name == "sort-processes":
        kinds = ["u64", "record:100,0,10"]
    else:
        kinds = ["list"]
    for kind in kinds:
        out = os.path.join(place, "out")
        if kind == "list":
            source = os.path.join(place, f"list.{size // 8}")
            if not os.path.exists(source):
                subprocess.run([POISE, "listrank", "--generate",
                                str(size // 8), source], check=True)
            # In memory: that is what several processes do together.
            argv = [POISE, "listrank", "--json",
                    "--memory", str(4 * size), source,
                    out]
            group = 8 * size
        else:
            source = make_input(place, kind, size)
            argv = [POISE, "sort", "--type", kind, "--json",
                    "--memory", str(limit),
                    source, "-o", out]
            group = size
        rows = processes(argv, group, out, kind == "list")
        for _ in range(repeat):
            for row in rows:
                row.once()
        report.heading(f"{'Ranking' if kind == 'list' else 'Sort of ' + kind}, "
                       f"{size / MIB:g} MiB, by processes of one node of "
                       f"{os.cpu_count()} processors")
        report.say(rows_table(table, rows, size))
        threads, two = rows[1].median(), rows[2].median()
        if threads and two:
            bars = [bar("2 processes, times 2 threads", threads / two, 0.9)]
            report.say(lambda md, bars=bars: table(
                ["", "is", "at least", ""], bars, md))


def show_listrank(report, table, place, nodes, repeat):
    path = os.path.join(place, f"list.{nodes}")
    out = os.path.join(place, "ranks")
    if not os.path.exists(path):
        subprocess.run([POISE, "listrank", "--generate", str(nodes), path],
                       check=True)
    size = nodes * 8
    much, little = 20 * size, size // 8

    def chase(limit, *words):
        def run():
            _, peak, text, problem = limited([CHASE, path, *words], limit)
            if problem:
                return 0, peak, problem, ""
            return json.loads(text)["ns_per_node"] * nodes / 1e9, peak, None, ""
        return run

    def rank(limit, memory):
        return poise_run([POISE, "listrank", "--json", "--threads=2",
                          "--memory",
                          str(memory), path, out], limit, out)

    walk = Row("sequential walk in memory (walk alone)", chase(much))
    inside = Row("poise, in memory, files read and written", rank(much, much))
    outside = Row("poise, an eighth of the file as memory",
                  rank(little, little - little // 16))
    paging = Row("walk in the mapped file, an eighth as memory, from 10 s",
                 chase(little, "10"))
    for number in range(repeat):
        for row in (walk, inside, outside):
            row.once()
        if number == 0:
            paging.once()
    report.heading(f"List ranking, {nodes} nodes in random order")
    cells = []
    for row in (walk, inside, outside, paging):
        if not row.median():
            cells.append([row.label, row.problem, "", "", ""])
            continue
        cells.append([row.label, f"{row.median():.2f}",
                      f"{row.median() / nodes * 1e9:.1f}",
                      f"{row.peak / MIB:.0f}", row.more])
    report.say(lambda md: table(["", "median s", "ns a node",
                                 "peak MiB, cache too", "MiB read + written"],
                                cells, md))
    bars = []
    if walk.median() and inside.median() and outside.median():
        bars = [bar("in memory, times the walk",
                    walk.median() / inside.median(), 5),
                bar("an eighth, times the walk",
                    walk.median() / outside.median(), 0.5)]
    report.say(lambda md: table(["", "is", "at least", ""], bars, md))


def show(report, table, wanted, args, peers):
    """Run the cases among `wanted`."""
    size, repeat = args.size * MIB, args.repeat
    if not any(name in NAMES for name in wanted):
        return
    if os.geteuid() != 0:
        report.say(lambda md: "sort, listrank: not root, no control groups\n")
        return
    place = os.path.join(args.dir, "big")
    os.makedirs(place, exist_ok=True)
    for name in wanted:
        if name in SORTS:
            show_sort(report, table, name, place, size, repeat, peers)
        elif name == "sort-flat":
            show_flat(report, table, place, size, repeat)
        elif name == "sort-scale":
            show_sort_scale(report, table, place, size, repeat)
        elif name == "listrank-scale":
            show_rank_scale(report, table, place, size, repeat)
        elif name.endswith("-processes"):
            show_processes(report, table, name, place, size, repeat)
        elif name == "listrank":
            show_listrank(report, table, place, size // 16, repeat)
