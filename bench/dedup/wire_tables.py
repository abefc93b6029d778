"""Cases of bench/run on the wire itself: segmenters and sizes of segments, one
and two levels of fingerprints, the cache when it is far larger than memory, how
it grows and what is found in it, and processors. Two versions of something are
sent, as tar archives, from one process to another (bench/dedup/wire.c)."""

import contextlib
import json
import os
import subprocess
import tempfile

import plot
from measure import BUILD, MIB

WIRE = os.path.join(BUILD, "bench", "wire")
METHODS = ("fixed", "overlapping", "manber", "spring", "spring-fifo", "lbfs",
           "gear", "multi")
SIZES = (64, 256, 1024, 4096)
BITS = (16, 20, 24, 28, 32, 40)
CGROUPS = ("/sys/fs/cgroup/memory", "/sys/fs/cgroup")


def archive(tree, path):
    """A tree as a file, the same bytes wherever it was unpacked."""
    subprocess.run(["tar", "-C", tree, "--sort=name", "--owner=0",
                    "--group=0", "--mtime=@0", "-cf", path, "."], check=True)


def archives(args, folder):
    made = []
    for name, tree in (("old", args.wire_old), ("new", args.wire_new)):
        made.append(os.path.join(folder, name + ".tar"))
        archive(tree, made[-1])
    return made


def wire(what, *words, before=()):
    """The lines of JSON that bench/wire prints."""
    done = subprocess.run([*before, WIRE, what, *map(str, words)], check=False,
                          capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{what} {words}: {done.stderr[-400:]}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def mb_s(got):
    return got["bytes"] / got["seconds"] / 1e6


def draw(args, name, *words, **more):
    if args.svg:
        os.makedirs(args.svg, exist_ok=True)
        plot.chart(os.path.join(args.svg, name + ".svg"), *words, **more)


# ---- segmenters, sizes, levels ------------------------------------------------

def segments(args, report, table):
    lines, speeds, levels = {}, {}, []
    rows, cuts = [], []
    with tempfile.TemporaryDirectory(dir=args.dir) as folder:
        old, new = archives(args, folder)
        size = os.path.getsize(new)
        for method in METHODS:
            for each in SIZES:
                how = ("-m", method, "-s", each)
                cut = wire("cut", *how, old, new)[0]
                both = wire("ends", *how, "-M", 512 << 20,
                            "-S", os.path.join(folder, "s"),
                            "-R", os.path.join(folder, "r"), old, new)
                subprocess.run(["rm", "-rf", os.path.join(folder, "s"),
                                os.path.join(folder, "r")], check=True)
                cuts.append([method, each, f"{cut['cut_mb_s']:.0f}",
                             f"{cut['mean']:.0f}",
                             f"{100 * cut['coverage']:.1f}",
                             f"{cut['overlap']:,}", f"{cut['meta']:,}",
                             f"{100 * cut['hit_share']:.2f}"])
                sent = both[1]
                rows.append([method, each, f"{cut['one']:,}",
                             f"{cut['two']:,}",
                             f"{cut['one'] / cut['two']:.2f}",
                             f"{sent['wire']:,}",
                             f"{size / sent['wire']:.0f}",
                             f"{mb_s(both[0]):.0f}", f"{mb_s(sent):.0f}",
                             f"{sent['sender']['cpu']:.2f}",
                             f"{sent['receiver']['cpu']:.2f}"])
                lines.setdefault(method, []).append(
                    (each, size / sent["wire"]))
                speeds.setdefault(method, []).append((each, mb_s(sent)))
                levels.append((method, each, size / cut["one"],
                               size / cut["two"]))
    report.heading(f"Segmenters: {os.path.basename(args.wire_new)} after "
                   f"{os.path.basename(args.wire_old)}, {size:,} bytes")
    report.say(lambda md: table(
        ["segmenter", "size", "cut MB/s", "mean bytes", "covered %",
         "overlap, bytes", "metadata, bytes", "known %"], cuts, md))
    report.say(lambda md: table(
        ["segmenter", "size", "one level", "two levels", "one / two", "sent",
         "ratio", "first MB/s", "second MB/s", "sender CPU s",
         "receiver CPU s"], rows, md))
    report.say(lambda md: break_even(levels))
    draw(args, "wire-ratio", "What the second version's bytes are divided by",
         "bytes of a segment", "ratio", lines, log=(True, True))
    draw(args, "wire-speed", "The second version, from process to process",
         "bytes of a segment", "MB/s", speeds, log=(True, False))
    draw(args, "wire-levels", "Gear: one and two levels of fingerprints",
         "bytes of a segment", "ratio",
         {f"{what}": [(each, level[i]) for method, each, *level in levels
                      if method == "gear"]
          for i, what in enumerate(("one level", "two levels"))},
         log=(True, False))


def break_even(levels):
    """Which of the sizes two levels send less with."""
    said = []
    for method in METHODS:
        won = [str(each) for name, each, one, two in levels
               if name == method and two > one]
        said.append(f"{method}: {', '.join(won) or 'none'}")
    return "Two levels send less than one at sizes of - " + "; ".join(said) \
        + ".\n"


# ---- collisions ------------------------------------------------------------------

def bits(args, report, table):
    """What fingerprints that collide cost, against equation 1: to a sender
    that has forgotten all, so that each segment goes by its fingerprint."""
    rows = []
    with tempfile.TemporaryDirectory(dir=args.dir) as folder:
        paths = archives(args, folder)
        ends = [os.path.join(folder, "s"), os.path.join(folder, "r")]
        for width in BITS:
            first, second = wire(
                "ends", "-f", "-s", 64, "-b", width, "-M", 512 << 20, "-S",
                ends[0], "-R", ends[1], *paths)
            subprocess.run(["rm", "-rf", *ends], check=True)
            cached = first["receiver"]["segments"]
            fresh = second["receiver"]["segments"]
            rows.append([width, f"{cached:,}", f"{fresh:,}",
                         f"{fresh * cached / 2 ** width:,.1f}",
                         f"{second['repairs']:,}", f"{second['groups']:,}",
                         f"{second['wire']:,}"])
    report.heading("Collisions: segments of 64 bytes, the sender forgets")
    report.say(lambda md: table(
        ["bits", "segments cached", "new ones", "wrong hits by equation 1",
         "groups repaired", "of groups", "sent"], rows, md))


# ---- the cache -------------------------------------------------------------------

@contextlib.contextmanager
def limited(limit):
    """Words before a command that has so much memory, pages of files
    included; nothing where the system does not let us."""
    for root in CGROUPS:
        group = os.path.join(root, f"poise-bench-{os.getpid()}")
        try:
            os.mkdir(group)
        except OSError:
            continue
        name = "memory.limit_in_bytes" if root.endswith("memory") \
            else "memory.max"
        try:
            with open(os.path.join(group, name), "w", encoding="ascii") as f:
                f.write(str(limit))
        except OSError:
            os.rmdir(group)
            continue
        try:
            yield ["sh", "-c", f'echo $$ >{group}/cgroup.procs && exec "$@"',
                   "sh"]
        finally:
            os.rmdir(group)
        return
    yield None


def cache(args, report, table):
    with tempfile.TemporaryDirectory(dir=args.dir) as folder:
        old, new = archives(args, folder)
        size = os.path.getsize(old)
        large_cache(args, report, table, folder, old, new)
        growth(args, report, table, folder, (old, new), size)


def large_cache(args, report, table, folder, old, new):
    """Throughput where the caches are ten times as large as memory."""
    size = os.path.getsize(old)
    small = size // 10
    limit = 2 * (small + 64 * MIB)
    rows, speeds = [], {}
    for label, memory, before in (
            ("fits into memory", 4 * size, []),
            ("ten times as large", small, None)):
        with limited(limit) as prefix:
            if before is None and prefix is None:
                rows.append([label, "no memory cgroup here"] + [""] * 6)
                continue
            runs = {"first": [], "second": [], "again": []}
            for _ in range(args.repeat):
                ends = ["-M", memory, "-S", os.path.join(folder, "s"), "-R",
                        os.path.join(folder, "r")]
                for what, path in (("first", old), ("second", new),
                                   ("again", old)):
                    runs[what] += wire("ends", *ends, path, before=prefix
                                       if before is None else before)
                subprocess.run(["rm", "-rf", os.path.join(folder, "s"),
                                os.path.join(folder, "r")], check=True)
        for what, some in runs.items():
            best = sorted(some, key=mb_s)[len(some) // 2]
            speeds[label, what] = mb_s(best)
            rows.append([f"{label}: {what}", f"{mb_s(best):.0f}",
                         f"{min(map(mb_s, some)):.0f}-"
                         f"{max(map(mb_s, some)):.0f}",
                         f"{best['wire']:,}",
                         f"{best['receiver']['cache_bytes'] / MIB:.0f}",
                         f"{best['sender']['rss'] / MIB:.0f}",
                         f"{best['receiver']['rss'] / MIB:.0f}",
                         f"{best['receiver']['loads']:,}"])
    report.heading(f"The cache and memory: {size:,} bytes, caches cold")
    report.say(lambda md: table(
        ["cache", "MB/s", "range", "sent", "MB on disk", "sender MB",
         "receiver MB", "containers read"], rows, md))
    report.say(lambda md: "The memory of the large one: "
               f"{small / MIB:.0f} MB for each cache, and a cgroup of "
               f"{limit / MIB:.0f} MB for both processes and the pages of "
               "their files.\n")
    if len(speeds) == 6:
        report.say(lambda md: table(
            ["large / fits", "is", "at least", ""],
            [[what, f"{ratio:.2f}", "0.7", "met" if ratio >= 0.7 else "MISSED"]
             for what in ("first", "second", "again")
             for ratio in [speeds["ten times as large", what] /
                           speeds["fits into memory", what]]], md))
    del args


def growth(args, report, table, folder, paths, size):
    """Figures 52 and 53, locality, replacement, tables."""
    here = os.path.join(folder, "c")
    got = wire("cache", "-M", size // 10, "-S", here, *paths)
    rows = [line for line in got if "at" in line]
    files = [line for line in got if "file" in line]
    end = got[-1]
    draw(args, "wire-growth", "The cache while the two versions come",
         "MB sent", "MB in the cache",
         {"cache": [(row["at"] / MIB, row["cache"] / MIB) for row in rows],
          "all is new": [(0, 0), (rows[-1]["at"] / MIB,
                                  rows[-1]["at"] / MIB)]})
    ages = [(2 ** i, 100 * n / end["hits"])
            for i, n in enumerate(end["ages"]) if n]
    draw(args, "wire-age", "How old what is found is", "segments added since",
         "% of what is found", {"age": ages}, log=(True, False))
    report.heading("Growth and age (figures 52 and 53)")
    report.say(lambda md: table(
        ["MB so far", "MB in the cache", "known % since the row before"],
        [[f"{row['at'] / MIB:.0f}", f"{row['cache'] / MIB:.0f}",
          f"{100 * row['hit_share']:.1f}"] for row in rows[3::4]], md))
    report.say(lambda md: table(
        ["segments added since, less than", "% of what is found"],
        [[f"{2 * age:,}", f"{share:.2f}"] for age, share in ages], md))
    hits = end["hits"]
    report.say(lambda md: table(
        ["where what is found lies", "%"],
        [["right behind what was found before",
          f"{100 * end['next'] / hits:.2f}"],
         ["at most 64 segments from it", f"{100 * end['near'] / hits:.2f}"],
         ["in the same container", f"{100 * end['same'] / hits:.2f}"]], md))
    report.say(lambda md: table(
        ["containers in memory, % of them", "least recently used",
         "first in, first out", "any", "the one wanted last (not to be had)",
         "one container more, least recently used"],
        [[f"{100 * at['share']:.0f} ({at['room']})",
          *[f"{n:,}" for n in at["reads"]], f"{at['one_more']:,}"]
         for at in end["policies"]], md))
    tables = end["table"]
    report.say(lambda md: "Containers read, of "
               f"{end['visits']:,} changes from one to another. A table of "
               f"{tables['segments']:,} fingerprints: "
               f"{tables['hashing_ns']:.0f} ns by hashing, "
               f"{tables['halving_ns']:.0f} ns by halving, which saves "
               f"{tables['hashing_bytes']:,} bytes of a container.\n")
    sizes = []
    for container in ("256K", "1M", "2M", "4M", "8M"):
        subprocess.run(["rm", "-rf", here], check=True)
        for line in wire("cache", "-M", size // 10, "-S", here, "-C",
                         container, *paths):
            if line.get("file") == paths[1]:
                sizes.append([container, f"{mb_s(line):.0f}",
                              f"{line['opened']:.3f}", f"{line['loads']:,}",
                              f"{100 * line['hit_share']:.2f}",
                              line["sampling"]])
    report.say(lambda md: table(
        ["container", "MB/s", "s to open", "containers read", "known %",
         "sampling"], sizes, md))
    del files


# ---- processors ------------------------------------------------------------------

def cores(args, report, table):
    count = len(os.sched_getaffinity(0))
    rows = []
    with tempfile.TemporaryDirectory(dir=args.dir) as folder:
        old, new = archives(args, folder)
        size = os.path.getsize(new)
        for cpus in range(1, count + 1):
            for pairs in range(1, count + 1):
                first = min(cpus, count) - 1
                before = ["taskset", "-c", f"0-{first}"]
                seconds = {"old": [], "new": []}
                for _ in range(args.repeat):
                    for name, took in pair_runs(folder, pairs, before,
                                                (old, new)):
                        seconds[name].append(took)
                row = [cpus, pairs]
                for name in ("old", "new"):
                    took = sorted(seconds[name])[len(seconds[name]) // 2]
                    row += [f"{pairs * size / took / 1e6:.0f}",
                            f"{pairs * size / took / 1e6 / cpus:.0f}"]
                rows.append(row)
    report.heading(f"Processors: {size:,} bytes by each pair")
    report.say(lambda md: table(
        ["processors", "pairs", "all is new, MB/s", "of each processor",
         "most is known, MB/s", "of each processor"], rows, md))


def pair_runs(folder, pairs, before, paths):
    """(which version, the slowest pair's seconds): all pairs at once."""
    for i in range(pairs):
        subprocess.run(["rm", "-rf", os.path.join(folder, f"s{i}"),
                        os.path.join(folder, f"r{i}")], check=True)
    for name, path in zip(("old", "new"), paths):
        running = [subprocess.Popen(
            [*before, WIRE, "ends", "-M", "1G", "-S",
             os.path.join(folder, f"s{i}"), "-R",
             os.path.join(folder, f"r{i}"), path],
            stdout=subprocess.PIPE, text=True) for i in range(pairs)]
        took = [json.loads(one.communicate()[0])["seconds"]
                for one in running]
        yield name, max(took)


CASES = {"wire-segments": segments, "wire-bits": bits, "wire-cache": cache,
         "wire-cores": cores}
