#!/usr/bin/env python3
"""Examples of coarse-grained algorithms, under poise run and the real MPIs.

usage: tests/examples/cgm.py POISE EXAMPLES

Each program checks itself against one rank alone (--check) and prints an
answer that does not depend on how it was cut. POISE is the command, EXAMPLES
the folder of the examples.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest

POISE = EXAMPLES = ""
LAUNCHERS = [("mpirun.openmpi", "mpicc.openmpi"),
             ("mpirun.mpich", "mpicc.mpich")]
# Words before a program of a real MPI: tests/nap.c.
NAP = os.environ.get("POISE_TEST_NAP", "").split()
ENV = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1",
           OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
           OMPI_MCA_rmaps_base_oversubscribe="1")

# What makes a rank add a little to its part of the answer.
SPOIL = ("MPI_Reduce(", "*(uint64_t *)&mine += rank == 2;\nMPI_Reduce(")


class Examples(unittest.TestCase):
    maxDiff = None  # of a crash all is wanted

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def answer(self, words, status=0):
        """What a program that ends with `status` prints."""
        result = subprocess.run(words, capture_output=True, text=True,
                                cwd=self.folder, env=ENV)
        self.assertEqual((result.returncode, result.stderr), (status, ""))
        return result.stdout

    def build(self, compiler, source):
        out = os.path.join(self.folder, "prog")
        self.answer([*compiler, "-std=c17", "-O2", "-o", out, source])
        return out

    def example(self, name, pattern, *sizes, spoil=SPOIL):
        """The same with any number of ranks, for each N."""
        source = os.path.join(EXAMPLES, name + ".c")
        seen = {n: set() for n in sizes}

        def note(*words, sizes=sizes):
            for n in sizes:
                seen[n].add(self.answer([*words, "--check", n, "3"]))

        large = sizes[-1]
        program = self.build([POISE, "cc"], source)
        for count in "1", "3", "8":
            note(POISE, "run", "-V", count, program)
        note(POISE, "run", "-V", "8", "--memory", "40M", "--swap", "always",
             "--scratch", self.folder, program, sizes=[large])
        for words in ["many"], ["10x"], ["-1"], ["5", "x"], ["1", "2", "3"]:
            self.misused(name, [POISE, "run", "-V", "2", program, *words])
        other = self.answer([POISE, "run", "-V", "2", program, large, "4"])
        for launcher, compiler in LAUNCHERS:
            if shutil.which(launcher) and shutil.which(compiler):
                program = self.build([compiler], source)
                for count in "2", "4":
                    note(launcher, "-n", count, *NAP, program, sizes=[large])
        for n in sizes:
            with self.subTest(n=n):
                self.assertEqual(len(seen[n]), 1, seen[n])
                self.assertRegex(min(seen[n]), f"^{n} " + pattern + "\n$")
        self.assertNotEqual(seen[large], {other})
        self.wrong(source, large, spoil)

    def misused(self, name, words):
        """Words that are no numbers are not taken for 0."""
        result = subprocess.run(words, capture_output=True, text=True, env=ENV)
        self.assertEqual(
            (result.returncode, result.stdout, result.stderr),
            (2, "", f"usage: {name} [--check] [N [SEED]]\n"), words)

    def wrong(self, source, n, spoil):
        """The check sees a rank whose part is wrong."""
        with open(source, encoding="utf-8") as file:
            text = file.read()
        path = os.path.join(self.folder, "wrong.c")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text.replace(*spoil))
        program = self.build([POISE, "cc"], path)
        said = self.answer([POISE, "run", "-V", "3", program, "--check", n],
                           status=1)
        self.assertIn(": WRONG\n", said)

    def test_prefix(self):
        self.example("prefix", "prefix sums, checksum [0-9a-f]{16}",
                     "0", "1", "7", "10000")

    def test_components(self):
        self.example("components", "vertices, [0-9]+ edges: [0-9]+ components, "
                     "checksum [0-9a-f]{16}", "0", "1", "7", "10000")

    def test_euler(self):
        self.example("euler", "nodes, depths of [0-9]+ in all, checksum "
                     "[0-9a-f]{16}", "0", "1", "7", "10000")

    def test_hull(self):
        # Spoilt, rank 2 is left out.
        self.example("hull", "points, [0-9]+ on the hull, twice the area is "
                     "[0-9]+, checksum [0-9a-f]{16}", "0", "1", "2", "10000",
                     spoil=("step < size", "step < 2"))


if __name__ == "__main__":
    POISE = os.path.abspath(sys.argv.pop(1))
    EXAMPLES = os.path.abspath(sys.argv.pop(1))
    unittest.main()
