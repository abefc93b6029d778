"""What tools/conformance and the suites have in common.

A suite is a module of this folder with

    NAME, SUBJECT    what it is called, which command of Poise it tries
    OWNER            whose it is, and where it comes from
    WANTS            what has to be in the folder of peers
    find(context)    its folder; raises Missing
    version(context) which one it is
    run(context)     yields a Case for each of its tests

Cases are those of the suite's owner, counted as the owner counts them; what a
module adds of its own it says in its first lines.
"""

import dataclasses
import importlib
import json
import os
import signal
import subprocess

# In the order of the table.
OUTCOMES = ("passed", "failed", "left out")
# Seconds that one program may take; machines under load say so.
SLOWNESS = float(os.environ.get("POISE_TEST_SLOWNESS", "1"))
LIMIT_S = 120 * SLOWNESS


class Missing(Exception):
    """What was looked for is not there: neither passed nor failed."""


@dataclasses.dataclass
class Case:
    title: str
    outcome: str
    why: str = ""
    text: bool = False  # of messages or insides: counted apart


def passed(title, text=False):
    return Case(title, "passed", "", text)


def failed(title, why, text=False):
    return Case(title, "failed", why, text)


def left_out(title, why):
    return Case(title, "left out", why)


def held(title, holds, why):
    """Passed if `holds`, else failed with the reason."""
    return passed(title) if holds else failed(title, why)


class Tally:
    """The cases of one suite."""

    def __init__(self, suite):
        self.suite = suite
        self.folder = self.version = self.missing = ""
        self.cases = []

    def add(self, case):
        if case.outcome not in OUTCOMES:
            raise ValueError(f"{case.title}: no outcome is {case.outcome}")
        self.cases.append(case)

    def count(self, outcome, text):
        return sum(case.outcome == outcome and case.text == text
                   for case in self.cases)


class Context:
    """Where things are, and how programs are run."""

    def __init__(self, peers, poise, work, root):
        self.peers, self.poise, self.work, self.root = peers, poise, work, root

    def need(self, *parts):
        """The path of something among the peers."""
        path = os.path.join(self.peers, *parts)
        if not os.path.exists(path):
            raise Missing(f"no {os.path.join(*parts)}")
        return path

    def scratch(self, name):
        return os.path.join(self.work, name)

    def command(self, *args, limit_s=LIMIT_S, merged=False, **options):
        """(exit code, stdout, stderr), `merged` both in stdout; a command that
        does not end in time is killed with all that it started, and has the
        exit code of timeout(1)."""
        child = subprocess.Popen(
            args, text=True, errors="replace", stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, start_new_session=True,
            stderr=subprocess.STDOUT if merged else subprocess.PIPE,
            **{"cwd": self.work, **options})
        try:
            out, err = child.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            child.communicate()
            return 124, "", f"no end after {limit_s:.0f} s"
        return child.returncode, out, err or ""

    def run_poise(self, *args, **options):
        return self.command(self.poise, *args, **options)

    def ask_poise(self, *args):
        """What --json says, or None and the message."""
        code, out, err = self.run_poise(*args, "--json")
        if code != 0:
            return None, err.strip() or f"exit code {code}"
        return json.loads(out), ""

    def revision(self, folder):
        """The commit of a checkout, or what it says of itself."""
        code, out, _ = self.command("git", "-C", folder, "log", "-1",
                                    "--format=%h %cs")
        return out.strip() if code == 0 and out.strip() else "unknown"


def unpacked(context, name, *inside):
    """The folder NAME-VERSION of a suite's sources, which has `inside`."""
    parent = context.need(name)
    for entry in sorted(os.listdir(parent)):
        if os.path.isdir(os.path.join(parent, entry, *inside)):
            return os.path.join(parent, entry)
    return context.need(name, f"{name}-VERSION", *inside)


def run_shell(context, sources, folder, program, texts=()):
    """The shell tests of one of GNU's programs, as its Makefile runs them, on
    Poise's command of that name in its place. They need nothing built: what
    else they call is the system's. A case of each; `texts` name those that are
    of messages."""
    for place in ("src", program):
        os.makedirs(context.scratch(place), exist_ok=True)
        path = os.path.join(context.scratch(place), program)
        with open(path, "w", encoding="utf-8") as file:
            file.write(f'#!/bin/sh\nexec "{context.poise}" {program} "$@"\n')
        os.chmod(path, 0o755)
    tests = os.path.join(sources, "tests", folder)
    near = os.path.relpath(tests, context.work)
    env = {**os.environ, "srcdir": os.path.relpath(sources, context.work), "abs_srcdir": sources,
           "top_srcdir": sources, "abs_top_srcdir": sources,
           "abs_top_builddir": context.work, "built_programs": program,
           "LC_ALL": "C", "CONFIG_HEADER": "/dev/null",
           "PATH": os.path.join(context.work, "src") + ":" +
                   os.environ["PATH"]}
    for name in sorted(os.listdir(tests)):
        title = f"{folder}/{name}"
        if not name.endswith(".sh"):
            yield left_out(title, "not a shell test")
            continue
        code, out, err = context.command(
            "sh", "-c", 'exec 9>&2; exec sh "$0"', os.path.join(near, name),
            env=env)
        said = [line for line in (out + err).splitlines() if line.strip()]
        if code == 0:
            yield passed(title, name in texts)
        elif code == 77:
            yield left_out(title, (said or ["skipped by the suite"])[0][:160])
        else:
            ours = [line for line in said if "poise " in line] or said
            yield failed(title, f"exit code {code}: " +
                         (ours or ["no word"])[-1][:160], name in texts)


def load_all():
    """All suites by their names, in alphabetical order."""
    here = os.path.dirname(os.path.abspath(__file__))
    modules = [importlib.import_module(name[:-3])
               for name in sorted(os.listdir(here))
               if name.endswith(".py") and name != "suite.py"]
    return {module.NAME: module for module in modules}
