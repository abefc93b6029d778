#!/usr/bin/env python3
"""Do what a tutorial says, from its beginning to its end, and compare what is
printed with what it shows.

usage: tests/cli/tutorials.py POISE PAGE...

In a page, indented lines that begin with '$ ' are commands ('> ' goes on with
one); the indented lines behind are what they print. A fenced block behind a
line that ends in `NAME`: is the file NAME. All happens in one empty folder,
by one shell.

What is printed must be what is shown, but for figures that depend on the
machine and the moment: numbers with a point, numbers with a unit of time, rate
or share behind them, how many threads there are, and the blanks between
columns. A line '...' stands for
any lines, '...' in a line for anything in it. Which rank most time was lost by
depends on the moment, too: on a loaded machine a rank is kept from running for
longer than one sleeps; that the right one is named tests/mon/late_run shows.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading

SLOWNESS = float(os.environ.get("POISE_TEST_SLOWNESS", "4"))
FILE = re.compile(r"`([\w.-]+)`:\s*$")
FREE = re.compile(r"\d[\d,]*\.\d+(?:e[+-]?\d+)?(?: ?(?:[num]?s|[KMGT]?B/s|%))?|"
                  r"\d[\d,]*(?: (?:ns|us|ms|s|h|min|%|MB/s|GB/s|/s)\b| ?%|/s\b)|"
                  r"(?<=lost by waiting for rank )\d+|(?P<threads>\d+ threads?\b)")


class Failed(Exception):
    """What differs."""


def steps(text):
    """('file', name, text) and ('run', line number, command, output)."""
    lines, at = text.splitlines(), 0
    while at < len(lines):
        line = lines[at]
        at += 1
        named = FILE.search(line)
        if named and at + 1 < len(lines) and (lines[at].startswith("```") or
                                              lines[at + 1].startswith("```")):
            at += 1 + (not lines[at].startswith("```"))
            begin = at
            while not lines[at].startswith("```"):
                at += 1
            yield "file", named.group(1), "\n".join(lines[begin:at]) + "\n"
            at += 1
        elif line.startswith("    $ "):
            where, command, output = at, [line[6:]], []
            while at < len(lines) and lines[at].startswith("    > "):
                command.append(lines[at][6:])
                at += 1
            while at < len(lines) and not lines[at].startswith("    $ ") and (
                    lines[at].startswith("    ") or not lines[at] and
                    at + 1 < len(lines) and
                    lines[at + 1].startswith("    ") and
                    not lines[at + 1].startswith("    $ ")):
                output.append(lines[at][4:])
                at += 1
            yield "run", where, "\n".join(command), output


def pattern(line):
    """An expression for what a shown line stands for."""
    out, at = "", 0
    for hit in re.finditer(FREE.pattern + r"|\.\.\.|[ \t]+", line):
        out += re.escape(line[at:hit.start()])
        word = hit.group()
        if word == "...":
            out += ".*"
        elif hit["threads"]:
            out += r"\d+ threads?"
        elif word.isspace():
            out += r"\s+" if hit.start() else r"\s*"
        else:
            out += r"[\d,]+(?:\.\d+)?(?:e[+-]?\d+)? ?(?:ns|us|ms|s|h|min|%|[KMGT]?B/s|/s)?"
        at = hit.end()
    return out + re.escape(line[at:]) + r"\s*"


def is_as_shown(shown, printed):
    whole = "".join(r"(?:.*\n)*?" if line.strip() == "..." else
                    pattern(line) + r"\n" for line in shown)
    return re.fullmatch(whole, "".join(line.rstrip() + "\n" for line in printed))


class Shell:
    def __init__(self, folder, env):
        self.process = subprocess.Popen(
            ["bash"], cwd=folder, env=env, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def run(self, command):
        # A launcher would read the next commands as its own input.
        self.process.stdin.write(f"{{ {command}\n}} </dev/null\n"
                                 "echo; echo ---- $?\n")
        self.process.stdin.flush()
        limit = threading.Timer(60 * SLOWNESS, self.process.kill)
        limit.start()
        lines = []
        for line in self.process.stdout:
            if re.fullmatch(r"---- \d+\n", line):
                break
            lines.append(line.rstrip("\n"))
        else:
            lines.append("(the shell has ended, or takes too long)")
        limit.cancel()
        while lines and not lines[-1]:
            lines.pop()
        return lines


def environment(poise, folder):
    env = {k: v for k, v in os.environ.items()
           if not k.startswith(("OMPI_", "PMI_", "PMIX_", "SLURM_", "POISE_"))
           or k == "OMPI_MCA_orte_fork_agent"}
    env.update(PATH=f"{os.path.dirname(poise)}:{env['PATH']}", LC_ALL="C",
               TZ="UTC", HOME=folder, XDG_CACHE_HOME=folder + "/.cache",
               OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
               OMPI_MCA_rmaps_base_oversubscribe="1",
               OMPI_MCA_btl_base_warn_component_unused="0",
               POISE_TEST_SLOWNESS=str(SLOWNESS))
    return env


def follow(poise, page):
    folder = tempfile.mkdtemp(prefix="poise-tutorial-")
    try:
        shell = Shell(folder, environment(poise, folder))
        done = 0
        with open(page, encoding="utf-8") as file:
            text = file.read()
        for kind, where, command, *shown in steps(text):
            if kind == "file":
                with open(os.path.join(folder, where), "w",
                          encoding="utf-8") as file:
                    file.write(command)
                continue
            printed = shell.run(command)
            if not is_as_shown(shown[0], printed):
                raise Failed(f"{page}:{where}: {command}\nshown:\n" +
                             "\n".join(shown[0]) + "\nprinted:\n" +
                             "\n".join(printed))
            done += 1
        shell.process.stdin.close()
        shell.process.wait(timeout=60 * SLOWNESS)
        if not done:
            raise Failed(f"{page}: no command in it")
        return done
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main():
    poise, failed = os.path.abspath(sys.argv[1]), 0
    for page in sys.argv[2:]:
        try:
            print(f"{page}: {follow(poise, page)} commands")
        except Failed as why:
            print(f"FAILED {why}")
            failed += 1
    return 1 if failed else 0


sys.exit(main())
