#!/usr/bin/env python3
"""What --json prints: does each say its schema, and is that in the document?

usage: tests/cli/json_schemas.py POISE SOURCE [--print]

Every command that has --json is run, but for those of ELSEWHERE, which tests of
their own run; what it prints is of one schema of docs/formats.md, has no member
that is not there, and its hashes and identifiers are strings. The schemas of the
sources and of the document are the same. --print prints rows for the document.
"""

import json
import os
import re
import subprocess
import sys
import tempfile

# Command: the test that reads what it prints.
ELSEWHERE = {
    "trace run": "tests/mon/late_run", "trace attach": "tests/mon/attach_run",
    "tune": "tests/mon/tune_run", "wan": "tests/wan",
    "vnc serve": "tests/remote", "vnc view": "tests/remote",
    "vnc replay": "tests/remote", "wire cached": "tests/remote/send",
    "tunnel": "tests/remote/tunnel", "desync run": "tests/flow",
}
TEXTS = re.compile(r"(^|_)(hash|checksum|id|session|digest|token)$")
ROW = re.compile(r"^\| `(poise-[a-z-]+-\d+)` \| (.*?) \| (.*?) \|", re.M)


def make(root):
    """Something for each command to read."""
    os.makedirs(f"{root}/tree/a")
    for name in ("tree/a/x", "tree/y"):
        with open(f"{root}/{name}", "wb") as file:
            file.write(os.urandom(20000))
    texts = {"numbers": "3\n1\n2\n", "graph.el": "0 1\n1 2\n2 3\n",
             "plate": "1 2 3 4\n" * 8}
    for name, text in texts.items():
        with open(f"{root}/{name}", "w", encoding="ascii") as file:
            file.write(text)


# Each in a folder with these files; later ones find what earlier ones made.
COMMANDS = [
    ["walk", "tree"],
    ["walk", "--trace", "trace.rings", "tree"],
    ["trace", "trace.rings"],
    ["trace", "show", "trace.rings"],
    ["copy", "tree", "twin"],
    ["compare", "tree", "twin"],
    ["archive", "tree", "tree.tar"],
    ["archive", "-x", "tree.tar", "out"],
    ["send", "tree", "sent"],
    ["send", "--also", "sent2", "tree", "sent1"],
    ["remove", "twin"],
    ["sort", "-o", "sorted", "numbers"],
    ["sort", "--dry-run", "--type", "u64", "-o", "sorted", "tree/y"],
    ["sort", "--check", "--type", "u64", "tree/y"],
    ["listrank", "list", "ranked"],
    ["listrank", "--check", "list", "ranked"],
    ["bfs", "--root", "0", "graph.el"],
    ["bfs", "convert", "graph.el", "graph.pg"],
    ["solve", "--sweeps", "3", "plate", "solved"],
    ["noise", "--time", "10ms", "--quantum", "1ms"],
    ["wire", "analyse", "tree/y"],
    ["wire", "model"],
]


LACKS = "this build of poise has no"


def has_json(poise):
    """The commands with --json."""
    out = subprocess.run([poise, "help", "--options"], capture_output=True,
                         text=True, check=True).stdout
    return {line.split("\t")[0] for line in out.splitlines()
            if "\t--json\t" in line or "\tjson\t" in line}


def objects(text):
    """The objects in what was printed: one, or one on each line."""
    decoder, at, found = json.JSONDecoder(), 0, []
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        value, at = decoder.raw_decode(text, at)
        found.append(value)
    return found


def odd(value, path=""):
    """Hashes that are numbers."""
    if isinstance(value, dict):
        for key, member in value.items():
            if TEXTS.search(key) and isinstance(member, (int, float)) and \
                    not isinstance(member, bool):
                yield f"{path}.{key} is a number"
            yield from odd(member, f"{path}.{key}")
    elif isinstance(value, list):
        for member in value:
            yield from odd(member, path + "[]")


class Check:
    def __init__(self, poise, source):
        self.poise, self.findings, self.seen = poise, [], {}
        version = subprocess.run([poise, "version"], capture_output=True,
                                 text=True, check=True).stdout
        self.lacks = len(version.splitlines()) > 1
        with open(f"{source}/docs/formats.md", encoding="utf-8") as file:
            rows = ROW.findall(file.read())
        self.members = {name: set(re.findall(r"`(\w+)`", members))
                        for name, _, members in rows}
        self.in_source = set()
        for where, _, names in os.walk(f"{source}/src/cli"):
            for name in names:
                with open(os.path.join(where, name), encoding="utf-8") as file:
                    self.in_source |= set(re.findall(
                        r'"?\\?"(poise-[a-z-]+-\d+)\\?"', file.read()))

    def say(self, text):
        self.findings.append(text)

    def look(self, words, text):
        found = objects(text)
        if not found:
            self.say(f"{' '.join(words)}: no JSON")
            return
        schema = found[-1].get("schema") if isinstance(found[-1], dict) else None
        if schema not in self.members:
            self.say(f"{' '.join(words)}: schema {schema} is not in "
                     "docs/formats.md")
        keys = set(found[-1]) - {"schema"}
        self.seen.setdefault(schema, set()).update(keys)
        for key in sorted(keys - self.members.get(schema, keys)):
            self.say(f"{' '.join(words)}: {schema} has no row for {key}")
        for what in odd(found):
            self.say(f"{' '.join(words)}: {what}")

    def run(self):
        missing = has_json(self.poise) - set(ELSEWHERE)
        with tempfile.TemporaryDirectory(prefix="poise-json-") as root:
            make(root)
            subprocess.run([self.poise, "listrank", "--generate", "100",
                            "list"], cwd=root, check=True)
            for words in COMMANDS:
                done = subprocess.run([self.poise, *words, "--json"], cwd=root,
                                      capture_output=True, text=True,
                                      stdin=subprocess.DEVNULL, check=False)
                missing -= {" ".join(words[:2]), words[0]}
                # Built without a library: tests/cli/without.py.
                if self.lacks and LACKS in done.stderr:
                    continue
                if done.returncode not in (0, 1):
                    self.say(f"{' '.join(words)}: {done.stderr}")
                self.look(words, done.stdout)
        for command in sorted(missing):
            self.say(f"{command} has --json and is not run here")
        for name in sorted(self.in_source ^ set(self.members)):
            self.say(f"{name} is in the sources or in docs/formats.md only")


def main():
    poise, source, *more = sys.argv[1:]
    check = Check(os.path.abspath(poise), source)
    check.run()
    if more:
        for name, keys in sorted(check.seen.items(), key=str):
            print(f"| `{name}` | | {', '.join(f'`{k}`' for k in sorted(keys))} |")
    print("\n".join(check.findings) or f"{len(check.seen)} schemas are right")
    return 1 if check.findings else 0


if __name__ == "__main__":
    sys.exit(main())
