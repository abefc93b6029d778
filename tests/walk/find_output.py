#!/usr/bin/env python3
"""What find and the commands that it runs write, in what order: that of GNU
find to the byte, unless all is to run at once; then what each writes is whole.

usage: find_output.py POISE
"""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest

SLOWNESS = float(os.environ.get("POISE_TEST_SLOWNESS", "4"))
POISE = os.path.abspath(sys.argv.pop(1))
FILES = 24


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

    # Effects that may be seen elsewhere. What `t` holds is made anew for each.
    ORDERED = [
        "t -print -exec cat {} ;",
        "t -type f -exec echo {} + -print",
        "t -type f -execdir echo {} + -print",
        "t -depth -execdir echo {} + -print",
        "t -mindepth 2 -execdir echo {} + -o -print",
        "t -exec sh -c pwd ; -execdir pwd ;",
        "t -name 1* -print -quit",
        "t -type f -execdir echo {} + -exec echo {} + -name 2* -quit",
        "t -printf %p-%d\\n -exec echo x ; -name 1 -prune",
        "t -exec false ; -o -print",
        "-L t -exec echo {} ;",
        "-L t -empty -exec echo {} ; -o -name link -print",
        "-H t/link t -maxdepth 0 -not -empty -exec echo {} ;",
        "t -type d -exec mkdir {}/n{} ; -o -print",
        "t -type d -exec sh -c :>{}/new ; -print -o -print",
        "t -type f -links 2 -delete -print",
        "t -name 2* -print -delete",
        "t/2 t/1 t -maxdepth 1 -execdir echo {} ;",
    ]

    def fill(self):
        shutil.rmtree("t", ignore_errors=True)
        for i in range(FILES):
            os.makedirs(f"t/{i % 7}/{i % 3}", exist_ok=True)
            with open(f"t/{i % 7}/{i % 3}/{i}", "w") as f:
                f.write(f"line {i}\n")
            if i % 4 == 0:
                os.link(f"t/{i % 7}/{i % 3}/{i}", f"t/{i % 7}/hard{i}")
        os.symlink("2", "t/link")

    def outcome(self, words):
        self.fill()
        ran = subprocess.run(words, stdout=subprocess.PIPE,
                             stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL,
                             timeout=60 * SLOWNESS)
        left = sorted(os.path.join(where, name)
                      for where, folders, files in os.walk("t")
                      for name in folders + files)
        return ran.returncode, ran.stdout, left

    def test_as_gnu_find(self):
        for words in self.ORDERED:
            mine = self.outcome([POISE, "find", "--threads=4", *words.split()])
            gnu = self.outcome(["find", *words.split()])
            with self.subTest(words):
                self.assertEqual(mine, gnu)

    def test_huge_folder(self):
        # Over 10,000 entries go by inode, as fts has it.
        os.mkdir("huge")
        for i in range(10003):
            os.mknod(f"huge/{i * 7919 % 10007}")
        words = ["huge", "-name", "*77", "-exec", "true", ";", "-o",
                 "-name", "*5", "-print", "-name", "??95", "-quit"]
        gnu = subprocess.run(["find", *words[:2], "*7777", *words[3:]],
                             stdout=subprocess.PIPE, check=True)
        mine = subprocess.run([POISE, "find", *words[:2], "*7777", *words[3:]],
                              stdout=subprocess.PIPE, check=True)
        self.assertEqual(mine.stdout, gnu.stdout)
        self.assertTrue(mine.stdout)

    def test_nothing_is_lost(self):
        for how in ["--threads=4"], ["--threads=4", "--parallel"]:
            with open("out", "w") as out:
                self.find(*how, "t", "-type", "f", "-print", "-exec",
                          "cat", "{}", ";", stdout=out)
            self.assertEqual(self.lines("out"), self.expected())

    def test_parallel_output_is_whole(self):
        # Each writes its name line by line, slowly enough for others to come.
        script = "for i in 1 2 3 4 5; do echo $0; done; exit 1"
        ran = subprocess.run(
            [POISE, "find", "--threads=4", "--parallel", "t", "-type", "f",
             "-print", "!", "-exec", "sh", "-c", script, "{}", ";",
             "-printf", "%p\\n"], stdout=subprocess.PIPE, check=True,
            timeout=60 * SLOWNESS)
        lines = ran.stdout.decode().splitlines()
        self.assertEqual(len(lines), 7 * FILES)
        for i in range(0, len(lines), 7):
            self.assertEqual(set(lines[i:i + 7]), {lines[i]})
        ran = subprocess.run([POISE, "find", "--parallel", "t", "-ok", "true",
                              ";"], stderr=subprocess.PIPE)
        self.assertEqual(ran.returncode, 1)
        self.assertIn(b"-ok", ran.stderr)

    def test_sorted(self):
        os.makedirs("s/b/y")
        os.makedirs("s/a")
        for name in "b/z", "b/x", "c", "a/2", "a/10", "-", "B":
            with open(f"s/{name}", "w"):
                pass
        ran = subprocess.run([POISE, "find", "--sorted", "s"],
                             env={**os.environ, "LC_ALL": "C"},
                             stdout=subprocess.PIPE, check=True)
        self.assertEqual(ran.stdout.decode().split(),
                         ["s", "s/-", "s/B", "s/a", "s/a/10", "s/a/2", "s/b",
                          "s/b/x", "s/b/y", "s/b/z", "s/c"])

    def test_files_in_their_order(self):
        # One process, many operands, threads that could take some each.
        files = [f"f{i}" for i in range(300)]
        for name in files:
            open(name, "w").close()
        for _ in range(5):
            ran = subprocess.run([POISE, "find", "--threads=4", *files,
                                  "-size", "-9"], stdout=subprocess.PIPE,
                                 check=True)
            self.assertEqual(ran.stdout.decode().split(), files)

    def test_answers(self):
        # One line is one answer, and the command gets none of them.
        ran = subprocess.run(
            [POISE, "find", "t/0", "t/1", "t/2", "-maxdepth", "0", "-ok",
             "sh", "-c", "cat; echo $0", "{}", ";"], input=b"y\nn\nyes\n",
            stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertEqual(ran.stdout, b"t/0\nt/2\n")

    def test_writes_over_what_is_there(self):
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
