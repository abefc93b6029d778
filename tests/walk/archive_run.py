#!/usr/bin/env python3
"""poise archive by ranks of both MPIs, and killed at any moment.

usage: archive_run.py --poise PATH [--ignorecase MODULE] [--full] [--kills N]
    [--seed N] [NAME...]

After a kill there is no temporary file, and nothing half-written under a final
name: what is there is extracted to the old tree or to the new one, or refused.
Run again, it is whole. --full: all numbers of ranks.
"""
import argparse
import os
import random
import signal
import stat
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import trees  # noqa: E402

SLOWNESS = float(os.environ.get("POISE_TEST_SLOWNESS", "4"))
POISE, FULL, KILLS, SEED, IGNORECASE = "", False, 3, 1, None


def expect(truth, *words):
    if not truth:
        raise AssertionError(words)


def launcher(mpi, ranks):
    if ranks == 0:
        return []
    if mpi == "ompi":
        root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
        return ["mpirun.openmpi", *root, "--oversubscribe", "-n", str(ranks)]
    return ["mpirun.mpich", "-n", str(ranks)]


def run(*words, code=0, before=(), env=None):
    done = subprocess.run([*before, POISE, "archive", *words],
                          capture_output=True, check=False,
                          stdin=subprocess.DEVNULL, timeout=120 * SLOWNESS,
                          env={**os.environ, **(env or {})})
    expect(code is None or done.returncode == code, words, env,
           done.returncode, done.stdout[-500:], done.stderr[-2000:])
    return done


def clear(path):
    subprocess.run(["chmod", "-R", "u+rwX", path], check=False,
                   stderr=subprocess.DEVNULL)
    subprocess.run(["rm", "-rf", path], check=True)


def make_source(path, big=3 << 20):
    trees.make_nasty(path, big=big)
    for at, _, names in os.walk(os.fsencode(path)):
        for name in names:
            if os.path.basename(name) == b"socket":
                os.unlink(os.path.join(at, name))
    fd = os.open(path, os.O_RDONLY)
    for i in range(40):
        trees.put(fd, b"file-%d" % i, b"%d" % i * 4000)
        os.link(f"{path}/file-{i}", f"{path}/linked-{i}")
    os.close(fd)


def same(a, b):
    found = trees.differences(a, b)
    expect(not found, a, b, found[:5])


# ---- ranks ------------------------------------------------------------------

def test_ranks():
    """By ranks and back, by as many and by others, with the index and
    without; and each part by tar."""
    make_source("src")
    cases = ([(mpi, n) for mpi in ("ompi", "mpich") for n in (1, 2, 3, 4)]
             if FULL else [("ompi", 2), ("mpich", 3)])
    for mpi, ranks in cases:
        before = launcher(mpi, ranks)
        run("src", "a", before=before)
        parts = sorted(name for name in os.listdir(".")
                       if name.startswith("a.") and name != "a.index")
        expect(len(parts) == ranks or ranks == 1, parts)
        run("-x", "a", "out", before=before)
        same("src", "out/src")
        clear("out")
        run("-x", "a", "out")
        same("src", "out/src")
        clear("out")
        os.unlink("a.index")
        run("-x", "a", "out", before=launcher(mpi, 2))
        same("src", "out/src")
        clear("out")
        listed = run("-t", "-0", "a").stdout.split(b"\0")[:-1]
        read = []
        for part in parts or ["a"]:
            # Names beyond PATH_MAX are cut by tar; their number is right.
            read += subprocess.run(["tar", "-tf", part], check=True,
                                   capture_output=True).stdout.splitlines()
            os.unlink(part)
        expect(len(read) == len(listed), mpi, ranks, len(read), len(listed))


def test_ranks_trouble():
    """What one rank cannot read is one error, and the exit code says so."""
    os.mkdir("src")
    for i in range(30):
        with open(f"src/{i}", "wb") as file:
            file.write(b"%d" % i * 1000)
    run("src", "a", before=launcher("ompi", 2))
    with open("a.1", "r+b") as file:
        file.truncate(os.path.getsize("a.1") // 2 // 512 * 512)
    done = run("-x", "a", "out", before=launcher("mpich", 2), code=None)
    expect(done.returncode != 0 and b"a.1" in done.stderr, done)
    for name in os.listdir("out/src"):
        with open(f"out/src/{name}", "rb") as file:
            expect(file.read() == name.encode() * 1000, name)


# ---- targets ----------------------------------------------------------------

def test_ignored_case():
    """Names that are one at the target: the second is not made, and said."""
    if not IGNORECASE:
        print("  skipped: no --ignorecase")
        return
    os.makedirs("src/Dir")
    os.makedirs("src/dir")
    for name in ("README", "readme", "ReadMe", "other", "Dir/a", "dir/a"):
        with open("src/" + name, "w", encoding="ascii") as file:
            file.write(name)
    os.symlink("x", "src/OTHER")
    os.link("src/Dir/a", "src/Linked")
    os.link("src/Dir/a", "src/linked")
    run("src", "a")
    os.mkdir("out")
    there = {"LD_PRELOAD": IGNORECASE, "IGNORECASE": os.path.realpath("out")}
    fuse = {**there, "IGNORECASE_INODES": "1"}
    for words, env in ((["-j1"], there), (["-j2"], there), (["-j1"], fuse)):
        done = run(*words, "-x", "a", "out", code=1, env=env)
        lines = done.stderr.decode().splitlines()
        expect(len(lines) in (5, 6) and
               all("ignores the case" in line for line in lines), lines)
        for one, two in (("readme", "readme"), ("linked", "linked"),
                         ("dir", "dir"), ("other", "other")):
            expect(any(line.lower().count(one) > 1 for line in lines), one, two)
        made = sorted(name.lower() for name in os.listdir("out/src"))
        expect(made == ["dir", "linked", "other", "readme"], made)
        for at, _, names in os.walk("out/src"):
            for name in names:
                path = os.path.join(at, name)
                if name.lower() != "linked" and not os.path.islink(path):
                    with open(path, encoding="ascii") as file:
                        expect(file.read() == path[8:], "mixed up", path)
        clear("out/src")


def test_many_parts():
    """More parts than descriptors; of each only its reader has one."""
    os.mkdir("src")
    for i in range(300):
        with open(f"src/{i}", "wb") as file:
            file.write(b"%d" % i * 500)
    os.symlink("x", "src/link")
    run("--parts", "200", "src", "a")
    for index in (True, False):
        done = run("-x", "a", "out", before=[
            "sh", "-c", 'ulimit -n 64; exec "$0" "$@"'])
        expect(done.stderr == b"", done.stderr)
        same("src", "out/src")
        clear("out")
        if index:
            os.unlink("a.index")


def test_shared():
    """One large file by several threads, plain and compressed, and damaged."""
    os.mkdir("src")
    with open("src/large", "wb") as file:
        for i in range(6):
            file.write(random.Random(i).randbytes(1 << 20) + b"same" * 70000)
    os.link("src/large", "src/too")
    size = os.path.getsize("src/large")
    for name in ("a", "a.zst"):
        run("-j4", "src", name)
        run("-j4", "-x", name, "out")
        same("src", "out/src")
        clear("out")
        with open(name, "r+b") as file:
            file.seek(size // 2)
            file.write(b"wrong")
        done = run("-j4", "-x", name, "out", code=1)
        expect(b"damaged" in done.stderr and not os.listdir("out/src"), done)
        clear("out")


# ---- kills ------------------------------------------------------------------

def kill_at(rng, words, before, whole):
    """Run it, and kill all of it: at a random moment, or at a call."""
    env = dict(os.environ)
    way = rng.randrange(4)
    if way:
        kind = ["", "write", "rename", "open"][way]
        most = {"write": 200, "rename": 8, "open": 300}[kind]
        env["POISE_FAULT"] = f"{kind}:{rng.randrange(1, most)}:KILL"
    child = subprocess.Popen([*before, POISE, "archive", *words], env=env,
                             stderr=subprocess.DEVNULL,
                             start_new_session=True)
    deadline = rng.random() * whole if way == 0 else 60 * SLOWNESS
    try:
        child.wait(deadline)
    except subprocess.TimeoutExpired:
        pass
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass  # it has ended
    child.wait()
    while before and subprocess.run(["pgrep", "-g", str(child.pid)],
                                    stdout=subprocess.DEVNULL,
                                    check=False).returncode == 0:
        time.sleep(0.01)
    return child.returncode != 0


def test_mixed():
    """Parts of two archives, after a kill between them, are no archive."""
    for tree in ("old", "new"):
        os.mkdir(tree)
        for i in range(40):
            with open(f"{tree}/{i}", "wb") as file:
                file.write(tree.encode() * 1000)
    run("--parts", "4", "-j4", "old", "a")
    os.rename("old", "kept")
    os.rename("new", "old")
    done = run("--parts", "4", "-j4", "old", "a", code=None,
               env={"POISE_FAULT": "rename:3:KILL"})
    expect(done.returncode == -signal.SIGKILL, done)
    expect(sorted(os.listdir(".")) == ["a.0", "a.1", "a.2", "a.3", "kept",
                                       "old"], os.listdir("."))
    for words in (["-x", "a", "out"], ["-t", "a"]):
        done = run(*words, code=1)
        expect(b"another archive" in done.stderr, done.stderr)
    expect(not os.path.exists("out") or not os.listdir("out"), "out")
    # A part that is missing at the end is missed without an index, too.
    run("--parts", "4", "-j4", "old", "a")
    os.unlink("a.index")
    run("-t", "a")
    os.unlink("a.3")
    done = run("-t", "a", code=1)
    expect(b"a.3" in done.stderr, done.stderr)
    # Nor does an archive of fewer parts leave others beside it.
    run("--parts", "4", "-j4", "old", "a")
    done = run("--parts", "2", "old", "a", code=1)
    expect(b"a.2" in done.stderr, done.stderr)
    run("-x", "a", "out")
    same("old", "out/old")


def test_kill_create():
    """An older archive is there, or none."""
    make_source("tree")
    os.rename("tree", "first")
    make_source("tree", big=1 << 20)
    os.unlink("tree/file-3")
    rng = random.Random(SEED)
    started = time.monotonic()
    run("--parts", "3", "tree", "b")
    whole = time.monotonic() - started
    killed = 0
    for turn in range(KILLS):
        ranks = 3 if turn % 6 == 5 else 0
        parts = 3 if turn % 3 or ranks else 1
        names = {"a.index"} | ({"a"} if parts == 1 else
                               {f"a.{i}" for i in range(parts)})
        there = turn % 2 == 0
        if there:
            os.rename("tree", "second")
            os.rename("first", "tree")
            run("--parts", str(parts), "tree", "a")
            os.rename("tree", "first")
            os.rename("second", "tree")
        words = ["--parts", str(parts), f"-j{1 + turn % 3}", "tree", "a"]
        killed += kill_at(rng, words, launcher("ompi", ranks), whole)
        left = {name for name in os.listdir(".")
                if name.startswith("a") and not name.endswith(".tmp")}
        expect(left <= names, left)
        done = run("-x", "a", "out", code=None)
        if done.returncode == 0:
            expect(there or left == names or parts == 1, left)
            found = [trees.differences(tree, "out/tree")
                     for tree in ("tree", "first")]
            expect([] in found, [f[:3] for f in found])
        else:
            expect(done.stderr and not os.path.exists("out/tree"), done.stderr)
        clear("out")
        run(*words)
        expect({n for n in os.listdir(".") if n.startswith("a")} == names,
               os.listdir("."))
        run("-x", "a", "out")
        same("tree", "out/tree")
        clear("out")
        for name in names:
            os.unlink(name)
    expect(KILLS < 10 or killed > KILLS // 4, killed)


def nothing_half(src, dst):
    """What has its final name is whole."""
    whole, _ = trees.describe_tree(src)
    root = os.open(dst, os.O_RDONLY)
    for where, fd, name, st in trees.each(root):
        if stat.S_ISREG(st.st_mode) and not any(
                part.startswith(trees.TEMPORARY) for part in where.split(b"/")):
            got, want = trees.describe(fd, name, st), whole[where]
            expect(all(got[key] == want[key]
                       for key in ("data", "mode", "mtime")), where[-90:])
    os.close(root)


def test_kill_extract():
    make_source("src")
    run("--parts", "3", "src", "a")
    rng = random.Random(SEED + 1)
    started = time.monotonic()
    run("-x", "a", "out")
    whole = time.monotonic() - started
    clear("out")
    killed = 0
    for turn in range(KILLS):
        ranks = 2 if turn % 6 == 4 else 0
        if turn % 2:
            os.rename("a.index", "index")
        words = [f"-j{1 + turn % 3}", "-x", "a", "out"]
        killed += kill_at(rng, words, launcher("mpich", ranks), whole)
        if os.path.exists("out/src"):
            nothing_half("src", "out/src")
        run(*words)
        same("src", "out/src")
        clear("out")
        if turn % 2:
            os.rename("index", "a.index")
    expect(KILLS < 10 or killed > KILLS // 4, killed)


def main():
    global POISE, FULL, KILLS, SEED, IGNORECASE
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--poise", required=True)
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--kills", type=int, default=KILLS)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--ignorecase", help="module: a file system that does")
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    POISE, FULL = os.path.realpath(args.poise), args.full
    KILLS, SEED = args.kills, args.seed
    IGNORECASE = args.ignorecase and os.path.abspath(args.ignorecase)
    os.umask(0o022)
    tests = {name[5:]: test for name, test in globals().items()
             if name.startswith("test_")}
    for name in args.names or tests:
        where = tempfile.mkdtemp(prefix="poise-archive-")
        os.chdir(where)
        try:
            tests[name]()
        finally:
            os.chdir("/")
            clear(where)
        print("ok", name, flush=True)


main()
