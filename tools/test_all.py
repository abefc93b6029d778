#!/usr/bin/env python3
"""Build and test in every way that counts; close with 'N passed, N failed'.

Each way is a build directory of its own (gcc; address and undefined
sanitizers; thread sanitizer; clang with the fuzz targets) and the suites that
make sense in it. Suites: unit, cli, mpi, structure, and soak, which runs only
when asked for. A test program that says how many tests are inside it (cmocka,
'N passed, N failed') counts as these, another as one.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import time

CMOCKA = re.compile(r"^\[\s+(PASSED|FAILED)\s+\] (\d+) test", re.M)

PLAIN = re.compile(r"^(\d+) passed, (\d+) failed", re.M)

# Of each failed test, so many of its last lines are said again at the end.
ACCOUNT_LINES = 15


class Way:
    def __init__(self, name, folder, suites, options=(), env=None, wrapper=(),
                 without=()):
        self.name = name
        self.folder = folder
        self.suites = suites
        self.options = list(options)
        self.env = env or {}
        self.wrapper = list(wrapper)
        self.without = list(without)


# The thread sanitizer's shadow memory needs addresses that are not spread too
# far: setarch -R.
WAYS = [
    Way("gcc", "build", ["structure", "unit", "cli", "mpi"]),
    Way("clang", "build-clang", ["unit"], ["-Dfuzz=true"], {"CC": "clang"}),
    Way("asan", "build-asan", ["unit", "cli"],
        ["-Db_sanitize=address,undefined"]),
    Way("tsan", "build-tsan", ["unit"], ["-Db_sanitize=thread"],
        wrapper=["setarch", "-R"], without=["serial"]),
]


def say(text):
    print(text, flush=True)


def build(way):
    """Configure and build; an account of the step that failed, if one did."""
    env = dict(os.environ, **way.env)
    options = ["-Dwerror=true"] + way.options
    if os.path.exists(os.path.join(way.folder, "build.ninja")):
        setup = ["meson", "configure", way.folder] + options
    else:
        setup = ["meson", "setup", way.folder] + options
    for command in (setup, ["ninja", "-C", way.folder]):
        if subprocess.run(command, env=env).returncode:
            return [[f"FAILED: {' '.join(command)}"]]
    return []


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


def run_suites(way, soak):
    suites = way.suites + (["soak"] if soak else [])
    command = way.wrapper + [
        "meson", "test", "-C", way.folder, "--no-rebuild", "--print-errorlogs"]
    for suite in suites:
        command += ["--suite", suite]
    for suite in way.without:
        command += ["--no-suite", suite]
    if soak:
        command += ["--setup", "soak"]
    started = time.time() - 1
    code = subprocess.run(command, stdin=subprocess.DEVNULL).returncode
    passed, failed, skipped, accounts = read_log(way, started)
    if code and not failed:
        accounts.append([f"FAILED: {' '.join(command)}"])
        failed = 1
    return passed, failed, skipped, accounts


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--soak", action="store_true",
                        help="the long tests too, in the gcc build")
    parser.add_argument("--only", action="append", metavar="NAME",
                        choices=[way.name for way in WAYS],
                        help="only this way of building (repeatable)")
    args = parser.parse_args()

    lines = []
    accounts = []
    total_passed = total_failed = 0
    for way in WAYS:
        if args.only and way.name not in args.only:
            continue
        say(f"\n== {way.name}: {way.folder}, suites {', '.join(way.suites)}")
        began = time.monotonic()
        passed = skipped = 0
        why = build(way)
        failed = len(why)
        if not failed:
            passed, failed, skipped, why = run_suites(
                way, args.soak and way.name == "gcc")
        accounts += why
        took = time.monotonic() - began
        lines.append(f"{way.name:6} {passed:5} passed, {failed} failed, "
                     f"{skipped} skipped, {took:.0f} s")
        total_passed += passed
        total_failed += failed
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
