"""What tests of jobs on several hosts share: commands and what they say, logs,
hosts made of namespaces with a server of ssh each, etcd.
"""

import glob
import os
import random
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "wan"))
SLOWNESS = float(os.environ.get("POISE_TEST_SLOWNESS", "4"))
LIMIT_S = 30 * SLOWNESS

# In place of ssh: a shell here. $1 is the host.
SHELL = """#!/bin/sh
echo "$1" >> {folder}/called
shift
exec sh -c "$*"
"""
TOPOLOGY = """
site a 1
site b 1
site c 1
link a b 1ms 1Gbit
link b c 1ms 1Gbit
link a c 1ms 1Gbit
"""


TWO_SITES = """
site a 1
site b 1
link a b 1ms 1Gbit
"""


class Skip(Exception):
    """What is missing."""


class Cases:
    def __init__(self, poise, folder):
        self.poise, self.folder = poise, folder
        self.failed = self.launches = 0
        rng = random.Random(7)
        rows = [" ".join(str(rng.randint(0, 99)) for _ in range(64))
                for _ in range(64)]
        self.plate = self.write("plate.txt", "\n".join(rows) + "\n")
        self.rsh = self.write("rsh", SHELL.format(folder=folder), 0o755)
        self.wants = {}

    def write(self, name, text, mode=0o644):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="ascii") as file:
            file.write(text)
        os.chmod(path, mode)
        return path

    def check(self, what, good, saw=""):
        if not good:
            self.failed += 1
            print(f"FAILED {what}: {saw}", flush=True)
        return good

    def words(self, *more, sweeps=60, out="out.txt", block=8):
        return [self.poise, "solve", "--sweeps", str(sweeps), "--block",
                str(block), *more, self.plate, os.path.join(self.folder, out)]

    def want(self, sweeps, block=8):
        """What one thread makes of it, in one process."""
        key = sweeps
        if key not in self.wants:
            subprocess.run(self.words(sweeps=sweeps, out="want.txt",
                                      block=block), check=True)
            with open(os.path.join(self.folder, "want.txt"), "rb") as file:
                self.wants[key] = file.read()
        return self.wants[key]

    def is_same(self, sweeps, out="out.txt"):
        path = os.path.join(self.folder, out)
        if not os.path.exists(path):
            return False
        with open(path, "rb") as file:
            data = file.read()
        os.unlink(path)
        return data == self.want(sweeps)

    def run(self, words, **more):
        return subprocess.run(words, capture_output=True, text=True,
                              check=False, timeout=LIMIT_S, **more)

    def hosts(self, *lines):
        return self.write("hosts", "\n".join(lines) + "\n")

    def solve(self, what, *more, sweeps=60, prefix=()):
        run = self.run([*prefix, *self.words(*more, sweeps=sweeps)])
        self.check(what, run.returncode == 0 and self.is_same(sweeps), run)
        return run


def nodes_of(pids):
    """Processes whose parents are these, as /proc has them."""
    found = []
    for name in os.listdir("/proc"):
        try:
            with open(f"/proc/{name}/stat", encoding="ascii") as file:
                parent = int(file.read().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            continue
        if parent in pids:
            found.append(int(name))
    return found


def marked(mark):
    """Processes of `poise solve` with this word on their command lines."""
    found = []
    for name in os.listdir("/proc"):
        try:
            with open(f"/proc/{name}/cmdline", "rb") as file:
                words = file.read().split(b"\0")
        except OSError:
            continue
        if name.isdigit() and words[1:2] == [b"solve"] and \
                mark.encode() in words:
            found.append(int(name))
    return found


LOG_START, LOG_LINE = 1, 20
RECORD = struct.Struct("<IIQHHIqQQQQ")


def logged(log, kind):
    """The newest version in a log's records of a kind; -2: there are none."""
    newest = -2
    for path in glob.glob(log + "*"):
        try:
            with open(path, "rb") as file:
                data = file.read()
        except FileNotFoundError:  # all is done
            continue
        at = 0
        while at + RECORD.size <= len(data) and path != log + ".map":
            record = RECORD.unpack_from(data, at)
            newest = max(newest, record[6]) if record[3] == kind else newest
            at += RECORD.size + record[9]
    return newest


def sshd_on(t, bed, hosts):
    """A server of ssh on each host; the remote shell for the others."""
    server = shutil.which("sshd") or "/usr/sbin/sshd"
    if not os.path.exists(server) or not shutil.which("ssh"):
        raise Skip("no sshd (Debian: openssh-server)")
    key = os.path.join(t.folder, "key")
    if not os.path.exists(key):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f",
                        key], check=True)
    for host in hosts:
        run = bed.wan("exec", host, server, "-f", "/dev/null", "-h", key, "-o",
                      f"AuthorizedKeysFile={key}.pub", "-o", "StrictModes=no",
                      "-o", f"PidFile={t.folder}/sshd.{host}", "-o",
                      "UsePAM=no")
        if run.returncode != 0:
            raise Skip(f"sshd on {host}: {run.stderr.strip()}")
    return (f"ssh -i {key} -o StrictHostKeyChecking=no -o LogLevel=ERROR "
            "-o UserKnownHostsFile=/dev/null -o BatchMode=yes")


class Bed:
    """Hosts of namespaces with a server of ssh each."""

    def __init__(self, t, topology=TOPOLOGY, hosts=("a0", "b0", "c0")):
        from testbed_common import Tests
        self.bed = Tests(t.poise, t.folder, "flow")
        self.bed.topology = t.write("t.wan", topology)
        up = self.bed.up()
        if up.returncode != 0:
            raise Skip(f"no testbed: {up.stderr.strip()}")
        try:
            self.rsh = sshd_on(t, self.bed, hosts)
            self.prefix = [t.poise, "wan", "--name", self.bed.name, "exec"]
            run = self.bed.wan("exec", hosts[0], *self.rsh.split(),
                               hosts[-1], "true")
            if run.returncode != 0:
                raise Skip(f"ssh between hosts: {run.stderr.strip()}")
        except Skip:
            self.down()
            raise

    def on(self, host):
        return [*self.prefix, host]

    def cut(self, lost):
        """From now on the link between the two sites loses so much."""
        run = self.bed.wan("link", "a", "b", "1ms", "1Gbit", "loss", lost)
        if run.returncode != 0:
            raise RuntimeError(run.stderr)

    def down(self):
        self.bed.wan("down")


class Talk:
    """A command, and what it said so far."""

    def __init__(self, words):
        self.said, self.out = "", ""
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True)
        self.threads = [threading.Thread(target=work) for work in
                        (self.hear, self.read)]
        for thread in self.threads:
            thread.start()

    def hear(self):
        for line in self.process.stderr:
            self.said += line

    def read(self):
        self.out = self.process.stdout.read()

    def says(self, text):
        wait_for(lambda: text in self.said or self.process.poll() is not None)
        return text in self.said

    def end(self):
        self.process.wait(LIMIT_S)
        for thread in self.threads:
            thread.join()
        return self.process.returncode


class Etcd:
    """A server of etcd of its own, here or on a host of a testbed."""

    def __init__(self, t, bed=None, host=None):
        server = shutil.which("etcd")
        if not server:
            raise Skip("no etcd (Debian: etcd-server)")
        if bed:
            self.process = subprocess.Popen(
                [*bed.on(host), server, "--data-dir",
                 os.path.join(t.folder, f"etcd-{host}"),
                 "--listen-client-urls", "http://0.0.0.0:2379",
                 "--advertise-client-urls", f"http://{host}:2379"],
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            return
        with socket.socket() as one, socket.socket() as two:
            one.bind(("127.0.0.1", 0))
            two.bind(("127.0.0.1", 0))
            ports = one.getsockname()[1], two.getsockname()[1]
        self.url = f"http://127.0.0.1:{ports[0]}"
        peers = f"http://127.0.0.1:{ports[1]}"
        self.process = subprocess.Popen(
            [server, "--data-dir", os.path.join(t.folder, "etcd"),
             "--listen-client-urls", self.url, "--advertise-client-urls",
             self.url, "--listen-peer-urls", peers,
             "--initial-advertise-peer-urls", peers, "--initial-cluster",
             f"default={peers}"], stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL)
        until = time.monotonic() + LIMIT_S
        while True:
            try:
                with urllib.request.urlopen(f"{self.url}/health") as answer:
                    if b"true" in answer.read():
                        return
            except OSError:
                pass
            if time.monotonic() > until:
                self.end()
                raise Skip("etcd does not begin")
            time.sleep(0.05)

    def end(self):
        self.process.send_signal(signal.SIGCONT)
        self.process.kill()
        self.process.wait()


def wait_for(what, limit_s=LIMIT_S):
    until = time.monotonic() + limit_s
    while not what() and time.monotonic() < until:
        time.sleep(0.01)
    return what()


def kill(pids):
    """Returns when they hold nothing any more: a process that was killed keeps
    its locks until it is next run, which may be late."""
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            pass
    wait_for(lambda: all(has_ended(pid) for pid in pids))


def has_ended(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            return file.read().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def parent_of(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            return int(file.read().rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0
