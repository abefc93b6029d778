#!/usr/bin/env python3
"""Programs under poise cc and poise run.

usage: tests/vrank/vrank_run.py POISE EXAMPLES

Each test compiles a small program and looks at what its ranks do: that what
should be a rank's own is, that what cannot be is refused by name, and how runs
end. POISE is the command, EXAMPLES the folder of the
examples.
"""

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
import unittest

from vrank_case import Case, SLOWNESS, run

POISE = EXAMPLES = ""
# Words before a program of a real MPI: tests/nap.c.
NAP = os.environ.get("POISE_TEST_NAP", "").split()


class Private(Case):
    """What each rank has for itself."""

    def test_globals(self):
        program = self.compile(r"""
            #include <sched.h>
            #include <stdio.h>
            int data = 5, *pointer = &data, made;
            static int zero;
            static __thread int local = 7;
            static char big[1 << 20];
            static void set(void) { made += 3; }
            static void (*function)(void);
            __attribute__((constructor)) static void begin(void)
            { function = set; }
            int main(void)
            {
                static int inside = 11;
                for (int i = 0; i < 5; i++) {
                    (*pointer)++; zero++; local++; inside++; function();
                    big[12345]++;
                    sched_yield();
                }
                printf("%d %d %d %d %d %d\n", data, zero, local, inside, made,
                       big[12345]);
                return 0;
            }""")
        for count in 1, 2, 64:
            self.assertEqual(self.lines(count, program),
                             ["10 5 12 16 15 5"] * count)
        self.assertEqual(self.lines(64, program, options=["-j", "3"]),
                         ["10 5 12 16 15 5"] * 64)
        alone = run([program])
        self.assertEqual(alone.stdout, "10 5 12 16 15 5\n")

    def test_libc(self):
        program = self.compile(r"""
            #include <errno.h>
            #include <sched.h>
            #include <stdio.h>
            #include <stdlib.h>
            #include <string.h>
            #include <unistd.h>
            static int id;
            int main(int argc, char **argv)
            {
                static int next; /* each copy counts from 0 */
                char text[] = "a b c", *token = strtok(text, " "), value[20];
                int letters = 0, c;
                id = ++next;
                srand(7); srandom(7); srand48(7);
                long first = rand();
                errno = 0;
                snprintf(value, sizeof value, "%p", (void *)&id);
                setenv("MINE", value, 1);
                for (int i = 0; i < 2; i++) {
                    sched_yield();
                    token = strtok(NULL, " ");
                    if (errno != i) return 1;
                    errno = i + 1;
                }
                if (strcmp(token, "c")) return 2;
                while ((c = getopt(argc, argv, "abx:")) != -1) {
                    letters += c == 'a' || c == 'b' || c == 'x';
                    sched_yield();
                }
                if (letters != 3 || strcmp(argv[optind], "operand")) return 3;
                srand(7);
                for (int i = 0; i < 5; i++) sched_yield();
                if (rand() != first) return 4;
                if (strcmp(getenv("MINE"), value)) return 5;
                printf("%ld %.6f %d\n", first, drand48(), optind);
                return 0;
            }""")
        want = self.lines(1, program, "-ab", "operand", "-x5")
        again = run([program, "-ab", "operand", "-x5"])
        self.assertEqual(again.stdout.splitlines(), want)
        for options in [], ["-j", "2"]:
            self.assertEqual(self.lines(16, program, "-ab", "operand", "-x5",
                                        options=options), want * 16)

    def test_own_names(self):
        """A global of the program that the C library has, too."""
        program = self.compile(r"""
            #include <stdio.h>
            int optind = 40, error = 2;
            int main(void) { printf("%d\n", optind++ + error++); return 0; }
            """)
        self.assertEqual(self.lines(5, program), ["42"] * 5)

    def test_library(self):
        """A library with state of its own, and one that uses it."""
        self.write("a.c", "static int n; int count(void) { return ++n; }")
        self.write("b.c", "int count(void);\nint twice(void) "
                          "{ count(); return count(); }")
        for name, more in ("a", []), ("b", ["-L.", "-la"]):
            result = run(["gcc", "-shared", "-fPIC", f"-Wl,-soname,lib{name}.so",
                          "-o", f"lib{name}.so", f"{name}.c", *more],
                         cwd=self.folder)
            self.assertEqual(result.returncode, 0, result.stderr)
        program = self.compile(r"""
            #include <sched.h>
            #include <stdio.h>
            int count(void), twice(void);
            int main(void)
            {
                twice(); sched_yield(); count(); sched_yield();
                printf("%d\n", twice());
                return 0;
            }""", "-L.", "-lb", "-la", "-Wl,-rpath," + self.folder)
        self.assertEqual(self.lines(20, program), ["5"] * 20)

    def test_cxx(self):
        program = self.compile(r"""
            #include <iomanip>
            #include <iostream>
            #include <sched.h>
            #include <stdexcept>
            #include <string>
            #include <vector>
            template <class T> struct Counter { static int n; };
            template <class T> int Counter<T>::n = 0;
            inline int &shared() { static int n = 0; return n; }
            struct Noisy { Noisy() { n = 4; } int n; } noisy;
            int main(int argc, char **argv)
            {
                std::string want = std::to_string((long)&noisy);
                try {
                    throw std::runtime_error(want);
                } catch (std::exception &e) {
                    sched_yield();
                    try { throw; } catch (std::runtime_error &again) {
                        sched_yield();
                        if (again.what() != want) return 1;
                    }
                    if (e.what() != want) return 2;
                }
                for (int i = 0; i < 3; i++) {
                    Counter<int>::n++; shared()++; noisy.n++; sched_yield();
                }
                std::cout << std::hex << std::setprecision(3);
                sched_yield();
                std::cout << Counter<int>::n + shared() + noisy.n << " "
                          << 2.0 / 3 << std::endl;
                return 0;
            }""", name="prog.cc")
        for options in [], ["-j", "2"]:
            self.assertEqual(self.lines(9, program, options=options),
                             ["d 0.667"] * 9)

    def test_unique(self):
        """Statics that C++ wants to be one for the process, in an object that
        poise c++ did not compile."""
        source = self.write("u.cc", """
            inline int &shared() { static int n = 0; return n; }
            int f() { return ++shared(); }""")
        run(["g++", "-fPIC", "-c", "-o", "u.o", source], cwd=self.folder)
        program = self.compile("""
            #include <sched.h>
            int f();
            int main() { f(); sched_yield(); f(); sched_yield(); return f(); }
            """, "u.o", name="prog.cc")
        self.assertEqual(self.ranks(6, program).returncode, 3)

    def test_cxx_many(self):
        """The C++ library's thread-local variables have room in every copy."""
        program = self.compile(r"""
            #include <iostream>
            int main() { try { throw 1; } catch (int n)
            { std::cout << n << std::endl; } return 0; }""", name="prog.cc")
        self.assertEqual(self.lines(200, program), ["1"] * 200)

    def test_lines(self):
        """Lines of several ranks do not tear."""
        program = self.compile(r"""
            #include <sched.h>
            #include <stdio.h>
            int main(void)
            {
                for (int i = 0; i < 20; i++) {
                    printf("one "); sched_yield(); fputs("two ", stdout);
                    sched_yield(); putchar('3'); puts("");
                }
                printf("rest"); fflush(stdout);
                return 0;
            }""")
        result = self.ranks(8, program)
        self.assertEqual(result.stdout.count("one two 3\n"), 160)
        self.assertEqual(result.stdout.count("rest"), 8)

    def test_memory(self):
        """A rank of a large program takes little beside its own data."""
        program = self.compile(r"""
            #include <stdio.h>
            #include <string.h>
            #define T(x) x, x, x, x, x, x, x, x
            static const char table[8 << 20] = {1};
            static char filled[1 << 20] = {2}, empty[64 << 20];
            static long resident(void)
            {
                char line[200]; long kb = 0;
                FILE *file = fopen("/proc/self/status", "r");
                while (fgets(line, sizeof line, file))
                    if (!strncmp(line, "VmRSS:", 6)) sscanf(line + 6, "%ld", &kb);
                fclose(file);
                return kb;
            }
            int main(void)
            {
                printf("%ld %d\n", resident(), table[0] + filled[0] + empty[0]);
                return 0;
            }""")
        def most(count):
            return max(int(line.split()[0])
                       for line in self.lines(count, program))
        self.assertLess((most(264) - most(8)) / 256, 100)


class Refused(Case):
    """What cannot be a rank's own is not shared in silence."""

    def refused(self, program, word, code=126):
        result = self.ranks(2, program)
        self.assertEqual(result.returncode, code, result.stderr)
        self.assertIn(word, result.stderr)
        self.assertEqual(result.stderr.count("\n"), 1)

    def test_initial_exec(self):
        program = self.compile(
            "static __thread int n; int main(void) { return n++; }",
            "-ftls-model=initial-exec")
        self.refused(program, "initial-exec")

    def test_plain(self):
        source = self.write("p.c", "int main(void) { return 0; }")
        run(["gcc", "-o", "plain", source], cwd=self.folder)
        self.refused("./plain", "poise cc")
        self.write("text", "hello\n")
        os.chmod(os.path.join(self.folder, "text"), 0o755)
        self.refused("./text", "no object file")
        self.refused("./none", "No such file", 127)
        self.write("not", "hello\n")
        self.refused("./not", "Permission denied", 126)

    def test_static(self):
        source = self.write("p.c", "int main(void) { return 0; }")
        result = run([POISE, "cc", "-static", source], cwd=self.folder)
        self.assertEqual(result.returncode, 125)
        self.assertIn("-static", result.stderr)

    def test_main_in_library(self):
        source = self.write("p.c", "int main(void) { return 7; }")
        for words in ([POISE, "cc", "-c", source], ["ar", "rc", "p.a", "p.o"],
                      [POISE, "cc", "-o", "prog", "p.a"]):
            self.assertEqual(run(words, cwd=self.folder).returncode, 0)
        self.assertEqual(run([POISE, "run", "-V", "2", "./prog"],
                             cwd=self.folder).returncode, 7)

    def test_too_many(self):
        program = self.compile("int main(void) { return 0; }")
        self.assertRegex(self.ranks(1000000, program).stderr,
                         "1000000 ranks need .* each")

    def test_chdir(self):
        program = self.compile(r"""
            #include <unistd.h>
            int main(void) { return chdir("/") == 0 ? 3 : 4; }""")
        result = self.ranks(2, program)
        self.assertEqual(result.returncode, 4)
        self.assertEqual(result.stderr.count("chdir"), 1)
        self.assertEqual(self.ranks(1, program).returncode, 3)


class Ends(Case):
    """How a run ends."""

    def test_status(self):
        program = self.compile(r"""
            #include <stdlib.h>
            static void bye(void) { exit(9); }
            int main(int argc, char **argv)
            { if (argc > 2) atexit(bye); return atoi(argv[1]); }""")
        for count in 1, 5:
            self.assertEqual(self.ranks(count, program, "0").returncode, 0)
            self.assertEqual(self.ranks(count, program, "7").returncode, 7)
        self.assertEqual(run([program, "7"]).returncode, 7)

    def test_exit(self):
        program = self.compile(r"""
            #include <stdio.h>
            #include <stdlib.h>
            static int n;
            static void bye(void) { printf("bye %d\n", n); }
            __attribute__((destructor)) static void end(void) { puts("end"); }
            static void deep(int level)
            { if (level) deep(level - 1); else { n++; exit(0); } }
            int main(void) { atexit(bye); deep(9); return 1; }""")
        self.assertEqual(self.lines(4, program), ["bye 1"] * 4 + ["end"] * 4)

    def crash(self, text, want, *options):
        program = self.compile(text)
        result = self.ranks(3, program, options=options)
        self.assertIn(want, result.stderr)
        self.assertNotEqual(result.returncode, 0)
        return result.returncode

    def test_crash(self):
        code = self.crash(r"""
            #include <sched.h>
            int main(void) { sched_yield(); *(volatile int *)8 = 1; return 0; }
            """, "virtual rank 0 crashed: Segmentation fault")
        self.assertEqual(code, -signal.SIGSEGV)

    def test_abort(self):
        code = self.crash("#include <stdlib.h>\nint main(void) { abort(); }",
                          "virtual rank 0 crashed: Aborted")
        self.assertEqual(code, -signal.SIGABRT)

    def test_overflow(self):
        self.crash(r"""
            int deep(volatile int *p)
            { volatile int a[64]; a[0] = *p + 1; return deep(a) + a[0]; }
            int main(void) { volatile int a = 0; return deep(&a); }""",
                   "virtual rank 0 overflowed its stack of 256 KiB",
                   "--stack", "256K")

    def test_quit(self):
        program = self.compile(r"""
            #include <sched.h>
            #include <unistd.h>
            int main(void) { sched_yield(); _exit(6); }""")
        result = self.ranks(3, program)
        self.assertEqual((result.returncode, result.stderr), (6, ""))

    def test_sleep(self):
        """Ranks sleep at the same time."""
        program = self.compile(r"""
            #include <stdio.h>
            #include <time.h>
            #include <unistd.h>
            int main(void)
            {
                struct timespec a, b;
                clock_gettime(CLOCK_MONOTONIC, &a);
                usleep(300000);
                clock_gettime(CLOCK_MONOTONIC, &b);
                double s = b.tv_sec - a.tv_sec + 1e-9 * (b.tv_nsec - a.tv_nsec);
                printf("%d\n", s >= 0.3 && s < LIMIT);
                return 0;
            }""".replace("LIMIT", str(3 * SLOWNESS)))
        self.assertEqual(self.lines(50, program), ["1"] * 50)


class Compiler(Case):
    """poise cc as CC."""

    def test_parts(self):
        self.write("a.c", "int f(void) { return 4; }")
        self.write("b.c", "int f(void); int main(void) { return f(); }")
        for words in (["-c", "a.c"], ["-c", "b.c", "-o", "b.o"],
                      ["a.o", "b.o", "-o", "prog", "-lm", "-pie"]):
            result = run([POISE, "cc", *words], cwd=self.folder)
            self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertEqual(self.ranks(3, "./prog").returncode, 4)
        self.assertEqual(run(["./prog"], cwd=self.folder).returncode, 4)

    def test_show(self):
        result = run([POISE, "cc", "-show", "x.c", "-o", "x"])
        self.assertRegex(result.stdout, r"^gcc x\.c -o x -I\S+ -fPIC .*"
                         r"-shared -Wl,-Bsymbolic -Wl,-z,defs .*-lpoise-vmpi")
        self.assertEqual(
            run([POISE, "cc", "-showme:compile"]).stdout.split()[1:],
            ["-fPIC", "-fstack-clash-protection", "-fno-gnu-unique"])
        self.assertNotIn("-shared",
                         run([POISE, "cc", "-c", "-show", "x.c"]).stdout)
        self.assertIn("-lpoise-vmpi",
                      run([POISE, "cc", "-showme:link"]).stdout)

    def test_show_parts(self):
        def show(part):
            result = run([POISE, "cc", part])
            self.assertEqual((result.returncode, result.stderr), (0, ""))
            return result.stdout.strip()

        self.assertEqual(show("--showme:command"), "gcc")
        self.assertTrue(os.path.exists(show("-showme:incdirs") + "/mpi.h"))
        self.assertTrue(os.path.exists(show("-showme:libdirs") +
                                       "/libpoise-vmpi.so"))
        self.assertEqual(show("-showme:libs"), "poise-vmpi poise")
        self.assertRegex(show("-showme:version"), r"^Poise [0-9.]+$")
        self.assertRegex(show("-compile_info"), r"^gcc -I\S+ -fPIC")
        self.assertRegex(show("-link_info"), r"^gcc -shared .*-lpoise$")

    def test_language(self):
        """-x holds for all files behind it, but not for those of ours."""
        for kind, words in ("cc", ["-x", "c", "-"]), ("c++", ["-xc++", "a.c"]):
            text = "int main(void) { return 6; }"
            self.write("a.c", text)
            result = run([POISE, kind, *words, "-o", "prog"], input=text,
                         cwd=self.folder)
            self.assertEqual((result.returncode, result.stderr), (0, ""))
            self.assertEqual(self.ranks(2, "./prog").returncode, 6)

    def test_plain_questions(self):
        for words in ["--version"], ["-dumpmachine"], ["-print-prog-name=ld"]:
            self.assertEqual(run([POISE, "cc", *words]).stdout,
                             run(["gcc", *words]).stdout)
        result = run([POISE, "cc", "-E", "-"], input="POISE_TEST\n")
        self.assertIn("POISE_TEST", result.stdout)

    def test_missing_function(self):
        source = self.write("m.c", "int MPI_No_such_thing(void); int main(void)"
                                   "{ return MPI_No_such_thing(); }")
        result = run([POISE, "cc", source], cwd=self.folder)
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("MPI_No_such_thing", result.stderr)

    def test_no_compiler(self):
        environment = dict(os.environ, POISE_CC="/no/such/compiler")
        self.assertEqual(run([POISE, "cc", "x.c"],
                             env=environment).returncode, 127)


RING = r"""
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv)
{
    int rank, size, got;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int left = (rank + size - 1) % size, right = (rank + 1) % size;
    for (int i = 0; i < 50; i++) {
        int mine = 100 * i + rank;
        MPI_Sendrecv(&mine, 1, MPI_INT, right, i, &got, 1, MPI_INT, left, i,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (got != 100 * i + left) return 3;
    }
    if (argc > 1 && rank == size - 1) MPI_Abort(MPI_COMM_WORLD, 9);
    if (argc > 2) MPI_Recv(&got, 1, MPI_INT, left, 0, MPI_COMM_WORLD,
                           MPI_STATUS_IGNORE);
    MPI_Finalize();
    printf("%d of %d\n", rank, size);
    return argc > 3 ? 7 : 0;
}
"""


class Messages(Case):
    """MPI among the ranks."""

    def test_ring(self):
        program = self.compile(RING)
        for count, options in ((1, []), (2, []), (37, []), (37, ["-j", "3"])):
            self.assertEqual(
                self.lines(count, program, options=options),
                sorted(f"{i} of {count}" for i in range(count)))
        for policy in ("serial", "priority", "coschedule", "unblocked"):
            options = ["-j", "2", "--policy", policy]
            self.assertEqual(len(self.lines(16, program, options=options)), 16)

    def test_abort(self):
        result = self.ranks(5, self.compile(RING), "abort")
        self.assertEqual(result.returncode, 9)

    def test_deadlock(self):
        program = self.compile(r"""
            #include <mpi.h>
            int main(int argc, char **argv)
            {
                int rank, n;
                MPI_Init(&argc, &argv);
                MPI_Comm_rank(MPI_COMM_WORLD, &rank);
                MPI_Recv(&n, 1, MPI_INT, 1 - rank, 5, MPI_COMM_WORLD,
                         MPI_STATUS_IGNORE);
                MPI_Finalize();
                return 0;
            }""")
        for options in [], ["-j", "2"]:
            result = self.ranks(2, program, options=options)
            self.assertEqual(result.returncode, 125)
            self.assertIn("deadlock: 2 of 2 virtual ranks", result.stderr)
            self.assertIn("rank 0 waits in MPI_Recv", result.stderr)


# Messages of every kind, for ever. Each process says its number once its ranks
# run.
ENDLESS = r"""
#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
static char out[300000], in[300000];
int main(int argc, char **argv)
{
    int rank, size, sum;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (rank % 2 == 0) fprintf(stderr, "process %d\n", (int)getpid());
    for (int i = 0;; i++) {
        int bytes = i % 3 == 0 ? 8 : i % 3 == 1 ? 5000 : (int)sizeof out;
        MPI_Sendrecv(out, bytes, MPI_BYTE, (rank + 2) % size, 0, in, sizeof in,
                     MPI_BYTE, (rank + size - 2) % size, 0, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    }
}
"""


@unittest.skipUnless(shutil.which("gfortran"), "there is no gfortran")
class Fortran(Case):
    def test_own(self):
        """Modules, COMMON, SAVE, and the units of files are each rank's."""
        program = self.compile(r"""
            module state
              integer :: inside = 5
            end module
            program own
              use mpi
              use state
              implicit none
              integer :: rank, ierr, shared, i, got
              integer, save :: kept = 7
              common /block/ shared
              call MPI_Init(ierr)
              call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
              open(unit=20, status='scratch')
              do i = 1, 3
                inside = inside + rank
                kept = kept + 10 * rank
                shared = kept
                write(20,*) rank * i
                call MPI_Barrier(MPI_COMM_WORLD, ierr)
              end do
              rewind(20)
              read(20,*) got
              read(20,*) got
              write(*,'(5i5)') rank, inside, kept, shared, got
              call MPI_Finalize(ierr)
            end program
            """, name="own.f90")
        want = [f"{r:5}{5 + 3 * r:5}{7 + 30 * r:5}{7 + 30 * r:5}{2 * r:5}"
                for r in range(6)]
        self.assertEqual(self.lines(6, program), sorted(want))
        self.assertEqual(self.lines(6, program, options=["-j", "2"]),
                         sorted(want))

    def test_missing(self):
        source = self.write("missing.f90", """
            program missing
              include 'mpif.h'
              integer ierr, window
              call MPI_Win_fence(0, window, ierr)
            end program
            """)
        result = run([POISE, "fort", source, "-o", "missing"], cwd=self.folder)
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("mpi_win_fence_", result.stderr)

    def test_many_operations(self):
        """More than there are functions in front of them: an error, not
        the wrong one."""
        operations = "".join(
            f"call MPI_Op_create(sub{i}, .true., op, ierr)\n"
            for i in range(17))
        subroutines = "".join(
            f"subroutine sub{i}(a, b, n, t)\ninteger a, b, n, t\n"
            f"b = a * {i} + n + t\nend subroutine\n" for i in range(17))
        names = ", ".join(f"sub{i}" for i in range(17))
        program = self.compile(
            f"program many\nuse mpi\ninteger ierr, op\nexternal {names}\n"
            "call MPI_Init(ierr)\n"
            "call MPI_Comm_set_errhandler(MPI_COMM_WORLD, "
            "MPI_ERRORS_RETURN, ierr)\n"
            f"{operations}print *, ierr == MPI_ERR_NO_MEM\n"
            "call MPI_Finalize(ierr)\nend program\n" + subroutines,
            name="many.f90")
        self.assertEqual(self.lines(1, program), [" T"])


class Processes(Case):
    """Several processes, over each MPI."""

    def each(self):
        for mpi, launcher in ("ompi", "mpirun.openmpi"), ("mpich",
                                                          "mpirun.mpich"):
            if shutil.which(launcher):
                with self.subTest(mpi=mpi):
                    yield launcher, dict(
                        os.environ, POISE_MPI=mpi, OMPI_ALLOW_RUN_AS_ROOT="1",
                        OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                        OMPI_MCA_rmaps_base_oversubscribe="1")

    def test_ring(self):
        program = self.compile(RING)
        for _, env in self.each():
            for options in [], ["--placement", "cyclic"]:
                result = self.ranks(6, program, options=["-n", "2", *options],
                                    env=env)
                self.assertEqual((result.returncode, result.stderr), (0, ""))
                self.assertEqual(sorted(result.stdout.splitlines()),
                                 [f"{i} of 6" for i in range(6)])

    def test_examples(self):
        """The same answer, however it is cut, and by a real MPI."""
        for name, words, answer in (
                ("sor", ["60", "40", "7"],
                 "^mean 2[0-9.]+ after 40 iterations"),
                ("heat", ["61", "40"], "^mean 4[0-9.]+ after 40 steps\n$"),
                ("queens", ["7"], "^7 queens: 40 ways\n$")):
            source = os.path.join(EXAMPLES, name + ".c")
            with open(source, encoding="utf-8") as file:
                program = self.compile(file.read(), "-lm", out=name)
            answers = set()

            def note(result):
                self.assertEqual(result.returncode, 0, result.stderr)
                answers.add(result.stdout)

            for count in (1, 2, 7, 32):
                note(self.ranks(count, program, *words))
            for launcher, env in self.each():
                note(self.ranks(9, program, *words, options=["-n", "2"],
                                env=env))
                compiler = launcher.replace("mpirun", "mpicc")
                if shutil.which(compiler):
                    real = os.path.join(self.folder, name + ".real")
                    run([compiler, "-O2", "-o", real, source, "-lm"],
                        check=True)
                    note(run([launcher, "-n", "2", *NAP, real, *words],
                             env=env))
            with self.subTest(example=name):
                self.assertEqual(len(answers), 1, answers)
                self.assertRegex(answers.pop(), answer)

    def test_alone_under_launcher(self):
        program = self.compile(RING)
        for launcher, env in self.each():
            result = run([launcher, "-n", "2", program], env=env)
            self.assertEqual((result.returncode, result.stderr), (0, ""))
            self.assertEqual(sorted(result.stdout.splitlines()),
                             ["0 of 2", "1 of 2"])

    def test_status(self):
        program = self.compile(RING)
        for _, env in self.each():
            result = self.ranks(4, program, "abort", options=["-n", "2"],
                                env=env)
            self.assertEqual(result.returncode, 9)

    def marked(self, mark):
        """The processes whose environment has a mark."""
        found = []
        for name in os.listdir("/proc"):
            try:
                with open(f"/proc/{name}/environ", "rb") as file:
                    if mark.encode() in file.read():
                        found.append(int(name))
            except (OSError, ValueError):
                pass
        return found

    def survivors(self, mark):
        """Who does not end although the job has: killed now."""
        patience = time.monotonic() + 20 * SLOWNESS
        while self.marked(mark) and time.monotonic() < patience:
            time.sleep(0.05)
        left = self.marked(mark)
        for number in left:
            os.kill(number, signal.SIGKILL)
        return left

    def shared(self, mark):
        """Names in /dev/shm that processes with a mark have open or mapped:
        others on the machine make such, too."""
        found = set()
        for number in self.marked(mark):
            try:
                with open(f"/proc/{number}/maps", encoding="utf-8",
                          errors="surrogateescape") as file:
                    found.update(re.findall(r" (/dev/shm/.*)", file.read()))
                folder = f"/proc/{number}/fd"
                for name in os.listdir(folder):
                    found.add(os.readlink(os.path.join(folder, name)))
            except OSError:
                pass
        return {name for name in found if name.startswith("/dev/shm/")}

    def end_of(self, program, env, mark, wait_s):
        """Kill one of two processes; the exit status of the run, and the names
        in /dev/shm that it had."""
        with subprocess.Popen([POISE, "run", "-n", "2", "-V", "4", program],
                              env=env, cwd=self.folder,
                              stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, text=True) as job:
            numbers = []
            while len(numbers) < 2:
                line = job.stderr.readline()
                self.assertNotEqual(line, "", "it ended by itself")
                if line.startswith("process "):
                    numbers.append(int(line.split()[1]))
            time.sleep(wait_s)
            names = self.shared(mark)
            os.kill(numbers[int(wait_s * 1e6) % 2], signal.SIGKILL)
            try:
                job.communicate(timeout=60 * SLOWNESS)
            finally:
                left = self.survivors(mark)
            self.assertEqual(left, [])
            return job.returncode, names

    def test_killed(self):
        """A process dies at any moment: the job ends, and nothing is left."""
        program = self.compile(ENDLESS)
        random_ = random.Random(20261121)
        names = os.path.join(self.folder, "tmp")
        os.mkdir(names)
        for _, env in self.each():
            for turn in range(2):
                name, value = "POISE_TEST_MARK", f"{os.getpid()}.{turn}."
                status, shared = self.end_of(
                    program, {**env, name: value, "TMPDIR": names},
                    f"{name}={value}", random_.uniform(0, 0.2))
                self.assertNotEqual(status, 0)
                self.assertEqual([name for name in os.listdir(names)
                                  if "poise" in name], [])
                self.assertEqual([name for name in shared if "poise" in name
                                  and os.path.exists(name)], [])


if __name__ == "__main__":
    POISE = Case.POISE = os.path.abspath(sys.argv.pop(1))
    EXAMPLES = os.path.abspath(sys.argv.pop(1))
    unittest.main()
