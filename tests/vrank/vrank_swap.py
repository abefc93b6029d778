#!/usr/bin/env python3
"""Programs whose ranks are swapped to disk.

usage: tests/vrank/vrank_swap.py POISE

Each test compiles a small program, which keeps data over calls that wait, and
runs it with more data than memory, or swapped at each call. POISE is the
command.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

# By how much a machine is slower than an idle one: tools/test_all.py.
SLOWNESS = float(os.environ.get("POISE_TEST_SLOWNESS", "4"))

POISE = ""


def run(words, **more):
    return subprocess.run(words, capture_output=True, text=True,
                          timeout=300 * SLOWNESS, **more)


HEAD = """
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static int rank, size;
static void check(int good, const char *what)
{
    if (!good) {
        printf("rank %d: %s is wrong\\n", rank, what);
        fflush(stdout);
        MPI_Abort(MPI_COMM_WORLD, 3);
    }
}
static void test(void);
int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    test();
    MPI_Barrier(MPI_COMM_WORLD);
    int unsaid = rank == 0 && (puts("done") < 0 || fflush(stdout) != 0);
    MPI_Finalize();
    return unsaid ? 4 : 0;
}
"""

EVERY_WAY = """#define _GNU_SOURCE
""" + HEAD + """
#include <limits.h>
#include <malloc.h>
#include <sys/mman.h>
static void test(void)
{
    char *text = malloc(3000), *zero = calloc(100, 70), *line = NULL;
    size_t room = 0;
    check(text && zero, "malloc");
    memset(text, rank, 3000);
    text = realloc(text, 100000);
    memset(text + 3000, rank + 1, 97000);
    char *copy = strdup("a text"), *part = strndup("a text", 3), *made = NULL;
    check(asprintf(&made, "%d of %d", rank, size) > 0, "asprintf");
    void *aligned = NULL;
    check(posix_memalign(&aligned, 4096, 10) == 0, "posix_memalign");
    check((unsigned long)aligned % 4096 == 0, "posix_memalign");
    memset(aligned, 7, 10);
    char *other = aligned_alloc(64, 640);
    memset(other, 8, 640);
    check(malloc_usable_size(other) >= 640, "malloc_usable_size");
    char *pages = mmap(NULL, 40000, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    check(pages != MAP_FAILED && pages[39999] == 0, "mmap");
    memset(pages, 9, 40000);
    char *path = realpath("/usr/../usr", NULL);
    check(path && !strcmp(path, "/usr"), "realpath");
    path = realloc(path, 1000);
    FILE *file = tmpfile();
    fputs("one\\ntwo words\\n", file);
    for (int i = 0; i < 5000; i++) {
        fputc('x', file);
    }
    rewind(file);
    char *buffer = malloc(BUFSIZ);
    setvbuf(file, buffer, _IOFBF, BUFSIZ);
    line = malloc(2);
    room = 2;
    check(getline(&line, &room, file) == 4, "getline");
    MPI_Barrier(MPI_COMM_WORLD);
    check(!strcmp(line, "one\\n"), "a line");
    check(getline(&line, &room, file) == 10, "getline");
    MPI_Barrier(MPI_COMM_WORLD);
    check(!strcmp(line, "two words\\n"), "a second line");
    check(getline(&line, &room, file) == 5000 && room > 5000, "getline");
    check(getline(&line, &room, file) == -1, "the end of a file");
    MPI_Barrier(MPI_COMM_WORLD);
    fclose(file);
    for (int i = 0; i < 100000; i++) {
        check(text[i] == (i < 3000 ? rank : rank + 1), "realloc");
    }
    for (int i = 0; i < 7000; i++) {
        check(zero[i] == 0, "calloc");
    }
    check(!strcmp(copy, "a text") && !strcmp(part, "a t"), "strdup");
    check(atoi(made) == rank, "what asprintf made");
    check(((char *)aligned)[9] == 7 && other[639] == 8, "what was aligned");
    check(pages[0] == 9 && pages[39999] == 9, "a mapping");
    pages = mremap(pages, 40960, 400000, MREMAP_MAYMOVE);
    check(pages != MAP_FAILED && pages[39999] == 9 && pages[399999] == 0,
          "mremap");
    munmap(pages, 400000);
    check(!strcmp(path, "/usr"), "what realpath made");
    free(text), free(zero), free(copy), free(part), free(made), free(aligned);
    free(other), free(line), free(path), free(buffer), free(NULL);
}
"""

CXX = r"""
#include <mpi.h>
#include <cstdio>
#include <map>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>
static std::map<int, std::string> names;
int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int rank, size;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    std::vector<std::unique_ptr<std::vector<int>>> rows;
    for (int i = 0; i < 300; i++) {
        rows.emplace_back(new std::vector<int>(i * 10, rank + i));
        std::ostringstream text;
        text << "name " << i << " of " << rank;
        names[i] = text.str();
        if (i % 60 == 0) {
            MPI_Barrier(MPI_COMM_WORLD);
        }
    }
    int good = 0;
    try {
        MPI_Barrier(MPI_COMM_WORLD);
        throw std::runtime_error(names[7]);
    } catch (const std::exception &error) {
        MPI_Barrier(MPI_COMM_WORLD);
        good = error.what() == "name 7 of " + std::to_string(rank);
    }
    for (int i = 0; i < 300; i++) {
        for (int value : *rows[i]) {
            good &= value == rank + i;
        }
        good &= names[i].back() == std::to_string(rank).back();
    }
    int all;
    MPI_Reduce(&good, &all, 1, MPI_INT, MPI_MIN, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        std::puts(all ? "done" : "wrong");
    }
    MPI_Finalize();
}
"""

THREADS = HEAD + """
#include <pthread.h>
#include <stdatomic.h>
static _Atomic int stop;
static void *body(void *arg)
{
    int *data = arg;
    while (!stop) {
        for (int i = 0; i < 10000; i++) {
            data[i]++;
        }
    }
    return NULL;
}
static void test(void)
{
    pthread_t thread;
    int *data = calloc(10000, sizeof(int));
    pthread_create(&thread, NULL, body, data);
    for (int i = 0; i < 20; i++) {
        MPI_Barrier(MPI_COMM_WORLD);
    }
    stop = 1;
    pthread_join(thread, NULL);
    for (int i = 0; i < 10000; i++) {
        check(data[i] == data[0], "what a thread did");
    }
}
"""

# Each rank has MEGABYTES, all of which is touched in each round; half of it
# goes round among the ranks.
LARGE = HEAD + """
static void test(void)
{
    size_t count = MEGABYTES * 131072ul, half = count / 2;
    unsigned long *data = malloc(count * 8), sum = 0;
    check(data != NULL, "malloc");
    for (size_t i = 0; i < count; i++) {
        data[i] = i * 2654435761u + rank;
    }
#ifndef ROUNDS
#define ROUNDS 3
#endif
    for (int round = 0; round < ROUNDS; round++) {
        MPI_Sendrecv(data, half, MPI_UNSIGNED_LONG, (rank + 1) % size, 1,
                     data + half, half, MPI_UNSIGNED_LONG,
                     (rank + size - 1) % size, 1, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        for (size_t i = 0; i < half; i++) {
            check(data[half + i] == i * 2654435761u + (rank + size - 1) % size,
                  "what was received");
            check(data[i] == i * 2654435761u + rank, "what was sent");
        }
        MPI_Alltoall(data, half / size, MPI_UNSIGNED_LONG, data + half,
                     half / size, MPI_UNSIGNED_LONG, MPI_COMM_WORLD);
        for (size_t i = 0; i < half / size; i++) {
            for (int from = 0; from < size; from++) {
                size_t at = rank * (half / size) + i;
                check(data[half + from * (half / size) + i] ==
                      at * 2654435761u + from, "what all sent");
            }
        }
    }
    MPI_Allreduce(&data[5], &sum, 1, MPI_UNSIGNED_LONG, MPI_SUM,
                  MPI_COMM_WORLD);
    check(sum == size * 5 * 2654435761ul + size * (size - 1) / 2, "a sum");
    free(data);
}
"""

# Every rank has the same table of MEGABYTES, made by the first, and works on a
# part of it; parts of the result are put together in all.
REPLICATED = HEAD + """
static void test(void)
{
    size_t count = MEGABYTES * 131072ul, each = count / size;
    unsigned long *table = malloc(count * 8), *mine = malloc(each * 8);
    unsigned long *all = malloc(each * size * 8);
    for (size_t i = 0; rank == 0 && i < count; i++) {
        table[i] = i * 2654435761u;
    }
    MPI_Bcast(table, count, MPI_UNSIGNED_LONG, 0, MPI_COMM_WORLD);
    for (int round = 1; round < 3; round++) {
        for (size_t i = 0; i < each; i++) {
            size_t at = rank * each + i;
            mine[i] = round * table[at] + table[count - 1 - at];
        }
        MPI_Allgather(mine, each, MPI_UNSIGNED_LONG, all, each,
                      MPI_UNSIGNED_LONG, MPI_COMM_WORLD);
        for (size_t at = 0; at < each * size; at++) {
            check(all[at] == round * (at * 2654435761u) +
                                 (count - 1 - at) * 2654435761u, "a result");
        }
    }
    free(table), free(mine), free(all);
}
"""

# What 20 allreduces read and write, with operands on the stack, and in memory
# that is swapped.
SMALL = """
static long moved(const char *what)
{
    static char line[200];
    long bytes = 0;
    FILE *file = fopen("/proc/self/io", "r");
    while (fgets(line, sizeof line, file) != NULL) {
        if (strncmp(line, what, strlen(what)) == 0) {
            bytes = atol(line + strlen(what));
        }
    }
    fclose(file);
    return bytes;
}
static void series(long *mine, long *sum)
{
    for (int k = 0; k < 3; k++) {
        MPI_Barrier(MPI_COMM_WORLD);
    }
    long in = rank == 0 ? moved("read_bytes:") : 0;
    long out = rank == 0 ? moved("write_bytes:") : 0;
    for (int k = 0; k < 20; k++) {
        *mine = rank + k;
        MPI_Allreduce(mine, sum, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
        check(*sum == (long)size * (size - 1) / 2 + (long)k * size, "a sum");
    }
    if (rank == 0) {
        printf("%ld %ld\\n", moved("read_bytes:") - in,
               moved("write_bytes:") - out);
    }
}
static void test(void)
{
    enum { BYTES = 12 << 20 };
    char *data = malloc(BYTES);
    check(data != NULL, "malloc");
    memset(data, rank + 1, BYTES);
    long mine, sum;
    series(&mine, &sum);
    series((long *)(data + (5 << 20)), (long *)(data + (5 << 20)) + 1);
    for (long i = 0; i < BYTES; i++) {
        check(data[i] == (char)(rank + 1) ||
              (i >= 5 << 20 && i < (5 << 20) + 16), "data");
    }
}
"""

# The disk is filled by others while the ranks run.
FILLED = HEAD + """
#include <fcntl.h>
#include <unistd.h>
static void test(void)
{
    char *data = malloc(6 << 20);
    check(data != NULL, "malloc");
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        static char block[1 << 16];
        int fd = open(FILL, O_CREAT | O_WRONLY, 0600);
        check(fd >= 0, "a file");
        while (write(fd, block, sizeof block) > 0) {
        }
        close(fd);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    for (int round = 0; round < 3; round++) {
        memset(data, rank + round + 1, 6 << 20);
        MPI_Barrier(MPI_COMM_WORLD);
        check(data[rank << 18] == (char)(rank + round + 1), "a byte");
    }
}
"""

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
EXAMPLES = os.path.join(ROOT, "examples")
LIMITED = os.path.join(ROOT, "bench", "limited")
MPIS = [("ompi", "mpirun.openmpi"), ("mpich", "mpirun.mpich")]


class Swap(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.scratch = os.path.join(self.folder, "scratch")
        os.mkdir(self.scratch)

    def compile(self, text, *flags, name="prog.c"):
        source = os.path.join(self.folder, name)
        out = os.path.join(self.folder, "prog")
        with open(source, "w", encoding="utf-8") as file:
            file.write(text)
        kind = "c++" if name.endswith(".cc") else "cc"
        result = run([POISE, kind, "-O1", "-w", "-o", out, source, *flags])
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return out

    def ranks(self, count, program, *options, **more):
        return run([POISE, "run", "-V", str(count), "--scratch", self.scratch,
                    *options, program], cwd=self.folder, **more)

    def recorded(self, trace, count):
        """Each rank's time slices and its contexts' ways to disk and back."""
        shown = run([POISE, "trace", "show", "--json", "--events", trace])
        events = json.loads(shown.stdout)["list"]
        largest = 0
        for rank in range(count):
            mine = [event for event in events if event["sequence"] == rank]
            swaps = [[value["value"] for value in event["values"]]
                     for event in mine if event["type"] == "swap"]
            self.assertTrue(any(event["type"] == "run" for event in mine))
            # At first a context comes in of which nothing is on disk.
            self.assertEqual([swap[3] for swap in swaps],
                             [1 - at % 2 for at in range(len(swaps))])
            self.assertTrue(all(swap[1] >= swap[0] for swap in swaps), swaps)
            self.assertEqual(swaps[0][2], 0)
            largest = max(largest, *(swap[2] for swap in swaps))
        self.assertGreater(largest, 100000)

    def well(self, count, program, *options, trace=None):
        more = {"env": dict(os.environ, POISE_TRACE=trace)} if trace else {}
        result = self.ranks(count, program, *options, **more)
        self.assertEqual((result.returncode, result.stderr, result.stdout),
                         (0, "", "done\n"))

    def test_every_way_to_allocate(self):
        program = self.compile(EVERY_WAY)
        trace = os.path.join(self.folder, "trace")
        self.well(5, program, "--swap", "always", trace=trace)
        self.recorded(trace, 5)
        self.well(6, program, "--swap", "always", "-j", "2")

    def test_cxx(self):
        program = self.compile(CXX, name="prog.cc")
        self.well(5, program, "--swap", "always")
        self.well(4, program, "--swap", "always", "-j", "2")

    def test_threads_of_the_program(self):
        self.well(3, self.compile(THREADS, "-pthread"), "--swap", "always")

    def test_larger_than_memory(self):
        """Of 24 ranks of 6 MiB a few are in memory at a time."""
        program = self.compile(LARGE, "-DMEGABYTES=6")
        self.well(24, program, "--memory", "48M")
        self.well(12, program, "--memory", "80M", "-j", "2")
        folders = self.scratch + "," + self.scratch
        self.well(8, program, "--memory", "48M", "--scratch", folders)

    def test_refused(self):
        program = self.compile(LARGE, "-DMEGABYTES=2")
        for options, words in (
                (["--memory", "2M"], "MiB are in use without contexts"),
                (["--memory", "64M", "--context", "1P"], "MiB are free"),
                (["--scratch", "/no/such/folder"], "/no/such/folder"),
                (["--scratch", ","], "a name is missing"),
                (["--context", "1P", "--memory", "9P"], "MiB are free")):
            result = self.ranks(4, program, *options)
            self.assertEqual((result.returncode, result.stdout), (125, ""))
            self.assertIn(words, result.stderr)
            self.assertEqual(result.stderr.count("\n"), 1)

    def test_limit(self):
        """A rank that wants more than it may have gets no memory."""
        program = self.compile(HEAD + """
static void test(void)
{
    check(malloc(900000) != NULL, "a little");
    check(malloc(2000000) == NULL, "more than is there");
}
""")
        result = self.ranks(2, program, "--context", "1M")
        self.assertEqual((result.returncode, result.stdout), (0, "done\n"))
        self.assertIn("got no memory", result.stderr)

    def test_limit_threads(self):
        """Ranks whose threads keep them in memory are named as the reason."""
        program = self.compile(HEAD + """
#include <pthread.h>
static void *nothing(void *arg) { return arg; }
static void test(void)
{
    pthread_t thread;
    int well, all;
    pthread_create(&thread, NULL, nothing, NULL);
    pthread_join(thread, NULL);
    char *data = malloc(3000000);
    if (data != NULL)
        memset(data, rank, 3000000);
    well = data != NULL;
    MPI_Allreduce(&well, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    check(all > 0 && all < size, "some of them have memory");
}
""", "-pthread")
        result = self.ranks(32, program, "--memory", "24M")
        self.assertEqual((result.returncode, result.stdout), (0, "done\n"),
                         result.stderr)
        self.assertIn("that started threads", result.stderr)

    def in_group(self, count, program):
        """In a memory control group of 40 MiB."""
        if run([LIMITED, "40M", "true"]).returncode != 0:
            self.skipTest("no memory control group can be made")
        result = run([LIMITED, "40M", POISE, "run", "-V", str(count),
                      "--scratch", self.scratch, program], cwd=self.folder)
        self.assertEqual((result.returncode, result.stdout), (0, "done\n"),
                         result.stderr)

    def test_group(self):
        """Eight times the memory of a control group, which is found."""
        self.in_group(40, self.compile(LARGE, "-DMEGABYTES=8", "-DROUNDS=1"))

    def test_group_replicated(self):
        self.in_group(40, self.compile(REPLICATED, "-DMEGABYTES=4"))

    def test_group_reduces(self):
        """What a large reduction needs beside the operands, contexts give."""
        self.in_group(32, self.compile(HEAD + """
enum { COUNT = 3 << 17 };
static void test(void)
{
    double *mine = malloc(COUNT * sizeof *mine);
    check(mine != NULL, "malloc");
    for (int i = 0; i < COUNT; i++) {
        mine[i] = rank + i;
    }
    MPI_Reduce(rank == 0 ? MPI_IN_PLACE : mine, mine, COUNT, MPI_DOUBLE,
               MPI_SUM, 0, MPI_COMM_WORLD);
    for (int i = 0; i < COUNT; i++) {
        check(mine[i] == (rank > 0 ? rank + i : size * (size - 1) / 2 +
                          (double)i * size), "a sum");
    }
}
"""))

    def test_small_collectives(self):
        """Contexts of eight times the memory: an allreduce whose operands are
        on the stack reads and writes nothing, as the kernel counts it; one of
        an operand in each context, no context; and data stay what they are."""
        program = self.compile(HEAD + SMALL)
        result = self.ranks(32, program, "--memory", "48M")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        found = re.match(r"(\d+) (\d+)\n(\d+) (\d+)\ndone\n$",
                         result.stdout)
        self.assertTrue(found, result.stdout)
        stack, written, heap, _ = (int(number) for number in found.groups())
        # A page or two of the program itself may come late.
        self.assertLess(stack, 1 << 20)
        self.assertLess(written, 1 << 20)
        # 32 operands of 20 allreduces, each a page here, and an extent there.
        self.assertLess(heap, 20 * 32 * (2 << 20) / 4)

    def test_whole(self):
        """The paper's way: each context comes when its rank goes on."""
        program = self.compile(HEAD + SMALL)
        result = self.ranks(12, program, "--memory", "48M", "--swap", "whole")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertGreater(int(result.stdout.split()[0]), 20 * 12 * (4 << 20))

    def test_root_gathers(self):
        """One rank has more than the memory."""
        text = HEAD + """
static void test(void)
{
    int count = 1 << 18;
    int *mine = malloc(count * sizeof(int)), *all = NULL;
    for (int i = 0; i < count; i++) {
        mine[i] = rank * 1000003 + i;
    }
    if (rank == 0) {
        all = malloc((size_t)size * count * sizeof(int) + EXTRA);
        check(all != NULL, "malloc");
    }
    for (int round = 0; round < 2; round++) {
        MPI_Gather(mine, count, MPI_INT, all, count, MPI_INT, 0,
                   MPI_COMM_WORLD);
        for (int i = 0; rank == 0 && i < size * count; i++) {
            check(all[i] == i / count * 1000003 + i % count, "a number");
        }
    }
}
"""
        program = self.compile(text, "-DEXTRA=0")
        self.well(32, program, "--memory", "32M")
        program = self.compile(text, "-DEXTRA=150000000")
        # A disk that has not so much is no reason to die by a signal.
        mount = ["unshare", "-m", "sh", "-c",
                 'mount -t tmpfs -o size=150m none "$0" && exec "$@"',
                 self.scratch]
        if run(mount + ["true"]).returncode == 0:
            result = run(mount + [POISE, "run", "-V", "32", "--scratch",
                                  self.scratch, "--memory", "32M", program],
                         cwd=self.folder)
            self.assertEqual(result.returncode, 3, result.stderr)
            self.assertIn("got no memory", result.stderr)

    def test_sort_example(self):
        """Seven times the memory; also of keys that are equal."""
        source = os.path.join(EXAMPLES, "sort.c")
        with open(source, encoding="utf-8") as file:
            program = self.compile(file.read())
        for kind in "random", "equal", "skewed":
            with self.subTest(kind=kind):
                result = run([POISE, "run", "-V", "24", "--scratch",
                              self.scratch, "--memory", "40M", program,
                              "500000", kind], cwd=self.folder)
                self.assertEqual((result.returncode, result.stderr), (0, ""))
                found = re.match(r"12000000 keys of 24 ranks are sorted; the "
                                 r"largest part is ([0-9.]+) of the mean\n$",
                                 result.stdout)
                self.assertTrue(found, result.stdout)
                self.assertLessEqual(float(found[1]), 2.1)

    def test_processes(self):
        """Each process has so much; ranks and data are the same."""
        program = self.compile(LARGE, "-DMEGABYTES=4", "-DROUNDS=2")
        for flavour, launcher in MPIS:
            if shutil.which(launcher) is None:
                continue
            env = dict(os.environ, POISE_MPI=flavour,
                       OMPI_ALLOW_RUN_AS_ROOT="1",
                       OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                       OMPI_MCA_rmaps_base_oversubscribe="1")
            for processes, ranks in ((2, 24), (4, 16)):
                result = self.ranks(ranks, program, "-n", str(processes),
                                    "--memory", "40M", env=env)
                self.assertEqual((result.returncode, result.stdout),
                                 (0, "done\n"), result.stderr)
                self.assertEqual(os.listdir(self.scratch), [])

    def test_disk_that_is_full(self):
        """A small one, filled by another while the ranks run."""
        fill = os.path.join(self.scratch, "fill")
        program = self.compile(FILLED, f'-DFILL="{fill}"')
        mount = ["unshare", "-m", "sh", "-c",
                 'mount -t tmpfs -o size=160m none "$0" && exec "$@"',
                 self.scratch]
        if run(mount + ["true"]).returncode != 0:
            self.skipTest("no file system can be mounted")
        listing = ["sh", "-c", '"$@"; code=$?; ls -A "$0" >&2; exit $code',
                   self.scratch]
        result = run(mount + listing + [
            POISE, "run", "-V", "12", "--scratch", self.scratch, "--memory",
            "48M", program], cwd=self.folder)
        self.assertEqual((result.returncode, result.stdout), (125, ""),
                         result.stderr)
        words, left = result.stderr.strip().rsplit("\n", 1)
        self.assertIn("No space left on device", words)
        self.assertIn(self.scratch, words)
        self.assertNotIn("\n", words)
        self.assertEqual(left, "fill")

    def test_transfers_that_fail(self):
        """Whichever it is: all is well, or the error names the folder."""
        program = self.compile(LARGE, "-DMEGABYTES=1", "-DROUNDS=1")
        named = {"read": 0, "write": 0}
        for kind, what in (("read", "EIO"), ("write", "EIO"),
                           ("write", "ENOSPC"), ("write", "KILL")):
            for k in (1, 4, 16, 64):
                env = dict(os.environ, POISE_FAULT=f"{kind}:{k}:{what}")
                result = self.ranks(6, program, "--swap", "always", env=env)
                said = result.stderr
                self.assertEqual(os.listdir(self.scratch), [])
                if result.returncode == 0:
                    self.assertEqual(result.stdout, "done\n")
                elif what != "KILL":
                    self.assertIn("poise run: cannot ", said)
                    self.assertEqual(result.stdout, "")
                    named[kind] += self.scratch in said
                else:
                    self.assertEqual(result.returncode, -9)
        self.assertGreater(named["read"], 0)
        self.assertGreater(named["write"], 0)

    def test_ways_of_io(self):
        """Data are kept; and the process has the threads of each way, and no
        file past the page cache if that was asked for."""
        program = self.compile(HEAD + """
#include <dirent.h>
#include <fcntl.h>
static int entries(const char *path, int is_direct)
{
    DIR *dir = opendir(path);
    struct dirent *entry;
    int count = 0;
    while ((entry = readdir(dir)) != NULL) {
        int fd = atoi(entry->d_name), flags = fcntl(fd, F_GETFL);
        count += entry->d_name[0] != '.' &&
                 (!is_direct || (flags != -1 && (flags & O_DIRECT)));
    }
    closedir(dir);
    return count;
}
static void test(void)
{
    char *data = malloc(1 << 20);
    memset(data, rank + 1, 1 << 20);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < 1 << 20; i++) {
        check(data[i] == rank + 1, "data");
    }
    if (rank == 0) {
        printf("%d %d\\n", entries("/proc/self/task", 0),
               entries("/proc/self/fd", 1));
    }
}
""", "-D_GNU_SOURCE")
        threads = {}
        for way in ("threads", "sync"):
            for more in ([], ["--buffered"]):
                result = self.ranks(4, program, "--swap", "always", "--io",
                                    way, *more)
                self.assertEqual(result.returncode, 0, result.stderr)
                words = result.stdout.split()
                self.assertEqual(words[2:], ["done"])
                threads[way] = int(words[0])
                if more:
                    self.assertEqual(int(words[1]), 0)
        self.assertGreater(threads["threads"], threads["sync"])
        result = self.ranks(4, program, "--swap", "always", "--io", "io_uring")
        if result.returncode != 0:
            self.assertIn("io_uring", result.stderr)

    def test_nothing_is_left(self):
        program = self.compile(HEAD + """
static void test(void)
{
    char *data = malloc(1 << 20);
    memset(data, 1, 1 << 20);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        fclose(fopen("ready", "w"));
    }
    for (;;) {
        MPI_Barrier(MPI_COMM_WORLD);
    }
}
""")
        with subprocess.Popen([POISE, "run", "-V", "4", "--scratch",
                               self.scratch, "--swap", "always", program],
                              cwd=self.folder) as child:
            ready = os.path.join(self.folder, "ready")
            while child.poll() is None and not os.path.exists(ready):
                time.sleep(0.01)
            self.assertEqual(os.listdir(self.scratch), [])
            child.kill()
        self.assertTrue(os.path.exists(ready))
        self.assertEqual(os.listdir(self.scratch), [])


if __name__ == "__main__":
    POISE = os.path.abspath(sys.argv.pop(1))
    unittest.main()
