#!/usr/bin/env python3
"""The mpi.h of virtual ranks, as compilers see it.

usage: tests/vrank/vmpi.py INCLUDE LIBRARY CONFORM TOOL COMPILER...

INCLUDE is the folder with mpi.h, LIBRARY libpoise-vmpi.so, CONFORM the folder
with the programs that are compared with real MPIs, TOOL tools/fortran, COMPILER
the command of a C compiler.
"""

import os
import re
import subprocess
import sys
import tempfile
import unittest

INCLUDE = LIBRARY = CONFORM = TOOL = ""
COMPILER = []

GOOD = """
#include <mpi.h>
#include <mpi.h>
static MPI_Datatype type = MPI_INT;
static MPI_Comm comm = MPI_COMM_WORLD;
static MPI_Op op = MPI_SUM;
static MPI_Comm_copy_attr_function *copy = MPI_NULL_COPY_FN;
int main(int argc, char **argv)
{
    int one = 1, sum;
    MPI_Status status;
    MPI_Init(&argc, &argv);
    PMPI_Allreduce(&one, &sum, 1, type, op, comm);
    MPI_Recv(&one, 1, type, MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &status);
    MPI_Finalize();
    return status.MPI_TAG + status.MPI_SOURCE + status.MPI_ERROR + !copy;
}
"""
REFUSED = """
#include <mpi.h>
int main(void)
{
    MPI_Win window;
    return MPI_Win_fence(0, window);
}
"""


def compile_(text, *flags):
    with tempfile.TemporaryDirectory() as folder:
        result = subprocess.run(
            [*COMPILER, *flags, "-I", INCLUDE, "-c", "-", "-o",
             os.path.join(folder, "out.o")], input=text,
            capture_output=True, text=True)
        return result.returncode, result.stderr


class Header(unittest.TestCase):
    def good(self, *flags):
        code, words = compile_(GOOD, "-Wall", "-Wextra", "-Werror",
                               "-pedantic", *flags)
        self.assertEqual((code, words), (0, ""))

    def test_c(self):
        self.good("-x", "c", "-std=c99")
        self.good("-x", "c", "-std=c17")

    def test_old_c(self):
        code, words = compile_(GOOD, "-x", "c", "-std=c89", "-Wall", "-Werror")
        self.assertEqual((code, words), (0, ""))

    def test_cxx(self):
        self.good("-x", "c++", "-std=c++11")
        self.good("-x", "c++", "-std=c++17")

    def test_refused(self):
        code, words = compile_(REFUSED, "-x", "c", "-w")
        self.assertNotEqual(code, 0)
        self.assertIn("MPI_Win_fence", words)
        self.assertIn("poise-run(1)", words)


def declared():
    """The names of the functions, without MPI_."""
    names = set()
    for name in ("mpi_functions.h", "mpi_collective.h"):
        with open(os.path.join(INCLUDE, name), encoding="utf-8") as file:
            names.update(re.findall(r"POISE_MPI_FUNCTION\(\w+, (\w+),",
                                    file.read()))
    return names


class Entries(unittest.TestCase):
    def test_names(self):
        """What the library exports is MPI's, both ways, and declared."""
        text = subprocess.run(["nm", "-D", "--defined-only", LIBRARY],
                              check=True, capture_output=True, text=True)
        names = {line.split()[-1].split("@")[0]
                 for line in text.stdout.splitlines()}
        ours = declared()
        self.assertGreater(len(ours), 200)
        missing = {name for name in ours if "MPI_" + name not in names}
        self.assertEqual(missing, set())
        for name in names:
            self.assertRegex(name, r"^P?MPI_\w+$")
            self.assertIn(re.sub("^P?MPI_", "", name), ours)
            self.assertIn(name[1:] if name[0] == "P" else "P" + name, names)


    def test_compared(self):
        """A program that is compared with real MPIs calls each of them."""
        called = set()
        for name in os.listdir(CONFORM):
            if name.endswith((".c", ".h")):
                with open(os.path.join(CONFORM, name),
                          encoding="utf-8") as file:
                    text = re.sub(r"/\*.*?\*/|\"(\\.|[^\"\\\n])*\"", "",
                                  file.read(), flags=re.S)
                called.update(re.findall(r"\bMPI_(\w+)\(", text))
                # These are handed over instead.
                called.update(re.findall(r"\bMPI_(\w+_FN)\b", text))
        self.assertEqual(declared() - called, set())

    def test_compared_fortran(self):
        """... and those that Fortran has, from Fortran."""
        with tempfile.TemporaryDirectory() as folder:
            listed = os.path.join(folder, "names")
            wing = os.path.join(os.path.dirname(TOOL), "..", "src", "vrank")
            subprocess.run([TOOL, "names", wing, listed], check=True)
            with open(listed, encoding="utf-8") as file:
                names = set(file.read().lower().split())
        called = {"abort"} # by a program in C that is compared
        for name in os.listdir(CONFORM):
            if name.endswith((".f", ".f90")):
                with open(os.path.join(CONFORM, name),
                          encoding="utf-8") as file:
                    called.update(re.findall(r"\bmpi_(\w+)\(",
                                             file.read().lower()))
        self.assertGreater(len(names), 200)
        self.assertEqual(names - called, set())


if __name__ == "__main__":
    INCLUDE, LIBRARY, CONFORM, TOOL, *COMPILER = sys.argv[1:]
    unittest.main(argv=sys.argv[:1])
