"""The soak of jobs on several hosts: rounds of 1 to 64 nodes on three hosts made
of namespaces, started by ssh or by mpirun, in which nodes, the map or all that
is on a host are killed while it runs. Each has to give the same bits as one
thread does, within its memory.
"""

import json
import os
import random
import re
import subprocess
import threading
import time

from hosts_common import (LIMIT_S, LOG_START, SLOWNESS, Bed, has_ended, kill,
                          logged, marked, nodes_of, parent_of, wait_for)

# Bytes of blocks that a node may have. Without a limit it has up to 94 and 48 KiB
# where some died; most of it are copies, which are there in any case.
MEMORY, FEW_NODES, MEMORY_OF_MANY = 128 << 10, 15, 64 << 10
SWEEPS = 40
BLOCKS = 64  # of a sweep
# What Open MPI says when its own daemons did not come together.
LAUNCH_FAILED = "ORTE does not know how to route a message"
RANKS = 24  # of most MPI jobs: each is a process beside its node
RANKS_MOST = 64  # of one in eight
# Where mpirun ends a job there may be one node left that does all of it.
LEFT_MOST = 8
RUN_S = 3.0  # the job takes that long, or longer ...
KILL_S = 2.0  # ... and is hit within so long
TRIES = 4  # a job that was over first is run again, twice as long
WHAT = {"ssh": ("nobody", "node", "two", "map", "host", "map and node"),
        "mpirun": ("nobody", "node", "two", "map", "host")}


class Awake(threading.Thread):
    """Seconds in which this process ran, or could have: those in which it was
    stopped with all others, as by a debugger, do not count."""

    STEP_S = 0.2

    def __init__(self):
        super().__init__(daemon=True)
        self.seconds, self.ends = 0.0, threading.Event()

    def run(self):
        before = time.monotonic()
        while not self.ends.wait(self.STEP_S):
            now = time.monotonic()
            self.seconds += min(now - before, 5 * self.STEP_S)
            before = now


class Round:
    """One job: how it is started, what of it is to die, and what came of it."""

    def __init__(self, t, bed, rng, by):
        self.t, self.bed, self.rng, self.by = t, bed, rng, by
        self.what = rng.choice(WHAT[by])
        most = RANKS_MOST if by == "ssh" or rng.random() < 1 / 8 else RANKS
        least = {"node": 2, "two": 3, "host": 4}.get(self.what, 1)
        if by == "mpirun" and self.what == "map":
            most = LEFT_MOST
        self.nodes = rng.randint(least, most)
        self.memory = MEMORY if self.nodes <= FEW_NODES else MEMORY_OF_MANY
        self.name = f"{by}{rng.getrandbits(32):08x}"
        self.log = self.path("log")
        self.run_s, self.tries, self.killed = RUN_S, 0, 0

    def words(self):
        """The command. It computes for so long, however many nodes there are."""
        block_us = max(200, round(self.run_s * 1e6 * self.nodes /
                                  (BLOCKS * SWEEPS)))
        solve = self.t.words("--json", "--memory", str(self.memory), "--block-time",
                             f"{block_us}us", "--log", self.log, sweeps=SWEEPS,
                             out=f"out.{self.name}")
        if self.by == "mpirun":
            return [self.t.poise, "wan", "--name", self.bed.bed.name,
                    "--max-lateness", "1000000", "--mpi", "ompi", "-n",
                    str(self.nodes), "run", *solve]
        share = [self.nodes // 3 + (h < self.nodes % 3) for h in range(3)]
        lines = [f"{host}:{slots}" for host, slots in
                 zip(("a0", "b0", "c0"), share) if slots]
        hosts = self.t.write(f"hosts.{self.name}", "\n".join(lines) + "\n")
        return [*self.bed.on("a0"), *solve[:2], "--hosts", hosts, "--rsh",
                self.bed.rsh, *solve[2:]]

    def start(self):
        """Its words go to files: of a map that dies, remote shells would hold a
        pipe for as long as its agents wait for another map, a minute."""
        with open(self.path("said"), "w", encoding="utf-8") as said, \
                open(self.path("json"), "w", encoding="utf-8") as out:
            return subprocess.Popen(self.words(), stdout=out, stderr=said,
                                    stdin=subprocess.DEVNULL)

    def path(self, kind):
        return os.path.join(self.t.folder, f"{kind}.{self.name}")

    def read(self, kind):
        with open(self.path(kind), encoding="utf-8") as file:
            return file.read()

    def processes(self):
        """The map's processes, and the lists of nodes of each host."""
        if self.by == "mpirun":
            return self.ranks()
        every = set(marked(self.log))
        roots = {p for p in every if not {parent_of(p)} & every}
        leaves = [p for p in every if parent_of(p) in roots]
        # An agent has its host's nodes; the map has no children.
        agents = sorted({parent_of(p) for p in leaves})
        return ([p for p in roots if p not in agents],
                [[p for p in leaves if parent_of(p) == agent] + [agent]
                 for agent in agents])

    def ranks(self):
        """The same of an MPI job: each rank has a node. What dies of a host is
        its nodes: Open MPI ends a job that loses one of its own processes."""
        every, first, hosts = set(marked(self.log)), [], {}
        for pid in every:
            try:
                with open(f"/proc/{pid}/environ", "rb") as file:
                    rank = re.search(rb"OMPI_COMM_WORLD_RANK=(\d+)",
                                     file.read())
                where = os.readlink(f"/proc/{pid}/ns/net")
            except OSError:
                continue
            if parent_of(pid) in every:
                hosts.setdefault(where, []).append(pid)
            elif rank and int(rank[1]) == 0:
                first.append(pid)
        return first, list(hosts.values())

    def victims(self):
        """Whom it hits."""
        maps, hosts = self.processes()
        ends = 1 if self.by == "ssh" else 0  # the agent is behind its nodes
        leaves = [p for host in hosts for p in host[:len(host) - ends]]
        dead = []
        if self.what in ("node", "map and node"):
            dead += self.rng.sample(leaves, min(1, len(leaves)))
        if self.what == "two":
            dead += self.rng.sample(leaves, min(2, len(leaves)))
        if self.what == "host" and len(hosts) > 1:
            dead += self.rng.choice(hosts)
        if self.what.startswith("map"):
            dead += maps
        return dead

    def began(self, job):
        """Wait until all nodes are there, and compute."""
        count = self.nodes * (2 if self.by == "mpirun" else 1)
        wait_for(lambda: job.poll() is not None or
                 logged(self.log, LOG_START) > -2 and
                 len(marked(self.log)) >= count, LIMIT_S * 4)

    def hit(self, job):
        """Kill what is to die; whether the job was not over before."""
        self.began(job)
        time.sleep(self.rng.uniform(0, KILL_S))
        dead = [] if self.what == "nobody" else self.victims()
        alive = [p for p in dead if not has_ended(p)]
        in_time = job.poll() is None and bool(alive)
        kill(dead)
        self.killed = len(dead)
        return in_time or self.what == "nobody"

    def run(self):
        """The job, and once more if its map died: its status, and whether it was
        hit in time."""
        self.tries += 1
        job = self.start()
        in_time = self.hit(job)
        if self.what.startswith("map") and self.killed:
            # mpirun ends the other ranks; nodes wait for another map.
            if job.wait(LIMIT_S * 4) == 0:
                return 0, False
            job = self.start()
        return job.wait(LIMIT_S * 4), in_time

    def clean(self):
        for path in (self.log, self.log + ".map", *map(self.path, (
                "hosts", "out", "said", "json"))):
            if os.path.exists(path):
                os.unlink(path)

    def result(self):
        """Run it until it was hit in time; all that is known of it."""
        awake = Awake()
        awake.start()
        while True:
            code, in_time = self.run()
            out, said = self.read("json"), self.read("said")
            if code != 0 and LAUNCH_FAILED in said:
                self.t.launches += 1  # nothing of the job has run
                self.clean()
                continue
            found = json.loads(out) if code == 0 and out else {}
            # A node may have been killed after the last of its reports.
            over = self.what in ("node", "two", "host") and \
                found.get("deaths", 1) == 0
            same = code == 0 and self.t.is_same(SWEEPS, f"out.{self.name}")
            self.clean()
            if not same or (in_time and not over) or self.tries == TRIES:
                break
            self.run_s *= 2
        awake.ends.set()
        return {"by": self.by, "nodes": self.nodes, "dead": self.what,
                "killed": self.killed, "in_time": in_time and not over,
                "tries": self.tries, "same": same, "code": code,
                "peak_bytes": max((n["peak_bytes"] for n in
                                   found.get("nodes", [])), default=0),
                "limit_bytes": self.memory, "deaths": found.get("deaths"),
                "lines": found.get("lines"),
                "job_s": round(found.get("seconds", 0), 2),
                "round_s": round(awake.seconds, 1),
                "said": "" if same else said}


def told(rounds):
    """What a number of rounds were, in words."""
    dead = {}
    for r in rounds:
        key = (r["by"], r["dead"] if r["in_time"] else "nobody in time")
        dead[key] = dead.get(key, 0) + 1
    return (f"{sum(r['same'] for r in rounds)} of {len(rounds)} the same, of "
            f"{min(r['nodes'] for r in rounds)} to "
            f"{max(r['nodes'] for r in rounds)} nodes; at most "
            f"{max(r['peak_bytes'] / r['limit_bytes'] for r in rounds):.0%} of "
            "the memory that is allowed; dead: " + ", ".join(
                f"{by} {what} {n}" for (by, what), n in sorted(dead.items())))


def soak(t, count, seed, by, record):
    """So many rounds by ssh or mpirun (None: by turns), each a line of JSON in
    `record`, which may be None. Ends with the first that is not the same."""
    bed = Bed(t)
    rounds = []
    try:
        for number in range(count):
            rng = random.Random(f"{seed}.{number}")
            one = Round(t, bed, rng, by or ("ssh", "mpirun")[number % 2])
            found = {"seed": seed, "round": number, **one.result()}
            rounds.append(found)
            if record:
                with open(record, "a", encoding="utf-8") as file:
                    file.write(json.dumps(found) + "\n")
            if not t.check(f"round {number} of seed {seed}", found["same"],
                           found):
                break
            t.check(f"memory in round {number} of seed {seed}",
                    found["peak_bytes"] <= found["limit_bytes"], found)
            if number % 20 == 19:
                print(told(rounds), flush=True)
    finally:
        bed.down()
    print(told(rounds) + f"; {t.launches} launches of mpirun failed by "
          f"themselves; slowness {SLOWNESS:g}")
