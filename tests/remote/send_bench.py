"""What tests/remote/send runs, and what it does to it.

Bench runs `poise send` over a stand-in for the remote shell, through which the
other end gets its faults. The functions below it damage caches, kill one end
or a server, turn the clock, fill a disk and write to a file that is sent.
"""
import collections
import json
import os
import shutil
import signal
import subprocess
import threading
import time

from send_tree import (Failed, check_pieces, expect, look, same_files,
                       temporaries)

# The other end, as a remote shell would start it. What is to happen to it
# comes by the environment.
SHELL = """#!/bin/bash
if [ -n "$HOMES" ]; then
    export HOME=$HOMES/$1
    mkdir -p "$HOME"
fi
if [ -n "$FAR_CACHES" ]; then
    export XDG_CACHE_HOME=$FAR_CACHES
fi
if [ "$1" = bad ]; then
    exit 1
elif [ "$1" = stalls ] && mkdir "$HOMES/stalled" 2>/dev/null; then
    shift
    python3 -c "$STALL" 5000000 | "$@"
    exit
elif [ "$1" = breaks ]; then
    shift
    python3 -c "$CUT" 300000 | "$@"
    exit
fi
shift
export POISE_FAULT=$OTHER_FAULT
if [ -n "$TEAR" ]; then
    exec python3 -c "$CARRY" "$@"
elif [ -n "$STOPS_AT" ]; then
    python3 -c "$STALL" "$STOPS_AT" | "$@"
elif [ -n "$CUT_IN" ]; then
    python3 -c "$CUT" "$CUT_IN" | "$@"
elif [ -n "$CUT_OUT" ]; then
    "$@" | python3 -c "$CUT" "$CUT_OUT"
elif [ -n "$OTHER_PID" ]; then
    echo $$ >"$OTHER_PID.new" && mv "$OTHER_PID.new" "$OTHER_PID"
    exec "$@"
else
    exec "$@"
fi
"""
# Lets so many bytes through.
CUT = """
import os, select, sys
left = int(sys.argv[1])
while left > 0 and select.select([0], [], []) and \\
        (data := os.read(0, min(left, 65536))):
    left -= len(data)
    while data and select.select([], [1], []):
        data = data[os.write(1, data):]
"""
# The same, and then says and hears nothing.
STALL = CUT + """
import time
os.close(2)
parent = os.getppid()
while os.getppid() == parent:
    time.sleep(0.05)
"""
# What carries the bytes of a connection that is slow and in pieces.
CARRY = """
import os, random, subprocess, sys, threading, time
rng = random.Random(os.environ['TEAR'])
other = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE,
                         stdout=subprocess.PIPE)
def carry(out, to):
    pauses = 60
    while data := os.read(out, rng.choice((1, 7, 300, 65536, 65536))):
        if pauses and rng.random() < 0.1:
            pauses -= 1
            time.sleep(rng.random() * 0.02)
        try:
            while data:
                data = data[os.write(to, data):]
        except OSError:
            break
    os.close(to)
up = threading.Thread(target=carry, args=(0, other.stdin.fileno()),
                      daemon=True)
up.start()
carry(other.stdout.fileno(), 1)
sys.exit(other.wait())
"""


class Bench:
    """A folder with a source, a target, two caches and a remote shell."""

    def __init__(self, poise, folder, rng, limit):
        self.poise, self.folder, self.rng = poise, folder, rng
        self.limit = limit
        self.thrown = collections.Counter()
        self.source = self.path("source")
        self.target = self.path("target")
        self.shell = self.path("shell")
        with open(self.shell, "w", encoding="ascii") as file:
            file.write(SHELL)
        os.chmod(self.shell, 0o755)

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def argv(self, *words):
        return [self.poise, "send", "--json", "-e", self.shell, "--program",
                self.poise, "--cache", self.path("cache1"), "--remote-cache",
                self.path("cache2"), *words]

    def run(self, *words, env=None):
        try:
            return subprocess.run(self.argv(*words), capture_output=True,
                                  text=True, errors="surrogateescape",
                                  check=False, timeout=self.limit,
                                  env={**os.environ, **(env or {})})
        except subprocess.TimeoutExpired:
            raise Failed(f"{words} {env}: no end within {self.limit} s") \
                from None

    def good(self, *words):
        done = self.run(*words)
        expect(done.returncode == 0 and not done.stderr,
               f"{words}: {done.returncode} {done.stderr}")
        return self.figures(done)

    @staticmethod
    def figures(done):
        return json.loads(done.stdout[done.stdout.index("{\n"):])


def start_server(bench, cache):
    """A server of that cache; if somebody else is, it ends."""
    server = subprocess.Popen([bench.poise, "wire", "cached", "--json", cache],
                              stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, text=True)
    while not os.path.exists(os.path.join(cache, "socket")) and \
            server.poll() is None:
        time.sleep(0.01)
    return server


def end_all(processes):
    for process in processes:
        words = process.communicate()[1]
        expect(process.returncode == 0 and not words,
               f"{process.args}: {process.returncode} {words}")


# ---- what may happen --------------------------------------------------------

def damage(folder, rng):
    """Cut, flip, lengthen, exchange or remove something of a cache."""
    if not os.path.isdir(folder):
        return
    names = [name for name in sorted(os.listdir(folder)) if name != "lock"]
    if not names:
        return
    path = os.path.join(folder, rng.choice(names))
    size = os.path.getsize(path)
    deed = rng.randrange(7)
    if deed == 0:
        os.unlink(path)
    elif deed == 1 or size == 0:
        os.truncate(path, rng.randrange(size + 1))
    elif deed == 2:
        shutil.rmtree(folder)
    elif deed == 3:
        other = os.path.join(folder, rng.choice(names))
        if not path.endswith("store"):  # whose kind would be told
            os.replace(other, path)
    elif deed == 4:
        os.truncate(path, size + rng.randrange(5000))
    else:
        with open(path, "r+b") as file:
            file.seek(rng.randrange(size))
            file.write(rng.randbytes(1 + rng.randrange(100)))


def fault(rng):
    kind = rng.choice(["alloc", "open", "read", "write", "rename", "stat",
                       "send", "write", "sync"])
    most = {"alloc": 3000, "read": 300, "send": 200}.get(kind, 150)
    k = int(most ** rng.random())
    code = {"write": "ENOSPC", "alloc": "ENOMEM"}.get(kind, "EIO")
    return f"{kind}:{k}{rng.choice(['', '', '+'])}:{code}"


def choose_env(deed, rng):
    if deed == "fault":
        return {"POISE_FAULT": fault(rng)}
    if deed == "other":
        return {"OTHER_FAULT": fault(rng)}
    if deed == "cut":
        return {rng.choice(["CUT_IN", "CUT_OUT"]):
                str(int((1 << 20) ** rng.random()))}
    if deed == "tear":
        return {"TEAR": str(rng.random())}
    return {}


def wait_for_end(pid_file):
    """Until the other end, which nobody waits for any more, is gone."""
    try:
        with open(pid_file, encoding="ascii") as file:
            path = f"/proc/{int(file.read())}/stat"
        while True:
            with open(path, encoding="utf-8", errors="replace") as file:
                if file.read().rsplit(")", 1)[1].split()[0] == "Z":
                    return
            time.sleep(0.01)
    except (OSError, ValueError):
        pass


def run_and_kill(bench, words, rng):
    """Kill one end at some moment; whether the other end is who died."""
    pid_file = bench.path("pid")
    if os.path.exists(pid_file):
        os.unlink(pid_file)
    mine = subprocess.Popen(bench.argv(*words), stdout=subprocess.DEVNULL,
                            stderr=subprocess.PIPE, text=True,
                            errors="surrogateescape",
                            env={**os.environ, "OTHER_PID": pid_file})
    whom = rng.choice(["mine", "other", "both"])
    number = rng.choice([signal.SIGKILL, signal.SIGTERM, signal.SIGINT])

    def kill():
        try:
            if whom != "mine":
                with open(pid_file, encoding="ascii") as file:
                    os.kill(int(file.read()), number)
        except (OSError, ValueError):
            pass
        if whom != "other":
            mine.send_signal(number)

    timer = threading.Timer(rng.random() * 0.3, kill)
    timer.start()
    try:
        words = mine.communicate(timeout=bench.limit)[1]
    except subprocess.TimeoutExpired:
        raise Failed(f"{words}, killed: no end within {bench.limit} s") \
            from None
    timer.cancel()
    timer.join()
    wait_for_end(pid_file)
    expect(mine.returncode in (0, 1, -number),
           f"killed: exit {mine.returncode} {words}")
    return number == signal.SIGKILL


def run_served(bench, words, rng, said):
    """Somebody else serves the caches, and is killed at some moment."""
    servers = []
    for name in ("cache1", "cache2"):
        os.makedirs(bench.path(name), exist_ok=True)
        if rng.random() < 0.8:
            servers.append(start_server(bench, bench.path(name)))

    def kill():
        for server in servers:
            server.kill()

    timer = threading.Timer(rng.random() * 0.3, kill)
    timer.start()
    try:
        done = bench.run(*words)
    finally:
        timer.join()
        for server in servers:
            server.communicate()
    expect(done.returncode == 0, f"{said}: {done.stderr}")


def turn_clock(bench, rng):
    """What the caches were written by had another time."""
    for name in ("cache1", "cache2"):
        if os.path.isdir(bench.path(name)):
            for file in os.listdir(bench.path(name)):
                at = rng.choice([0, 10 ** 9, 4 * 10 ** 9])
                os.utime(bench.path(name, file), (at, at))


def change_meanwhile(bench, words, rng):
    path = bench.path("source", "a", "big")
    stop = threading.Event()

    def write_on():
        while not stop.is_set():
            with open(path, "r+b") as file:
                file.seek(rng.randrange(1000000))
                file.write(b"meanwhile")
            stop.wait(0.001)

    writer = threading.Thread(target=write_on)
    writer.start()
    done = bench.run(*words)
    stop.set()
    writer.join()
    expect(done.returncode in (0, 1), f"changed: {done.stderr}")
    os.utime(path, ns=(0, rng.randrange(10 ** 18)))
    return done


class SmallDisk:
    """The target, or a cache, on a disk that is full; where one cannot be had,
    on one that is not."""

    def __init__(self, bench, rng):
        self.path = bench.path(rng.choice(["full", "cache1", "cache2"]))
        self.is_target = self.path == bench.path("full")
        shutil.rmtree(self.path, ignore_errors=True)
        os.makedirs(self.path)
        size = int(4096 * 600 ** rng.random())
        self.mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", self.path],
            capture_output=True, check=False).returncode == 0

    def close(self):
        if self.mounted:
            subprocess.run(["umount", self.path], check=True)
        shutil.rmtree(self.path, ignore_errors=True)


def run_full(bench, words, rng, said):
    disk = SmallDisk(bench, rng)
    try:
        if disk.is_target:
            words[-1] = words[-1].replace(bench.target, disk.path)
        done = bench.run(*words)
        expect(done.returncode in (0, 1), f"{said}: {done.returncode} "
               f"{done.stderr[-2000:]}")
        expect(done.returncode == 0 or done.stderr, f"{said}: said nothing")
        if disk.is_target:
            check_pieces(look(bench.source)[0], {}, disk.path)
            expect(not temporaries(disk.path), f"{said}: not whole, and left")
        else:
            # A cache that cannot keep what it should is no reason to fail.
            same_files(bench.source, bench.target, said)
    finally:
        disk.close()
