"""The cases of bench/run on slow disks and on what there is besides.

pems-disks, sort-hosts: disks are emulated, by the rate limits of a control
group (blkio, version 1). Two disks are two loop devices over files of one real
disk, each with its own limit; hosts are processes, each in a group with a
limit of its own for the one disk on which input, output and scratch files lie.
A limit is one of bytes a second that are read, and another that are written.

pems-swapfile: a program of random accesses with contexts on disk, and the same
with all ranks in memory and a file for the kernel to swap to. pems-io and
sort-io: how files are read and written. sort-parts: how even buckets are,
however the keys.
"""

import contextlib
import json
import os
import subprocess

from big_cases import Row, bar, limited, make_input, poise_sort, rows_table
from measure import MIB, POISE
from pems_cases import PEMS, compile_pems

BLKIO = "/sys/fs/cgroup/blkio"
MPIRUN = ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe",
          "--bind-to", "none"]


class Throttle:
    """A control group in which devices have at most `rate` bytes a second,
    each, read and written."""

    def __init__(self, name, devices, rate):
        self.path = os.path.join(BLKIO, f"poise-bench-{os.getpid()}-{name}")
        os.mkdir(self.path)
        for way in ("read", "write"):
            for device in devices:
                with open(os.path.join(
                        self.path, f"blkio.throttle.{way}_bps_device"), "w",
                        encoding="ascii") as file:
                    file.write(f"{device} {rate}\n")

    def inside(self, argv):
        return ["sh", "-c", 'echo $$ >"$0/cgroup.procs"; exec "$@"', self.path,
                *argv]

    def close(self):
        os.rmdir(self.path)


class LoopDisk:
    """A file system on a loop device over a file in `place`."""

    def __init__(self, place, number, size):
        self.image = os.path.join(place, f"disk{number}")
        self.folder = os.path.join(place, f"mounted{number}")
        self.loop = None
        self.is_mounted = False
        os.makedirs(self.folder, exist_ok=True)
        with open(self.image, "wb") as file:
            os.posix_fallocate(file.fileno(), 0, size)

    def open(self):
        self.loop = subprocess.run(
            ["losetup", "-f", "--show", "--direct-io=on", self.image],
            check=True, capture_output=True, text=True).stdout.strip()
        subprocess.run(["mkfs.ext4", "-q", "-O", "^has_journal", "-E",
                        "nodiscard", self.loop], check=True)
        subprocess.run(["mount", self.loop, self.folder], check=True)
        self.is_mounted = True
        with open(f"/sys/block/{os.path.basename(self.loop)}/dev",
                  encoding="ascii") as file:
            return file.read().strip()

    def close(self):
        if self.is_mounted:
            subprocess.run(["umount", self.folder], check=True)
        if self.loop:
            subprocess.run(["losetup", "-d", self.loop], check=True)
        os.unlink(self.image)
        os.rmdir(self.folder)


def disk_of(place):
    """Numbers of the whole disk that holds a folder, or None."""
    device = os.stat(place).st_dev
    path = os.path.realpath(
        f"/sys/dev/block/{os.major(device)}:{os.minor(device)}")
    if os.path.exists(os.path.join(path, "partition")):
        path = os.path.dirname(path)
    try:
        with open(os.path.join(path, "dev"), encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return None


def has_throttle():
    return os.path.exists(os.path.join(
        BLKIO, "blkio.throttle.read_bps_device"))


def one_over(label, one, other, least):
    return bar(label, one / other, least)


def number(row):
    return f"{row.median():.2f}" if row.median() else row.problem


def span(row):
    return f"{min(row.seconds):.2f}-{max(row.seconds):.2f}" \
        if row.seconds else ""


# ---- two disks on one process ------------------------------------------------

DISK_RATE = 100 * 1000 * 1000
DISK_BYTES = 1536 * MIB
CONTEXTS = [("a sweep over 512 MiB, 64 MiB of memory", "sweep",
             16 * MIB, 32, 64 * MIB),
            ("Alltoallv of 128 MiB, 96 MiB of memory", "alltoallv",
             128 * MIB, 32, 96 * MIB)]


def contexts_run(mode, data, ranks, limit, scratch, throttle=None, options=()):
    """Seconds of the round alone."""
    argv = [POISE, "run", "-V", str(ranks),
            *(["--scratch", scratch] if scratch else []), *options, PEMS, mode,
            str(data), "1"]
    argv = throttle.inside(argv) if throttle else argv

    def run():
        wall, peak, text, problem = limited(argv, limit)
        if not problem:
            said = json.loads(text)
            wall = said["seconds"]
            problem = None if said["good"] else "the data are wrong"
        return wall, peak, problem, ""
    return run


def show_disks(report, table, place, repeat):
    source = make_input(place, "u64", 512 * MIB)
    out = os.path.join(place, "out")
    cells = []
    with contextlib.ExitStack() as stack:
        devices, folders = [], []
        for i in range(2):
            disk = LoopDisk(place, i, DISK_BYTES)
            stack.callback(disk.close)
            devices.append(disk.open())
            folders.append(disk.folder)
        throttle = Throttle("disks", devices, DISK_RATE)
        stack.callback(throttle.close)
        pairs = []
        for label, mode, data, ranks, limit in CONTEXTS:
            pairs.append([Row(label, contexts_run(
                mode, data, ranks, limit, scratch, throttle))
                for scratch in (folders[0], ",".join(folders))])

        def sort(scratch):
            limit = 64 * MIB
            argv = throttle.inside(
                [POISE, "sort", "--type", "u64", "--json", "--threads=2",
                 "--memory",
                 str(limit - limit // 16), "--scratch", scratch, source, "-o",
                 out])

            def run():
                _, peak, text, problem = limited(argv, limit)
                if os.path.exists(out):
                    os.unlink(out)
                wall = 0 if problem else json.loads(
                    text[text.index("{"):])["seconds"]
                return wall, peak, problem, ""
            return run
        pairs.append([Row("sort of u64, 512 MiB, 64 MiB of memory",
                          sort(scratch))
                      for scratch in (folders[0], ",".join(folders))])
        for _ in range(repeat):
            for pair in pairs:
                for row in pair:
                    row.once()
        for one, two in pairs:
            ratio = bar("", one.median() / two.median(), 1.8) \
                if one.median() and two.median() else ["", "", "", ""]
            cells.append([one.label, number(one), span(one), number(two),
                          span(two), ratio[1], ratio[3]])
    report.heading("One and two scratch disks of "
                   f"{DISK_RATE / 1e6:.0f} MB/s each, emulated")
    report.say(lambda md: table(
        ["", "one disk, s", "range", "two, s", "range",
         "times as fast, at least 1.8", ""], cells, md))


# ---- hosts -------------------------------------------------------------------

HOST_RATE = 25 * 1000 * 1000
HOST_MEMORY = 16 * MIB


def show_hosts(report, table, place, size, repeat):
    size = size // 4
    source = make_input(place, "u64", size)
    out = os.path.join(place, "out")
    device = disk_of(place)
    if not device:
        report.say(lambda md: f"sort-hosts: {place} is not on a disk\n")
        return
    rows = []
    with contextlib.ExitStack() as stack:
        groups = []
        for i in range(8):
            groups.append(Throttle(f"host{i}", [device], HOST_RATE))
            stack.callback(groups[-1].close)
        for hosts in (1, 2, 4, 8):
            argv = list(MPIRUN)
            for i in range(hosts):
                argv += ([":"] if i else []) + ["-n", "1", *groups[i].inside(
                    ["env", f"POISE_TOPOLOGY=1x{hosts}x1", POISE, "sort",
                     "--type", "u64", "--json", "--threads=1", "--memory",
                     str(HOST_MEMORY), source, "-o", out])]

            def run(argv=argv):
                _, peak, text, problem = limited(argv, 1024 * MIB)
                if os.path.exists(out):
                    os.unlink(out)
                if problem:
                    return 0, peak, problem, ""
                said = json.loads(text[text.index("{"):])
                return said["seconds"], peak, None, \
                    f"{said['read_bytes'] / MIB:.0f} + " \
                    f"{said['written_bytes'] / MIB:.0f}"
            rows.append((hosts, Row(f"{hosts}", run)))
        for _ in range(repeat):
            for _, row in rows:
                row.once()
    first = rows[0][1].median()
    cells = []
    for hosts, row in rows:
        times = first / row.median() if first and row.median() else None
        cells.append([f"{hosts}", number(row), span(row), row.more,
                      f"{size / row.median() / 1e6:.0f}"
                      if row.median() else "",
                      f"{times:.2f}" if times else "",
                      f"{times / hosts:.2f}" if times else ""])
    report.heading(f"Sort of u64, {size / MIB:g} MiB, by emulated hosts of one "
                   f"thread, {HOST_MEMORY / MIB:.0f} MiB of memory and a disk "
                   f"of {HOST_RATE / 1e6:.0f} MB/s each")
    report.say(lambda md: table(
        ["hosts", "median s", "range", "MiB read + written", "MB/s",
         "times one", "of the ideal"], cells, md))


# ---- against a swap file -----------------------------------------------------

SWAP_RANKS, SWAP_DATA, SWAP_LIMIT = 32, 16 * MIB, 64 * MIB


@contextlib.contextmanager
def swap_file(place, size):
    path = os.path.join(place, "swap")
    with open(path, "wb") as file:
        os.chmod(path, 0o600)
        os.posix_fallocate(file.fileno(), 0, size)
    try:
        subprocess.run(["mkswap", path], check=True, capture_output=True)
        subprocess.run(["swapon", path], check=True, capture_output=True)
        try:
            yield
        finally:
            subprocess.run(["swapoff", path], check=True)
    finally:
        os.unlink(path)


def show_swapfile(report, table, place, repeat):
    total = SWAP_RANKS * SWAP_DATA
    ours = Row("contexts on disk", contexts_run(
        "scatter", SWAP_DATA, SWAP_RANKS, SWAP_LIMIT, place))
    swap = Row("all ranks in memory, which the kernel swaps", contexts_run(
        "scatter", SWAP_DATA, SWAP_RANKS, SWAP_LIMIT, None))
    for _ in range(repeat):
        ours.once()
    try:
        with swap_file(place, 2 * total):
            swap.once()
    except subprocess.CalledProcessError as error:
        swap.problem = f"no swap file: {error.stderr or error}"
    report.heading(f"Random accesses to {total / MIB:.0f} MiB of "
                   f"{SWAP_RANKS} ranks in {SWAP_LIMIT / MIB:.0f} MiB, one "
                   "round")
    report.say(lambda md: table(
        ["", "median s", "range", "peak MiB, cache too"],
        [[row.label, number(row), span(row), f"{row.peak / MIB:.0f}"]
         for row in (ours, swap)], md))
    if ours.median() and swap.median():
        cells = [one_over("times the swap file", swap.median(), ours.median(),
                          10)]
        report.say(lambda md: table(["", "is", "at least", ""], cells, md))


# ---- ways of contexts ---------------------------------------------------------

def show_ways(report, table, place, repeat):
    ways = [("direct, io_uring", ["--io", "io_uring"]),
            ("direct, threads", ["--io", "threads"]),
            ("direct, one after the other", ["--io", "sync"]),
            ("through the page cache, io_uring",
             ["--io", "io_uring", "--buffered"]),
            ("through the page cache, threads",
             ["--io", "threads", "--buffered"]),
            ("through the page cache, one after the other",
             ["--io", "sync", "--buffered"])]
    kinds = [(mode, data, ranks, limit) for _, mode, data, ranks, limit
             in CONTEXTS]
    pairs = [[Row(label, contexts_run(*kind, place, None, options))
              for kind in kinds] for label, options in ways]
    for _ in range(repeat):
        for pair in pairs:
            for row in pair:
                row.once()
    report.heading("Ways to read and write contexts, one round, s")
    report.say(lambda md: table(
        ["", *(f"{label}{more}" for label, *_ in CONTEXTS
               for more in ("", ": range"))],
        [[pair[0].label, *(text for row in pair
                           for text in (number(row), span(row)))]
         for pair in pairs], md))


# ---- sorting -----------------------------------------------------------------

def show_io(report, table, place, size, repeat):
    source = make_input(place, "u64", size)
    out = os.path.join(place, "out")
    limit = size // 8
    rows = [Row(label, poise_sort(source, out, "u64", limit, "--threads=2",
                                  *flags))
            for label, flags in (
                ("direct, io_uring", ["--io", "io_uring"]),
                ("direct, threads", ["--io", "threads"]),
                ("through the page cache, io_uring",
                 ["--io", "io_uring", "--buffered"]),
                ("through the page cache, threads",
                 ["--io", "threads", "--buffered"]))]
    for _ in range(repeat):
        for row in rows:
            row.once()
    report.heading(f"Ways to read and write: sort of u64, {size / MIB:g} MiB, "
                   f"{limit / MIB:g} MiB of memory")
    report.say(rows_table(table, rows, size))


PATTERNS = ["random", "sorted", "reverse", "equal", "few", "skew"]
PART_KINDS = {"u64": 8, "record:100,0,10": 100, "lines": 50.5}
# Buckets of frequent keys, which are not sorted, are left out; others have room
# for so many times the mean (src/extmem/sort/plan.c), and are split if they need more.
PART_BYTES, PART_MEMORY, PART_MOST = 128 * MIB, 16 * MIB, 1.6


def show_parts(report, table, place):
    path, out = os.path.join(place, "parts"), os.path.join(place, "out")
    cells = []
    for kind, item in PART_KINDS.items():
        for pattern in PATTERNS:
            subprocess.run(
                [POISE, "sort", "--generate", str(int(PART_BYTES / item)),
                 "--type", kind, "--pattern", pattern, path], check=True)
            done = subprocess.run(
                [POISE, "sort", "--type", kind, "--json", "--threads=2",
                 "--memory",
                 str(PART_MEMORY), path, "-o", out], check=True,
                capture_output=True, text=True)
            said = json.loads(done.stdout)
            mean = said["mean_bucket_bytes"]
            ratio = said["largest_bucket_bytes"] / mean if mean else 0
            cells.append([kind.split(":", maxsplit=1)[0], pattern,
                          f"{said['buckets']}",
                          f"{ratio:.2f}" if ratio else "all keys are frequent",
                          "met" if ratio <= PART_MOST else "MISSED",
                          f"{said['splits']}", f"{said['seconds']:.2f}"])
            os.unlink(path)
            os.unlink(out)
    report.heading(f"The largest bucket, {PART_BYTES / MIB:.0f} MiB in "
                   f"{PART_MEMORY / MIB:.0f} MiB of memory")
    report.say(lambda md: table(
        ["type", "keys", "buckets", "largest over the mean",
         f"at most {PART_MOST}", "split again", "s"], cells, md))


NAMES = ["pems-disks", "pems-io", "pems-swapfile", "sort-hosts", "sort-io", "sort-parts"]


def show(report, table, wanted, args):
    mine = [name for name in NAMES if name in wanted]
    if not mine:
        return
    if os.geteuid() != 0:
        report.say(lambda md: f"{', '.join(mine)}: not root\n")
        return
    place = os.path.join(args.dir, "disks")
    os.makedirs(place, exist_ok=True)
    if {"pems-disks", "pems-io", "pems-swapfile"} & set(mine):
        compile_pems()
    for name in mine:
        if name in ("pems-disks", "sort-hosts") and not has_throttle():
            report.say(lambda md, name=name: f"{name}: no control groups of "
                       "version 1 with blkio.throttle\n")
        elif name == "pems-disks":
            show_disks(report, table, place, args.repeat)
        elif name == "sort-hosts":
            show_hosts(report, table, place, args.size * MIB, args.repeat)
        elif name == "pems-io":
            show_ways(report, table, place, args.repeat)
        elif name == "pems-swapfile":
            show_swapfile(report, table, place, args.repeat)
        elif name == "sort-io":
            show_io(report, table, place, args.size * MIB, args.repeat)
        else:
            show_parts(report, table, place)
