#!/usr/bin/env python3
"""Names and words of others do not steer the terminal on which they are shown.

usage: terminal.py POISE

Each command runs twice: on a terminal, where nothing of an escape sequence may
arrive, and into pipes, where results have every byte as it is.
"""

import os
import pty
import select
import subprocess
import sys
import tempfile
import unittest

SLOWNESS = float(os.environ.get("POISE_TEST_SLOWNESS", "4"))
POISE = os.path.abspath(sys.argv.pop(1)).encode()
# A title, a colour, a line of its own, C1's control sequence in both codings.
EVIL = b"a\x1b]0;title\x07b\x1b[31mc\nd\xc2\x9b31me\x9bf\x7fg"
SHOWN = b"a?]0;title?b?[31mc?d??31me?f?g"
ESCAPED = (rb"a\033]0;title\007b\033[31mc\012d\302\23331me\233f\177g")


def on_terminal(words):
    """What a terminal gets of stdout and stderr."""
    master, slave = pty.openpty()
    with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=slave,
                          stderr=slave) as ran:
        os.close(slave)
        out = b""
        while select.select([master], [], [], 60 * SLOWNESS)[0]:
            try:
                more = os.read(master, 65536)
            except OSError:
                break
            if not more:
                break
            out += more
    os.close(master)
    return out.replace(b"\r\n", b"\n")


class Terminal(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        before = os.getcwd()
        self.addCleanup(os.chdir, before)
        os.chdir(self.folder.name)
        os.mkdir("t")
        os.mkdir(b"t/" + EVIL)
        with open(b"t/" + EVIL + b"/" + EVIL, "wb") as f:
            f.write(b"x" * 5000)
        os.symlink(EVIL, "t/link")

    def both(self, *words):
        words = [w if isinstance(w, bytes) else w.encode() for w in words]
        piped = subprocess.run([POISE] + words, stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               timeout=60 * SLOWNESS)
        shown = on_terminal([POISE] + words)
        for control in (b"\x1b]", b"\x1b[3", b"\x07", b"\x9b", b"\x7f"):
            self.assertNotIn(control, shown)
            self.assertNotIn(control, piped.stderr)
        return shown, piped

    def test_find(self):
        for print_it in (["-print"], ["-printf", "%p\\n"],
                         ["-printf", "%h/%f\\n"]):
            with self.subTest(print_it):
                shown, piped = self.both("find", "--no-progress", "t",
                                         "-type", "f", *print_it)
                self.assertEqual(shown, b"t/" + SHOWN + b"/" + SHOWN + b"\n")
                self.assertEqual(piped.stdout,
                                 b"t/" + EVIL + b"/" + EVIL + b"\n")
        # What the user asks for stays; a file of output may be a terminal.
        shown = on_terminal([POISE, b"find", b"--no-progress", b"t/link",
                             b"-printf", b"\\033[1m%l\\n", b"-fprintf",
                             b"/dev/stderr", b"%l\\n"])
        self.assertEqual(sorted(shown.splitlines()),
                         [b"\x1b[1m" + SHOWN, SHOWN])

    def test_du(self):
        shown, piped = self.both("du", "--no-progress", "-b", "t/" +
                                 "link", b"t/" + EVIL)
        self.assertIn(b"\tt/" + SHOWN + b"\n", shown)
        self.assertIn(b"\tt/" + EVIL + b"\n", piped.stdout)

    def test_tables(self):
        shown, _ = self.both("walk", "--no-progress", "t")
        self.assertIn(ESCAPED[:12], shown)
        with open(b"names.txt", "wb") as f:
            f.write(b"a\x1b[31mb x\nx y\n")
        self.both("bfs", "--no-progress", "names.txt", "--root",
                  b"a\x1b[31mb")

    def test_messages(self):
        for words in (["find", b"none" + EVIL], ["du", b"none" + EVIL],
                      ["walk", b"none" + EVIL], ["bfs", b"none" + EVIL],
                      ["sort", b"none" + EVIL],
                      ["listrank", b"none" + EVIL, "out"],
                      ["solve", b"none" + EVIL, "out"],
                      ["trace", b"none" + EVIL],
                      ["wire", "analyse", b"none" + EVIL],
                      ["run", b"none" + EVIL],
                      [b"none" + EVIL], ["walk", b"--none" + EVIL],
                      ["walk", b"--top", EVIL], ["help", EVIL],
                      ["bfs", "--model", EVIL, "--scale", "2"],
                      ["find", ".", b"-none" + EVIL],
                      ["sort", "--type", EVIL, "a"],
                      ["sort", "--key", EVIL, "a"],
                      ["coll", b"none" + EVIL],
                      ["completion", EVIL]):
            with self.subTest(words):
                _, piped = self.both(*words)
                self.assertNotEqual(piped.returncode, 0)
                self.assertIn(ESCAPED[:12], piped.stderr)
                self.assertNotIn(b"\x1b", piped.stderr)


if __name__ == "__main__":
    unittest.main()
