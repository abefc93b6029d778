"""What the structure checks share: finding files, reading C, reporting.

A check prints one line per finding, FILE:LINE: what, and exits with 1 if
there was one. Its exceptions, where it has any, are a closed list in a file
of its own; a listed exception that is no longer needed is a finding, too.
"""

import os
import re
import sys

FOLDERS = ("src", "tests", "bench", "examples", "tools")

# A comment, a string or a character constant; whichever begins first wins.
_TOKEN = re.compile(
    r"""//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'""", re.S)


def files(root, endings, folders=FOLDERS):
    """Paths of all files with one of `endings`, relative to root, sorted."""
    found = []
    for folder in folders:
        for where, _, names in os.walk(os.path.join(root, folder)):
            for name in names:
                if name.endswith(endings):
                    path = os.path.join(where, name)
                    found.append(os.path.relpath(path, root))
    return sorted(found)


def c_files(root, folders=FOLDERS):
    """Those of C sources and headers."""
    return files(root, (".c", ".h"), folders)


def python_scripts(root, folders=FOLDERS):
    """Those of executable files without an ending whose first line names
    python3."""
    found = []
    for path in files(root, "", folders):
        full = os.path.join(root, path)
        if os.path.splitext(path)[1] or not os.access(full, os.X_OK):
            continue
        with open(full, "rb") as file:
            first = file.readline(200)
        if first.startswith(b"#!") and b"python3" in first:
            found.append(path)
    return found


def read(root, path):
    with open(os.path.join(root, path), encoding="utf-8") as file:
        return file.read()


def code_only(text, keep_strings=False):
    """Blank out comments and (by default) what strings hold; lines stay."""
    def blank(match):
        token = match.group(0)
        if token[0] in "\"'":
            return token if keep_strings else token[0] * 2
        return "\n" * token.count("\n") or " "
    return _TOKEN.sub(blank, text)


def source_of(member, sources):
    """The source of an object: src_core_fault.c.o -> src/core/fault.c, or None
    if `sources` has none of that name."""
    name = re.sub(r"\.o$", "", member.rsplit("/", 1)[-1])
    for path in sources:
        if path.replace(os.sep, "_") == name:
            return path
    return None


class Findings:
    def __init__(self):
        self.lines = []

    def add(self, where, text):
        self.lines.append(f"{where}: {text}")

    def finish(self, looked_at):
        """Print and return the exit code. Looking at nothing is a failure."""
        for line in self.lines:
            print(line)
        if not looked_at:
            print(f"{sys.argv[0]}: found nothing to check")
            return 1
        return 1 if self.lines else 0
