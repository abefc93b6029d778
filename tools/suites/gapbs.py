"""The GAP benchmark suite's own tests (test/test.mk): `load`, files of all of its
formats, whose sizes have to be those of test/reference. Beside them, where its
programs are built: graphs that its `converter` made are read, and those that
Poise converts have to pass its `bfs -v`. Its `generate` is of its own
generator, and is left out."""

import os
import re

from suite import LIMIT_S, failed, held, left_out

NAME = "gapbs"
SUBJECT = "bfs"
OWNER = "github.com/sbeamer/gapbs"
WANTS = "gapbs/; for more, its programs bfs and converter built in it"

SIZES = re.compile(r"has (\d+) nodes and (\d+) (un)?directed edges")
SCALE = "10"


def find(context):
    context.need("gapbs", "test", "graphs")
    return context.need("gapbs", "test", "reference")


def version(context):
    return context.revision(context.need("gapbs"))


def sizes_of(text):
    """Vertices and different arcs, loops left out."""
    found = SIZES.search(text)
    if not found:
        return None
    return int(found.group(1)), int(found.group(2)) * (2 if found.group(3)
                                                       else 1)


def ours(context, path, *options):
    found, why = context.ask_poise("bfs", path, "--root", "0", *options)
    if not found:
        return None, why
    graph = found["graph"]
    return (graph["vertices"], graph["arcs_kept"]), ""


def load(context, references):
    for name in sorted(os.listdir(references)):
        with open(os.path.join(references, name), encoding="ascii") as file:
            expected = sizes_of(file.read())
        graph = name[len("graph-"):-len(".out")]
        path = os.path.join(context.need("gapbs", "test", "graphs"), graph)
        if not os.path.exists(path):
            yield left_out(f"generate {graph}", "of GAP's own generator")
            continue
        options = ["--directed"] if graph.endswith("el") else []
        here, why = ours(context, path, *options)
        yield held(f"load {graph}", here == expected,
                   why or f"{here} instead of {expected}")


def converted(context):
    """What GAP's programs write and read."""
    folder = context.need("gapbs")
    converter, bfs = (os.path.join(folder, name)
                      for name in ("converter", "bfs"))
    if not os.access(converter, os.X_OK) or not os.access(bfs, os.X_OK):
        yield left_out("files of its converter, and for its bfs",
                       "its programs are not built")
        return
    for kind, options in (("sg", ["-b"]), ("el", ["-e"])):
        path = context.scratch(f"gap.{kind}")
        code, out, err = context.command(converter, "-g", SCALE, *options, path)
        if code != 0:
            yield failed(f"read the converter's .{kind}", out + err)
            continue
        here, why = ours(context, path)
        yield held(f"read the converter's .{kind}", here == sizes_of(out),
                   why or f"{here} instead of {sizes_of(out)}")
    made = context.scratch("made.el")
    code, _, err = context.run_poise("bfs", "convert", "--scale", SCALE, made)
    for kind in ("sg", "el", "wel", "gr", "mtx", "graph"):
        path = context.scratch(f"poise.{kind}")
        options = [] if kind == "graph" else ["--directed"]
        if code == 0:
            code, _, err = context.run_poise("bfs", "convert", *options, made,
                                             path)
        done, out = code, ""
        if code == 0:
            done, out, err = context.command(bfs, "-f", path, "-v", "-n", "2",
                                             limit_s=LIMIT_S / 6)
        yield held(f"its bfs -v on the .{kind} of Poise",
                   done == 0 and out.count("PASS") == 2 and "FAIL" not in out,
                   (err.strip() or out)[-200:])


def run(context):
    yield from load(context, find(context))
    yield from converted(context)
