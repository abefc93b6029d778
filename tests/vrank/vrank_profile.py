#!/usr/bin/env python3
"""Profiles of programs under poise run, and what poise advise makes of them.

usage: tests/vrank/vrank_profile.py POISE EXAMPLES
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

# By how much a machine is slower than an idle one: tools/test_all.py.
SLOWNESS = float(os.environ.get("POISE_TEST_SLOWNESS", "4"))

POISE = EXAMPLES = ""
TIMES = ["computing_ns", "mpi_ns", "ready_ns", "network_ns",
         "synchronisation_ns", "sleeping_ns", "disk_ns"]


# mpirun refuses the root of a container, unless told so.
ENVIRONMENT = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1",
                   OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")


def run(words, folder, **more):
    return subprocess.run(words, capture_output=True, text=True, timeout=60 * SLOWNESS,
                          cwd=folder, env=ENVIRONMENT, **more)


class Profiles(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp()
        made = run([POISE, "cc", "-O2", "-o", "sor",
                    os.path.join(EXAMPLES, "sor.c"), "-lm"], cls.folder)
        assert made.returncode == 0, made.stderr

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    def profile(self, *options):
        path = os.path.join(self.folder, "profile.json")
        result = run([POISE, "run", "--profile-json", path, *options, "./sor",
                      "60", "10"], self.folder)
        self.assertEqual(result.returncode, 0, result.stderr)
        with open(path, encoding="utf-8") as file:
            return json.load(file), result

    def check(self, profile, count):
        self.assertEqual(profile["count"], count)
        self.assertEqual([r["rank"] for r in profile["ranks"]],
                         list(range(count)))
        calls = {call["name"]: call for call in profile["calls"]}
        # Two half-steps, each with two messages out and two in.
        self.assertEqual(calls["MPI_Waitall"]["calls"], count * 10 * 2)
        self.assertEqual(calls["MPI_Isend"]["calls"], count * 10 * 4)
        # And one at the end.
        self.assertEqual(calls["MPI_Allreduce"]["calls"], count * 11)
        self.assertTrue(calls["MPI_Allreduce"]["collective"])
        self.assertFalse(calls["MPI_Waitall"]["collective"])
        for part in "ranks", "phases":
            times = sum(item[time] for item in profile[part]
                        for time in TIMES)
            self.assertAlmostEqual(
                times / sum(rank[time] for rank in profile["ranks"]
                            for time in TIMES), 1, 3)
        loop = [phase for phase in profile["phases"]
                if phase["from"] == phase["to"]]
        self.assertEqual([phase["count"] for phase in loop], [9 * count])
        self.assertIn("MPI_Allreduce in main+", loop[0]["from"])
        # Neighbours, twice in an iteration, both ways.
        self.assertEqual({(e["from"], e["to"]): e["messages"]
                          for e in profile["edges"]},
                         {(a, b): 20 for a in range(count)
                          for b in (a - 1, a + 1) if 0 <= b < count})

    def test_alone(self):
        profile, result = self.profile("-V", "8")
        self.check(profile, 8)
        self.assertNotIn("Thread-level", result.stderr)
        self.assertEqual(sum(rank["network_ns"]
                             for rank in profile["ranks"]), 0)

    def test_threads(self):
        profile, _ = self.profile("-V", "8", "-j", "2")
        self.check(profile, 8)
        self.assertEqual(len(profile["workers"]), 2)

    def test_processes(self):
        if not shutil.which("mpirun"):
            self.skipTest("no mpirun")
        profile, _ = self.profile("-n", "2", "-V", "6", "--delay", "1ms")
        self.check(profile, 6)
        self.assertEqual([rank["process"] for rank in profile["ranks"]],
                         [0, 0, 0, 1, 1, 1])
        self.assertGreater(profile["ranks"][2]["network_ns"], 0)
        # By the graph, and with a process that holds one rank only.
        os.rename(os.path.join(self.folder, "profile.json"),
                  os.path.join(self.folder, "graph.json"))
        profile, _ = self.profile("-n", "2", "-V", "6", "--speeds", "5,1",
                                  "--placement", "graph:graph.json")
        self.check(profile, 6)
        held = [rank["process"] for rank in profile["ranks"]]
        self.assertEqual(sorted(held), [0, 0, 0, 0, 0, 1])
        self.assertIn(held.index(1), (0, 5))

    def test_stolen(self):
        """What others take of a processor is told apart from the network: this
        job and a loop have one between them."""
        processor = min(os.sched_getaffinity(0))
        with subprocess.Popen(
                [sys.executable, "-c", "while True: pass"],
                preexec_fn=lambda: os.sched_setaffinity(0, {processor})) as loop:
            try:
                path = os.path.join(self.folder, "profile.json")
                result = run(["taskset", "-c", str(processor), POISE, "run",
                              "--profile-json", path, "--profile", "-V", "2",
                              "./sor", "400", "150"], self.folder)
            finally:
                loop.kill()
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("run queue", result.stderr)
        with open(path, encoding="utf-8") as file:
            worker = json.load(file)["workers"][0]
        self.assertGreater(worker["run_queue_ns"], worker["wall_ns"] / 20)
        self.assertLessEqual(worker["idle_network_ns"] +
                             worker["idle_sync_ns"] + worker["idle_sleep_ns"] +
                             worker["idle_queued_ns"], worker["idle_ns"])

    def test_text(self):
        page = os.path.join(self.folder, "page.html")
        self.profile("-V", "2")
        result = run([POISE, "run", "-V", "4", "--profile", "--report", page,
                      "--against", "profile.json", "./sor", "60", "10"],
                     self.folder)
        self.assertEqual(result.returncode, 0)
        with open(page, encoding="utf-8") as file:
            html = file.read()
        for title in ("Where the time of the ranks went",
                      "Thread-level parallelism", "Threads", "Cache and TLB",
                      "Against one rank for each processor",
                      "Functions of MPI", "Phases between collectives",
                      "Messages"):
            self.assertIn(title, result.stderr)
            self.assertIn(title, html)

    def test_course(self):
        """The page shows who did what when, and who sent to whom."""
        page = os.path.join(self.folder, "page.html")
        profile, _ = self.profile("-V", "4", "--report", page)
        with open(page, encoding="utf-8") as file:
            html = file.read()
        course = html[html.index("Ranks over time"):
                      html.index("Who sends to whom")]
        for rank in range(4):
            self.assertRegex(course, f"<title>rank {rank}, [a-zA-Z. ]+: ")
        matrix = html[html.index("Bytes sent"):
                      html.index("Where the time of the ranks went")]
        # A neighbour's cell, and that of one that is none.
        sent = {(e["from"], e["to"]): e["bytes"] for e in profile["edges"]}
        self.assertEqual(len(re.findall("<title>0 \u2192 1: ", matrix)), 1)
        self.assertEqual(matrix.count(" \u2192 "), len(sent))
        kib = sent[0, 1] / 1024
        self.assertIn(f"<title>0 \u2192 1: {kib:.1f} KiB<", matrix)

    def test_disk(self):
        """A rank whose thread waits for the disk is not busy."""
        profile, _ = self.profile("-V", "6", "--swap", "always",
                                  "--scratch", self.folder)
        self.check(profile, 6)
        disk = sum(rank["disk_ns"] for rank in profile["ranks"])
        moving = sum(rank["moving_ns"] for rank in profile["ranks"])
        self.assertGreater(disk, 0)
        # The time of the contexts that others have sent away is in both.
        self.assertLessEqual(disk, moving * 1.01)
        worker = profile["workers"][0]
        self.assertAlmostEqual(worker["disk_ns"] / disk, 1, 3)
        self.assertLessEqual(worker["busy_ns"] + worker["disk_ns"]
                             + worker["idle_ns"], worker["wall_ns"] * 1.01)
        profile, _ = self.profile("-V", "6")
        self.assertEqual(sum(rank["disk_ns"] for rank in profile["ranks"]), 0)

    def test_bad_files(self):
        for words in (["--against", "none.json"],
                      ["-V", "3", "--placement", "graph:none.json"],
                      ["--profile-json", "/none/profile.json"]):
            result = run([POISE, "run", *words, "./sor", "20", "2"],
                         self.folder)
            self.assertEqual(result.returncode, 125)
            self.assertIn("No such file", result.stderr)

    def advised(self, seconds, *words):
        """What is advised after so long, or four times, where that was over
        before anything had run."""
        while True:
            result = run([POISE, "advise", "--time", f"{seconds}s", *words],
                         self.folder)
            if result.returncode != 1 or seconds > 10 * SLOWNESS:
                break
            seconds *= 4
        self.assertEqual(result.returncode, 0, (result.stdout, result.stderr))
        return result

    def test_advise(self):
        result = self.advised(4, "./sor", "60", "10")
        self.assertIn("advised: poise run -V ", result.stdout)
        rows = result.stdout.splitlines()[1:]
        self.assertEqual([row.split()[0] for row in rows[:2]], ["1", "2"])

    def test_advise_of_nothing_to_choose(self):
        """Ways that take the same time: the simplest, whichever was first."""
        with open(os.path.join(self.folder, "sleeper.c"), "w",
                  encoding="ascii") as file:
            file.write("""
                #include <mpi.h>
                #include <stdlib.h>
                #include <unistd.h>
                int main(int argc, char **argv)
                {
                    int rank;
                    MPI_Init(&argc, &argv);
                    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
                    if (rank == 0) usleep((useconds_t)atoi(argv[1]) * 1000);
                    MPI_Finalize();
                    return 0;
                }""")
        run([POISE, "cc", "-o", "sleeper", "sleeper.c"], self.folder)
        result = self.advised(int(3 * SLOWNESS), "./sleeper",
                              str(int(25 * SLOWNESS)))
        self.assertIn("advised: poise run -V 1 ./sleeper", result.stdout)
        self.assertIn("more ranks than processors do not pay", result.stdout)
        self.assertNotIn("nan", result.stdout)

    def test_advise_of_latency(self):
        """Two processes that wait for each other's messages."""
        launcher = shutil.which("mpirun.openmpi")
        if not launcher:
            self.skipTest("there is no Open MPI")
        result = self.advised(int(2 * SLOWNESS), "-n", "2", "--delay", "5ms",
                              "./sor", "20", "20")
        self.assertRegex(result.stdout, r"latency \d+ %")

    def test_advise_leaves_nothing(self):
        folder = tempfile.mkdtemp(dir=self.folder)
        environment = dict(ENVIRONMENT, TMPDIR=folder)
        words = [POISE, "advise", "--progress", "--time", "1m", "./sor", "60",
                 "100000"]
        with subprocess.Popen(words, cwd=self.folder, env=environment,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True) as job:
            said = ""
            while not re.search(r"run 1, \d.* runs/s, at most \d.* left", said):
                more = job.stderr.read(1)
                self.assertTrue(more, said)
                said += more
            self.assertTrue(os.listdir(folder))
            job.send_signal(signal.SIGINT)
            out, _ = job.communicate(timeout=60 * SLOWNESS)
        self.assertEqual(job.returncode, 128 + signal.SIGINT)
        self.assertEqual(out, "")
        self.assertEqual(os.listdir(folder), [])

    def test_advise_of_failure(self):
        result = run([POISE, "advise", "./nothing"], self.folder)
        self.assertEqual(result.returncode, 1)
        self.assertIn("No such file", result.stderr)


if __name__ == "__main__":
    POISE, EXAMPLES = map(os.path.abspath, sys.argv[1:3])
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
