"""Case of bench/run on poise tunnel: a byte and its echo over a thin link, by
itself and beside a download, without a tunnel and through one."""

import json
import os
import subprocess
import tempfile

import wan_cases
from measure import POISE

THIN = "site near 1\nsite far 1\nlink near far 60ms 1.6Mbit\n"
SECONDS = 15
# Says back what it hears at one port, and random bytes at the next.
SERVER = """
import os, socket, sys, threading
def echo(s):
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while data := s.recv(100):
        s.sendall(data)
def give(s):
    try:
        while True:
            s.sendall(os.urandom(1 << 16))
    except OSError:
        pass
def accept(listening, serve):
    while True:
        threading.Thread(target=serve, args=(listening.accept()[0],),
                         daemon=True).start()
doors = [socket.create_server(("", int(sys.argv[1]) + i)) for i in (0, 1)]
threading.Thread(target=accept, args=(doors[1], give), daemon=True).start()
print("ready", flush=True)
accept(doors[0], echo)
"""
# Milliseconds of each echo, and what was downloaded meanwhile.
CLIENT = """
import json, socket, sys, threading, time
host, port, loads = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
seconds = float(sys.argv[4])
got = [0]
def load():
    s = socket.create_connection((host, port + 1))
    while data := s.recv(65536):
        got[0] += len(data)
if loads:
    threading.Thread(target=load, daemon=True).start()
    time.sleep(5)
s = socket.create_connection((host, port))
s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
before, begun, took = got[0], time.monotonic(), []
while time.monotonic() < begun + seconds:
    at = time.monotonic()
    s.sendall(b"x")
    s.recv(1)
    took.append((time.monotonic() - at) * 1e3)
    time.sleep(0.03)
print(json.dumps([took, (got[0] - before) / (time.monotonic() - begun)]))
"""
HEADINGS = ["", "echoes", "median ms", "90 % ms", "worst ms",
            "download KB/s"]


def row(bed, label, where, loads):
    done = subprocess.run(
        bed.wan + ["exec", "near0", "python3", "-c", CLIENT, *where,
                   str(loads), str(SECONDS)],
        capture_output=True, text=True, check=True)
    took, rate = json.loads(done.stdout)
    took.sort()
    return [label, len(took), f"{took[len(took) // 2]:.0f}",
            f"{took[len(took) * 9 // 10]:.0f}", f"{took[-1]:.0f}",
            f"{rate / 1e3:.0f}" if loads else ""]


def echo(args):
    if os.geteuid() != 0:
        return "not root: no emulated network", []
    rows = []
    with tempfile.TemporaryDirectory(dir=args.dir) as folder, \
            wan_cases.Bed(THIN) as bed:
        key = os.path.join(folder, "key")
        subprocess.run([POISE, "tunnel", "--make-secret", key], check=True)
        tunnel = [POISE, "tunnel", "--secret", key, "--cache"]
        targets = ["127.0.0.1:5001", "127.0.0.1:5002"]
        running = [
            bed.serve("far0", "python3", "-c", SERVER, "5001"),
            bed.start("far0", *tunnel, os.path.join(folder, "far"), "--serve",
                      "0.0.0.0:7070", "--allow", targets[0], "--allow",
                      targets[1]),
            bed.start("near0", *tunnel, os.path.join(folder, "near"), "-L",
                      f"5001:{targets[0]}", "-L", f"5002:{targets[1]}",
                      "10.77.2.1:7070")]
        for label, where in (("without a tunnel", ("10.77.2.1", "5001")),
                             ("through one", ("127.0.0.1", "5001"))):
            for loads in (0, 1):
                rows.append(row(bed, label + ", beside a download" * loads,
                                where, loads))
        wan_cases.stop(running)
    return "A byte and its echo over 60 ms and 1.6 Mbit/s", rows
