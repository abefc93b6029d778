#!/usr/bin/env python3
"""Expressions at random: what poise find prints is what GNU find prints, as
sets, and they end alike.

usage: find_random.py POISE [COUNT [SEED]]

Every predicate whose answer is the same a moment later, options, operators and
formats, over a tree with all types of files, odd names and modes. The
expressions that differ are printed, to be tried by hand: --keep leaves the tree.
"""

import os
import random
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time

SLOWNESS = float(os.environ.get("POISE_TEST_SLOWNESS", "4"))
NAMES = ["a", "b.c", "B.C", "c d", "e\nf", "-g", "h\t", "\u00e9t\u00e9", "*",
         "[x]", "\\y", "#z", ".hidden", "f10", "f2", "long" + "x" * 60]
RAW = [b"raw\xff", b"\x80", b"k\xe9.c"]


def make_file(path, size, mode, days):
    with open(path, "wb") as f:
        f.truncate(size)
    os.chmod(path, mode)
    now = time.time()
    # Between two limits of a test, whatever the seconds that it takes.
    os.utime(path, (now - (days + 1.4) * 86400 - 1800,
                    now - (days + 0.4) * 86400 - 1800))


def make_tree(rng):
    sizes = [0, 1, 511, 512, 513, 1024, 1025, 5000, 1 << 20, (1 << 20) + 1]
    modes = [0o644, 0o600, 0o755, 0o777, 0o4755, 0o2711, 0o444, 0o000, 0o1666]
    folders = [b"t", b"t/d1", b"t/d1/d2", b"t/d1/d2/d3", b"t/.d", b"t/empty"]
    for folder in folders:
        os.mkdir(folder)
    for folder in folders[:-1]:
        for name in rng.sample([n.encode() for n in NAMES] + RAW, 7):
            make_file(os.path.join(folder, name), rng.choice(sizes),
                      rng.choice(modes), rng.choice([0, 1, 2, 6, 7, 30]))
    make_file("t/one", 7, 0o640, 3)
    os.link("t/one", "t/d1/two")
    os.link("t/one", "t/.d/three")
    for target, link in (("one", "t/to"), ("d1", "t/todir"),
                         ("nowhere", "t/broken"), ("..", "t/d1/up"),
                         ("/dev/null", "t/d1/null")):
        os.symlink(target, link)
    os.mkfifo("t/fifo", 0o622)
    with socket.socket(socket.AF_UNIX) as s:
        s.bind("t/socket")
    if os.getuid() == 0:
        os.chown("t/d1/two", 12345, 23456)
        os.chown("t/to", 1, 1, follow_symlinks=False)
    os.chmod("t/empty", 0o1777)
    os.chmod("t/.d", 0o2750)


class Generator:
    def __init__(self, rng):
        self.rng = rng

    def sign(self):
        return self.rng.choice(["", "+", "-"])

    def pattern(self):
        return self.rng.choice(
            ["*", "?", "*.c", "*.C", "[a-f]*", "[!a-f]*", "*[[:digit:]]", "a",
             "[[:alpha:]]*", "*d*", "\\*", ".*", "?*", "", "*\\\\*", "[x]",
             "\\[x]", "*\n*", "*x", "??", "f[0-9]*", "t", "-*", "*\u00e9*",
             "[[:upper:]]*", "c d", "*/*"])

    def path(self):
        return self.rng.choice(
            ["*d1*", "t/*", "t/d1/*", "*/d?", "t", "*.c", "t/[a-d]*", "*/up/*",
             "t/todir*", "*/.*", "T/D1*"])

    def regex(self):
        return self.rng.choice(
            ["t/[a-z]*", ".*/d[0-9]+", ".*\\.c", ".*\\(1\\|2\\)", "t/.*x+", ".*",
             "t/d1.*", "[^/]*", ".*[[:digit:]]", "t/.", ".*(1|2)", "T/ONE",
             ".*/\\(one\\|two\\)", ".*e{2,}.*", "t/\\w+", "t(/.)*"])

    def mode(self):
        return self.rng.choice(["", "-", "/"]) + self.rng.choice(
            ["644", "0", "755", "111", "4000", "u+w", "u=rw,go=r", "a+x", "u+s",
             "g+s", "o+t", "go-w", "u=rwx,g=u", "a+X", "=r", "u+r,o+w", "7777",
             "222", "+x", "o=g"])

    def types(self):
        letters = self.rng.sample("bcdpfls", self.rng.choice([1, 1, 1, 2, 3]))
        return ",".join(letters)

    def date(self):
        return self.rng.choice(
            ["2020-01-01", "@1000000000.5", "3 days ago", "yesterday",
             "2038-01-01T10:00:00Z", "2021-02-03 04:05:06", "1 week ago",
             "2020-05-06 07:08+02:00", "20210203", "now", "2 hours ago",
             "last month", "1 year ago", "20200102 03:04:05-0330",
             "1 Jan 2021", "Jan 5 2022 10:30", "12/25/2021", "tomorrow",
             "2 weeks ago 10:00", "next day", "2021-03-04 5pm UTC",
             "1 month ago 3 days ago", "-2 days"])

    def format(self):
        letters = "dfhHilmMnpPsuUgGyYbkDF%"
        parts = []
        for _ in range(self.rng.randint(1, 5)):
            flags = self.rng.choice(["", "", "", "-", "0", "#", "+", " ", "-10",
                                     "8", ".3", "012", "6.2"])
            letter = self.rng.choice(letters)
            if self.rng.random() < 0.25:
                letter = "T"
                letter += self.rng.choice("@aAbBdDFgGHIjklmMprRsSTuUVwWxXyYzZ+c")
            parts.append("%" + flags + letter)
            parts.append(self.rng.choice(["|", "\\t", " ", "\\101", "\\\\", "x",
                                          "%%"] + 5 * [":"]))
        return "".join(parts) + "\\n"

    def test(self):
        rng = self.rng
        number = lambda most: self.sign() + str(rng.randint(0, most))
        file = lambda: rng.choice(["t/one", "t/to", "t/d1", "t/empty",
                                   "t/d1/null", "t/todir"])
        return rng.choice([
            lambda: ["-name", self.pattern()], lambda: ["-name", self.pattern()],
            lambda: ["-iname", self.pattern()],
            lambda: [rng.choice(["-path", "-ipath", "-wholename",
                                 "-iwholename"]), self.path()],
            lambda: [rng.choice(["-regex", "-iregex"]), self.regex()],
            lambda: ["-regextype", rng.choice(
                ["posix-extended", "posix-basic", "egrep", "emacs", "sed",
                 "awk", "grep", "findutils-default", "posix-awk", "gnu-awk",
                 "ed", "posix-egrep", "posix-minimal-basic"]),
                "-regex", self.regex()],
            lambda: ["-type", self.types()], lambda: ["-type", self.types()],
            lambda: ["-xtype", self.types()],
            lambda: ["-size", number(3) + rng.choice(["", "b", "c", "w", "k",
                                                      "M", "G"])],
            lambda: ["-size", self.sign() + rng.choice(["512c", "1025c", "11",
                                                        "5k", "0"])],
            lambda: ["-perm", self.mode()], lambda: ["-perm", self.mode()],
            lambda: ["-links", number(4)], lambda: ["-empty"],
            lambda: ["-inum", number(99)],
            lambda: ["-uid", number(2)], lambda: ["-gid", number(2)],
            lambda: ["-user", rng.choice(["root", "0", "12345", "daemon"])],
            lambda: ["-group", rng.choice(["root", "0", "23456", "daemon"])],
            lambda: ["-nouser"], lambda: ["-nogroup"],
            lambda: [rng.choice(["-newer", "-anewer", "-cnewer"]), file()],
            lambda: ["-newer" + rng.choice("acm") + rng.choice("acm"), file()],
            lambda: ["-newer" + rng.choice("acm") + "t", self.date()],
            lambda: ["-samefile", file()],
            lambda: [rng.choice(["-mtime", "-atime"]), number(8)],
            lambda: ["-mmin", number(3000)], lambda: ["(", "-daystart", "-mtime",
                                                      number(8), ")"],
            lambda: ["-ctime", number(1)], lambda: ["-used", number(2)],
            lambda: [rng.choice(["-lname", "-ilname"]), self.pattern()],
            lambda: [rng.choice(["-readable", "-writable", "-executable"])],
            lambda: ["-fstype", rng.choice(["tmpfs", "ext4", "proc"])],
            lambda: [rng.choice(["-true", "-false"])],
            lambda: ["-prune"], lambda: ["-prune"],
        ])()

    def action(self):
        return self.rng.choice([
            lambda: ["-print"], lambda: ["-print0"],
            lambda: ["-printf", self.format()], lambda: ["-printf",
                                                         self.format()],
            lambda: ["-ls"], lambda: ["-fprint", "/dev/stdout"],
        ])()

    def expression(self, depth):
        rng = self.rng
        if depth == 0 or rng.random() < 0.3:
            words = self.test() if rng.random() < 0.85 else self.action()
            return rng.choice([[], [], [], ["!"], ["-not"]]) + words
        left, right = self.expression(depth - 1), self.expression(depth - 1)
        joiner = rng.choice([["-o"], ["-o"], ["-a"], [], [], ["-or"], ["-and"],
                             [","]])
        if joiner == [","]:
            # GNU find 4.9 takes the value of the left side where its tests cost
            # more than those of the right one; actions it leaves in place.
            left = left + ["-print"]
        joined = left + joiner + right
        if rng.random() < 0.4:
            return rng.choice([[], ["!"]]) + ["("] + joined + [")"]
        return joined

    def line(self):
        rng = self.rng
        words = rng.choice([[], [], [], [], ["-L"], ["-H"], ["-P"], ["-O3"]])
        words = words + rng.choice(
            [["t"], ["t"], ["t"], ["./t/"], ["t/d1", "t/to"], ["t/todir", "t"],
             [], ["./t//"], ["t/d1/../empty", "t/one"], ["t", "nosuch"]])
        for option in (["-depth"], ["-maxdepth", str(rng.randint(0, 4))],
                       ["-mindepth", str(rng.randint(0, 3))], ["-xdev"],
                       ["-noleaf"], ["-follow"]):
            if rng.random() < 0.1:
                words = words + option
        return words + self.expression(rng.choice([0, 1, 2, 2, 3]))


def run(words, environment):
    ran = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                         stdin=subprocess.DEVNULL, env=environment,
                         timeout=60 * SLOWNESS)
    out = ran.stdout.replace(b"\0", b"\n")
    if "-ls" in words:
        # GNU find widens its columns as it goes, for what came before.
        out = re.sub(rb" +", b" ", out)
    out = sorted(out.split(b"\n"))
    return ran.returncode, out, ran.stderr


def compare(poise, words, environment):
    gnu = run(["find", *words], environment)
    ours = run([poise, "find", "--threads=2", *words], environment)
    if gnu[:2] == ours[:2]:
        return True
    print("differs:", environment["LC_ALL"], words)
    print("  GNU find", gnu[0], gnu[2][:300])
    print("  poise", ours[0], ours[2][:300])
    for name, a, b in (("GNU's alone", gnu, ours), ("poise's", ours, gnu)):
        print(" ", name, sorted(set(a[1]) - set(b[1]))[:3])
    return False


def main():
    keep = "--keep" in sys.argv
    words = [word for word in sys.argv[1:] if word != "--keep"]
    poise = os.path.abspath(words[0])
    count = int(words[1]) if len(words) > 1 else 300
    seed = int(words[2]) if len(words) > 2 else 1
    rng = random.Random(seed)
    folder = tempfile.mkdtemp()
    os.chdir(folder)
    make_tree(rng)
    time.sleep(0.01)
    generator = Generator(rng)
    # Under sanitizers some of them (tests/share.h), in either locale.
    share = int(os.environ.get("POISE_TEST_SHARE", "1"))
    tried = differing = 0
    for i in range(count):
        environment = {**os.environ, "LC_ALL": "C" if i % 3 else "C.UTF-8"}
        line = generator.line()
        if (i + i // 3) % share == 0:
            tried += 1
            differing += not compare(poise, line, environment)
    if keep:
        print("the tree is in", folder)
    else:
        os.chdir("/")
        subprocess.run(["chmod", "-R", "u+rwx", folder])
        shutil.rmtree(folder)
    print(f"{tried} of {count} expressions of seed {seed}, {differing} differ")
    return differing > 0


if __name__ == "__main__":
    sys.exit(main())
