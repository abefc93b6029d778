"""The tests of bfs, a breadth-first find (tests/tests.sh), of its groups posix,
common and gnu: what any find, and GNU's, has to do. Its own extensions (groups
bsd and bfs) are not tried. As the suite's own runner counts them."""

import os
import re

from suite import Missing, failed, left_out, passed

NAME = "bfs-find"
SUBJECT = "find"
OWNER = "github.com/tavianator/bfs"
WANTS = "bfs/, with its helpers built: bin/tests/xtouch and mksock"

COLOUR = re.compile(r"\x1b\[[0-9;]*m")
RESULT = re.compile(r"^\[(PASS|SKIP|FAIL)\] (\w+/\S+)$")


def find(context):
    context.need("bfs", "bin", "tests", "xtouch")
    context.need("bfs", "bin", "tests", "mksock")
    context.need("bfs", "tests", "tests.sh")
    return context.need("bfs")


def version(context):
    return context.revision(context.need("bfs"))


def run(context):
    folder = find(context)
    code, out, _ = context.command(
        os.path.join("tests", "tests.sh"), "-j1", "--gnu", "--verbose=tests",
        "--verbose=skipped", f"--bfs={context.poise} find", cwd=folder,
        limit_s=3600, merged=True)
    said, seen = [], set()
    for line in COLOUR.sub("", out).splitlines():
        found = RESULT.match(line.strip())
        if not found:
            said.append(line.strip())
            continue
        what, title = found.groups()
        if title not in seen:
            # A skipped one is said twice.
            seen.add(title)
            if what == "PASS":
                yield passed(title)
            elif what == "SKIP":
                yield left_out(title, "skipped by the suite")
            else:
                yield failed(title, reason(said))
        said = []
    if not seen:
        raise Missing(f"tests.sh runs no test (exit code {code})")


def reason(said):
    """What find said, else the first lines of what differs."""
    for line in said:
        if line.startswith("poise find:"):
            return line[:160]
    differs = [line for line in said if line[:1] in ("+", "-")
               and line[:3] not in ("+++", "---")]
    return " ".join(differs[:3])[:160] or "no word"
