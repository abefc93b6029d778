"""The cases of bench/run on contexts on disk: 'pems-*'.

bench/vrank/pems.c, compiled by poise cc, in a control group of less memory than its
ranks hold. Bytes are those that poise run counts (--profile-json), less those
of the same run without rounds. The raw rate is that of bench/extmem/disk_passes.c
with huge pages over blocks that the disk has already, before and after, in the
same run.
"""

import json
import os
import statistics
import subprocess

from big_cases import PASSES, limited
from measure import BUILD, MIB, POISE, ROOT

PEMS = os.path.join(BUILD, "bench", "pems.poise")
ROUNDS = 3
RAW_BYTES = 512 * MIB
MOVED = ("swapped_in", "swapped_out", "parts")


def compile_pems():
    subprocess.run([POISE, "cc", "-O2", "-o", PEMS,
                    os.path.join(ROOT, "bench", "vrank", "pems.c")], check=True)


class Run:
    """Runs of one configuration, and their medians for all rounds."""

    def __init__(self, place, label, mode, ranks, data, limit, more=(),
                 options=()):
        self.place, self.label, self.mode = place, label, mode
        self.ranks, self.data, self.limit = ranks, data, limit
        self.more, self.options = more, options
        self.before, self.problem = None, None
        self.seconds, self.writing, self.moved = [], [], []

    def words(self, rounds, profile):
        return [POISE, "run", "-V", str(self.ranks), "--scratch", self.place,
                "--profile-json", profile, *self.options, PEMS, self.mode,
                str(self.data), str(rounds), *self.more]

    def start(self, rounds):
        """What the program says, and what was moved; None: see problem."""
        profile = os.path.join(self.place, "profile.json")
        _, _, text, self.problem = limited(self.words(rounds, profile),
                                           self.limit)
        if self.problem:
            return None
        with open(profile, encoding="utf-8") as file:
            ranks = json.load(file)["ranks"]
        os.unlink(profile)
        said = json.loads(text)
        if not said["good"]:
            self.problem = "the data are wrong"
            return None
        return said, {key: sum(rank[key] for rank in ranks) for key in MOVED}

    def once(self):
        if self.before is None and not self.problem:
            begun = self.start(0)
            self.before = begun[1] if begun else None
        done = None if self.problem else self.start(ROUNDS)
        if done:
            self.seconds.append(done[0]["seconds"])
            self.writing.append(done[0]["writing_ns"])
            self.moved.append({key: max(0, done[1][key] - self.before[key])
                               for key in MOVED})

    def median(self):
        return statistics.median(self.seconds)

    def bytes(self, *keys):
        return statistics.median(sum(moved[key] for key in keys)
                                 for moved in self.moved)

    def range(self):
        return f"{min(self.seconds):.2f}-{max(self.seconds):.2f}"


class Raw:
    """Bytes a second of the disk: means of before and after."""

    def __init__(self, place):
        self.place, self.found = place, []

    def measure(self):
        done = subprocess.run(
            [PASSES, self.place, str(RAW_BYTES), "3", "again"],
            capture_output=True, text=True, check=True)
        self.found.append(json.loads(done.stdout)["huge_pages"])

    def rate(self, way):
        return statistics.mean(RAW_BYTES / one[way + "_seconds"]
                               for one in self.found)

    def seconds(self, reading, writing):
        return reading / self.rate("read") + writing / self.rate("write")

    def text(self):
        return f"Raw rates: {self.rate('read') / 1e6:.0f} MB/s read, " \
            f"{self.rate('write') / 1e6:.0f} written.\n"


def measure(place, runs, repeat):
    """All in turn; the raw rates around them."""
    raw = Raw(place)
    raw.measure()
    for _ in range(repeat):
        for run in runs:
            run.once()
    raw.measure()
    return raw


def mib(count):
    return f"{count / MIB:.0f}"


def judge(is_, bar, least=False):
    return "met" if (is_ >= bar if least else is_ <= bar) else "MISSED"


def failed(run, width):
    return [run.label, run.problem] + [""] * (width - 2)


def say_commands(report, runs):
    report.say(lambda md: "In a memory control group of "
               f"{mib(runs[0].limit)} MiB, {ROUNDS} rounds; the first:\n")
    report.say(lambda md: "    " + " ".join(
        os.path.relpath(word, ROOT) if word.startswith(BUILD) else word
        for word in runs[0].words(ROUNDS, "FILE")) + "\n")


# ---- alltoallv --------------------------------------------------------------

ALLTOALLV_LIMIT = 192 * MIB
ALLTOALLV = {
    "pems-alltoallv-data": ("over data", [
        (32, 256 * MIB), (32, 512 * MIB), (32, 1024 * MIB)]),
    "pems-alltoallv-ranks": ("over ranks", [
        (v, 256 * MIB) for v in (8, 16, 32, 64, 100)]),
}


def alltoallv_row(raw, call, meet):
    """A row, and the seconds of a round beyond the contexts' own swap."""
    for run in (call, meet):
        if run.problem:
            return failed(run, 11), None, None
    sent = call.data * ROUNDS
    own = meet.bytes("swapped_in", "swapped_out")
    more = max(0, call.bytes(*MOVED) - own)
    bound = raw.seconds(meet.bytes("swapped_in") + sent,
                        meet.bytes("swapped_out") + sent)
    ratio = call.median() / bound
    row = [call.label, mib(own / ROUNDS), mib(more / ROUNDS),
           f"{more / sent:.2f}", judge(more, 2 * sent),
           f"{meet.median() / ROUNDS:.3f}", f"{call.median() / ROUNDS:.3f}",
           call.range(), f"{bound / ROUNDS:.3f}", f"{ratio:.2f}",
           judge(ratio, 1.3)]
    return row, call.median() / ROUNDS, \
        (call.median() - meet.median()) / ROUNDS


def show_alltoallv(report, table, name, place, repeat):
    title, shapes = ALLTOALLV[name]
    pairs = []
    for ranks, data in shapes:
        label = f"{ranks} ranks, {mib(data)} MiB"
        pairs.append([Run(place, label, "alltoallv", ranks, data,
                          ALLTOALLV_LIMIT, more)
                      for more in ((), ("barrier",))])
    runs = [run for pair in pairs for run in pair]
    raw = measure(place, runs, repeat)
    rows, times = [], []
    for call, meet in pairs:
        row, whole, beyond = alltoallv_row(raw, call, meet)
        rows.append(row)
        times.append((whole, beyond))
    report.heading(f"Alltoallv of swapped contexts, {title}")
    report.say(lambda md: raw.text())
    report.say(lambda md: table(
        ["a round", "own swap, MiB", "beyond it, MiB", "of what is sent",
         "at most 2", "s without the call", "s with it", "range, all rounds",
         "bound s", "s over it", "at most 1.3"], rows, md))
    (first, first_beyond), (last, last_beyond) = times[0], times[-1]
    if name == "pems-alltoallv-ranks" and first and last:
        cells = [["time of a round", f"{last / first:.2f}", "1.2",
                  judge(last / first, 1.2)]]
        if first_beyond > 0:
            cells.append(["beyond the round without it",
                          f"{last_beyond / first_beyond:.2f}", "-", ""])
        report.say(lambda md: table(["100 ranks over 8", "is", "at most", ""],
                                    cells, md))
    say_commands(report, runs)


# ---- swapping, and tracking pages -------------------------------------------

SWAP_RANKS = 24
PAGE = 4096
SWAP = {"pems-swap": ("32 MiB, in huge pages", 32 * MIB, 160 * MIB),
        "pems-swap-small": ("8 MiB, in small pages", 8 * MIB, 56 * MIB)}
DIRT = [("all", 1, "contiguous", "full"), ("all", 1, "contiguous", "auto"),
        ("a tenth in one piece", 10, "contiguous", "auto"),
        ("a tenth, scattered", 10, "scattered", "full"),
        ("a tenth, scattered", 10, "scattered", "auto"),
        ("a fiftieth in one piece", 50, "contiguous", "auto"),
        ("a fiftieth, scattered", 50, "scattered", "full"),
        ("a fiftieth, scattered", 50, "scattered", "auto")]


def write_ns(run, part):
    """Of a page that was not written since its context came."""
    pages = run.data // PAGE // part * run.ranks * ROUNDS
    return statistics.median(run.writing) / pages


def swap_row(raw, run, part, full, untracked):
    if run.problem:
        return failed(run, 9)
    reading, writing = run.bytes("swapped_in"), run.bytes("swapped_out")
    share = raw.seconds(reading, writing) / run.median()
    is_all = part == 1 and run is full
    gain = "" if full.problem else f"{full.median() / run.median():.2f}"
    each = write_ns(run, part)
    cost = ""
    if run is not untracked and untracked is not None and \
            not untracked.problem:
        more = each - write_ns(untracked, part)
        cost = f"{more:.0f} ns: {judge(more, 1000)}"
    return [run.label, mib(reading / ROUNDS), mib(writing / ROUNDS),
            f"{run.median() / ROUNDS:.3f}", run.range(),
            f"{(reading + writing) / run.median() / 1e6:.0f}",
            f"{share:.2f}" + (f": {judge(share, 0.9, True)}" if is_all
                              else ""), gain, cost]


def show_swap(report, table, name, place, repeat):
    title, data, limit = SWAP[name]
    runs = [Run(place, f"{what}, {mode}", "touch", SWAP_RANKS, data, limit,
                (str(part), how), ("--track", mode))
            for what, part, how, mode in DIRT]
    raw = measure(place, runs, repeat)
    full = {(part, how): run for run, (_, part, how, mode)
            in zip(runs, DIRT) if mode == "full"}
    rows = [swap_row(raw, run, part, runs[0], full.get((part, how)))
            for run, (_, part, how, _) in zip(runs, DIRT)]
    report.heading(f"Contexts swapped by barriers, {SWAP_RANKS} of {title}")
    report.say(lambda md: raw.text())
    report.say(lambda md: table(
        ["written, tracking", "MiB read a round", "written", "s a round",
         "range, all rounds", "MB/s", "of the raw rate, at least 0.9",
         "times faster than all written", "a first write costs, at most 1000"],
        rows, md))
    say_commands(report, runs)


# ---- eight times the memory -------------------------------------------------

BOUND_RANKS, BOUND_LIMIT, BOUND_TIMES = 64, 128 * MIB, 8


def show_bound(report, table, place, repeat):
    data = BOUND_LIMIT * BOUND_TIMES // BOUND_RANKS
    runs = [Run(place, f"{threads} thread{'s' if threads > 1 else ''}",
                "sweep", BOUND_RANKS, data, BOUND_LIMIT, (),
                ("-j", str(threads))) for threads in (1, 2)]
    raw = measure(place, runs, repeat)
    once = BOUND_RANKS * data * ROUNDS
    rows = []
    for run in runs:
        if run.problem:
            rows.append(failed(run, 8))
            continue
        bound = raw.seconds(once, once)
        ratio = run.median() / bound
        rows.append([run.label, mib(run.bytes("swapped_in") / ROUNDS),
                     mib(run.bytes("swapped_out") / ROUNDS),
                     f"{run.median() / ROUNDS:.3f}", run.range(),
                     f"{bound / ROUNDS:.3f}", f"{ratio:.2f}",
                     judge(ratio, 1.5)])
    report.heading(f"A sweep over {mib(once / ROUNDS)} MiB, {BOUND_TIMES} "
                   "times the memory")
    report.say(lambda md: raw.text())
    report.say(lambda md: "The bound: all data read and written once a round, "
               "at these rates.\n")
    report.say(lambda md: table(
        ["", "MiB read a round", "written", "s a round", "range, all rounds",
         "bound s", "s over it", "at most 1.5"], rows, md))
    say_commands(report, runs)


NAMES = [*ALLTOALLV, *SWAP, "pems-bound"]


def show(report, table, wanted, args):
    mine = [name for name in NAMES if name in wanted]
    if not mine:
        return
    place = os.path.join(args.dir, "pems")
    os.makedirs(place, exist_ok=True)
    compile_pems()
    for name in mine:
        if name in ALLTOALLV:
            show_alltoallv(report, table, name, place, args.repeat)
        elif name in SWAP:
            show_swap(report, table, name, place, args.repeat)
        else:
            show_bound(report, table, place, args.repeat)
    os.rmdir(place)
