#!/usr/bin/env python3
"""Inputs that are no files: pipes, sockets, devices, descriptors that stand
within a file, for sort, listrank and bfs.

usage: pipes.py POISE

What a command makes of them is what it makes of a file with the same bytes, or
what Python makes of them. Scratch files run full, readers and writers go away,
commands are ended: the old output stays, and nothing is left.
"""

import array
import gzip
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import unittest

SLOWNESS = float(os.environ.get("POISE_TEST_SLOWNESS", "4"))
POISE = os.path.abspath(sys.argv.pop(1))
LAUNCHERS = [["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe"],
             ["mpirun.mpich"]]
MATRIX = (b"%%MatrixMarket matrix coordinate pattern general\n"
          b"3 3 2\n1 2\n2 3\n")


def lines(count):
    numbers = [b"%d\n" % i for i in range(count)]
    random.Random(1).shuffle(numbers)
    return b"".join(numbers)


def in_order(data):
    return b"".join(sorted(data.splitlines(keepends=True)))


class Pipes(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        os.mkdir(self.path("scratch"))
        self.env = dict(os.environ, TMPDIR=self.path("scratch"),
                        LC_ALL="C")

    def path(self, name):
        return os.path.join(self.folder, name)

    def put(self, name, data):
        with open(self.path(name), "wb") as f:
            f.write(data)
        return self.path(name)

    def run_it(self, words, data=None, fault=None, launcher=(), **more):
        """Through pipes; `data` come in one, not in one write."""
        env = dict(self.env, POISE_FAULT=fault) if fault else self.env
        if "stdin" not in more:
            more["input"] = data or b""
        return subprocess.run([*launcher, POISE, *words], env=env,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              cwd=self.folder, timeout=120 * SLOWNESS, **more)

    def good(self, words, data=None, **more):
        done = self.run_it(words, data, **more)
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        self.assertEqual(os.listdir(self.path("scratch")), [])
        return done.stdout

    def bad(self, code, text, words, data=None, **more):
        done = self.run_it(words, data, **more)
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertIn(text, done.stderr)
        self.assertEqual(os.listdir(self.path("scratch")), [])
        return done


class Sort(Pipes):
    def test_pipe_to_pipe(self):
        # 0 and more bytes beyond a page, a pipe, a buffer; and more than the
        # memory.
        for count in (0, 1, 1000, 13000, 150000):
            data = lines(count)
            with self.subTest(len(data)):
                self.assertEqual(self.good(["sort", "--memory", "1M", "-"],
                                           data), in_order(data))
        self.assertEqual(self.good(["sort"], b"b\na"), b"a\nb\n")
        self.assertEqual(self.good(["sort", "/dev/null"]), b"")

    def test_numbers(self):
        rng = random.Random(2)
        numbers = array.array("Q", (rng.getrandbits(64)
                                    for _ in range(8192 * 4)))
        out = self.path("out")
        self.good(["sort", "--type", "u64", "-", "-o", out], numbers.tobytes())
        with open(out, "rb") as f:
            self.assertEqual(f.read(),
                             array.array("Q", sorted(numbers)).tobytes())
        # Whom a pipe's mode lets read it says nothing.
        mask = os.umask(0o022)
        os.umask(mask)
        self.assertEqual(os.stat(out).st_mode & 0o777, 0o666 & ~mask)
        self.bad(2, b"7 too many", ["sort", "--type", "u64", "-", "-o", out],
                 bytes(15))
        self.assertIn(b"sorted     no",
                      self.bad(1, b"", ["sort", "--type", "u64", "-c", "-"],
                               numbers.tobytes()).stdout)

    def test_other_kinds(self):
        data = lines(5000)
        fifo = self.path("fifo")
        os.mkfifo(fifo)

        def feed():
            with open(fifo, "wb") as f:
                f.write(data)

        feeder = threading.Thread(target=feed)
        feeder.start()
        self.assertEqual(self.good(["sort", fifo]), in_order(data))
        feeder.join()
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.sendall(data)
            ours.shutdown(socket.SHUT_WR)
            self.assertEqual(self.good(["sort"], stdin=theirs),
                             in_order(data))
        # From where a descriptor stands, and the whole of a file.
        with open(self.put("in", data), "rb", buffering=0) as f:
            self.assertEqual(self.good(["sort"], stdin=f),
                             in_order(data))
            half = data.index(b"\n", 10000) + 1
            f.seek(half)
            self.assertEqual(self.good(["sort"], stdin=f),
                             in_order(data[half:]))
        self.bad(2, b"directory", ["sort", self.folder])

    def test_scratch(self):
        """Beside OUT, or where the user says; what is written is counted."""
        trace = ["strace", "-f", "-qq", "-e", "trace=openat", "-o",
                 self.path("trace")]
        if shutil.which("strace") is None:
            self.skipTest("no strace")
        os.mkdir(self.path("there"))
        for words, folder in (([], self.folder),
                              (["--scratch", self.path("there")],
                               self.path("there"))):
            done = self.run_it(["sort", *words, "-o", self.path("out")],
                               lines(100), launcher=trace)
            if done.returncode and b"ptrace" in done.stderr:
                self.skipTest("no ptrace")
            self.assertEqual(done.returncode, 0, done.stderr)
            with open(self.path("trace"), encoding="utf-8") as f:
                first = [line for line in f if "O_TMPFILE" in line or
                         ".poise-" in line][0]
            self.assertIn(f'"{folder}', first)

    def test_full(self):
        data = lines(100000)
        out = self.put("out", b"old")
        for k in (1, 2, 5):
            done = self.bad(2, b"No space left", ["sort", "-o", out], data,
                            fault=f"write:{k}:ENOSPC")
            self.assertIn(b"a scratch file in '" + self.folder.encode(),
                          done.stderr)
        self.bad(2, b"Input/output error", ["sort", "-o", out], data,
                 fault="read:2:EIO")
        with open(out, "rb") as f:
            self.assertEqual(f.read(), b"old")
        self.assertEqual(sorted(os.listdir(self.folder)), ["out", "scratch"])

    def test_ends(self):
        """Whoever is at the other end of a pipe goes away."""
        out = self.put("out", b"old")
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGKILL):
            with subprocess.Popen([POISE, "sort", "-", out], env=self.env,
                                  stdin=subprocess.PIPE,
                                  stderr=subprocess.PIPE) as ran:
                # More than the pipe holds: it has begun.
                ran.stdin.write(lines(20000))
                ran.stdin.flush()
                ran.send_signal(number)
                self.assertNotEqual(ran.wait(60 * SLOWNESS), 0)
                ran.stdin.close()
        with open(out, "rb") as f:
            self.assertEqual(f.read(), b"old")
        self.assertEqual(sorted(os.listdir(self.folder)), ["out", "scratch"])
        with subprocess.Popen([POISE, "sort", "-", "-"], env=self.env,
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE) as ran:
            ran.stdout.close()
            ran.stdin.write(lines(100000))
            ran.stdin.close()
            words = ran.stderr.read()
            code = ran.wait(60 * SLOWNESS)
        self.assertTrue(code == -signal.SIGPIPE or
                        (code == 2 and b"Broken pipe" in words), (code, words))
        self.assertEqual(os.listdir(self.path("scratch")), [])

    def test_several_processes(self):
        for launcher in LAUNCHERS:
            if shutil.which(launcher[0]):
                done = self.run_it(["sort", "-o", self.path("out")], b"b\na\n",
                                   launcher=[*launcher, "-n", "2"])
                self.assertNotEqual(done.returncode, 0)
                self.assertIn(b"it can be read once only", done.stderr)
                self.assertNotIn("out", os.listdir(self.folder))


    def test_progress(self):
        """A line while the input does not come to its end, wiped at last."""
        with subprocess.Popen([POISE, "sort", "--progress"], env=self.env,
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE) as running:
            words = b"\r\x1b[Kreading the input"
            self.assertEqual(running.stderr.read(len(words)), words)
            out, err = running.communicate(b"b\na\n")
        self.assertEqual((running.returncode, out), (0, b"a\nb\n"))
        self.assertTrue(err.endswith(b"\r\x1b[K"), err)

    def test_one_bucket(self):
        path = self.path("few")
        with open(path, "wb") as f:
            f.write(b"b\na\n")
        plan = self.good(["sort", "--dry-run", path, "-o", self.path("out")])
        self.assertIn(b": 1 bucket, ", plan)
        self.assertTrue(plan.endswith(b", 1 thread\n"), plan)


class Listrank(Pipes):
    def setUp(self):
        super().setUp()
        count = 20000
        order = list(range(count))
        random.Random(3).shuffle(order)
        following, ranks = array.array("Q", order), array.array("Q", order)
        for i, node in enumerate(order):
            following[node] = order[min(i + 1, count - 1)]
            ranks[node] = count - 1 - i
        self.list, self.ranks = following.tobytes(), ranks.tobytes()

    def test_progress(self):
        """As of sort; bad data end with 1."""
        with subprocess.Popen([POISE, "listrank", "--progress", "-", "-"],
                              env=self.env, stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE) as running:
            words = b"\r\x1b[Kreading the input"
            self.assertEqual(running.stderr.read(len(words)), words)
            out, err = running.communicate(self.list)
        self.assertEqual((running.returncode, out), (0, self.ranks))
        self.assertTrue(err.endswith(b"\r\x1b[K"), err)
        for bad in (b"\x05" * 8, self.list[:-3], self.list[:8] * 3):
            done = self.run_it(["listrank", "-", "-"], bad)
            self.assertEqual((done.returncode, done.stdout), (1, b""))
            self.assertEqual(done.stderr.count(b"\n"), 1)

    def test_pipes(self):
        self.assertEqual(self.good(["listrank", "-", "-"], self.list),
                         self.ranks)
        self.assertEqual(self.good(["listrank", "--memory", "800K", "-", "-"],
                                   self.list), self.ranks)
        weights = array.array("q", [2] * (len(self.list) // 8)).tobytes()
        file = self.put("list", self.list)
        twice = array.array("Q")
        twice.frombytes(self.good(["listrank", "-w", "-", file, "-"], weights))
        once = array.array("Q")
        once.frombytes(self.ranks)
        self.assertEqual(twice, array.array("Q", (2 * r for r in once)))

    def test_check(self):
        file, ranks = self.put("list", self.list), self.put("r", self.ranks)
        for words, data in ((["-", ranks], self.list),
                            ([file, "-"], self.ranks)):
            self.assertIn(b"wrong 0\n",
                          self.good(["listrank", "--check", *words], data))
        self.bad(1, b"", ["listrank", "--check", file, "-"], self.list)
        self.bad(1, b"8 bytes are not the ranks of 20000 nodes",
                 ["listrank", "--check", file, "-"], bytes(8))


class Bfs(Pipes):
    def test_formats(self):
        """What a pipe holds shows in its first bytes, as it does of a file."""
        texts = {"mtx": MATRIX, "gr": b"c x\np sp 3 2\na 1 2 9\na 2 3 9\n",
                 "el": b"1 2\n2 3\n", "csv": b'"1","2"\n'}
        for kind, data in texts.items():
            file = self.put("in." + kind, data)
            with self.subTest(kind):
                self.good(["bfs", "convert", file, self.path("a.pg")])
                with open(self.path("a.pg"), "rb") as f:
                    expected = f.read()
                source = ["--from", "csv"] if kind == "csv" else []
                for packed in (data, gzip.compress(data), expected,
                               gzip.compress(expected)):
                    if packed in (expected, gzip.compress(expected)):
                        source = []
                    self.good(["bfs", "convert", *source, "-", "b.pg"], packed)
                    with open(self.path("b.pg"), "rb") as f:
                        self.assertEqual(f.read(), expected)
                # A packed file of it, too.
                self.put("c.pg.gz", gzip.compress(expected))
                self.good(["bfs", "convert", "c.pg.gz", "b.pg"])

    def test_gap(self):
        self.put("in.mtx", MATRIX)
        self.good(["bfs", "convert", "in.mtx", "a.sg"])
        with open(self.path("a.sg"), "rb") as f:
            data = f.read()
        self.good(["bfs", "convert", "--from", "gap", "-", "b.mtx"], data)
        self.good(["bfs", "convert", "a.sg", "c.mtx"])
        with open(self.path("b.mtx"), "rb") as b, \
                open(self.path("c.mtx"), "rb") as c:
            self.assertEqual(b.read(), c.read())
        self.bad(1, b"a temporary file in '" + self.path("scratch").encode() +
                 b"': No space left",
                 ["bfs", "convert", "--from", "gap", "-", "d.mtx"], data,
                 fault="write:1:ENOSPC")

    def test_several_processes(self):
        """... would each get a part of it, or wait for it for ever."""
        for launcher in LAUNCHERS:
            if shutil.which(launcher[0]):
                done = self.run_it(["bfs", "--root", "1", "-"], MATRIX,
                                   launcher=[*launcher, "-n", "2"])
                self.assertNotEqual(done.returncode, 0)
                self.assertIn(b"it can be read once only", done.stderr)


if __name__ == "__main__":
    unittest.main()
