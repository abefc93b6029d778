"""Cases of bench/run on sending files: poise send against rsync, on two
versions of something, both caches as the first version left them. Each of two
ends is a process; the bytes are those of both directions."""

import json
import os
import shutil
import statistics
import subprocess
import tempfile
import time

import wire_data
import wire_echo
import wire_tables
from measure import BUILD, MIB, POISE

# The other end: what a remote shell would start, without one.
SHELL = "#!/bin/sh\nshift\nexec \"$@\"\n"
THIN = "site near 1\nsite far 1\nlink near far 60ms 1.6Mbit\n"
# A command's input and output over TCP: what ssh would do, without ciphers.
CARRY = """
import os, socket, subprocess, sys, threading
def tune(s):
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return s
if sys.argv[1] == "serve":
    listening = socket.create_server(("", int(sys.argv[2])))
    print("ready", flush=True)
    while True:
        s = tune(listening.accept()[0])
        subprocess.Popen(sys.argv[3:], stdin=s, stdout=s)
        s.close()
s = tune(socket.create_connection((sys.argv[1], int(sys.argv[2]))))
def up():
    while data := os.read(0, 65536):
        s.sendall(data)
    s.shutdown(socket.SHUT_WR)
threading.Thread(target=up, daemon=True).start()
while data := s.recv(65536):
    while data:
        data = data[os.write(1, data):]
"""


class Run:
    def __init__(self, argv):
        begun = time.monotonic()
        with tempfile.TemporaryFile("w+") as out:
            child = subprocess.Popen(argv, stdout=out,
                                     stderr=subprocess.STDOUT)
            status, usage = os.wait4(child.pid, 0)[1:]
            self.seconds = time.monotonic() - begun
            child.returncode = os.waitstatus_to_exitcode(status)
            out.seek(0)
            self.text = out.read()
        self.cpu = usage.ru_utime + usage.ru_stime
        self.rss = usage.ru_maxrss * 1024
        if child.returncode:
            raise RuntimeError(f"{argv}: {self.text[-400:]}")

    def wire(self):
        """Bytes of both directions, as the command counts them."""
        if "wire_out_bytes" in self.text:
            got = json.loads(self.text)
            return got["wire_out_bytes"] + got["wire_in_bytes"]
        return sum(int(line.split(":")[1].replace(",", ""))
                   for line in self.text.splitlines()
                   if line.startswith("Total bytes "))


class Place:
    """A folder with targets, caches and what starts the other end."""

    def __init__(self, folder):
        self.folder = folder
        self.shell = self.path("shell")
        with open(self.shell, "w", encoding="ascii") as file:
            file.write(SHELL)
        os.chmod(self.shell, 0o755)

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def poise(self, source, target, *words):
        return [POISE, "send", "--json", "-e", self.shell, "--program", POISE,
                "--cache", self.path("c1"), "--remote-cache", self.path("c2"),
                *words, source, f"host:{self.path(target)}"]

    def rsync(self, source, target, *words):
        return ["rsync", "-a", "--no-whole-file", "--stats", *words, source,
                self.path(target)]

    def restore(self, names):
        """What the first version left."""
        for name in names:
            shutil.rmtree(self.path(name), ignore_errors=True)
            subprocess.run(["cp", "-a", self.path(name + ".kept"),
                            self.path(name)], check=True)


def row(label, runs, size):
    seconds = [run.seconds for run in runs]
    wire = runs[0].wire()
    return [label, f"{wire:,}", f"{size / wire:.1f}",
            f"{statistics.median(seconds):.2f}",
            f"{min(seconds):.2f}-{max(seconds):.2f}",
            f"{statistics.median(run.cpu for run in runs):.2f}",
            f"{max(run.rss for run in runs) / MIB:.0f}"]


HEADINGS = ["", "bytes both ways", "of the data", "median s", "range", "CPU s",
            "peak MB of an end"]


def size_of(tree):
    return sum(os.lstat(os.path.join(folder, name)).st_size
               for folder, _, names in os.walk(tree) for name in names)


def versions(args):
    if not args.wire_old or not args.wire_new:
        return None
    return [os.path.join(path, "") for path in (args.wire_old, args.wire_new)]


def tree(args):
    """First transfers, and second versions, of a tree, on one machine."""
    found = versions(args)
    if not found:
        return "no --wire-old and --wire-new", []
    old, new = found
    zstd = ("-z", "--zc=zstd")
    sizes = {old: size_of(old), new: size_of(new)}
    runs = {}

    def run(label, argv):
        source = new if new in argv else old
        runs.setdefault((label, sizes[source]), []).append(Run(argv))

    with tempfile.TemporaryDirectory(dir=args.dir) as folder:
        place = Place(folder)
        kept = ["c1", "c2", "d", "e", "r"]
        for number in range(args.repeat):
            if number == 0:
                run("old: poise send", place.poise(old, "d"))
                run("old: rsync -a", place.rsync(old, "r", "--whole-file"))
                Run(place.rsync(old, "e", "--whole-file"))
                for name in kept:
                    os.rename(place.path(name), place.path(name + ".kept"))
            place.restore(kept)
            run("new, over the old: poise send", place.poise(new, "d"))
            run("new, over the old: rsync -a", place.rsync(new, "e"))
            place.restore(["e"])
            run("new, over the old: rsync -az", place.rsync(new, "e", *zstd))
            run("new, over the old: rsync -az -B2048",
                place.rsync(new, "r", *zstd, "-B2048"))
            place.restore(["c1", "c2"])
            run("new, elsewhere: poise send", place.poise(new, "f"))
            run("again: poise send", place.poise(new, "f"))
            run("again: rsync -a", place.rsync(new, "r"))
            shutil.rmtree(place.path("f"))
    rows = [row(label, some, size) for (label, size), some in runs.items()]
    return f"Sending {os.path.basename(new[:-1])}, the caches and the " \
        f"target holding {os.path.basename(old[:-1])}", rows


def thin(args):
    """The same over a link of 60 ms and 1.6 Mbit/s, against rsync's daemon."""
    found = versions(args)
    if not found:
        return "no --wire-old and --wire-new", []
    if os.geteuid() != 0:
        return "not root: no emulated network", []
    import wan_cases
    rows = []
    with tempfile.TemporaryDirectory(dir=args.dir) as folder, \
            wan_cases.Bed(THIN) as bed:
        place = Place(folder)
        carry, conf = place.path("carry"), place.path("rsyncd.conf")
        with open(carry, "w", encoding="ascii") as file:
            file.write(CARRY)
        with open(place.shell, "w", encoding="ascii") as file:
            file.write(f"#!/bin/sh\nexec python3 {carry} 10.77.2.1 5001\n")
        with open(conf, "w", encoding="ascii") as file:
            file.write("use chroot = no\nuid = 0\ngid = 0\n[d]\n"
                       f"path = {place.path('r')}\nread only = no\n")
        os.mkdir(place.path("r"))
        servers = [bed.serve("far0", "python3", carry, "serve", "5001", POISE,
                             "send", "--server"),
                   bed.start("far0", "rsync", "--daemon", "--no-detach",
                             f"--config={conf}", "--port", "5002")]
        near = bed.wan + ["exec", "near0"]
        for label, source, of in (("old", found[0], found[0]),
                                  ("old, again", found[0], found[0]),
                                  ("new", found[1], found[1])):
            size = size_of(of)
            rows.append(row(f"{label}: poise send",
                            [Run(near + place.poise(source, "p"))], size))
            rows.append(row(f"{label}: rsync -az", [Run(
                near + ["rsync", "-a", "-z", "--zc=zstd", "--stats", source,
                        "rsync://10.77.2.1:5002/d/"])], size))
        wan_cases.stop(servers)
    return "Sending over 60 ms and 1.6 Mbit/s", rows


# ---- bytes against others, on several kinds of data ---------------------------

def rsync_best(folder, old, new):
    """rsync's run with the block size that sends least."""
    runs = []
    for block in ([], ["-B700"], ["-B2048"]):
        there = os.path.join(folder, "there")
        shutil.copyfile(old, there)
        runs.append(Run(["rsync", "-I", "--no-whole-file", "-z", "--zc=zstd",
                         "--stats", *block, new, there]))
    return min(runs, key=Run.wire)


def zstd_run(folder, new, *words):
    packed = os.path.join(folder, "packed")
    run = Run(["zstd", "-3", "-T1", "-q", "-f", *words, new, "-o", packed])
    return os.path.getsize(packed), run.seconds, run.rss


def wire_run(folder, old, new, size, *words):
    """From process to process, both with 64 MB of memory for their cache."""
    ends = [os.path.join(folder, "s"), os.path.join(folder, "r")]
    got = wire_tables.wire("ends", "-s", size, "-M", 64 * MIB, *words, "-S",
                           ends[0], "-R", ends[1], old, new)[1]
    for end in ends:
        shutil.rmtree(end, ignore_errors=True)
    return got["wire"], got["seconds"], max(got["sender"]["rss"],
                                            got["receiver"]["rss"])


def sizes_of(folder, old, new):
    """Label -> bytes, seconds, memory of the largest process."""
    best = rsync_best(folder, old, new)
    return {
        "zstd -3": zstd_run(folder, new),
        "zstd -3 --long=31": zstd_run(folder, new, "--long=31"),
        "zstd -3 --patch-from": zstd_run(folder, new, "--long=31",
                                         f"--patch-from={old}"),
        "rsync -z, best block": (best.wire(), best.seconds, best.rss),
        "poise 64": wire_run(folder, old, new, 64),
        "poise 256": wire_run(folder, old, new, 256),
        "poise 1024": wire_run(folder, old, new, 1024),
        "poise 256, sender forgets": wire_run(folder, old, new, 256, "-f"),
    }


def pairs_of(args, folder):
    """Name -> paths of two versions."""
    found = {}
    for words in args.wire_pair + [f"{args.wire_old}:{args.wire_new}"]:
        trees = words.split(":")
        name = os.path.basename(os.path.abspath(trees[1]))
        paths = [os.path.join(folder, f"{name}.{version}.tar")
                 for version in ("old", "new")]
        for path, each in zip(paths, trees):
            wire_tables.archive(each, path)
        found[name] = paths
    for name in wire_data.MADE:
        found[name] = wire_data.make(name, args.dir)
    return found


def size_bars(got, size):
    """What is asked of the bytes of one kind of data."""
    ours = min(got[f"poise {each}"][0] for each in (64, 256, 1024))
    plain, patch = got["zstd -3"], got["zstd -3 --patch-from"]
    return [f"{got['rsync -z, best block'][0] / ours:.2f}",
            f"{ours / patch[0]:.2f}",
            f"{got['poise 256'][2] / patch[2]:.2f}",
            f"{got['poise 256'][0] / plain[0]:.3f}",
            f"{got['poise 256'][1] / plain[1]:.2f}", f"{size / ours:.1f}"]


def sizes(args, report, table):
    """What each sends of the second version, the first being there."""
    bars = []
    with tempfile.TemporaryDirectory(dir=args.dir) as folder:
        for name, (old, new) in pairs_of(args, folder).items():
            size = os.path.getsize(new)
            got = sizes_of(folder, old, new)
            report.heading(f"{name}: {size:,} bytes")
            rows = [[label, f"{sent:,}", f"{size / sent:.2f}", f"{took:.2f}",
                     f"{rss / MIB:.0f}"]
                    for label, (sent, took, rss) in got.items()]
            report.say(lambda md, rows=rows: table(
                ["", "bytes both ways", "ratio", "s", "peak MB"], rows, md))
            bars.append([name, *size_bars(got, size)])
    report.heading("The wire's bytes against those of others")
    report.say(lambda md: table(
        ["", "rsync / poise, best of each", "poise, best / patch-from",
         "memory, poise 256 / patch-from", "bytes, poise 256 / zstd -3",
         "time, poise 256 / zstd -3", "ratio of the best"], bars, md))


# Name -> what bench/fields makes of it (two versions), shape, element.
FIELDS = {
    "wave": ((("wave", 128, 8, 4, 10), ("wave", 128, 9, 4, 10)),
             "128x128x128", 4),
    "heat": ((("heat", 1024, 20, 2, 500), ("heat", 1024, 22, 2, 500)),
             "1024x1024", 8),
    "window": ((("window", 2048, 0, 2, 1), ("window", 2048, 2, 2, 1)),
               "2048x2048", 4),
}


def floats_of(folder, old, new, shape, element):
    """Label -> bytes, seconds, memory of the largest process."""
    best = rsync_best(folder, old, new)
    known = f"floats,shape={shape},element={element}"
    rows = {
        "zstd -3": zstd_run(folder, new),
        "zstd -3 --patch-from": zstd_run(folder, new, "--long=31",
                                         f"--patch-from={old}"),
        "rsync -z, best block": (best.wire(), best.seconds, best.rss),
    }
    for label, words, size in (
            ("poise fixed", "fixed", 256), ("poise lbfs", "lbfs", 256),
            ("poise gear", "gear", 256), ("poise gear", "gear", 1024),
            ("poise floats, no shape", f"floats,element={element}", 256),
            ("poise floats", known, 64), ("poise floats", known, 256),
            ("poise floats", known, 1024)):
        rows[f"{label} {size}"] = wire_run(folder, old, new, size, "-m", words)
    rows["poise auto"] = wire_run(folder, old, new, 0, "-m", "auto")
    return rows


def floats(args, report, table):
    """Float arrays that a solver made: their next steps, the first there."""
    with tempfile.TemporaryDirectory(dir=args.dir) as folder:
        for name, (made, shape, element) in FIELDS.items():
            paths = [os.path.join(folder, f"{name}.{version}")
                     for version in ("old", "new")]
            for path, words in zip(paths, made):
                subprocess.run([os.path.join(BUILD, "bench", "fields"),
                                *map(str, words), path], check=True)
            size = os.path.getsize(paths[1])
            report.heading(f"{name}, {shape} of {element} bytes: "
                           f"{size:,} bytes")
            rows = [[label, f"{sent:,}", f"{size / sent:.2f}", f"{took:.2f}",
                     f"{rss / MIB:.0f}"] for label, (sent, took, rss)
                    in floats_of(folder, *paths, shape, element).items()]
            report.say(lambda md, rows=rows: table(
                ["", "bytes both ways", "ratio", "s", "peak MB"], rows, md))


LONE = {"wire-floats": floats}
TABLES = {**wire_tables.CASES, "wire-sizes": sizes}
CASES = {"wire-tree": tree, "wire-thin": thin, "wire-echo": wire_echo.echo,
         **LONE, **TABLES}


# ---- for bench/run -----------------------------------------------------------

def add_options(parser):
    parser.add_argument("--wire-old", metavar="FOLDER",
                        help="for the cases wire-*: a version of something")
    parser.add_argument("--wire-new", metavar="FOLDER",
                        help="its next version")
    parser.add_argument("--wire-pair", metavar="OLD:NEW", action="append",
                        default=[],
                        help="for wire-sizes: two versions more (repeatable)")


def expand(names):
    """The cases that a name stands for."""
    return [case for name in names
            for case in (CASES if name == "wire" else [name])]


def run_case(name, args, report, table):
    if name in LONE:
        LONE[name](args, report, table)
        report.say(lambda md: f"`bench/run --case {name}`\n")
        return
    if name in TABLES:
        if not versions(args):
            report.say(lambda md: f"{name}: no --wire-old and --wire-new\n")
            return
        TABLES[name](args, report, table)
        report.say(lambda md: said(name, args))
        return
    title, rows = CASES[name](args)
    if not rows:
        report.say(lambda md: f"{name}: {title}\n")
        return
    report.heading(title)
    headings = wire_echo.HEADINGS if name == "wire-echo" else HEADINGS
    report.say(lambda md: table(headings, rows, md))
    report.say(lambda md: said(name, args))


def said(name, args):
    """The command that made a table."""
    def short(path):
        return os.path.basename(os.path.abspath(path))

    if not versions(args):
        return f"`bench/run --case {name}`\n"
    pairs = "".join(" --wire-pair " + ":".join(map(short, pair.split(":")))
                    for pair in args.wire_pair if name == "wire-sizes")
    return f"`bench/run --case {name} --repeat {args.repeat} --wire-old " \
        f"{short(args.wire_old)} --wire-new {short(args.wire_new)}{pairs}`\n"
