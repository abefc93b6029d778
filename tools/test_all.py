#!/usr/bin/env python3
"""Build and test in every way that counts; close with 'N passed, N failed'.

Each way is a build directory of its own and the suites that can find something
in it. Suites: unit, cli, mpi, structure, and soak, which runs only when asked
for. A test program that says how many tests are inside it (cmocka, 'N passed,
N failed') counts as these, another as one.

Many tests wait more than they compute: what is tested next is built meanwhile,
at a lower priority, and the ways after the first are tested beside it. Their
output follows when the first one's is complete.
"""

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

CMOCKA = re.compile(r"^\[\s+(PASSED|FAILED)\s+\] (\d+) test", re.M)

# It says how many it will try; one that ended in between may have exit code 0.
BEGUN = re.compile(r"^\[=+\] Running (\d+) test", re.M)
ENDED = re.compile(r"^\[=+\] (\d+) test\(s\) run", re.M)

PLAIN = re.compile(r"^(\d+) passed, (\d+) failed", re.M)

# Of each failed test, so many of its last lines are said again at the end.
ACCOUNT_LINES = 15


# Of a time limit that a test has on a machine that does nothing else, so much
# more for being one of several that run at a time and for sanitizers.
PATIENCE = 6


# Where tests put files. Which inodes were deleted in the last half minute costs
# ext4 a search for each file made (up to 90 % of the CPU time of tests that make
# thousands), so in memory where there is room, of which a whole run takes
# a part; for tests that are about disks tests/meson.build says /var/tmp.
MEMORY = "/dev/shm"
ROOM = 6 << 30


class Way:
    def __init__(self, name, folder, suites, options=(), env=None, wrapper=(),
                 without=(), light=False, share=1, soak=False, in_soak=()):
        self.name = name
        self.folder = folder
        self.suites = suites
        self.options = list(options)
        self.env = env or {}
        self.wrapper = list(wrapper)
        self.without = list(without)
        self.light = light
        self.share = share
        self.soak = soak
        self.in_soak = list(in_soak)
        self.built = threading.Event()
        self.why = []


# The address and undefined sanitizers are clang's: it finds what gcc's do and
# more (an offset to a null pointer), the fuzz targets need them, and so clang's
# warnings come with one set of objects. The thread sanitizer's shadow memory
# needs addresses that are not spread too far: setarch -R. What those of soak
# would find besides is little: the same tests with other code of compilers.
# Long rows of cases are tried in part under them (tests/share.h). What fails at
# the k-th call, for every k, is a matter of clean-up: the address
# sanitizer's, and in soak the thread sanitizer's, too.
LIGHT = ["-Doptimization=0"]
ASAN = ["-Db_sanitize=address,undefined", "-Db_lundef=false"]
TSAN = ["-Db_sanitize=thread", "-Db_lundef=false"]
CLANG = {"CC": "clang"}
if shutil.which("ld.lld"):
    # The runtime of the address sanitizer is long: in half of the time.
    CLANG["CC_LD"] = "lld"
FIXED = ["setarch", "-R"]
WAYS = [
    Way("gcc", "build", ["structure", "unit", "cli", "mpi"]),
    Way("asan", "build-asan", ["unit", "cli", "fuzz"],
        ASAN + LIGHT + ["-Dfuzz=true", "-Dc_args="], CLANG, share=5,
        in_soak=["-Dc_args=-fsanitize=fuzzer-no-link"]),
    Way("tsan", "build-tsan", ["unit"], TSAN + LIGHT, wrapper=FIXED,
        without=["serial"], light=True, share=6),
    Way("clang", "build-clang", ["unit", "cli", "mpi"], env=CLANG, soak=True),
    Way("gcc-asan", "build-gcc-asan", ["unit", "cli"], ASAN, soak=True),
    Way("clang-tsan", "build-clang-tsan", ["unit", "cli"], TSAN, CLANG,
        wrapper=FIXED, soak=True),
    *(Way("no-" + part, "build-no-" + part, ["without"],
          [f"-D{part}=disabled"], soak=True)
      for part in ("hwloc", "sqlite", "zlib", "openssl", "io_uring", "curl",
                   "otf2")),
]


def say(text):
    print(text, flush=True)


def available():
    """Bytes of memory that may be taken without swapping; 0: unknown."""
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            for line in lines:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) << 10
    except OSError:
        pass
    return 0


def has_room(folder):
    """Whether files of the tests, programs among them, can be in memory there."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return False
    room = found.f_bavail * found.f_frsize
    return (os.access(folder, os.W_OK | os.X_OK) and
            not found.f_flag & os.ST_NOEXEC and
            room >= ROOM and available() >= 2 * ROOM)


def slowness():
    """How much longer than on an idle machine a test may take: by the load of
    the last minute on each core."""
    return PATIENCE * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def needed(way):
    """What the tests of a way need, as ninja names it."""
    def introspect(what):
        return json.loads(subprocess.run(
            ["meson", "introspect", way.folder, what], check=True,
            stdout=subprocess.PIPE).stdout)
    wanted = {name for test in introspect("--tests")
              for suites in [{s.split(":")[-1] for s in test["suite"]}]
              if suites & set(way.suites) and not suites & set(way.without)
              for name in test["depends"]}
    return sorted(os.path.relpath(name, os.path.abspath(way.folder))
                  for target in introspect("--targets")
                  if target["id"] in wanted for name in target["filename"])


def build(way, log=None):
    """Configure and build; an account of the step that failed, if one did. The
    first way and those of soak build everything, others what their tests
    need."""
    env = dict(os.environ, **way.env)
    options = ["-Dwerror=true"] + way.options
    if os.path.exists(os.path.join(way.folder, "build.ninja")):
        setup = ["meson", "configure", way.folder] + options
    else:
        setup = ["meson", "setup", way.folder] + options
    # What tests need is known when meson has looked at what changed.
    look = ["ninja", "-C", way.folder, "build.ninja"]
    make = ["ninja", "-C", way.folder]
    for command in (setup, look, make):
        if command is make and way is not WAYS[0] and not way.soak:
            command += needed(way)
        if subprocess.run(["nice"] + command if log else command, env=env,
                          stdin=subprocess.DEVNULL, stdout=log,
                          stderr=subprocess.STDOUT).returncode:
            lines = []
            if log:
                log.seek(0)
                lines = ["    " + line for line in log.read().splitlines()]
            return [[f"FAILED: {' '.join(command)}", *lines[-60:]]]
    return []


def build_all(ways):
    """Build one after the other; what the first one says is shown."""
    for number, way in enumerate(ways):
        try:
            if number == 0:
                way.why = build(way)
            else:
                with tempfile.TemporaryFile("w+", errors="replace") as log:
                    way.why = build(way, log)
        except OSError as error:
            way.why = [[f"FAILED: {way.folder}: {error}"]]
        finally:
            way.built.set()


def tests_inside(entry):
    """(passed, failed) of one entry of meson's log."""
    if entry["result"] in ("SKIP", "IGNORED"):
        return 0, 0
    good = entry["result"] in ("OK", "EXPECTEDFAIL")
    counts = {"PASSED": 0, "FAILED": 0}
    text = entry.get("stdout", "") + "\n" + entry.get("stderr", "")
    for kind, number in CMOCKA.findall(text):
        counts[kind] += int(number)
    for passed, failed in PLAIN.findall(text):
        counts["PASSED"] += int(passed)
        counts["FAILED"] += int(failed)
    if BEGUN.findall(text) != ENDED.findall(text):
        good = False
    if good:
        return max(counts["PASSED"], 1), 0
    # One that died has no count of its own.
    return counts["PASSED"], max(counts["FAILED"], 1)


def account(way, entry):
    """What a failed entry of meson's log had to say: a heading and its end."""
    text = entry.get("stdout", "") + "\n" + entry.get("stderr", "")
    # Of cmocka and of our scripts, only what is not about a test that passed.
    lines = [line for line in text.splitlines() if line.strip()
             and not line.startswith(("[ RUN", "[       OK", "ok "))]
    return [f"FAILED: {way.name}: {entry['name']} ({entry['result']}, "
            f"{entry.get('duration', 0):.1f} s)"] + [
                "    " + line for line in lines[-ACCOUNT_LINES:]]


def read_log(way, started):
    """Sum of tests_inside over a log written after `started`, and an account
    of what failed in it."""
    passed = failed = skipped = 0
    accounts = []
    path = os.path.join(way.folder, "meson-logs", "testlog.json")
    if not os.path.exists(path) or os.path.getmtime(path) < started:
        return 0, 0, 0, accounts
    with open(path, encoding="utf-8", errors="replace") as log:
        for line in log:
            entry = json.loads(line)
            good, bad = tests_inside(entry)
            passed += good
            failed += bad
            skipped += entry["result"] == "SKIP"
            if bad:
                accounts.append(account(way, entry))
    return passed, failed, skipped, accounts


def run_suites(way, soak, log=None):
    suites = way.suites + (["soak"] if soak else [])
    command = way.wrapper + [
        "meson", "test", "-C", way.folder, "--no-rebuild", "--print-errorlogs",
        # One more than there are cores: many tests wait.
        "--num-processes", str((os.cpu_count() or 1) + 1)]
    for suite in suites:
        command += ["--suite", suite]
    for suite in way.without:
        command += ["--no-suite", suite]
    patience = slowness()
    env = dict(os.environ, POISE_TEST_SLOWNESS=f"{patience:.1f}")
    if soak:
        command += ["--setup", "soak"]
    else:
        if way.light:
            env["POISE_TEST_LIGHT"] = "1"
        # Meson would have malloc fill all memory with a byte that differs from
        # run to run: of the tests that have large buffers, most of the time.
        # The address sanitizer fills it, too, the first 4 KiB.
        env["MALLOC_PERTURB_"] = "0"
        env["POISE_TEST_SHARE"] = str(way.share)
        command += ["--timeout-multiplier", f"{patience:.1f}"]
    started = time.time() - 1
    code = subprocess.run(command, stdin=subprocess.DEVNULL, env=env,
                          stdout=log, stderr=log and subprocess.STDOUT
                          ).returncode
    passed, failed, skipped, accounts = read_log(way, started)
    if code and not failed:
        accounts.append([f"FAILED: {' '.join(command)}"])
        failed = 1
    return passed, failed, skipped, accounts


class Result:
    def __init__(self):
        self.passed = self.failed = self.skipped = 0
        self.accounts = []
        self.took = 0


def try_way(way, soak, result, log=None):
    """Test it when it is built."""
    way.built.wait()
    began = time.monotonic()
    result.accounts = way.why
    result.failed = len(way.why)
    if not result.failed:
        (result.passed, result.failed, result.skipped,
         result.accounts) = run_suites(way, soak and not way.soak, log)
    result.took = time.monotonic() - began


def try_beside(ways, results, logs):
    for way, result, log in zip(ways, results, logs):
        try:
            try_way(way, False, result, log)
        except Exception as error:  # a thread's end would not be noticed
            result.failed += 1
            result.accounts = [[f"FAILED: {way.name}: {error!r}"]]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--soak", action="store_true",
                        help="the long tests too, and every way of building")
    parser.add_argument("--only", action="append", metavar="NAME",
                        choices=[way.name for way in WAYS],
                        help="only this way of building (repeatable)")
    args = parser.parse_args()

    # Started in the background or by nohup, programs ignore these, and so would
    # those of the tests that are ended by them.
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)

    folder = None
    if "TMPDIR" not in os.environ and not args.soak and has_room(MEMORY):
        folder = tempfile.TemporaryDirectory(dir=MEMORY, prefix="tests-")
        # Some tests become other users.
        os.chmod(folder.name, 0o1777)
        os.environ["TMPDIR"] = folder.name
    try:
        return try_ways(args)
    finally:
        if folder:
            folder.cleanup()


def try_ways(args):
    """All that was asked for; the exit code."""
    lines = []
    accounts = []
    total_passed = total_failed = 0
    ways = [way for way in WAYS if
            (way.name in args.only if args.only else args.soak or not way.soak)]
    if args.soak:
        for way in ways:
            way.options += way.in_soak
    threading.Thread(target=build_all, args=(ways,), daemon=True).start()
    results = [Result() for way in ways]
    # The long tests go one way after the other.
    beside = [] if args.soak else ways[1:]
    logs = [tempfile.TemporaryFile("w+", errors="replace") for way in beside]
    other = threading.Thread(target=try_beside, daemon=True,
                             args=(beside, results[1:], logs))
    other.start()
    for number, (way, result) in enumerate(zip(ways, results)):
        say(f"\n== {way.name}: {way.folder}, suites {', '.join(way.suites)}")
        if number > 0 and beside:
            other.join()
            logs[number - 1].seek(0)
            say(logs[number - 1].read())
        else:
            try_way(way, args.soak, result)
        accounts += result.accounts
        lines.append(f"{way.name:6} {result.passed:5} passed, {result.failed} "
                     f"failed, {result.skipped} skipped, {result.took:.0f} s")
        total_passed += result.passed
        total_failed += result.failed
    # Last, because who reads a long log, or is given the end of it only,
    # wants to see this.
    say("")
    for why in accounts:
        say("\n".join(why))
    for line in lines:
        say(line)
    if not total_passed and not total_failed:
        say("no test was run")
        total_failed = 1
    say(f"{total_passed} passed, {total_failed} failed")
    return 1 if total_failed else 0


if __name__ == "__main__":
    sys.exit(main())
