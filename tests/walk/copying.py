"""What the tests of poise copy share: how it is run, and how they are."""
import argparse
import os
import subprocess
import sys
import tempfile

import trees
from trees import expect

SLOWNESS = float(os.environ.get("POISE_TEST_SLOWNESS", "4"))
given = argparse.Namespace()  # the options of the test


def run(*words, code=0, before=(), env=None, **more):
    """Run poise copy; what it said on stdout and stderr, as text."""
    done = subprocess.run([*before, given.poise, "copy", *words],
                          capture_output=True, timeout=60 * SLOWNESS,
                          env={**os.environ, **(env or {})}, check=False,
                          **more)
    out = done.stdout.decode(errors="replace")
    err = done.stderr.decode(errors="replace")
    if code is not None and done.returncode != code:
        raise AssertionError("%r: exit code %d instead of %d\n%.2000s%.2000s" % (
            words, done.returncode, code, out, err))
    return out, err


def expect_same(a, b):
    lines = trees.differences(a, b)
    expect(not lines, "\n".join(lines[:10]))
    expect(not trees.temporaries(b), trees.temporaries(b)[:3])


def main(usage, tests):
    """Run the functions test_NAME of `tests`, or those that are named."""
    tests = {name[5:]: value for name, value in sorted(tests.items())
             if name.startswith("test_")}
    parser = argparse.ArgumentParser(usage=usage)
    parser.add_argument("--poise", required=True)
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--ignorecase", help="module: a file system that does")
    parser.add_argument("names", nargs="*")
    parser.parse_args(namespace=given)
    given.poise = os.path.abspath(given.poise)
    given.ignorecase = given.ignorecase and os.path.abspath(given.ignorecase)
    os.umask(0o022)
    failed = []
    for name in given.names or tests:
        with tempfile.TemporaryDirectory(prefix="poise-copy-") as folder:
            os.chdir(folder)
            try:
                print(name, flush=True)
                tests[name]()
            except (AssertionError, subprocess.SubprocessError, OSError) as err:
                print("  FAILED:", str(err)[:4000], flush=True)
                failed.append(name)
            os.chdir("/")
            subprocess.run("rm -rf %s/*" % folder, shell=True, check=False)
    if failed:
        sys.exit("failed: " + ", ".join(failed))
