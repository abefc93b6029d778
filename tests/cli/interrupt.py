#!/usr/bin/env python3
"""What commands show on a terminal while they work, and what SIGINT leaves.

usage: tests/cli/interrupt.py POISE

Every command that may take long shows a line with how much is done, how fast and,
where it can be known, how long the rest takes. Interrupted, it ends with the
exit code that a shell gives what SIGINT killed, and leaves no file but what it
names, with how to go on. Each is started on a terminal of its own, and gets the
signal when that line stands there. POISE_PROGRESS makes lines come so quickly
that no command has to work for long.
"""

import os
import pty
import re
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

POISE = ""
SLOWNESS = float(os.environ.get("POISE_TEST_SLOWNESS", "4"))
# What is not begun here, and why.
ELSEWHERE = {
    "advise": "tests/vrank/vrank_profile.py",
    "desync run": "as solve, whose code it has",
    "trace gather": "tests/mon/hosts_run: needs programs that record",
    "tune": "tests/mon/tune_run: needs ranks",
    "vnc record": "tests/remote/screen: needs a server",
    "vnc replay": "tests/remote/screen: needs a session",
}
# They end when they are asked to, in order: that is no interruption.
SERVERS = {"tunnel", "vnc serve", "vnc view", "wire cached"}
# The terminal is the other program's; --live is asked for.
OF_OTHERS = {"c++", "cc", "coll", "fort", "run", "trace attach", "trace run",
             "wan"}
QUICK = {"completion", "help", "trace", "trace show", "version", "wire model"}
TREE = r"\d entries, [^ ]+/s, .*\d directories waiting"
OF_BYTES = r" \d+ %, \d.*B of \d.*B, \d.*B/s, \d.* left"
# Command -> words, what the line says; FIFO is fed for ever.
COMMANDS = {
    "walk": (["-j1", "/usr"], TREE),
    "du": (["-j1", "-s", "/usr"], TREE),
    "find": (["/usr", "-name", "nothing"], TREE),
    "remove": (["-j1", "--dry-run", "/usr"], TREE),
    "compare": (["--metadata", "none", "large", "large_too"], TREE),
    "archive": (["-j1", "/usr", "out.tar"], TREE),
    "copy": (["--bwlimit", "2M", "random", "copied"],
             TREE + r".*; \d.*B of \d.*B, \d.*B/s, (at least )?\d.* left"),
    "send": (["random", "sent"],
             r"\d entries, \d.*B of files, \d.*B/s, \d.* on the wire"),
    "sort": (["-o", "out", "FIFO"], r"reading the input"),
    "listrank": (["-j1", "--memory", "4M", "list", "out"], OF_BYTES),
    "bfs": (["FIFO", "--root", "1", "-o", "out"], r"read \d.*B, \d.*B/s"),
    "bfs convert": (["--from", "snap", "--to", "mtx", "FIFO", "out"],
                    r"read \d.*B, \d.*B/s"),
    "wire analyse": (["--memory", "16M", "--segmenter", "gear", "--size", "4K",
                      "large/file"], "sent" + OF_BYTES),
    "noise": (["--time", "30ms"], r"\d+ %, 1 of 6 runs, .* runs/s, \d.* left"),
    "solve": (["--sweeps", "100000000", "plate", "out"],
              r"version \d+ of 100000001, .* blocks/s, \d.* left"),
}
# A checkpoint would be one of these, where one is asked for.
NAMED = {"copy": r"^copied(/\d+|/\.poise-making-[0-9a-f]{16})?$",
         "send": r"^sent(/random(/\d+)?)?$"}


def poise(*words):
    return subprocess.run([POISE, *words], check=True, text=True,
                          stdout=subprocess.PIPE).stdout


class Shown:
    """A command whose standard error, at least, is a terminal."""

    def __init__(self, words, out=subprocess.DEVNULL, **more):
        environment = {key: value for key, value in os.environ.items()
                       if key != "NO_COLOR"}
        environment.update(TERM="xterm", POISE_PROGRESS="1ms")
        environment.update(more.pop("variables", {}))
        self.master, slave = pty.openpty()
        self.process = subprocess.Popen(
            [POISE, *words], stdin=subprocess.DEVNULL, stderr=slave,
            stdout=slave if out is None else out, env=environment, **more)
        os.close(slave)
        self.text = ""

    def read(self, pattern=None):
        """Until it has shown that, or nothing more: whether it has."""
        while not pattern or not re.search(pattern, self.text):
            if not select.select([self.master], [], [], 60 * SLOWNESS)[0]:
                raise AssertionError(f"it hangs: {self.text[-200:]!r}")
            try:
                more = os.read(self.master, 4096)
            except OSError:
                return False
            if not more:
                return False
            self.text += more.decode(errors="replace")
        return True

    def end(self, number=None):
        """Its exit status, once it has shown all."""
        if number:
            self.process.send_signal(number)
        self.read()
        os.close(self.master)
        return self.process.wait(60 * SLOWNESS)


def feed(path, stop):
    """Lines without an end, as fast as they are read."""
    data = b"1 2\n2 3\n" * 1000
    fd = os.open(path, os.O_RDWR | os.O_NONBLOCK)
    while not stop.is_set():
        if select.select([], [fd], [], 0.01)[1]:
            try:
                os.write(fd, data)
            except BlockingIOError:
                pass
    os.close(fd)


class Interrupt(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="poise-interrupt-")
        self.addCleanup(self.folder.cleanup)
        self.root = self.folder.name
        os.mkdir(self.path("random"))
        for i in range(384):
            with open(self.path(f"random/{i}"), "wb") as file:
                file.write(os.urandom(1 << 16))
        for name in "large", "large_too":
            os.mkdir(self.path(name))
            with open(self.path(name + "/file"), "wb") as file:
                file.truncate(1 << 36)
        with open(self.path("plate"), "w", encoding="ascii") as file:
            file.write("9 9 9\n0 0 0\n0 0 0\n")
        os.mkfifo(self.path("FIFO"))
        poise("listrank", "--generate", "1M", self.path("list"))
        self.before = self.names()

    def path(self, name):
        return os.path.join(self.root, name)

    def names(self):
        return sorted(os.path.relpath(os.path.join(where, name), self.root)
                      for where, folders, files in os.walk(self.root)
                      for name in files + folders)

    def shown(self, words, **more):
        return Shown(words, cwd=self.root, **more)

    def interrupt(self, words, pattern):
        """Status and text of one that was interrupted when it had shown that.
        A short one may have ended before: then once more."""
        stop = threading.Event()
        feeder = threading.Thread(target=feed, args=(self.path("FIFO"), stop))
        if "FIFO" in words:
            feeder.start()
        try:
            for _ in range(20):
                ran = self.shown(words, variables={
                    "XDG_CACHE_HOME": self.path("cache")})
                seen = ran.read(pattern)
                status = ran.end(signal.SIGINT if seen else None)
                if seen and status != 0:
                    return status, ran.text
                self.assertEqual(status, 0, ran.text)
                self.remove_left()
            self.fail(f"it shows no line like {pattern!r}: {ran.text[-500:]!r}")
        finally:
            stop.set()
            if feeder.is_alive():
                feeder.join()

    def left(self):
        """What is there, but for what was, and the user's cache."""
        return [name for name in self.names() if name not in self.before
                and not name.startswith("cache")]

    def remove_left(self):
        subprocess.run(["rm", "-rf", *self.left()], cwd=self.root, check=True)

    def test_commands(self):
        for command, (words, pattern) in COMMANDS.items():
            self.remove_left()
            with self.subTest(command):
                status, text = self.interrupt([*command.split(), *words],
                                              pattern)
                self.assertIn(status, (-signal.SIGINT, 130), text[-500:])
                if status == 130:
                    self.assertRegex(text, f"poise {command}: .*interrupted")
                for name in self.left():
                    self.assertRegex(name, NAMED.get(command, "^$"))
                if self.left():
                    self.assertRegex(text, r"to go on, (add|run)")

    def test_go_on(self):
        """What a message says does go on."""
        _, text = self.interrupt(["copy", *COMMANDS["copy"][0]],
                                 COMMANDS["copy"][1])
        self.assertIn("files named .poise-making-... are incomplete", text)
        self.assertIn("add -T --resume", text)
        self.assertTrue(self.left())
        subprocess.run([POISE, "copy", "-T", "--resume", "random", "copied"],
                       cwd=self.root, check=True)
        self.assertEqual(len(self.left()), 385)

    def test_checkpoint(self):
        words = ["walk", "-j1", "-o", "out.csv", "--checkpoint", "checkpoint",
                 "/usr"]
        status, text = self.interrupt(words, TREE)
        self.assertEqual(status, 130, text)
        self.assertIn("poise walk --resume checkpoint", text)
        for name in self.left():
            self.assertRegex(
                name, r"^checkpoint(\.\d+\.\d+)?$|^out\.csv\.[0-9a-f]{16}\."
                r"\d+\.\d+\.part$")
        subprocess.run([POISE, "walk", "--resume", "checkpoint"],
                       cwd=self.root, check=False, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)
        self.assertEqual(self.left(), ["out.csv"])


class Tables(unittest.TestCase):
    def test_all_commands(self):
        """Each is in one table; who is to show something has the option."""
        options = {}
        for line in poise("help", "--options").splitlines():
            command, long, _, _, renamed = line.split("\t")
            options.setdefault(command, set())
            if not renamed:
                options[command].add(long)
        known = [*COMMANDS, *ELSEWHERE, *SERVERS, *OF_OTHERS, *QUICK]
        self.assertEqual(sorted(known), sorted(set(known)))
        self.assertEqual(set(known) ^ set(options) - {"c++", "cc", "fort"},
                         {"c++", "cc", "fort"})
        for command in [*COMMANDS, *ELSEWHERE]:
            self.assertTrue(options[command] & {"--progress", "--live"},
                            command)
        for command in [*SERVERS, *QUICK]:
            self.assertFalse(options[command] & {"--progress", "--live"},
                             command)


class Colours(unittest.TestCase):
    """Which commands have any: those with --color."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="poise-colours-")
        self.addCleanup(self.folder.cleanup)
        for name in "a", "b":
            os.mkdir(os.path.join(self.folder.name, name))
            with open(os.path.join(self.folder.name, name, name), "wb"):
                pass
        with open(os.path.join(self.folder.name, "plate"), "w",
                  encoding="ascii") as file:
            file.write("9 9 9\n0 0 0\n0 0 0\n")

    def text(self, words, **variables):
        ran = Shown(words, out=None, cwd=self.folder.name, variables=variables)
        ran.end()
        return ran.text

    def test_colours(self):
        colour = r"\033\[\d+m"
        for words, some in ((["compare", "a", "b"], r"\033\[31mmissing\033"),
                            (["solve", "--sweeps", "99", "plate", "out"],
                             r"\033\[1mnode")):
            with self.subTest(words):
                self.assertRegex(self.text(words), some)
                self.assertNotRegex(self.text(words, NO_COLOR="1"), colour)
                self.assertNotRegex(self.text(words, TERM="dumb"), colour)
                self.assertRegex(self.text(words, NO_COLOR=""), some)
                never = [*words[:1], "--color", "never", *words[1:]]
                self.assertNotRegex(self.text(never), colour)
                always = [*words[:1], "--color=always", *words[1:]]
                self.assertRegex(self.text(always, NO_COLOR="1"), some)
        piped = subprocess.run([POISE, "compare", "--color", "always", "a", "b"],
                               cwd=self.folder.name, stdout=subprocess.PIPE,
                               check=False).stdout
        self.assertIn(b"\033[32mextra\033[0m\tb", piped)

    def test_others(self):
        """A command without the option has none."""
        for words in (["walk", "a"], ["help"], ["sort", "plate"], ["nothing"],
                      ["find", "a", "-ls"], ["bfs", "--scale", "4"]):
            self.assertNotRegex(self.text(words), r"\033\[\d*m")


if __name__ == "__main__":
    POISE = os.path.abspath(sys.argv.pop(1))
    unittest.main()
