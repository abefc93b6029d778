#!/usr/bin/env python3
"""How jobs of virtual ranks end when something goes wrong.

usage: tests/vrank/vrank_ends.py POISE
"""

import os
import shutil
import signal
import subprocess
import sys
import unittest

from vrank_case import Case, run

SOAK = "POISE_TEST_SOAK" in os.environ

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


# Rank 1 of 4 does what the first argument says, while the others wait for it; or
# all do.
ENDS = r"""
#include <mpi.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static void bye(void) { puts("bye"); }
int main(int argc, char **argv)
{
    int rank, size, data = 0;
    const char *how = argv[1];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
#define IS(word) (strcmp(how, word) == 0)
    if (rank == 1) {
        if (IS("exit")) { atexit(bye); exit(42); }
        if (IS("exit0")) exit(0);
        if (IS("return")) return 42;
        if (IS("_exit")) { atexit(bye); _exit(42); }
        if (IS("_exit0")) _exit(0);
        if (IS("quick_exit")) { at_quick_exit(bye); quick_exit(42); }
        if (IS("pthread_exit")) pthread_exit(NULL);
        if (IS("abort")) abort();
        if (atoi(how) > 0) raise(atoi(how));
        if (IS("MPI_Abort")) MPI_Abort(MPI_COMM_WORLD, 42);
        if (IS("MPI_Abort256")) MPI_Abort(MPI_COMM_WORLD, 256);
        if (IS("finalized")) { MPI_Finalize(); exit(42); }
    }
    if (IS("circle")) {
        MPI_Recv(&data, 1, MPI_INT, (rank + 1) % size, 5, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    }
    if (IS("apart") && rank == 2) {
        MPI_Recv(&data, 1, MPI_INT, 0, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    if (IS("loop")) {
        if (rank == 0) { puts("begun"); fflush(stdout); }
        for (;;) MPI_Barrier(MPI_COMM_WORLD);
    }
    if (IS("stdin")) {
        for (data = 0; getchar() != EOF; data++) { }
        printf("rank %d read %d\n", rank, data);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return IS("each") ? rank * 3 % 256 : 0;
}"""

WITHOUT = "virtual rank 1 ended without MPI_Finalize"
BEFORE = "virtual rank 1 exited with 42, before MPI_Finalize"
SIGNALS = [signal.SIGSEGV, signal.SIGTERM, signal.SIGUSR1, signal.SIGKILL,
           signal.SIGINT, signal.SIGPIPE, signal.SIGFPE, signal.SIGALRM]
# How; the exit code; what is said; what is printed.
TABLE = [
    ("exit", 42, BEFORE, "bye\n"),
    ("exit0", 125, WITHOUT, ""),
    ("return", 42, BEFORE, ""),
    ("_exit", 42, BEFORE, ""),
    ("_exit0", 125, WITHOUT, ""),
    ("quick_exit", 42, BEFORE, "bye\n"),
    ("pthread_exit", 125, "virtual rank 1 called pthread_exit", ""),
    ("abort", 134, "virtual rank 1 crashed: Aborted", ""),
    ("MPI_Abort", 42, "virtual rank 1 called MPI_Abort with code 42", ""),
    ("MPI_Abort256", 1, "virtual rank 1 called MPI_Abort with code 256", ""),
    ("finalized", 42, "virtual rank 1 exited with 42: deadlock: 3 of 4 virtual "
     "ranks wait for ever", ""),
    ("each", 3, "", ""),
    ("circle", 125, """deadlock: 4 of 4 virtual ranks wait for ever, and no message is on its way
  rank 0 waits in MPI_Recv from rank 1, tag 5
  rank 1 waits in MPI_Recv from rank 2, tag 5
  rank 2 waits in MPI_Recv from rank 3, tag 5
  rank 3 waits in MPI_Recv from rank 0, tag 5
  cycle: 0 -> 1 -> 2 -> 3 -> 0
""", ""),
    ("apart", 125, """  rank 3 waits in MPI_Barrier
  cycle: 0 -> 2 -> 0
""", ""),
] + [(str(int(number)), 128 + number, "virtual rank 1", "")
     for number in SIGNALS]
# Of each kind one, in several processes: the others in `make soak`.
FEW = ["exit", "finalized", str(int(signal.SIGUSR1)),
       str(int(signal.SIGKILL)), "apart"]


def environment(mpi):
    return dict(os.environ, POISE_MPI=mpi, OMPI_ALLOW_RUN_AS_ROOT="1",
                OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")


class Ends(Case):
    """A job ends with the same exit code however it is cut into processes."""

    def setUp(self):
        super().setUp()
        self.compile(ENDS, "-pthread", "-w")

    def launchers(self):
        for mpi in "ompi", "mpich":
            if shutil.which({"ompi": "mpirun.openmpi",
                             "mpich": "mpirun.mpich"}[mpi]):
                yield mpi

    def check(self, row, result):
        how, code, said, printed = row
        # As a shell has it.
        status = result.returncode if result.returncode >= 0 \
            else 128 - result.returncode
        self.assertEqual(status, code, result.stderr)
        if how != str(int(signal.SIGKILL)):
            self.assertIn(said, result.stderr)
        # A launcher may have words of its own there.
        self.assertEqual(result.stdout.count("bye\n"), printed.count("bye"))
        self.assertLessEqual(result.stderr.count("deadlock"), 1)

    def test_alone(self):
        for row in TABLE:
            with self.subTest(how=row[0]):
                self.check(row, self.ranks(4, "./prog", row[0]))

    def test_processes(self):
        for mpi in self.launchers():
            for row in TABLE:
                if SOAK or row[0] in FEW:
                    with self.subTest(how=row[0], mpi=mpi):
                        self.check(row, self.ranks(
                            4, "./prog", row[0], options=["-n", "2"],
                            env=environment(mpi)))

    def test_refused(self):
        """A launcher that starts nothing: 125, whatever it exits with."""
        for mpi in self.launchers():
            path = self.write({"ompi": "orterun", "mpich": "mpiexec.hydra"}[mpi],
                              "#!/bin/sh\nexit 1\n")
            os.chmod(path, 0o755)
            link = os.path.join(self.folder, "mpirun")
            if os.path.islink(link):
                os.unlink(link)
            os.symlink(path, link)
            env = dict(environment(mpi), PATH=self.folder + ":" +
                       os.environ["PATH"], TMPDIR=self.folder)
            result = self.ranks(4, "./prog", "each", options=["-n", "2"],
                                env=env)
            self.assertEqual(result.returncode, 125)
            self.assertIn("mpirun ended with exit code 1 before it had started "
                          "any process", result.stderr)
            self.assertFalse([name for name in os.listdir(self.folder)
                              if name.startswith("poise-run")])

    def test_signals(self):
        """What the command is sent ends the job and the command."""
        ways = [[]] + [["-n", "2"]] * len(list(self.launchers()))
        for mpi, options in zip(["none", *self.launchers()], ways):
            with self.subTest(mpi=mpi), subprocess.Popen(
                    [self.POISE, "run", "-V", "4", *options, "./prog", "loop"],
                    cwd=self.folder, env=environment(mpi) if options else None,
                    stdout=subprocess.PIPE, stderr=subprocess.PIPE) as job:
                self.assertEqual(job.stdout.readline(), b"begun\n")
                job.send_signal(signal.SIGTERM)
                # To its end: then no process is left that has it open.
                job.stdout.read()
                self.assertEqual(job.wait(), -signal.SIGTERM)

    def test_input(self):
        """Rank 0 reads what comes from outside, as under launchers."""
        want = ["rank 0 read 7", *(f"rank {i} read 0" for i in (1, 2, 3))]
        for mpi in ["", *self.launchers()]:
            result = self.ranks(4, "./prog", "stdin", input="abc\ndef",
                                options=["-n", "2"] if mpi else [],
                                env=environment(mpi))
            self.assertEqual(sorted(result.stdout.splitlines()), want)


class Handlers(Case):
    """What is called at the end, and in which order, as in a process."""

    def test_order(self):
        text = r"""
            #include <stdio.h>
            #include <stdlib.h>
            #include <unistd.h>
            static void q1(void) { puts("q1"); }
            static void q2(void) { puts("q2"); }
            static void a1(void) { puts("a1"); }
            static void a2(void) { puts("a2"); exit(9); }
            static void a3(void) { puts("a3"); }
            __attribute__((destructor)) static void d(void) { puts("d"); }
            int main(int argc, char **argv)
            {
                setvbuf(stdout, NULL, _IOLBF, 0);
                atexit(a1); atexit(a2); atexit(a3);
                at_quick_exit(q1); at_quick_exit(q2);
                printf("kept\nlost or kept");
                if (argv[1][0] == 'q') quick_exit(5);
                if (argv[1][0] == '_') _exit(7);
                return 3;
            }"""
        program = self.compile(text)
        run(["gcc", "-o", "real", "prog.c"], cwd=self.folder, check=True)
        for how in "quick_exit", "_exit", "return":
            want = run(["./real", how], cwd=self.folder)
            self.assertIn(want.returncode, (5, 7, 9))
            got = self.ranks(1, program, how)
            self.assertEqual((got.returncode, got.stdout),
                             (want.returncode, want.stdout))

    def test_exception(self):
        """Of C++, that nobody catches."""
        program = self.compile(r"""
            #include <stdexcept>
            int main() { throw std::runtime_error("nobody"); }""",
                               name="prog.cc")
        result = self.ranks(2, program)
        self.assertEqual(result.returncode, -signal.SIGABRT)
        self.assertIn("what():  nobody", result.stderr)
        self.assertIn("virtual rank 0 crashed: Aborted", result.stderr)


if __name__ == "__main__":
    Case.POISE = os.path.abspath(sys.argv.pop(1))
    unittest.main()
