"""Cases of bench/run for room flow over hosts: sites that are far apart, and
many nodes.
"""

import importlib.machinery
import importlib.util
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time

from measure import POISE

TESTS = os.path.join(os.path.dirname(__file__), "..", "..", "tests")
SWEEPS, SKIP, BLOCK_MS, BLOCKS = 60, 10, 1.25, 16


def load_hosts():
    """The testbed with servers of ssh that the tests have."""
    path = os.path.join(TESTS, "flow", "hosts")
    sys.path.insert(0, os.path.dirname(path))
    loader = importlib.machinery.SourceFileLoader("flow_hosts_test", path)
    module = importlib.util.module_from_spec(
        importlib.util.spec_from_loader("flow_hosts_test", loader))
    loader.exec_module(module)
    return module


def one_way(folder, test, ms):
    """Milliseconds a sweep on two sites of two hosts each."""
    cases = test.Cases(POISE, folder)
    bed = test.Bed(cases, f"site a 2\nsite b 2\nlink a b {ms}ms 1Gbit\n",
                   ("a0", "a1", "b0", "b1"))
    try:
        hosts = cases.hosts("a0 site=a", "a1 site=a", "b0 site=b",
                            "b1 site=b")
        run = cases.run([*bed.on("a0"), *cases.words(
            "--hosts", hosts, "--rsh", bed.rsh, "--json", "--block-time",
            f"{round(BLOCK_MS * 1e6)}ns", sweeps=SKIP + SWEEPS)])
    finally:
        bed.down()
    marks = [m for m in json.loads(run.stdout)["progress"]
             if m["versions"] > SKIP]
    took = marks[-1]["seconds"] - marks[0]["seconds"]
    return took * 1e3 / (marks[-1]["versions"] - marks[0]["versions"])


def sites(folder, figures):
    """Two sites, 0.1 to 40 ms apart. What bounds a sweep: a node's own blocks,
    or one block at the border and the way to the other site, which the next
    sweep's block there waits for."""
    test = load_hosts()
    rows = []
    for ms in (0.1, 1, 5, 10, 20, 40):
        took = statistics.median(figures.all(
            str(ms), lambda: one_way(folder, test, ms)))
        bound = max(BLOCK_MS * BLOCKS, ms + BLOCK_MS)
        rows.append([f"{ms:g}", f"{took:.2f}", f"{bound:.2f}",
                     f"{took / bound:.3f}"])
    return ("Two sites of two hosts, a node of 16 blocks of 1.25 ms on each",
            ["one way, ms", "ms a sweep", "bound", "of the bound"], rows, [])


def watch(words):
    """What solve says, and the seconds of a processor that the map took."""
    with tempfile.TemporaryFile() as said, \
            subprocess.Popen(words, stdout=said) as run:
        own = 0
        while run.poll() is None:
            try:
                with open(f"/proc/{run.pid}/stat", encoding="ascii") as file:
                    ticks = file.read().rpartition(")")[2].split()[11:13]
                own = sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")
            except (OSError, ValueError, IndexError):
                pass
            time.sleep(0.05)
        said.seek(0)
        out = said.read()
    if run.returncode != 0:
        raise subprocess.CalledProcessError(run.returncode, words)
    return json.loads(out), own


def many(folder, figures):
    """Many nodes on this host: what each costs the map."""
    plate = os.path.join(folder, "many.pgm")
    with open(plate, "wb") as file:
        file.write(b"P5 256 256 255\n")
        file.write(random.Random(1).randbytes(256 * 256))
    rows = []
    for nodes in (10, 100, 300, 1000):
        values = figures.all(str(nodes), lambda: watch(
            [POISE, "solve", "--json", "--sweeps", "40", "--block", "8", "-n",
             str(nodes), plate, os.path.join(folder, "out.pgm")]))
        found, own = values[0]
        reports = found["reports"]
        rows.append([str(nodes), f"{found['seconds']:.2f}", str(reports),
                     f"{found['report_bytes'] / reports:.0f}",
                     f"{reports / found['seconds'] / nodes:.1f}",
                     str(found["plan_bytes"]),
                     f"{own * 1e6 / reports:.1f}"])
    return ("Nodes of one host, 40 sweeps of 1,024 blocks of 8 x 8 cells",
            ["nodes", "s", "reports", "bytes each", "a node and second",
             "bytes of plans", "map's us for each report"], rows, [])
