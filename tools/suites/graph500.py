"""Graph500's reference code against Poise: its generator has to make the same
edges, and its validators have to accept Poise's trees over their own edges and
count the same edges: that of version 2.1.4 (verify.c) with loops, as the
specification has it, that of version 3 (validate.c) without (--no-count-loops).
Trees that were damaged have to be refused by both, so that a pass means
something. It is not a suite of cases: the trees are chosen here.

The validators are called in processes of their own (this file, run as a
program), since they keep state and may abort."""

import array
import ctypes
import os
import sys

NAME = "graph500"
SUBJECT = "bfs"
OWNER = "github.com/graph500/graph500, branches newreference and master"
WANTS = ("graph500/build/libgraph500-3.so (validate.c, utils.c, aml.c and the "
         "generator) and graph500-2.1.4/build/libgraph500-2.so (verify.c, "
         "xalloc.c, generator/utils.c), shared libraries made from its "
         "sources by hand")

LIBRARIES = {"2": ("graph500-2.1.4", "build", "libgraph500-2.so"),
             "3": ("graph500", "build", "libgraph500-3.so")}
GENERATED = (1, 4, 9, 14)
# Scale, ways to search, roots.
SEARCHES = ((1, ([],), 2),
            (6, (["--method", "top-down"], ["--method", "bottom-up"]), 4),
            (10, ([], ["-j", "2", "--order", "keep"], ["-j", "3"]), 8),
            (15, ([],), 4))


def find(context):
    for parts in LIBRARIES.values():
        context.need(*parts)
    return context.need("graph500")


def version(context):
    return " and ".join(f"{v}: " + context.revision(context.need(parts[0]))
                        for v, parts in LIBRARIES.items())


# ---- the side of Poise ----------------------------------------------------

def worker(context, *args):
    return context.command(sys.executable, os.path.abspath(__file__), *args)


def edges_of(context, scale):
    """The reference's edges, in a file; or None and why."""
    path = context.scratch(f"edges-{scale}")
    code, _, err = worker(context, "generate", context.need(*LIBRARIES["3"]),
                          str(scale), path)
    return (path, "") if code == 0 else (None, err.strip() or f"exit {code}")


def pairs_in(path):
    pairs = array.array("q")
    with open(path, "rb") as file:
        pairs.frombytes(file.read())
    return pairs


def generate(context, scale):
    from suite import failed, held
    title = f"edges of scale {scale}"
    theirs, why = edges_of(context, scale)
    if not theirs:
        return failed(title, why)
    path = context.scratch(f"made-{scale}.csv")
    code, _, err = context.run_poise("bfs", "convert", "--scale", str(scale),
                                     path)
    if code != 0:
        return failed(title, err.strip())
    with open(path, encoding="ascii") as file:
        ours = array.array("q", (int(end) for line in file
                                 for end in line.split(",")))
    return held(title, ours == pairs_in(theirs), "other edges")


def damage(path, to):
    """A copy of a tree in which one of the deepest vertices hangs on
    itself."""
    with open(path, "rb") as file:
        data = bytearray(file.read())
    records = memoryview(data)[128:].cast("q")
    vertex = max(range(len(records) // 2), key=lambda v: records[2 * v + 1])
    records[2 * vertex] = vertex
    records.release()
    with open(to, "wb") as file:
        file.write(data)


def verdicts(context, which, scale, edges, trees):
    """For each (tree, root): edges traversed, or -1."""
    words = [word for tree, root in trees for word in (tree, str(root))]
    _, out, err = worker(context, "validate", which,
                         context.need(*LIBRARIES[which]), str(scale), edges,
                         *words)
    if not out.startswith("ready"):
        raise RuntimeError(f"validator {which} cannot be called: {err}")
    found = [int(line.split()[1]) for line in out.splitlines()
             if line.startswith("tree ")]
    # A validator that ends early has not accepted the rest.
    return found + [-1] * (len(trees) - len(found))


def search(context, scale, options, count, edges):
    from suite import failed, held
    name = f"scale {scale} {' '.join(options)}".rstrip()
    found, why = context.ask_poise("bfs", "--scale", str(scale), "--roots",
                                   str(count), *options)
    if not found:
        yield failed(f"trees of {name}", why)
        return
    runs, trees = found["runs"], []
    for i, run_ in enumerate(runs):
        path = context.scratch(f"tree-{i}.npy")
        code, _, err = context.run_poise(
            "bfs", "--scale", str(scale), "--root", str(run_["root"]),
            "--binary", "-o", path, *options)
        if code != 0:
            yield failed(f"trees of {name}", err.strip())
            return
        trees.append((path, run_["root"]))
    for which in LIBRARIES:
        counts = verdicts(context, which, scale, edges, trees)
        for run_, theirs in zip(runs, counts):
            ours = run_["edges"] - (run_["loops"] if which == "3" else 0)
            yield held(f"{name}, root {run_['root']}: accepted by {which}",
                       theirs == ours, "refused" if theirs < 0 else
                       f"{theirs} edges traversed, by Poise {ours}")
        broken = context.scratch("broken.npy")
        damage(trees[0][0], broken)
        counts = verdicts(context, which, scale, edges,
                          [(broken, trees[0][1])])
        yield held(f"{name}: a damaged tree refused by {which}",
                   counts == [-1], "accepted")


def run(context):
    for scale in GENERATED:
        yield generate(context, scale)
    for scale, ways, count in SEARCHES:
        edges, why = edges_of(context, scale)
        if not edges:
            raise RuntimeError(why)
        for options in ways:
            yield from search(context, scale, options, count, edges)


# ---- the side of the reference, in a process of its own -------------------

class Packed(ctypes.Structure):
    """48 bits for each end: version 3."""
    _fields_ = [("v0", ctypes.c_uint32), ("v1", ctypes.c_uint32),
                ("high", ctypes.c_uint32)]


class Tuples(ctypes.Structure):
    """struct tuple_graph of version 3, edges in memory."""
    _fields_ = [("data_in_file", ctypes.c_int), ("write_file", ctypes.c_int),
                ("edges", ctypes.POINTER(Packed)), ("count", ctypes.c_int64),
                ("most", ctypes.c_int64), ("file", ctypes.c_void_p),
                ("all", ctypes.c_int64)]


def do_generate(library, scale, path):
    lib = ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)
    count, edges = ctypes.c_int64(), ctypes.POINTER(Packed)()
    lib.make_graph(ctypes.c_int(scale), ctypes.c_int64(16 << scale),
                   ctypes.c_uint64(2), ctypes.c_uint64(3),
                   ctypes.byref(count), ctypes.byref(edges))
    pairs = array.array("q")
    for i in range(count.value):
        pairs.append(edges[i].v0)
        pairs.append(edges[i].v1)
    with open(path, "wb") as file:
        pairs.tofile(file)


def parents_in(path):
    """Of a NumPy file of (parent, depth): header of 128 bytes."""
    records = array.array("q")
    with open(path, "rb") as file:
        file.seek(128)
        records.frombytes(file.read())
    return (ctypes.c_int64 * (len(records) // 2))(*records[::2])


def validator_2(library, pairs, vertices):
    lib = ctypes.CDLL(library)
    lib.verify_bfs_tree.restype = ctypes.c_int64
    edges = (ctypes.c_int64 * len(pairs))(*pairs)

    def validate(parents, root):
        count = lib.verify_bfs_tree(
            parents, ctypes.c_int64(vertices - 1), ctypes.c_int64(root), edges,
            ctypes.c_int64(len(pairs) // 2))
        return count if count >= 0 else -1
    return validate


def validator_3(library, pairs, vertices):
    lib = ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)
    argc, argv = ctypes.c_int(0), ctypes.c_void_p()
    lib.aml_init(ctypes.byref(argc), ctypes.byref(argv))
    lib.setup_globals()
    edges = (Packed * (len(pairs) // 2))(
        *((pairs[i], pairs[i + 1], 0) for i in range(0, len(pairs), 2)))
    count = len(pairs) // 2
    tuples = Tuples(0, 0, ctypes.cast(edges, ctypes.POINTER(Packed)), count,
                    count, None, count)
    depths = (ctypes.c_float * vertices)()
    traversed = ctypes.c_int64.in_dll(lib, "nedges_traversed")

    def validate(parents, root):
        good = lib.validate_result(
            1, ctypes.byref(tuples), ctypes.c_size_t(vertices),
            ctypes.c_int64(root), parents, depths, None)
        return traversed.value if good else -1
    return validate


def do_validate(which, library, scale, edges, *trees):
    make = {"2": validator_2, "3": validator_3}[which]
    validate = make(library, pairs_in(edges), 1 << scale)
    print("ready", flush=True)
    for i in range(0, len(trees), 2):
        print("tree", validate(parents_in(trees[i]), int(trees[i + 1])),
              flush=True)
    os._exit(0)  # MPI need not end well


if __name__ == "__main__":
    if sys.argv[1] == "generate":
        do_generate(sys.argv[2], int(sys.argv[3]), sys.argv[4])
    else:
        do_validate(sys.argv[2], sys.argv[3], int(sys.argv[4]), *sys.argv[5:])
