#!/usr/bin/env python3
"""Programs of virtual ranks with OpenMP, tools of the profiling interface, and
sanitizers: they work, or the reason is said.

usage: tests/vrank/vrank_tools.py POISE
"""

import os
import shutil
import sys
import unittest

from vrank_case import Case, run

TOOL = r"""
#include <mpi.h>
#include <stdio.h>
int sends; /* each rank's own */
int MPI_Send(const void *data, int count, MPI_Datatype type, int dest, int tag,
             MPI_Comm comm)
{
    sends++;
    return PMPI_Send(data, count, type, dest, tag, comm);
}
int MPI_Finalize(void)
{
    int rank;
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    printf("tool: rank %d sent %d\n", rank, sends);
    return PMPI_Finalize();
}"""

SENDER = r"""
#include <mpi.h>
int main(int argc, char **argv)
{
    int rank, size, data = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int i = 0; i < rank; i++)
        MPI_Send(&i, 1, MPI_INT, 0, 0, MPI_COMM_WORLD);
    for (int i = 0; rank == 0 && i < size * (size - 1) / 2; i++)
        MPI_Recv(&data, 1, MPI_INT, MPI_ANY_SOURCE, 0, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    MPI_Finalize();
    return 0;
}"""
SENT = [f"tool: rank {rank} sent {rank}" for rank in range(4)]


class Tools(Case):
    """MPI's functions taken over by another library."""

    def tool(self, *compiler):
        self.write("tool.c", TOOL)
        result = run([*compiler, "-shared", "-fPIC", "-Wl,-soname,libtool.so",
                      "-o", "libtool.so", "tool.c"], cwd=self.folder)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return dict(os.environ, LD_PRELOAD=self.folder + "/libtool.so",
                    OMPI_ALLOW_RUN_AS_ROOT="1",
                    OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", POISE_MPI="ompi")

    def sent(self, result):
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertEqual(sorted(result.stdout.splitlines()), SENT)

    def test_preloaded(self):
        env = self.tool(self.POISE, "cc")
        program = self.compile(SENDER)
        self.sent(self.ranks(4, program, env=env))
        if shutil.which("mpirun.openmpi"):
            self.sent(self.ranks(4, program, env=env, options=["-n", "2"]))

    def test_linked(self):
        self.tool(self.POISE, "cc")
        program = self.compile(SENDER, "-L.", "-ltool",
                               "-Wl,-rpath," + self.folder)
        self.sent(self.ranks(4, program))

    @unittest.skipUnless(shutil.which("mpicc.openmpi"), "there is no mpicc")
    def test_of_another(self):
        env = self.tool("mpicc.openmpi")
        result = self.ranks(2, self.compile(SENDER), env=env)
        self.assertEqual(result.returncode, 126)
        self.assertIn("libtool.so': it was compiled for another MPI than that "
                      "of virtual ranks; compile it with 'poise cc -shared'",
                      result.stderr)


class OpenMp(Case):
    def test_teams(self):
        """A team for each rank, also while its first thread waits in MPI."""
        program = self.compile(r"""
            #include <mpi.h>
            #include <omp.h>
            #include <stdio.h>
            int main(int argc, char **argv)
            {
                int rank, sum = 0, most = 0;
                MPI_Init(&argc, &argv);
                MPI_Comm_rank(MPI_COMM_WORLD, &rank);
                for (int k = 0; k < 3; k++) {
                    #pragma omp parallel for reduction(+:sum) num_threads(2)
                    for (int i = 0; i < 100; i++) {
                        sum += i + rank;
                        if (i == 0) most = omp_get_num_threads();
                    }
                    #pragma omp parallel num_threads(2)
                    {
                        #pragma omp master
                        MPI_Barrier(MPI_COMM_WORLD);
                        #pragma omp barrier
                        if (omp_get_level() != 1) sum = -1;
                    }
                }
                printf("%d %d %d\n", rank, sum, most);
                MPI_Finalize();
                return 0;
            }""", "-fopenmp")
        self.assertEqual(self.lines(6, program),
                         [f"{r} {3 * (4950 + 100 * r)} 2" for r in range(6)])


class Sanitizers(Case):
    def test_address(self):
        """Errors are found on the stack of a rank, and in its memory; jumps
        within the stack are none."""
        program = self.compile(r"""
            #include <mpi.h>
            #include <setjmp.h>
            #include <stdio.h>
            #include <stdlib.h>
            static jmp_buf back;
            __attribute__((noinline)) int deep(int n)
            {
                volatile char a[500];
                a[n] = 1;
                if (n == 0) longjmp(back, 1);
                return deep(n - 1) + a[n];
            }
            __attribute__((noinline)) int use(int n)
            {
                volatile char a[9000];
                for (int i = 0; i < 9000; i++) a[i] = (char)i;
                return a[n];
            }
            /* A frame from after the jump, which made all of the stack good. */
            __attribute__((noinline)) int over(int n)
            {
                volatile char array[10];
                array[n] = 1;
                return array[n / 2];
            }
            int main(int argc, char **argv)
            {
                int rank;
                volatile char *memory = malloc(10);
                MPI_Init(&argc, &argv);
                MPI_Comm_rank(MPI_COMM_WORLD, &rank);
                if (!setjmp(back)) deep(20);
                MPI_Barrier(MPI_COMM_WORLD);
                use(5);
                if (rank == 1 && argv[1][0] == 's') over(argc + 8);
                if (rank == 1 && argv[1][0] == 'h') memory[argc + 8] = 1;
                MPI_Barrier(MPI_COMM_WORLD);
                free((void *)memory);
                puts("good");
                MPI_Finalize();
                return 0;
            }""", "-fsanitize=address", "-Wno-infinite-recursion")
        self.assertEqual(self.lines(3, program, "none"), ["good"] * 3)
        for how in "stack", "heap":
            result = self.ranks(3, program, how)
            self.assertNotEqual(result.returncode, 0)
            self.assertIn(how + "-buffer-overflow", result.stderr)

    def test_thread(self):
        """What cannot work says why."""
        program = self.compile("int main(void) { return 0; }",
                               "-fsanitize=thread")
        result = self.ranks(2, program)
        self.assertEqual(result.returncode, 126)
        self.assertIn("it was compiled with -fsanitize=thread, which knows "
                      "nothing of ranks that share a process; compile it with "
                      "mpicc", result.stderr)


if __name__ == "__main__":
    Case.POISE = os.path.abspath(sys.argv.pop(1))
    unittest.main()
