#!/usr/bin/env python3
"""tools/conformance counts rightly: fake suites in a folder of peers, tried with
the real command.

usage: conformance.py POISE ROOT
"""

import os
import re
import subprocess
import sys
import tempfile
import unittest

POISE, ROOT = sys.argv[1:3]
GOOD = "%%MatrixMarket matrix coordinate pattern general\n3 3 2\n1 2\n2 3\n"
BAD = "%%MatrixMarket matrix coordinate pattern hermitian\n2 2 1\n2 1\n"
KARATE = "%%MatrixMarket matrix coordinate pattern symmetric\n31 31 1\n31 1\n"
LEVELS = ", ".join(["1"] + ["-1"] * 29 + ["0"])
PARENTS = ", ".join(["{30, xx, xx}"] + ["{xx, xx, xx}"] * 29 +
                    ["{30, xx, xx}"])


class Conformance(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="poise-peers-")
        self.addCleanup(self.folder.cleanup)

    def put(self, path, text):
        path = os.path.join(self.folder.name, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="ascii") as file:
            file.write(text)
        return path

    def lagraph(self, entries=2, mangled=BAD):
        """Its sources as far as they are read: one file to be read, one to be
        refused, and a search."""
        tests = "LAGraph/src/test/"
        self.put(tests + "test_MMRead.c",
                 f'{{ 3, 3, {entries}, "bool", "good.mtx" }},\n'
                 '{ 2, 1, 2, "bool", "long.mtx" },\n'
                 ' LAGRAPH_IO_ERROR, "mangled.mtx",  // some way\n')
        self.put(tests + "test_BreadthFirstSearch.c",
                 f"GrB_Index const LEVELS30[] = {{{LEVELS}}};\n"
                 f"GrB_Index const PARENT30 [31][3] = {{{PARENTS}}} ;\n")
        self.put("LAGraph/data/good.mtx", GOOD)
        self.put("LAGraph/data/long.mtx", GOOD.replace("3 3 2", "4 3 2"))
        self.put("LAGraph/data/mangled.mtx", mangled)
        # Vertices that are not reached have no parent: '-'.
        self.put("LAGraph/data/karate.mtx", KARATE)

    def bfs(self, script):
        for name in "bin/tests/xtouch", "bin/tests/mksock":
            self.put("bfs/" + name, "")
        os.chmod(self.put("bfs/tests/tests.sh", "#!/bin/sh\n" + script), 0o755)

    def run_it(self, *names):
        done = subprocess.run(
            [os.path.join(ROOT, "tools", "conformance"), "--peers",
             self.folder.name, "--build", os.path.dirname(POISE), *names],
            text=True, check=False, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE)
        return done.returncode, done.stdout, done.stderr

    def counts(self, out, name):
        """passed, failed, left out, texts passed, texts failed"""
        row = re.search(rf"^\| {name} \|.*$", out, re.M).group(0)
        return [int(cell) for cell in row.split("|")[4:9]]

    def test_counts(self):
        self.lagraph()
        code, out, err = self.run_it("lagraph")
        self.assertEqual(self.counts(out, "lagraph"), [8, 0, 1, 0, 0],
                         out + err)
        self.assertEqual(code, 0)
        self.assertIn("left out: read long.mtx", out)

    def test_failing_fails(self):
        self.lagraph(entries=3)
        code, out, _ = self.run_it("lagraph")
        self.assertEqual(self.counts(out, "lagraph"), [7, 1, 1, 0, 0])
        self.assertIn("failed: read good.mtx: 3 rows and 2 entries, where 3 "
                      "and 3 are expected", out)
        self.assertEqual(code, 1)
        self.lagraph(mangled=GOOD)
        code, out, _ = self.run_it("lagraph")
        self.assertIn("failed: refuse mangled.mtx (some way): accepted", out)
        self.assertEqual(code, 1)

    def test_missing_is_said(self):
        code, out, _ = self.run_it("lagraph", "graph500")
        self.assertIn("| lagraph | bfs | missing: no LAGraph", out)
        self.assertIn("| graph500 | bfs | missing: no graph500", out)
        self.assertEqual(code, 3)
        # Asked for all, some are always missing: they count as nothing.
        self.lagraph()
        code, out, _ = self.run_it()
        self.assertEqual(code, 0)
        self.assertEqual(self.counts(out, "lagraph"), [8, 0, 1, 0, 0])
        self.assertGreater(out.count("| missing: "), 2)

    def test_runner_of_theirs(self):
        self.bfs("echo '[PASS] posix/a'\n"
                 "echo \"$5\" | grep -q 'poise find$' && "
                 "echo '[PASS] posix/told'\n"
                 "echo '[SKIP] gnu/b'; echo '[SKIP] gnu/b'\n"
                 "echo 'poise find: no way' >&2; echo '[FAIL] gnu/c'; exit 1\n")
        code, out, _ = self.run_it("bfs-find")
        self.assertEqual(self.counts(out, "bfs-find"), [2, 1, 1, 0, 0])
        self.assertIn("failed: gnu/c: poise find: no way", out)
        self.assertEqual(code, 1)

    def test_nothing_run_has_not_passed(self):
        self.bfs("exit 0\n")
        code, out, _ = self.run_it("bfs-find")
        self.assertIn("missing: tests.sh runs no test", out)
        self.assertEqual(code, 3)
        # Nor has a suite that its runner does not understand.
        self.lagraph()
        self.put("LAGraph/src/test/test_BreadthFirstSearch.c", "")
        code, out, _ = self.run_it("lagraph")
        self.assertEqual(self.counts(out, "lagraph")[1], 6)
        self.assertEqual(code, 1)

    def test_wrong_use(self):
        code, _, err = self.run_it("nobody")
        self.assertEqual(code, 2)
        self.assertIn("no suite is called nobody", err)

    def test_list(self):
        code, out, _ = self.run_it("--list")
        self.assertEqual(code, 0)
        self.assertIn("lagraph: github.com/GraphBLAS/LAGraph, for bfs", out)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
