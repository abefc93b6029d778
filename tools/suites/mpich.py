"""MPICH's own test suite (test/mpi of its sources) on virtual ranks: each line of
its test lists, but for one-sided communication, dynamic processes and other
languages, judged as its `runtests` does. The programs are compiled by hand with
`poise cc`; one that is not there is left out, and said to be."""

import os
import re
import shlex

from suite import failed, left_out, passed

NAME = "mpich"
SUBJECT = "run -V"
OWNER = "www.mpich.org"
WANTS = ("mpich/mpich-VERSION/test/mpi, and its programs in "
         "mpich/bin-poise/FOLDER.PROGRAM, compiled by hand with poise cc; "
         "configured test lists, where they differ, in mpich/lists/FOLDER")

TOP = ("attr", "coll", "comm", "datatype", "errhan", "group", "info", "init",
       "mpi_t", "part", "pt2pt", "topo", "io", "errors", "threads", "impls")
# Of what the standard leaves open, or Poise does not claim: counted apart.
APART = ("errors", "threads", "mpi_t", "part", "impls")
LEFT_OUT = {"rma", "spawn", "f77", "f90", "f08", "cxx", "faults"}
GOOD = re.compile(r"^\s*(No [Ee]rrors|Test [Pp]assed)\s*$")
LIMIT_S = 60


def suite_of(context):
    parent = context.need("mpich")
    for name in sorted(os.listdir(parent)):
        if os.path.isdir(os.path.join(parent, name, "test", "mpi")):
            return os.path.join(parent, name, "test", "mpi")
    return context.need("mpich", "mpich-VERSION", "test", "mpi")


def find(context):
    context.need("mpich", "bin-poise")
    return suite_of(context)


def version(context):
    return os.path.basename(os.path.dirname(os.path.dirname(
        suite_of(context))))


def lines_of(context, suite, folder):
    """(folder, program, words) of a test list and of those that it names."""
    lists = os.path.join(context.need("mpich"), "lists")
    for root in (lists, suite):
        path = os.path.join(root, folder, "testlist")
        if os.path.exists(path):
            break
    else:
        return
    with open(path, encoding="utf-8") as file:
        rows = [line.split("#")[0].split() for line in file]
    for words in filter(None, rows):
        if os.path.isdir(os.path.join(suite, folder, words[0])):
            if words[0] not in LEFT_OUT:
                yield from lines_of(context, suite,
                                    os.path.join(folder, words[0]))
            continue
        at = os.path.normpath(os.path.join(folder, os.path.dirname(words[0])))
        yield at, os.path.basename(words[0]), words[1:]


def judge(kind, name, code, text):
    if kind == "TestErrFatal" and name == "timeout" and code == 124:
        return True
    if code == 124:
        return False
    if kind in ("TestStatus", "TestErrFatal"):
        return code != 0
    words = [row for row in text.splitlines() if row.strip()]
    right = bool(words) and all(GOOD.match(row) for row in words)
    return right and (code != 0) == (kind == "TestStatusNoErrors")


def try_line(context, folder, name, words):
    ranks = words[0] if words and words[0].isdigit() else "2"
    keys = [word.split("=", 1) for word in words[1:] if "=" in word]
    args = [value for key, value in keys if key == "arg"]
    env = dict(value.split("=", 1) for key, value in keys
               if key == "env" and "=" in value)
    told = dict(keys)
    title = " ".join([f"{folder}/{name}", ranks, *args])
    program = os.path.join(context.need("mpich", "bin-poise"),
                           f"{folder}/{name}".replace("/", "."))
    if not os.access(program, os.X_OK):
        return left_out(title, "not compiled")
    code, out, err = context.command(
        context.poise, "run", "-V", ranks, program, *args,
        limit_s=LIMIT_S * float(os.environ.get("POISE_TEST_SLOWNESS", "1")),
        env={**os.environ, **env})
    if judge(told.get("resultTest", "normal"), name, code, out + err):
        return passed(title, folder.startswith(APART))
    said = [row.strip() for row in (out + err).splitlines()
            if row.strip() and not GOOD.match(row)]
    return failed(title, f"exit code {code}: " + shlex.quote(
        " | ".join(said[:2])[:200]), folder.startswith(APART))


def run(context):
    suite = find(context)
    for folder in TOP:
        for at, name, words in lines_of(context, suite, folder):
            yield try_line(context, at, name, words)
