#!/usr/bin/env python3
"""What SIGINT leaves behind: nothing, but what is named, with how to go on.

usage: tests/cli/interrupt.py POISE
"""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest


POISE = ""
SLOWNESS = float(os.environ.get("POISE_TEST_SLOWNESS", "1"))


class Interrupt(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="poise-interrupt-")
        self.addCleanup(self.folder.cleanup)
        self.root = self.folder.name

    def names(self):
        return sorted(os.path.relpath(os.path.join(where, name), self.root)
                      for where, folders, files in os.walk(self.root)
                      for name in files + folders)

    def interrupt(self, when, *words, **more):
        """Run until `when` is true, send SIGINT; status and what was said."""
        with subprocess.Popen([POISE, *words], cwd=self.root, text=True,
                              stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, **more) as process:
            end = time.monotonic() + 30 * SLOWNESS
            while not when() and process.poll() is None:
                self.assertLess(time.monotonic(), end, "it never began")
                time.sleep(0.001)
            process.send_signal(signal.SIGINT)
            said = process.stderr.read()
            return process.wait(30 * SLOWNESS), said

    def has(self, pattern):
        return lambda: any(re.search(pattern, name) for name in self.names())

    def test_sort(self):
        """Its input has no end: it is always in the middle."""
        os.makedirs(f"{self.root}/scratch")
        read, write = os.pipe()
        os.write(write, b"3\n1\n2\n" * 1000)
        status, said = self.interrupt(
            lambda: self.asleep(), "sort", "-o", "out", "--scratch", "scratch",
            stdin=read)
        os.close(read)
        os.close(write)
        self.assertNotEqual(status, 0, said)
        self.assertEqual(self.names(), ["scratch"])

    def asleep(self):
        """Something was read of the pipe, and it waits for more."""
        children = f"/proc/self/task/{os.getpid()}/children"
        with open(children, encoding="ascii") as file:
            for pid in file.read().split():
                with open(f"/proc/{pid}/io", encoding="ascii") as io:
                    return int(re.search(r"rchar: (\d+)", io.read())[1]) > 6000
        return False

    def test_copy(self):
        """Held to a megabyte a second, a large file takes a minute."""
        os.makedirs(f"{self.root}/from")
        with open(f"{self.root}/from/large", "wb") as file:
            for _ in range(64):
                file.write(os.urandom(1 << 20))
        status, said = self.interrupt(self.has("poise-making-"), "copy",
                                      "--bwlimit", "1M", "from", "to")
        self.assertEqual(status, 1, said)
        left = [name for name in self.names()
                if not name.startswith("from") and name != "to"]
        for name in left:
            self.assertRegex(name, r"^to/\.poise-making-[0-9a-f]{16}$")
        self.assertIn("files named .poise-making-... are incomplete", said)
        self.assertIn("add -T --resume", said)
        subprocess.run([POISE, "copy", "-T", "--resume", "from", "to"],
                       cwd=self.root, check=True)
        self.assertEqual(self.names(), ["from", "from/large", "to",
                                        "to/large"])

    def walk(self, *words):
        """Until one was interrupted before its end."""
        for _ in range(20):
            status, said = self.interrupt(self.has(r"\.part$"), "walk", "-j1",
                                          "-o", "out.csv", *words, "/usr")
            if status:
                return status, said
            os.remove(f"{self.root}/out.csv")
        return self.skipTest("/usr is walked too quickly here")

    def test_walk(self):
        status, said = self.walk()
        self.assertEqual(status, 1, said)
        self.assertEqual(self.names(), [], said)

    def test_walk_checkpoint(self):
        status, said = self.walk("--checkpoint", "checkpoint")
        self.assertEqual(status, 1, said)
        self.assertIn("poise walk --resume checkpoint", said)
        for name in self.names():
            self.assertRegex(
                name, r"^checkpoint(\.\d+\.\d+)?$|^out\.csv\.[0-9a-f]{16}\."
                r"\d+\.\d+\.part$")
        subprocess.run([POISE, "walk", "--resume", "checkpoint"],
                       cwd=self.root, check=False, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)
        self.assertEqual(self.names(), ["out.csv"])


if __name__ == "__main__":
    POISE = os.path.abspath(sys.argv.pop(1))
    unittest.main()
