#!/usr/bin/env python3
"""What find and the commands that it runs write into one file is all there.

usage: find_output.py POISE
"""

import os
import subprocess
import sys
import tempfile
import unittest

SLOWNESS = float(os.environ.get("POISE_TEST_SLOWNESS", "4"))
POISE = os.path.abspath(sys.argv.pop(1))
FILES = 60
# The flags of stdout as the command sees them; O_APPEND is 02000.
FLAGS = ["sed", "-n", "s/^flags:[[:space:]]*//p", "/proc/self/fdinfo/1"]


class FindOutput(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        before = os.getcwd()
        self.addCleanup(os.chdir, before)
        os.chdir(self.folder.name)
        for i in range(FILES):
            os.makedirs(f"t/{i % 7}", exist_ok=True)
            with open(f"t/{i % 7}/{i}", "w") as f:
                f.write(f"line {i}\n")

    def find(self, *words, **more):
        ran = subprocess.run([POISE, "find", *words], stderr=subprocess.PIPE,
                             timeout=60 * SLOWNESS, **more)
        self.assertEqual((ran.returncode, ran.stderr), (0, b""))

    def lines(self, path):
        with open(path) as f:
            return sorted(f.read().splitlines())

    def expected(self):
        return sorted([f"line {i}" for i in range(FILES)] +
                      [f"t/{i % 7}/{i}" for i in range(FILES)])

    def test_commands_append(self):
        with open("out", "w") as out:
            out.write("before\n")
            out.flush()
            self.find("--threads=4", "t/0/0", "-exec", *FLAGS, ";",
                      "-execdir", *FLAGS, ";", "-exec", *FLAGS, "{}", "+",
                      stdout=out)
            # As the shell has it, and at the end.
            out.write("after\n")
        with open("out") as f:
            lines = f.read().splitlines()
        self.assertEqual((lines[0], lines[-1]), ("before", "after"))
        flags = [int(word, 8) for word in lines[1:-1]]
        self.assertTrue(len(flags) >= 3)
        for word in flags[:3]:
            self.assertTrue(word & os.O_APPEND, oct(word))
        out = os.open("out", os.O_WRONLY)
        self.find("t", "-maxdepth", "0", "-exec", "true", ";", stdout=out)
        os.close(out)

    def test_nothing_is_lost(self):
        with open("out", "w") as out:
            self.find("--threads=4", "t", "-type", "f", "-print", "-exec",
                      "cat", "{}", ";", stdout=out)
        self.assertEqual(self.lines("out"), self.expected())

    def test_writes_over_what_is_there(self):
        # Not from the end on: no O_APPEND, and so one at a time.
        with open("out", "w") as out:
            out.write("x" * 100000)
        out = os.open("out", os.O_WRONLY)
        self.find("--threads=4", "t", "-type", "f", "-print", "-exec", "cat",
                  "{}", ";", stdout=out)
        end = os.lseek(out, 0, os.SEEK_CUR)
        os.close(out)
        with open("out") as f:
            self.assertEqual(sorted(f.read(end).splitlines()),
                             self.expected())
            self.assertEqual(set(f.read()), {"x"})

    def test_one_file_by_two_names(self):
        self.find("t", "-type", "f", "-fprint", "list", "-fprintf", "./list",
                  "%f\\n", "-fprint", "../" +
                  os.path.basename(self.folder.name) + "/list")
        self.assertEqual(
            self.lines("list"),
            sorted([str(i) for i in range(FILES)] +
                   2 * [f"t/{i % 7}/{i}" for i in range(FILES)]))


if __name__ == "__main__":
    unittest.main()
