#!/usr/bin/env python3
"""Does `poise compare` find what a plain recursion finds, however it is run?

Pairs of random trees with odd names, all types, hard links, attributes and
differences of each kind are compared by one process with several threads, and
under both MPIs; what is printed is held against a recursion in Python, and
where nothing differs against rsync and diff, if they are there. Then what
cannot be read, and what is deeper than descriptors reach. `poise remove` clears away. Both are
killed while they work.

usage: tests/walk/compare.py --poise PATH [--rounds N] [--kills N] [--seed N]
"""
import argparse
import base64
import json
import os
import random
import resource
import shutil
import signal
import sqlite3
import stat
import subprocess
import tempfile

# By how much a machine is slower than an idle one: tools/test_all.py.
SLOWNESS = float(os.environ.get("POISE_TEST_SLOWNESS", "4"))
ODD = [b"a\nline", b" blank", b"-rf", b"\xff\xfe", b"pi|pe", b"*", b"...",
       b"tab\t", b"\"quote'", b"n" * 255, "ä".encode()]


def launcher(ranks, mpi):
    if ranks == 0:
        return []
    if mpi == "ompi":
        root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
        return ["mpirun.openmpi", *root, "--oversubscribe", "-n", str(ranks)]
    return ["mpirun.mpich", "-n", str(ranks)]


# ---- trees ------------------------------------------------------------------

def make_entry(rng, at, names, links):
    name = rng.choice(ODD) if rng.random() < 0.3 else b"%d" % rng.randrange(99)
    path = os.path.join(at, name)
    if os.path.lexists(path):
        return None
    way = rng.random()
    if way < 0.3:
        os.mkdir(path)
        names.append(path)
    elif way < 0.4:
        os.symlink(rng.choice([b"nowhere", b".", b"0"]), path)
    elif way < 0.45:
        os.mkfifo(path)
    elif way < 0.55 and links:
        os.link(rng.choice(links), path)
    else:
        with open(path, "wb") as file:
            size = rng.choice([0, 1, 10, 4096, 131072, 131073, 300000])
            file.write(rng.randbytes(size))
        links.append(path)
    return path


def make_tree(rng, root, count):
    os.mkdir(root)
    dirs, links = [root], []
    for _ in range(count):
        make_entry(rng, rng.choice(dirs), dirs, links)
    return root


def everything(root):
    for at, dirs, files in os.walk(root):
        for name in dirs + files:
            yield os.path.join(at, name)


def mutate(rng, root, count):
    """Change some of it, in ways that each show."""
    for _ in range(count):
        there = list(everything(root))
        if not there:
            return
        path = rng.choice(there)
        info = os.lstat(path)
        way = rng.randrange(9)
        if way == 0:
            subprocess.run([b"rm", b"-rf", path], check=True)
        elif way == 1 and stat.S_ISDIR(info.st_mode):
            make_entry(rng, path, [], [])
        elif way == 2 and stat.S_ISREG(info.st_mode) and info.st_size:
            with open(path, "r+b") as file:
                file.seek(rng.randrange(info.st_size))
                byte = file.read(1)
                file.seek(-1, 1)
                file.write(bytes([byte[0] ^ 1]))
            os.utime(path, ns=(info.st_atime_ns, info.st_mtime_ns))
        elif way == 3 and not stat.S_ISLNK(info.st_mode):
            os.chmod(path, stat.S_IMODE(info.st_mode) ^ 0o11)
        elif way == 4:
            os.utime(path, ns=(0, rng.choice([1, -1, 2**33 * 10**9 + 5])),
                     follow_symlinks=False)
        elif way == 5 and os.geteuid() == 0:
            os.chown(path, 12, 34, follow_symlinks=False)
        elif way == 6 and stat.S_ISREG(info.st_mode):
            os.setxattr(path, b"user.x", b"%d" % rng.randrange(9))
        elif way == 7 and not stat.S_ISDIR(info.st_mode):
            os.unlink(path)
            os.mkdir(path)
        elif way == 8 and stat.S_ISREG(info.st_mode) and info.st_nlink > 1:
            data = open(path, "rb").read()
            os.unlink(path)
            with open(path, "wb") as file:
                file.write(data)
            os.chmod(path, stat.S_IMODE(info.st_mode))
            os.chown(path, info.st_uid, info.st_gid)
            os.utime(path, ns=(info.st_atime_ns, info.st_mtime_ns))


# ---- the truth --------------------------------------------------------------

def attributes(path):
    return {name: os.getxattr(path, name, follow_symlinks=False)
            for name in os.listxattr(path, follow_symlinks=False)}


def kinds_of(a, b, first, second):
    """What differs between two entries; `first`, `second`: their lstat."""
    if stat.S_IFMT(first.st_mode) != stat.S_IFMT(second.st_mode):
        return {"type"}
    kinds, link = set(), stat.S_ISLNK(first.st_mode)
    if stat.S_ISREG(first.st_mode):
        if open(a, "rb").read() != open(b, "rb").read():
            kinds.add("content")
    elif link and os.readlink(a) != os.readlink(b):
        kinds.add("content")
    if not link and first.st_mode != second.st_mode:
        kinds.add("mode")
    if (first.st_uid, first.st_gid) != (second.st_uid, second.st_gid):
        kinds.add("owner")
    if first.st_mtime_ns != second.st_mtime_ns:
        kinds.add("times")
    if attributes(a) != attributes(b):
        kinds.add("xattrs")
    return kinds


def truth(a, b):
    """Kinds by path; the names that are linked otherwise are a set."""
    found, linked = {}, []

    def compare(a, b, path):
        first, second = os.lstat(a), os.lstat(b)
        kinds = kinds_of(a, b, first, second)
        if kinds:
            found[path] = kinds
        if "type" in kinds:
            return
        if not stat.S_ISDIR(first.st_mode):
            if first.st_nlink > 1 or second.st_nlink > 1:
                linked.append((first.st_ino, second.st_ino, path))
            return
        for name in set(os.listdir(a)) | set(os.listdir(b)):
            x, y = os.path.join(a, name), os.path.join(b, name)
            below = name if path == b"." else os.path.join(path, name)
            if not os.path.lexists(y):
                found[below] = {"missing"}
            elif not os.path.lexists(x):
                found[below] = {"extra"}
            else:
                compare(x, y, below)

    compare(a, b, b".")
    return found, linked


def links_differ(linked):
    """Whether names belong together in one tree only."""
    forward, back = {}, {}
    return any(forward.setdefault(x, y) != y or back.setdefault(y, x) != x
               for x, y, _ in linked)


# ---- what it says -----------------------------------------------------------

class Poise:
    def __init__(self, options):
        self.path = options.poise

    def run(self, *words, ranks=0, mpi="ompi", **more):
        return subprocess.run(launcher(ranks, mpi) + [self.path, *words],
                              stdin=subprocess.DEVNULL, capture_output=True,
                              timeout=60 * SLOWNESS, check=False, **more)

    def compare(self, a, b, *words, **more):
        """Exit code, kinds by path, whether links differ, the totals."""
        run = self.run("compare", "--json", *words, a, b, **more)
        found, links, totals = {}, False, None
        for line in run.stdout.splitlines():
            if not line.startswith(b"{"):
                continue
            row = json.loads(line)
            if "totals" in row:
                totals = row["totals"]
                continue
            path = (base64.b64decode(row["path_base64"])
                    if "path_base64" in row else row["path"].encode())
            if row["differs"] == ["links"]:
                links = True
            else:
                assert path not in found, f"twice: {path}"
                found[path] = set(row["differs"])
        return run.returncode, found, links, totals


def check_random(poise, rng, scratch, rounds):
    for number in range(rounds):
        a, b = os.path.join(scratch, b"a"), os.path.join(scratch, b"b")
        make_tree(rng, a, rng.choice([0, 5, 60, 200]))
        subprocess.run(["cp", "-a", a, b], check=True)
        mutate(rng, b, rng.choice([0, 1, 3, 20]))
        ranks = [0, 0, 0, 2, 0, 0, 3][number % 7]
        mpi = rng.choice(["ompi", "mpich"])
        want, linked = truth(a, b)
        want_links = links_differ(linked)
        status, got, links, totals = poise.compare(
            a, b, f"--threads={rng.choice([1, 2, 4])}", ranks=ranks, mpi=mpi)
        assert got == want, (number, got, want)
        assert links == want_links, (number, links, linked)
        differs = bool(want or want_links)
        assert ranks > 0 or status == differs, (number, status)
        assert totals["differences"] >= len(want) and not totals["errors"]
        # What diff -rq looks at; it does not tell links from what they are.
        plain = {path for path, kinds in want.items()
                 if kinds & {"missing", "extra", "type", "content"}}
        status, got, links, _ = poise.compare(a, b, "--metadata", "none")
        assert set(got) == plain and not links, (number, got, plain)
        assert status == bool(plain)
        quiet = poise.run("compare", "-q", a, b)
        assert (quiet.returncode, quiet.stdout) == (int(differs), b"")
        if not differs and shutil.which("rsync"):
            said = subprocess.run(
                ["rsync", "-anHAX", "--checksum", "--delete", "-i",
                 a + b"/", b + b"/"], capture_output=True, check=True).stdout
            assert said == b"", said
        for tree in (a, b):
            run = poise.run("remove", "--threads=2", tree)
            assert run.returncode == 0 and not os.path.lexists(tree), run


def listed(root):
    found = {b".": os.lstat(root)}
    for path in everything(root):
        found[os.path.relpath(path, root)] = os.lstat(path)
    return found


def changed(before, now):
    """What an inventory can tell: kinds by path, the uppermost ones only."""
    found = {}
    for path in sorted(set(before) | set(now),
                       key=lambda path: path.replace(b"/", b"\0")):
        above = os.path.dirname(path)
        while above and not found.get(above, set()) & {"missing", "extra",
                                                       "type"}:
            above = os.path.dirname(above)
        if above:
            continue
        if path not in now or path not in before:
            found[path] = {"extra" if path in now else "missing"}
            continue
        a, b = before[path], now[path]
        if stat.S_IFMT(a.st_mode) != stat.S_IFMT(b.st_mode):
            found[path] = {"type"}
            continue
        plain = not stat.S_ISDIR(a.st_mode)
        kinds = {kind for kind, differs in [
            ("content", plain and a.st_size != b.st_size),
            ("mode", a.st_mode != b.st_mode),
            ("owner", (a.st_uid, a.st_gid) != (b.st_uid, b.st_gid)),
            ("times", a.st_mtime_ns != b.st_mtime_ns),
            ("links", plain and a.st_nlink != b.st_nlink)] if differs}
        if kinds:
            found[path] = kinds
    return found


def check_inventory(poise, rng, scratch, rounds):
    """What changed since `poise walk` wrote an inventory."""
    tree = os.path.join(scratch, b"tree")
    for number in range(rounds):
        ending = [b"sqlite", b"csv", b"jsonl", b"bin"][number % 4]
        inventory = os.path.join(scratch, b"inventory." + ending)
        words = ["--format=binary"] if ending == b"bin" else []
        make_tree(rng, tree, rng.choice([0, 10, 100]))
        assert poise.run("walk", *words, "-o", inventory,
                         tree).returncode == 0
        before = listed(tree)
        mutate(rng, tree, rng.choice([0, 1, 5, 20]))
        want = changed(before, listed(tree))
        ranks = 2 if number % 4 == 3 else 0
        run = poise.run("compare", "--json", inventory, tree, ranks=ranks)
        got = {}
        for line in run.stdout.splitlines():
            row = json.loads(line) if line.startswith(b"{") else {}
            if "differs" in row:
                path = (base64.b64decode(row["path_base64"])
                        if "path_base64" in row else row["path"].encode())
                got[path] = set(row["differs"])
        assert got == want, (number, got, want)
        assert ranks > 0 or run.returncode == bool(want), run
        assert poise.run("remove", tree, inventory).returncode == 0


def check_bad_inventory(poise, scratch):
    """One that is cut or damaged is trouble, and so is one of several trees."""
    base = os.path.join(scratch, b"i")
    trees = [os.path.join(scratch, name) for name in (b"t", b"t2")]
    for tree in trees:
        os.mkdir(tree)
        open(os.path.join(tree, b"f\xff"), "w").close()
    head = (b"path,type,mode,uid,gid,size,blocks,nlink,ino,dev,mtime,ctime,"
            b"atime\r\n")
    row = b",d,0755,0,0,0,0,2,1,1,5.000000000,5.000000000,5.000000000\r\n"
    bad = [head, head + b"t", head + b'"t' + row, head + b"t,d,0755\r\n",
           head + b"t" + row.replace(b"0755", b"0999"),
           head + b"t" + row + b"t" + row, head + b"t" + row + b"u" + row,
           b'{"path":"t"', b'{"path":"t"}x\n', b'{"path":"\\u00"}\n',
           b'{"path":"t","path_base64":"?"}\n', b'{"path":"t","uid":-1}\n',
           b"POISEINV", b"SQLite format 3\0"]
    for ending in (b"sqlite", b"csv", b"jsonl", b"binary"):
        words = ["-o", base, "--format", os.fsdecode(ending)]
        assert poise.run("walk", *words, *trees).returncode == 0
        with open(base, "rb") as file:
            bad.append(file.read())
        bad.append(bad[-1][:-20])
    for data in bad:
        with open(base, "wb") as file:
            file.write(data)
        run = poise.run("compare", base, trees[0])
        assert run.returncode == 2 and run.stderr, (data[:200], run)
    assert poise.run("remove", *trees, base).returncode == 0


def check_table(poise, scratch):
    a, b = os.path.join(scratch, b"a"), os.path.join(scratch, b"b")
    os.mkdir(a)
    os.mkdir(b)
    open(os.path.join(a, b"\xff"), "w").close()
    open(os.path.join(b, b"new"), "w").close()
    base = os.path.join(scratch, b"out")
    run = poise.run("compare", "--metadata=none", "-o", base + b".sqlite", a, b)
    assert (run.returncode, run.stdout) == (1, b""), run
    rows = sqlite3.connect(os.fsdecode(base + b".sqlite")).execute(
        "SELECT path, kinds, a_type, b_type FROM differences").fetchall()
    assert sorted(rows, key=str) == sorted(
        [(b"\xff", "missing", "f", None), ("new", "extra", None, "f")],
        key=str), rows
    run = poise.run("compare", "--metadata=none", "-o", base, a, b)
    lines = open(base, "rb").read().splitlines()
    assert sorted(lines) == [b"extra\tnew", b"missing\t\xff"], lines
    # Trouble has its own exit code, whatever differs.
    for words in (["compare", a], ["compare", a, b, a], ["compare", a, "none"],
                  ["compare", "--metadata=some", a, b],
                  ["compare", "-o", "/none/x", a, b]):
        run = poise.run(*words)
        assert run.returncode == 2 and run.stderr, (words, run)
    poise.run("remove", a, b)


def check_page(poise, scratch):
    """--report: one whole page with the totals, and what failed."""
    a, b = os.path.join(scratch, b"a"), os.path.join(scratch, b"b")
    page = os.path.join(scratch, b"page.html")
    for tree in (a, b):
        os.mkdir(tree)
        for i in range(50):
            with open(os.path.join(tree, b"%d" % i), "wb") as file:
                file.write(b"x" * i * 100)
    os.unlink(os.path.join(b, b"3"))
    run = poise.run("compare", "--metadata=none", "--report", page, a, b)
    text = open(page, encoding="utf-8").read()
    assert run.returncode == 1 and text.endswith("</html>\n"), run
    for words in ("What differs", "Files, by size", "rank 0", "missing"):
        assert words in text, words
    run = poise.run("remove", "--report", page, a, b + b"/", b"none")
    text = open(page, encoding="utf-8").read()
    assert run.returncode == 1 and text.endswith("</html>\n"), run
    for words in ("What was removed", "What failed", "No such file", ">99<"):
        assert words in text, words
    # It is known before anything is done that it cannot be written.
    os.mkdir(a)
    for words in (["remove", a], ["compare", a, a]):
        run = poise.run(*words, "--report", "/none/page")
        assert run.returncode > 0 and b"/none/page" in run.stderr, run
        assert len(run.stderr.splitlines()) == 1, run
        assert os.path.isdir(a)
    os.rmdir(a)
    os.unlink(page)


def check_unreadable(poise, scratch):
    """A read error is trouble, one line, and the rest is compared."""
    a, b = os.path.join(scratch, b"a"), os.path.join(scratch, b"b")
    for tree in (a, b):
        os.mkdir(tree)
        for name in (b"1", b"2", b"3"):
            with open(os.path.join(tree, name), "wb") as file:
                file.write(b"x" * 1000)
    os.unlink(os.path.join(b, b"3"))
    for fault in ("read:1:EIO", "open:5:EACCES"):
        run = poise.run("compare", "--metadata=none", "-j1",
                        "--max-in-flight=1", a, b,
                        env={**os.environ, "POISE_FAULT": fault})
        assert run.returncode == 2, run
        assert len(run.stderr.splitlines()) == 1, run
        assert run.stdout == b"missing\t3\n", run
    poise.run("remove", a, b)


def make_chain(root, depth):
    os.mkdir(root)
    at = os.open(root, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=at)
        os.close(os.open("f", os.O_CREAT | os.O_WRONLY, dir_fd=at))
        below = os.open("d", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(at)


def check_deep(poise, scratch, depth):
    a, b = os.path.join(scratch, b"a"), os.path.join(scratch, b"b")
    make_chain(a, depth)
    make_chain(b, depth)

    def few():
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))

    status, got, _, totals = poise.compare(a, b, "--metadata=mode,owner",
                                           preexec_fn=few)
    assert (status, got) == (0, {}) and totals["compared"] == 2 * depth + 1, (
        status, got, totals)
    # What is sorted has names, not paths: no memory that grows with the depth.
    # (In kilobytes, of all children so far: those before this are small.)
    for ending in (b"csv", b"sqlite"):
        inventory = os.path.join(scratch, b"inventory." + ending)
        assert poise.run("walk", "-o", inventory, a).returncode == 0
        run = poise.run("compare", inventory, b, "--metadata=mode,owner")
        assert (run.returncode, run.stdout) == (0, b""), run
        os.unlink(inventory)
    most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    assert depth < 20000 or most < 20 << 10, most
    run = poise.run("remove", "--json", a, b, preexec_fn=few)
    totals = json.loads(run.stdout)
    assert run.returncode == 0, run
    assert totals["files"] == 2 * depth, totals
    assert totals["directories"] == 2 * depth + 2, totals


def check_kills(poise, rng, scratch, rounds):
    """A removal that is killed leaves nothing but what it had not come to, and
    goes on when it is run again; what is beside the tree stays."""
    tree = os.path.join(scratch, b"tree")
    beside = os.path.join(scratch, b"beside")
    open(beside, "w").close()
    for _ in range(rounds):
        make_tree(rng, tree, 150)
        before = set(everything(tree))
        ranks, mpi = rng.choice([0, 0, 0, 2]), rng.choice(["ompi", "mpich"])
        fault = f"unlink:{rng.randrange(1, len(before) + 1)}:KILL"
        run = poise.run("remove", tree, ranks=ranks, mpi=mpi,
                        env={**os.environ, "POISE_FAULT": fault})
        if ranks == 0:
            assert run.returncode == -signal.SIGKILL, run
            assert os.path.lexists(tree)
        assert set(everything(tree)) <= before
        run = poise.run("remove", "-f", tree, ranks=ranks, mpi=mpi)
        assert run.returncode == 0 and not os.path.lexists(tree), run
        assert os.listdir(scratch) == [b"beside"]
    os.unlink(beside)


def check_compare_kills(poise, rng, scratch, rounds):
    """A comparison that is killed changes nothing: neither tree, nor the file
    that its differences were to replace; run again, it is whole."""
    a, b = os.path.join(scratch, b"a"), os.path.join(scratch, b"b")
    make_tree(rng, a, 60)
    subprocess.run(["cp", "-a", a, b], check=True)
    mutate(rng, b, 10)
    want = (truth(a, b), truth(b, a))
    for number in range(rounds):
        out = os.path.join(scratch, [b"out.sqlite", b"out.jsonl"][number % 2])
        assert poise.run("compare", "-o", out, a, a).returncode == 0
        with open(out, "rb") as file:
            before = file.read()
        kind = rng.choice(["open", "read", "write", "rename", "stat"])
        most = {"rename": 1, "write": 3}.get(kind, 60)
        run = poise.run("compare", "-j2", "-o", out, a, b,
                        ranks=2 if number % 5 == 4 else 0,
                        env={**os.environ, "POISE_FAULT":
                             f"{kind}:{rng.randrange(1, most + 1)}:KILL"})
        with open(out, "rb") as file:
            after = file.read()
        assert run.returncode in (0, 1) or after == before or \
            number % 5 == 4, (number, kind, run)
        assert (truth(a, b), truth(b, a)) == want
        run = poise.run("compare", "-o", out, a, b)
        assert run.returncode == 1, run
        os.unlink(out)
        assert sorted(os.listdir(scratch)) == [b"a", b"b"]
    assert poise.run("remove", a, b).returncode == 0


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--poise", required=True)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--kills", type=int, default=6)
    parser.add_argument("--depth", type=int, default=600)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    options.poise = os.path.realpath(options.poise)
    rng, poise = random.Random(options.seed), Poise(options)
    with tempfile.TemporaryDirectory(prefix="poise-compare-") as name:
        scratch = os.fsencode(name)
        check_random(poise, rng, scratch, options.rounds)
        check_inventory(poise, rng, scratch, options.rounds // 2)
        check_bad_inventory(poise, scratch)
        check_table(poise, scratch)
        for left in os.listdir(scratch):
            os.unlink(os.path.join(scratch, left))
        check_page(poise, scratch)
        check_unreadable(poise, scratch)
        check_deep(poise, scratch, options.depth)
        check_compare_kills(poise, rng, scratch, options.kills)
        check_kills(poise, rng, scratch, options.kills)
    print("PASSED")


main()
