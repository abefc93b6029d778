#!/usr/bin/env python3
"""What every command that writes a file leaves there.

usage: outputs.py POISE

A file that is there keeps its mode, its owner, its attributes, its names and
the links that lead to it; devices and pipes are written to; what fails leaves
the old file whole and nothing beside it.
"""

import os
import resource
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import unittest

SLOWNESS = float(os.environ.get("POISE_TEST_SLOWNESS", "4"))
POISE = os.path.abspath(sys.argv.pop(1))
NOBODY = 65534
# A wrong command that root runs would replace the machine's devices.
HARMLESS = NOBODY if os.geteuid() == 0 else None
OLD = b"what was there before\n"

# Name -> words of the command; IN_x are made below, OUT is where it writes.
COMMANDS = {
    "sort": ["sort", "--type", "u64", "IN_numbers", "-o", "OUT"],
    "sort lines": ["sort", "-o", "OUT", "IN_lines"],
    "sort --generate": ["sort", "--generate", "9K", "OUT"],
    "listrank": ["listrank", "IN_list", "OUT"],
    "listrank --generate": ["listrank", "--generate", "2K", "OUT"],
    "bfs --output": ["bfs", "IN_graph", "--root", "0", "-o", "OUT"],
    "bfs --report": ["bfs", "IN_graph", "--root", "0", "--report", "OUT"],
    "bfs convert": ["bfs", "convert", "--to", "mtx", "IN_graph", "OUT"],
    "walk --output csv": ["walk", "-o", "OUT", "--format", "csv", "IN_tree"],
    "walk --output sqlite": ["walk", "-o", "OUT", "IN_tree"],
    "walk --report": ["walk", "--report", "OUT", "IN_tree"],
    "solve": ["solve", "--sweeps", "2", "IN_plate", "OUT"],
    "solve --report": ["solve", "--sweeps", "2", "--report", "OUT",
                       "IN_plate", "other.txt"],
    # Of all its ways one: each has caches of many megabytes.
    "wire analyse": ["wire", "analyse", "--segmenter", "gear", "--size", "1K",
                     "--report", "OUT", "IN_lines"],
}
# What is large enough to be cut short by a limit of one page.
LARGE = ["sort --generate", "listrank --generate", "bfs --report",
         "walk --output sqlite", "walk --report", "wire analyse", "sort"]
# Whose data an output holds: a new one is not wider than that.
DERIVED = {"sort": "IN_numbers", "sort lines": "IN_lines",
           "listrank": "IN_list", "bfs --output": "IN_graph",
           "bfs convert": "IN_graph"}


class Outputs(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        os.chmod(self.folder, 0o777)
        self.before = os.getcwd()
        os.chdir(self.folder)
        os.umask(0o022)
        # Where nobody else may look into the checkout, too.
        os.mkdir("bin")
        for name in os.listdir(os.path.dirname(POISE)):
            if name == "poise" or name == "libpoise.so.0":
                shutil.copy(os.path.join(os.path.dirname(POISE), name), "bin")
        self.poise = os.path.join(self.folder, "bin", "poise")
        with open("IN_numbers", "wb") as f:
            for i in range(2048):
                f.write((i * 2654435761 % 2**32).to_bytes(8, "little"))
        with open("IN_lines", "wb") as f:
            f.write(b"".join(b"%d line\n" % (i * 7919 % 1009)
                             for i in range(1009)))
        with open("IN_list", "wb") as f:
            for i in range(64):
                f.write(min(i + 1, 63).to_bytes(8, "little"))
        with open("IN_graph", "w") as f:
            f.write("0 1\n1 2\n2 3\n")
        with open("IN_plate", "w") as f:
            f.write("0 0 0\n9 0 0\n0 0 0\n")
        os.mkdir("IN_tree")
        os.mkdir("IN_tree/a")
        # Read once, so that later walks do not change when it was read.
        for _ in os.walk("IN_tree"):
            pass

    def tearDown(self):
        os.chdir(self.before)
        shutil.rmtree(self.folder)

    def run_poise(self, name, out, user=None, **more):
        words = COMMANDS[name] if isinstance(name, str) else name
        words = [out if w == "OUT" else w for w in words]
        as_user = dict(user=user, group=user, extra_groups=[]) if user else {}
        more.setdefault("stdout", subprocess.PIPE)
        return subprocess.run([self.poise] + words, stderr=subprocess.PIPE,
                              timeout=60 * SLOWNESS, **as_user, **more)

    def good(self, name, out, **more):
        ran = self.run_poise(name, out, **more)
        self.assertEqual(ran.returncode, 0, (name, ran.stderr))
        return ran

    def make_old(self, path, mode=0o640, owner=None):
        with open(path, "wb") as f:
            f.write(OLD)
        os.chmod(path, mode)
        if owner is not None:
            os.chown(path, owner, owner)

    def litter(self, but=()):
        ours = {"bin", "other.txt"} | set(but)
        return sorted(n for n in os.listdir(".")
                      if n not in ours and not n.startswith("IN_"))

    def test_keeps_mode_owner_attributes_and_links_to_it(self):
        root = os.geteuid() == 0
        for name in COMMANDS:
            with self.subTest(name):
                os.mkdir("far")
                self.make_old("far/kept", 0o640, NOBODY if root else None)
                try:
                    os.setxattr("far/kept", "user.poise", b"a")
                    has_attributes = True
                except OSError:
                    has_attributes = False
                os.symlink("far/kept", "out")
                self.good(name, "out")
                st = os.stat("far/kept")
                self.assertTrue(os.path.islink("out"), "the link is gone")
                with open("far/kept", "rb") as f:
                    self.assertNotEqual(f.read(), OLD)
                self.assertEqual(stat.S_IMODE(st.st_mode), 0o640)
                if root:
                    self.assertEqual((st.st_uid, st.st_gid), (NOBODY, NOBODY))
                if has_attributes:
                    self.assertEqual(os.getxattr("far/kept", "user.poise"),
                                     b"a")
                self.assertEqual(os.listdir("far"), ["kept"])
                self.assertEqual(self.litter(), ["far", "out"])
                shutil.rmtree("far")
                os.unlink("out")

    def test_keeps_all_names(self):
        for name in COMMANDS:
            with self.subTest(name):
                self.make_old("one")
                os.link("one", "two")
                self.good(name, "one")
                self.assertTrue(os.path.samefile("one", "two"))
                with open("two", "rb") as f:
                    self.assertNotEqual(f.read(), OLD)
                self.assertEqual(self.litter(), ["one", "two"])
                os.unlink("one")
                os.unlink("two")

    def test_writes_to_devices(self):
        for name in COMMANDS:
            with self.subTest(name):
                self.good(name, "/dev/null", user=HARMLESS)
                self.assertTrue(stat.S_ISCHR(os.stat("/dev/null").st_mode))
                ran = self.run_poise(name, "/dev/full", user=HARMLESS)
                self.assertNotEqual(ran.returncode, 0)
                self.assertIn(b"No space left", ran.stderr)
                self.assertEqual(self.litter(), [])
                if os.path.exists("other.txt"):
                    os.unlink("other.txt")

    def test_writes_to_pipes_and_to_what_the_shell_opened(self):
        for name in ("sort", "sort lines", "listrank", "bfs convert", "solve"):
            with self.subTest(name):
                self.good(name, "file")
                with open("file", "rb") as f:
                    expected = f.read()
                got = self.good(name, "/dev/fd/1", user=HARMLESS).stdout
                # What the command says of itself follows.
                self.assertEqual(got[:len(expected)], expected)
                os.mkfifo("fifo")
                reader = subprocess.Popen(["cat", "fifo"],
                                          stdout=subprocess.PIPE)
                self.good(name, "fifo")
                self.assertEqual(reader.communicate()[0], expected)
                self.assertTrue(stat.S_ISFIFO(os.stat("fifo").st_mode))
                with open("log", "wb") as log:
                    log.write(b"begin\n")
                    log.flush()
                    self.good(name, "/dev/stdout", stdout=log,
                              user=HARMLESS)
                    log.seek(0, os.SEEK_END)
                    log.write(b"end\n")
                with open("log", "rb") as f:
                    log = f.read()
                self.assertTrue(log.startswith(b"begin\n" + expected))
                self.assertTrue(log.endswith(b"end\n"))
                for path in ("file", "fifo", "log"):
                    os.unlink(path)

    def test_dash_is_standard_output(self):
        for name in COMMANDS:
            with self.subTest(name):
                self.good(name, "file")
                with open("file", "rb") as f:
                    expected = f.read()
                ran = self.good(name, "-")
                # Nothing but what the file would hold; words go to stderr.
                # (Reports, and the time in a database, are of each run.)
                if "report" in name or "sqlite" in name or "wire" in name:
                    self.assertEqual(ran.stdout[:12], expected[:12])
                else:
                    self.assertEqual(ran.stdout, expected)
                self.assertFalse(os.path.exists("-"))
                with open("log", "ab") as log:
                    log.write(b"begin\n")
                    log.flush()
                    self.good(name, "-", stdout=log)
                with open("log", "rb") as f:
                    self.assertTrue(
                        f.read().startswith(b"begin\n" + expected[:12]))
                self.assertEqual(self.litter(), ["file", "log"])
                os.unlink("file")
                os.unlink("log")
        # A file of that name can still be meant.
        self.good("sort", "./-")
        self.assertTrue(os.path.exists("-"))
        os.unlink("-")
        for words in (["sort", "--json", "--type", "u64", "IN_numbers"],
                      ["sort", "--verify", "IN_lines"],
                      ["bfs", "IN_graph", "--root", "0", "-o", "-",
                       "--report", "-"],
                      ["walk", "-o", "-", "--json", "IN_tree"],
                      ["walk", "-o", "-", "--checkpoint", "c", "IN_tree"]):
            with self.subTest(words):
                ran = self.run_poise(words, None)
                self.assertEqual((ran.returncode, ran.stdout), (2, b""))
                self.assertEqual(self.litter(), [])

    def test_dash_is_standard_input(self):
        for words, source in (
                (["sort", "-", "-o", "-"], "IN_lines"),
                (["listrank", "-", "-"], "IN_list"),
                (["solve", "--sweeps", "2", "-", "-"], "IN_plate"),
                (["bfs", "convert", "--to", "mtx", "-", "-"], "IN_graph")):
            with self.subTest(words):
                with open(source, "rb") as f:
                    got = self.good(words, None, stdin=f).stdout
                words = [source if w == "-" else w for w in words]
                words[-1] = "file"
                self.good(words, None)
                with open("file", "rb") as f:
                    self.assertEqual(got, f.read())
                os.unlink("file")

    def test_failing_leaves_the_old_file(self):
        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

        for name in LARGE:
            with self.subTest(name):
                self.make_old("out")
                ran = self.run_poise(name, "out", preexec_fn=limit)
                self.assertNotEqual(ran.returncode, 0)
                self.assertIn(b"poise ", ran.stderr)
                with open("out", "rb") as f:
                    self.assertEqual(f.read(), OLD)
                os.link("out", "two")
                self.run_poise(name, "out", preexec_fn=limit)
                with open("two", "rb") as f:
                    self.assertEqual(f.read(), OLD)
                self.assertEqual(self.litter(), ["out", "two"])
                os.unlink("out")
                os.unlink("two")

    def test_new_ones_are_not_wider_than_their_input(self):
        for name, source in DERIVED.items():
            with self.subTest(name):
                os.chmod(source, 0o600)
                self.good(name, "out")
                self.assertEqual(stat.S_IMODE(os.stat("out").st_mode), 0o600)
                os.unlink("out")
                os.chmod(source, 0o644)
                self.good(name, "out")
                self.assertEqual(stat.S_IMODE(os.stat("out").st_mode), 0o644)
                os.unlink("out")

    def test_sorts_in_place_what_is_private(self):
        shutil.copy("IN_lines", "mine")
        os.chmod("mine", 0o600)
        os.symlink("mine", "link")
        self.good(["sort", "--in-place", "link"], None)
        self.assertEqual(stat.S_IMODE(os.stat("mine").st_mode), 0o600)
        self.assertTrue(os.path.islink("link"))
        with open("mine", "rb") as f:
            lines = f.read().splitlines()
        self.assertEqual(lines, sorted(lines))
        self.assertEqual(len(lines), 1009)

    def test_makes_what_a_link_leads_to(self):
        os.mkdir("far")
        os.symlink("far/new", "out")
        self.good("solve", "out")
        self.assertTrue(os.path.islink("out"))
        self.assertEqual(os.listdir("far"), ["new"])

    def test_refuses_what_cannot_be_written(self):
        os.mkdir("folder")
        for name in COMMANDS:
            with self.subTest(name):
                ran = self.run_poise(name, "folder")
                self.assertNotEqual(ran.returncode, 0)
                self.assertIn(b"Is a directory", ran.stderr)
                ran = self.run_poise(name, "missing/out")
                self.assertNotEqual(ran.returncode, 0)
                self.assertIn(b"No such file", ran.stderr)
                self.assertEqual(self.litter(), ["folder"])

    @unittest.skipUnless(os.geteuid() == 0, "only root can be somebody else")
    def test_as_another_user(self):
        os.mkdir("closed")
        os.mkdir("sticky")
        os.chmod("sticky", 0o1777)
        for name in ("sort", "bfs --output", "walk --output csv", "solve"):
            with self.subTest(name):
                # Ours to write, in a folder that is not.
                self.make_old("closed/out", 0o666)
                # Somebody else's, in one where only owners rename.
                self.make_old("sticky/out", 0o666, 12345)
                # Not ours to write, in a folder that is.
                self.make_old("theirs", 0o644)
                for path, mine in (("closed/out", True), ("sticky/out", True),
                                   ("theirs", False)):
                    before = os.stat(path)
                    ran = self.run_poise(name, path, user=NOBODY)
                    self.assertEqual(ran.returncode == 0, mine, ran.stderr)
                    with open(path, "rb") as f:
                        self.assertEqual(f.read() != OLD, mine)
                    now = os.stat(path)
                    self.assertEqual(
                        (now.st_ino, now.st_mode, now.st_uid, now.st_gid),
                        (before.st_ino, before.st_mode, before.st_uid,
                         before.st_gid))
                    self.assertEqual(os.listdir("closed"), ["out"])
                    self.assertEqual(os.listdir("sticky"), ["out"])


if __name__ == "__main__":
    unittest.main()
