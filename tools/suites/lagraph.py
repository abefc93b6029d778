"""LAGraph's tests, as far as they are of Matrix Market files (test_MMRead.c:
those to be read, with the sizes that are expected, and those that are mangled)
and of breadth-first search (test_BreadthFirstSearch.c: levels and parents in
the karate graph). The tables are read from its sources."""

import os
import re

from suite import failed, held, left_out, passed

NAME = "lagraph"
SUBJECT = "bfs"
OWNER = "github.com/GraphBLAS/LAGraph"
WANTS = "LAGraph/, its sources"

ENTRY = re.compile(r'\{\s*(\d+),\s*(\d+),\s*(\d+),\s*"[^"]+",\s*"([^"]+)"\s*\}')
MANGLED = re.compile(r'^\s*\w+,\s*"([^"]+\.mtx)",\s*//\s*(.*)$', re.M)
# Of which ranges and signs of C's types LAGraph makes sure.
OF_TYPES = ("entry value out of range", "unsigned skew invalid")


def find(context):
    context.need("LAGraph", "src", "test", "test_MMRead.c")
    context.need("LAGraph", "src", "test", "test_BreadthFirstSearch.c")
    return context.need("LAGraph", "data")


def version(context):
    return context.revision(context.need("LAGraph"))


def source(context, name):
    path = context.need("LAGraph", "src", "test", name)
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def array_of(text, name):
    """The numbers of one of C's arrays."""
    found = re.search(rf"{name}\s*\[[^=]*=\s*\{{(.*?)\}}\s*;", text, re.S)
    body = re.sub(r"//[^\n]*", "", found.group(1)) if found else ""
    return [int(n) for n in re.findall(r"-?\d+", body.replace("xx", "-1"))]


def is_graph(path):
    """Whether it holds a sparse, square matrix."""
    with open(path, encoding="utf-8", errors="replace") as file:
        lines = [line for line in file if line.strip()]
    sizes = [line.split() for line in lines if not line.startswith("%")][:1]
    return (len(sizes) == 1 and len(sizes[0]) == 3 and sizes[0][0] ==
            sizes[0][1] and "coordinate" in lines[0].lower().split())


def read_one(context, folder, rows, entries, name):
    title = f"read {name}"
    path = os.path.join(folder, name)
    if not os.path.exists(path):
        return failed(title, "the file is not there")
    if not is_graph(path):
        code, _, _ = context.run_poise("bfs", path)
        return (left_out(title, "dense or not square: no graph; refused")
                if code == 1 else failed(title, "no graph, but accepted"))
    found, why = context.ask_poise("bfs", path, "--root", "0")
    if not found:
        return failed(title, why)
    graph = found["graph"]
    here = (graph["edges"] if graph["directed"]
            else 2 * graph["edges"] - graph["loops"])
    return held(title, (graph["vertices"], here) == (rows, entries)
                and found["invalid"] == 0,
                f"{graph['vertices']} rows and {here} entries, where {rows} "
                f"and {entries} are expected")


def refuse_one(context, folder, name, how):
    title = f"refuse {name} ({how})"
    code, _, err = context.run_poise("bfs", os.path.join(folder, name))
    if code == 1 and name in err:
        return passed(title)
    why = (f"exit code {code}" if code else "accepted")
    if how in OF_TYPES:
        why += ": values are looked at, the ranges of C's types are not"
    return failed(title, why)


def may_be(parent, those):
    """Whether it is one of those; "-" where there are none."""
    those = {str(one) for one in those if one >= 0}
    return parent in (those or {"-"})


def karate(context, folder):
    text = source(context, "test_BreadthFirstSearch.c")
    levels, parents = array_of(text, "LEVELS30"), array_of(text, "PARENT30 ")
    out = context.scratch("tree.txt")
    path = os.path.join(folder, "karate.mtx")
    for method in ("hybrid", "top-down", "bottom-up"):
        code, _, err = context.run_poise("bfs", path, "--root", "30", "-o", out,
                                         "--method", method)
        rows = []
        if code == 0:
            with open(out, encoding="ascii") as file:
                rows = [line.split() for line in file]
        yield held(f"levels of karate.mtx from 30, {method}",
                   rows and [int(row[2]) for row in rows] == levels,
                   err.strip() or "other levels")
        yield held(f"parents of karate.mtx from 30, {method}",
                   rows and len(parents) == 3 * len(rows) and
                   all(may_be(row[1], parents[3 * v:3 * v + 3])
                       for v, row in enumerate(rows)),
                   err.strip() or "other parents")


def run(context):
    folder = find(context)
    text = source(context, "test_MMRead.c")
    for rows, _, entries, name in ENTRY.findall(text):
        if name:
            yield read_one(context, folder, int(rows), int(entries), name)
    for name, how in MANGLED.findall(text):
        yield refuse_one(context, folder, name, how.strip())
    yield from karate(context, folder)
