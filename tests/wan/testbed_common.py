"""What tests of testbeds share: programs that run on hosts, a testbed and what
is asked of it.
"""

import json
import os
import struct
import subprocess
import time

# By how much a machine is slower than an idle one: tools/test_all.py.
SLOWNESS = float(os.environ.get("POISE_TEST_SLOWNESS", "4"))

PING = """
import socket, sys, time
six = sys.argv[-1].endswith("6")
s = socket.socket(socket.AF_INET6 if six else socket.AF_INET,
                  socket.SOCK_DGRAM)
if sys.argv[1] == "serve":
    s.bind(("", 9999))
    print("ready", flush=True)
    while True:
        data, who = s.recvfrom(2000)
        s.sendto(data, who)
least, left = 9.0, 3
s.settimeout(2)
for i in range(60):  # a datagram may be lost: a buffer is full, a host not up
    began = time.perf_counter()
    s.sendto(b"%8d" % i, (sys.argv[1], 9999))
    try:
        while s.recv(100) != b"%8d" % i:
            pass
    except TimeoutError:
        continue
    least = min(least, time.perf_counter() - began)
    left -= 1
    if left == 0:
        break
print(least)
"""

BULK = """
import socket, sys, time

s = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
if sys.argv[1] == "serve":
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind(("", 9998))
    s.listen(1)
    print("ready", flush=True)
    peer, who = s.accept()
    while peer.recv(1 << 16):
        pass
    peer.send(b".")
    sys.exit(0)
s.connect((sys.argv[1], 9998))
began = time.perf_counter()
s.sendall(bytes(int(sys.argv[2])))
s.shutdown(socket.SHUT_WR)
s.recv(1)
print(time.perf_counter() - began)
"""

# Datagrams from all ranks over all links, counted in a file, until another file
# is there.
DRIP = """
import os, socket, sys, time

s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
while not os.path.exists(sys.argv[2]):
    for host in ("near0", "near1", "far0", "far1"):
        s.sendto(b"12345678", (host, 9997))
    with open(sys.argv[1], "ab") as file:
        file.write(b".")
    time.sleep(0.01)
"""

# How late the machine is says nothing of what is tested here.
ANY = ["--max-lateness", "1000000"]

TOPOLOGY = """
site near 2
site far 2 lan 1ms 1Gbit
link near -> far 20ms 20Mbit
link far -> near 30ms 10Mbit
"""

# For what would only take longer over far links.
NEARER = """
site near 2
site far 2
link near far 1ms 100Mbit
"""

# Tests at a time: each waits for most of its time.
AT_A_TIME = 4

LATE = """#include <mpi.h>
#include <stdio.h>
int main(int argc, char **argv)
{
    int one = 1, sum = 0, rank, found;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    double until = MPI_Wtime() + (rank ? 0 : 0.2);
    while (MPI_Wtime() < until) {
        MPI_Iprobe(MPI_ANY_SOURCE, 7, MPI_COMM_WORLD, &found,
                   MPI_STATUS_IGNORE);
    }
    if (rank == 0) {
        printf("%d\\n", sum);
    }
    return MPI_Finalize();
}
"""

# What an ordinary server does first: it listens where only root may.
SERVE = """
import socket, sys
server = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
server.bind(("", int(sys.argv[2])))
server.listen(5)
print("ready", flush=True)
while True:
    peer, who = server.accept()
    peer.sendall(b"220 at your service")
    peer.close()
"""
ASK = """
import socket, sys
peer = socket.create_connection((sys.argv[1], int(sys.argv[2])))
print(peer.recv(100)[:3].decode())
"""


# Stands in for slirp4netns: says what it was told, and goes with the gateway.
OUTSIDE = """#!/bin/sh
for word; do
    case $word in
    --ready-fd=*) ready=${word#*=};;
    --exit-fd=*) end=${word#*=};;
    esac
done
echo $$ "$@" >> FILE
echo 1 > /proc/self/fd/$ready
exec cat < /proc/self/fd/$end
"""


class Tests:
    """A testbed of its own with the name of its test, not yet up."""

    def __init__(self, poise, folder, name, **more):
        self.more = more  # how commands are started
        self.poise = poise
        self.folder = folder
        self.name = f"test-{os.getpid()}-{name}"
        self.passed = self.failed = 0
        self.topology = self.write("t.wan", TOPOLOGY)

    def up(self):
        return self.wan("up", self.topology)

    def nearer(self):
        """Once more, with links that are less far."""
        self.wan("down")
        self.topology = self.write("t.wan", NEARER)
        self.check("up, with links less far", self.up().returncode == 0)

    def write(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="ascii") as file:
            file.write(text)
        return path

    def wan(self, *words, **more):
        return subprocess.run([self.poise, "wan", "--name", self.name, *words],
                              capture_output=True, text=True, check=False,
                              **{**self.more, **more})

    def check(self, what, good, saw=""):
        if good:
            self.passed += 1
        else:
            self.failed += 1
            print(f"FAILED {what}: {saw}", flush=True)

    def status(self):
        return json.loads(self.wan("--json", "status").stdout)

    def serve(self, host, script, *words):
        server = subprocess.Popen(
            [self.poise, "wan", "--name", self.name, "exec", host, "python3",
             script, "serve", *words], stdout=subprocess.PIPE, text=True, **self.more)
        server.stdout.readline()
        return server


def launchers():
    """The kinds of MPI that are there."""
    return [flavour for flavour, launcher in (
        ("ompi", "mpirun.openmpi"), ("mpich", "mpiexec.mpich"))
        if os.path.exists(f"/usr/bin/{launcher}")]


def runs(pid):
    """Whether it has not ended; who has to ask for its status may be slow."""
    try:
        with open(f"/proc/{pid}/stat", encoding="latin1") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def gone(pids):
    until = time.monotonic() + 10 * SLOWNESS
    while time.monotonic() < until:
        if not any(runs(pid) for pid in pids):
            return True
        time.sleep(0.01)
    return False


def checksum(data):
    """What a receiver sums: 0xffff if all is well."""
    total = sum(struct.unpack(f">{(len(data) + 1) // 2}H",
                              data + b"\0" * (len(data) % 2)))
    while total > 0xffff:
        total = (total & 0xffff) + (total >> 16)
    return total
