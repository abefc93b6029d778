#!/usr/bin/env python3
"""A build without some libraries: says what is missing, and does the rest.

usage: tests/cli/without.py POISE PART...

PARTs are those that the build lacks, as the array of meson.build calls them.
"""

import gzip
import os
import subprocess
import sys
import tempfile
import unittest

POISE, PARTS = "", []


def poise(*words, **more):
    return subprocess.run([POISE, *words], capture_output=True, text=True,
                          check=False, **more)


class Without(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="poise-without-")
        self.addCleanup(self.folder.cleanup)
        self.root = self.folder.name
        os.makedirs(self.at("tree/a"))
        for name in ("tree/a/x", "tree/y"):
            self.write(name, b"12\n3\n" * 1000)

    def at(self, name):
        return os.path.join(self.root, name)

    def write(self, name, data):
        with open(self.at(name), "wb") as file:
            file.write(data)
        return self.at(name)

    def lacks(self, part, package, *words):
        """The command fails for want of `part`, or, where that is there, not for
        it."""
        done = poise(*words)
        if part in PARTS:
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(package, done.stderr)
            self.assertIn("this build of poise has no", done.stderr)
        else:
            self.assertNotIn("this build of poise has no", done.stderr)

    def works(self, *words):
        done = poise(*words)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_version(self):
        lines = self.works("version").splitlines()
        self.assertEqual(len(lines), 1 + len(PARTS), lines)

    def test_sqlite(self):
        self.lacks("SQLITE", "libsqlite3-dev", "walk", "-o",
                   self.at("tree.sqlite"), self.at("tree"))
        self.assertEqual([name for name in os.listdir(self.root)
                          if name not in ("tree", "tree.sqlite")], [])
        self.works("walk", "-o", self.at("tree.csv"), self.at("tree"))
        self.lacks("SQLITE", "libsqlite3-dev", "compare", self.at("tree.csv"),
                   self.at("tree"))
        self.works("copy", self.at("tree"), self.at("twin"))
        self.works("compare", self.at("tree"), self.at("twin"))
        os.link(self.at("tree/y"), self.at("tree/z"))
        os.link(self.at("twin/y"), self.at("twin/z"))
        self.lacks("SQLITE", "libsqlite3-dev", "compare", self.at("tree"),
                   self.at("twin"))
        # Not times: the folders' are those of the links, one tick of the clock
        # or more apart.
        self.works("compare", "--metadata", "mode,owner,xattrs",
                   self.at("tree"), self.at("twin"))

    def test_zlib(self):
        edges = b"0 1\n1 2\n2 3\n"
        self.lacks("ZLIB", "zlib1g-dev", "bfs", "--root", "0",
                   self.write("graph.el.gz", gzip.compress(edges)))
        self.works("bfs", "--root", "0", self.write("graph.el", edges))

    def test_openssl(self):
        self.lacks("OPENSSL", "libssl-dev", "send", self.at("tree"),
                   self.at("sent"))
        self.lacks("OPENSSL", "libssl-dev", "tunnel", "--make-secret",
                   self.at("secret"))
        plate = self.write("plate", b"1 2 3 4\n" * 8)
        self.works("solve", "--sweeps", "3", plate, self.at("one"))
        self.lacks("OPENSSL", "libssl-dev", "solve", "--sweeps", "3", "-n", "2",
                   plate, self.at("two"))

    def test_io_uring(self):
        numbers = self.write("numbers", os.urandom(1 << 20))
        words = ("sort", "--type", "u64", numbers, "-o", self.at("out"),
                 "--memory", "64M", "--scratch", self.root)
        self.works(*words)
        if "IO_URING" in PARTS:
            done = poise(*words, "--io", "io_uring")
            self.assertIn("linux-libc-dev", done.stderr)

    def test_curl(self):
        plate = self.write("plate", b"1 2 3 4\n" * 8)
        if "CURL" in PARTS and "OPENSSL" not in PARTS:
            self.lacks("CURL", "libcurl4-openssl-dev", "solve", "--log",
                       self.at("log"), "--etcd", "http://127.0.0.1:9", "-n",
                       "2", plate, self.at("out"))

    def test_otf2(self):
        self.works("walk", "--trace", self.at("trace"), self.at("tree"))
        self.lacks("OTF2", "libotf2-trace-dev", "trace", "show", "--otf2",
                   self.at("archive"), self.at("trace"))


if __name__ == "__main__":
    POISE, *PARTS = sys.argv[1:]
    unittest.main(argv=sys.argv[:1])
