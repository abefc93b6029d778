#!/usr/bin/env python3
"""Jobs of several processes that are stopped for a while at random moments.

usage: tests/vrank/vrank_stops.py POISE [ROUNDS [SEED]]

What they answer and what they end with is the same as if nobody had stopped
them: messages of all sizes with an answer that is known, a rank that exits
while others wait for it, a deadlock.
"""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
import unittest

from vrank_case import Case, SLOWNESS, run

ROUNDS, SEED = 10, 20261122

PROGRAM = r"""
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static unsigned char out[200000], in[200000];
int main(int argc, char **argv)
{
    int rank, size, turns = atoi(argv[2]);
    unsigned long sum = 0, all = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int turn = 0; turn < turns; turn++) {
        static const int lengths[] = {8, 200, 5000, 200000};
        int bytes = lengths[turn % 4], to = (rank + 1 + turn) % size,
            from = (rank + 2 * size - 1 - turn % size) % size;
        memset(out, rank * 7 + turn, (size_t)bytes);
        MPI_Request requests[2];
        MPI_Irecv(in, bytes, MPI_BYTE, from, turn, MPI_COMM_WORLD, &requests[0]);
        if (turn % 3 == 0)
            MPI_Issend(out, bytes, MPI_BYTE, to, turn, MPI_COMM_WORLD,
                       &requests[1]);
        else
            MPI_Isend(out, bytes, MPI_BYTE, to, turn, MPI_COMM_WORLD,
                      &requests[1]);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        for (int i = 0; i < bytes; i++) sum = sum * 31 + in[i];
        MPI_Allreduce(&sum, &all, 1, MPI_UNSIGNED_LONG, MPI_SUM, MPI_COMM_WORLD);
        sum += all;
        if (!strcmp(argv[1], "exit") && rank == 1 && turn == turns / 2) exit(42);
        if (!strcmp(argv[1], "dead") && turn == turns / 2)
            MPI_Recv(in, 1, MPI_BYTE, (rank + 1) % size, 9999, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
    }
    if (rank == 0) printf("%lx\n", all);
    MPI_Finalize();
    return 0;
}"""


def marked(mark):
    """The processes of the job: not its launcher's, which do not stop it."""
    found = []
    for name in os.listdir("/proc"):
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                environ = file.read()
            if mark.encode() in environ and (b"PMI_RANK=" in environ or
                                             b"OMPI_COMM_WORLD_RANK=" in
                                             environ):
                found.append(int(name))
        except (OSError, ValueError):
            pass
    return found


class Stops(Case):
    def launchers(self):
        for mpi, name in ("ompi", "mpirun.openmpi"), ("mpich", "mpirun.mpich"):
            if shutil.which(name):
                yield mpi

    def stopped(self, mpi, mark, rng, *words):
        """A run during which processes are stopped; how often they were."""
        env = dict(os.environ, POISE_MPI=mpi, OMPI_ALLOW_RUN_AS_ROOT="1",
                   OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", POISE_TEST_MARK=mark)
        stops = 0
        with subprocess.Popen(
                [self.POISE, "run", "-n", "2", "-V", "4", "./prog", *words],
                cwd=self.folder, env=env, stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, text=True) as job:
            patience = time.monotonic() + 120 * SLOWNESS
            while job.poll() is None and time.monotonic() < patience:
                numbers = marked("POISE_TEST_MARK=" + mark)
                chosen = [n for n in numbers if rng.random() < 0.5]
                for number in chosen:
                    self.send(number, signal.SIGSTOP)
                stops += len(chosen)
                time.sleep(rng.choice([0.01, 0.05, 0.2, 0.7]))
                for number in chosen:
                    self.send(number, signal.SIGCONT)
                time.sleep(rng.choice([0.0, 0.01, 0.05, 0.1]))
            if job.poll() is None:
                job.kill()
            out, err = job.communicate()
        return job.returncode, out, err, stops

    @staticmethod
    def send(number, what):
        try:
            os.kill(number, what)
        except ProcessLookupError:
            pass

    def test_stops(self):
        self.compile(PROGRAM, "-Wno-unused-result")
        want = run([self.POISE, "run", "-V", "4", "./prog", "good", "200"],
                   cwd=self.folder)
        self.assertRegex(want.stdout, "^[0-9a-f]+\n$")
        rng = random.Random(SEED)
        stops = 0
        for turn in range(ROUNDS):
            for mpi in self.launchers():
                for how, code, said in (
                        ("good", 0, ""),
                        ("exit", 42, "virtual rank 1 exited with 42"),
                        ("dead", 125, "cycle: 0 -> 1 -> 2 -> 3 -> 0")):
                    got, out, err, count = self.stopped(
                        mpi, f"{os.getpid()}.{turn}.{mpi}.{how}.", rng, how,
                        "200")
                    stops += count
                    where = f"round {turn}, {mpi}, {how}, seed {SEED}: {err}"
                    self.assertEqual(got, code, where)
                    self.assertIn(said, err, where)
                    self.assertLessEqual(err.count("deadlock"), 1, where)
                    if how == "good":
                        self.assertEqual(out, want.stdout, where)
        print(f"{stops} stops in {ROUNDS} rounds")
        self.assertGreater(stops, ROUNDS)


if __name__ == "__main__":
    Case.POISE = os.path.abspath(sys.argv.pop(1))
    if len(sys.argv) > 1:
        ROUNDS = int(sys.argv.pop(1))
    if len(sys.argv) > 1:
        SEED = int(sys.argv.pop(1))
    unittest.main()
