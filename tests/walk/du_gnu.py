#!/usr/bin/env python3
"""poise du against GNU du: random trees with many hard and symbolic links,
random options and operands, from a seed. The records must be the same as sets,
and the exit code must be.

usage: du_gnu.py POISE [--trees N] [--cases N] [--seed N]
"""

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time

NAMES = [b"a", b"b", b"sub", b"x y", b"new\nline", b"-lead", b"\xff\xfe", b"*",
         b"d.o", b"f.o", b"deep", b"n" * 200, b"b-c", b"b.d", b"\xc3\xa4"]


class Tree:
    """A random tree below `top`, made with what chance says."""

    def __init__(self, top, rng):
        self.rng = rng
        self.dirs = [top]
        self.files = []
        self.links = []
        for _ in range(rng.randint(3, 25)):
            self.add(os.mkdir, self.dirs)
        for _ in range(rng.randint(5, 60)):
            self.add(self.write, self.files)
        for _ in range(rng.randint(0, 60)):
            source = rng.choice(self.files)
            self.add(lambda path, s=source: os.link(s, path), self.files)
        for _ in range(rng.randint(0, 15)):
            self.add(self.symlink, self.links)
        for path in self.files + self.dirs:
            self.date(path)

    def add(self, make, paths):
        where = self.rng.choice(self.dirs)
        name = self.rng.choice(NAMES) + b"%d" % self.rng.randint(0, 9)
        path = os.path.join(where, name)
        if not os.path.lexists(path):
            make(path)
            paths.append(path)

    def write(self, path):
        with open(path, "wb") as file:
            file.truncate(self.rng.choice((0, 0, 5, 100000, 1 << 33)))
            file.write(b"x" * self.rng.choice((0, 1, 4096, 10000, 70000)))
            # Blocks that are allocated later would differ from du to du.
            file.flush()
            os.fdatasync(file.fileno())

    def symlink(self, path):
        kind = self.rng.randrange(4)
        target = b"nowhere" if kind == 0 else self.rng.choice(
            self.dirs if kind < 3 else self.files + self.links)
        if kind % 2 and kind != 0:
            target = os.path.relpath(target, os.path.dirname(path))
        os.symlink(target, path)

    def date(self, path):
        """Not before 1970: GNU du 9.1 takes that for the newest time of the
        directories that it enters first."""
        when = self.rng.choice((0, 5 * 10 ** 17, 4 * 10 ** 18, 10 ** 18))
        when += self.rng.randrange(10 ** 17)
        if os.path.isdir(path):
            when = min(when, 10 ** 18)
        os.utime(path, ns=(when, when + self.rng.randrange(10 ** 12)))

    def operands(self):
        if self.rng.random() < 0.5:
            return [b"."]
        pool = self.dirs + self.links + self.files
        some = [self.rng.choice(pool if self.rng.random() < 0.5 else self.dirs)
                for _ in range(self.rng.randint(1, 4))]
        top = self.dirs[0]
        return [b"./" + os.path.relpath(path, top) +
                self.rng.choice((b"", b"", b"", b"/"))
                if os.path.isdir(path) else b"./" + os.path.relpath(path, top)
                for path in some]


def options(rng):
    """Words that both understand."""
    words = []
    kinds = [["-a"], ["-c"], ["-S"], ["-l"], ["-x"], ["-b"], ["--inodes"],
             ["--apparent-size"], ["-h"], ["--si"], ["-k"], ["-m"],
             ["-B", "512"], ["-BM"], ["-B1"], ["-L"], ["-D"], ["-H"], ["-P"],
             ["-d0"], ["-d1"], ["-d", "2"], ["--max-depth=5"], ["-s"],
             ["-t", "10000"], ["--threshold=-60K"], ["-t5KB"], ["-t", "2"],
             ["--time"], ["--time=ctime"], ["--time=use"], ["--time=a"],
             ["--time", "--time-style=full-iso"],
             ["--time", "--time-style=+%s.%N %Y%%"],
             ["--exclude=*.o*"], ["--exclude", "sub*"], ["--exclude=b*/a*"],
             ["--exclude=./a?"], ["-X", "../patterns"]]
    for kind in rng.sample(kinds, rng.randint(0, 5)):
        words += kind
    if "-s" in words:
        words = [w for w in words if w not in ("-a", "-d1", "--max-depth=5")]
        while "-d" in words:
            at = words.index("-d")
            del words[at:at + 2]
    return words


def run(words, directory, names):
    """The records, sorted, and the exit code."""
    if names is not None:
        words = words + ["--files0-from=-"]
    env = dict(os.environ, LC_ALL="C", TZ="America/New_York")
    done = subprocess.run(words, cwd=directory, input=names or b"", env=env,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          check=False)
    return sorted(done.stdout.split(b"\0")), done.returncode, done.stderr


def compare(poise, tree, rng, directory):
    words = options(rng) + ["-0"]
    operands = tree.operands()
    names = None
    if rng.random() < 0.15:
        names = b"\0".join(operands) + b"\0"
        operands = []
    operands = operands and ["--"] + operands
    threads = str(rng.randint(1, 4))
    # The file system may still be giving out blocks, and reading sets times of
    # access: what GNU du says twice is what ours is held to.
    for _ in range(20):
        before = run(["du"] + words + operands, directory, names)
        ours = run([poise, "du", "--charge-links=read", "-j", threads] + words +
                   operands, directory, names)
        gnu = run(["du"] + words + operands, directory, names)
        if before == gnu:
            break
        time.sleep(0.1)
    if ours[:2] == gnu[:2]:
        return True
    print("differs:", words, operands, names)
    print("  only GNU:", [r for r in gnu[0] if r not in ours[0]][:6])
    print("  only ours:", [r for r in ours[0] if r not in gnu[0]][:6])
    print("  codes", gnu[1], ours[1], gnu[2][:300], ours[2][:300])
    return False


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("poise")
    parser.add_argument("--trees", type=int, default=4)
    parser.add_argument("--cases", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    poise = os.path.abspath(args.poise)
    bad = 0
    for number in range(args.trees):
        rng = random.Random(f"{args.seed}.{number}")
        where = tempfile.mkdtemp(prefix="poise-test-").encode()
        try:
            top = os.path.join(where, b"top")
            os.mkdir(top)
            with open(os.path.join(where, b"patterns"), "wb") as file:
                file.write(b"f.o*  \n\n*/deep?\nnone")
            tree = Tree(top, rng)
            bad += sum(not compare(poise, tree, rng, top)
                       for _ in range(args.cases))
        finally:
            shutil.rmtree(where)
    total = args.trees * args.cases
    print(f"{total - bad} of {total} as GNU du (seed {args.seed})")
    return 1 if bad else 0


sys.exit(main())
