#!/usr/bin/env python3
"""How jobs of virtual ranks end when something goes wrong.

usage: tests/vrank/vrank_ends.py POISE
"""

import os
import signal
import sys
import unittest

from vrank_case import Case, run

# Only the last rank has the frame, and touches its far end only: another rank's
# stack lies there.
FRAME = r"""
#include <mpi.h>
static __attribute__((noinline)) void use(volatile char *p) { p[0] = 1; }
#ifndef ELSEWHERE
int big(int n) { volatile char a[1200000 + EXTRA]; use(a); return n + a[0]; }
#else
int big(int n);
#endif
int main(int argc, char **argv)
{
    int rank, size, got = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (rank == size - 1) got = big(0);
    MPI_Finalize();
    return got - got;
}"""
OVERFLOWED = "virtual rank 15 overflowed its stack of 256 KiB"


class Frames(Case):
    """Frames larger than what lies below a stack do not reach another one."""

    def overflows(self, program):
        result = self.ranks(16, program, options=["--stack", "256K"])
        self.assertIn(OVERFLOWED, result.stderr)
        self.assertEqual(result.returncode, -signal.SIGSEGV)

    def test_compiled(self):
        """poise cc has them touched page by page."""
        self.overflows(self.compile(FRAME, "-DEXTRA=0"))
        # As long as there is room, they are right.
        self.assertEqual(self.lines(16, "./prog"), [])

    def test_elsewhere(self):
        """Code that others compiled: with rbp (-O0), and without."""
        program = self.compile(FRAME, "-DELSEWHERE", *self.library("-O0"))
        self.overflows(program)
        self.library("-O2")
        self.overflows(program)
        alone = run(["sh", "-c", "ulimit -s 256; exec ./prog"],
                    cwd=self.folder)
        self.assertIn("virtual rank 0 overflowed", alone.stderr)

    def library(self, *flags):
        """A library with such a frame; how it is linked."""
        source = self.write("big.c", FRAME.split("int main")[0].replace(
            "#include <mpi.h>", ""))
        result = run(["gcc", "-shared", "-fPIC", "-DEXTRA=2000000",
                      "-fno-stack-clash-protection", "-Wl,-soname,libbig.so",
                      *flags, "-o", "libbig.so", source], cwd=self.folder)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return ["-L.", "-lbig", "-Wl,-rpath," + self.folder]

    def test_too_large(self):
        """What no guard covers is refused, and which function it is, said."""
        self.compile(FRAME, "-DELSEWHERE", *self.library("-O2"))
        self.library("-O2", "-UEXTRA", "-DEXTRA=1200000000")
        result = self.ranks(2, "./prog")
        self.assertEqual(result.returncode, 126)
        self.assertRegex(result.stderr, r"libbig\.so': its function at "
                         r"0x[0-9a-f]+ takes \d+ MiB of stack at once; compile "
                         r"it with -fstack-clash-protection")


if __name__ == "__main__":
    Case.POISE = os.path.abspath(sys.argv.pop(1))
    unittest.main()
