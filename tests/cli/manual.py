#!/usr/bin/env python3
"""The pages of the manual: are they right, and do they name all that there is?

usage: tests/cli/manual.py PAGES SOURCE

Each public header has a page of section 3 and each function of tools/abi.list one, files one of section 5, and there are the two of section 7.
mandoc finds nothing wrong in any page of the folder PAGES, all of its links lead
to one, poise(7) names each command's page but those of the names below, and
poise-environment(7) each variable that the sources look at or set. Each page of a
command but those of poise itself names a document, and each of these is there.
"""

import glob
import os
import re
import subprocess
import sys

# Not the first thing that somebody looks for; poise(1) lists all.
MINOR = {"completion", "help", "version", "trace-show", "trace-gather",
         "wire-cached", "wire-model", "vnc-record", "vnc-replay"}


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def variables(source):
    """Names of environment variables in the sources of C."""
    found = set()
    for path in glob.glob(os.path.join(source, "src", "**", "*.c"),
                          recursive=True):
        text = read(path)
        if re.search(r"getenv|setenv|is_set\(|env_fn", text):
            found |= set(re.findall(r'(?:get|set)env\("(\w+)"', text))
            for name in re.findall(r'"([A-Z][A-Z0-9]*_\w+)=?"', text):
                if not re.match(r"P?MPI_[A-Z]?[a-z]|P?MPI_$|MPI_COMM_WORLD$",
                                name):
                    found.add(name)
    return found


def lint(pages):
    """What mandoc says, but for advice and pages that are elsewhere."""
    said = subprocess.run(["mandoc", "-T", "lint", *pages], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          check=False)
    # Each by itself: one is buffered, and would be cut where the other speaks.
    return [line for line in (said.stdout + said.stderr).splitlines()
            if "referenced manual not found" not in line
            # An operand: a folder.
            and not re.search(r"trailing delimiter: Li .* \.$", line)
            and "function name without markup" not in line
            and "outdated mandoc.db" not in line]


def wanted(source):
    """Pages that have to be there; those of section 1: tests/cli/options.py."""
    listed = read(os.path.join(source, "include", "poise", "meson.build"))
    public = listed[listed.index("public_headers = ["):]
    public = public[:public.index("\n]")]
    names = re.findall(r"'(\w+)\.h'", public)
    assert len(names) > 30, names
    functions = re.findall(r"^\S+ (\w+) \S.*\(",
                           read(os.path.join(source, "tools", "abi.list")),
                           re.M)
    assert len(functions) > 300, functions
    return {"poise.1", "poise-formats.5", "poise.7", "poise-environment.7",
            *(f"poise_{name}.h.3" for name in names),
            *(f"{name}.3" for name in functions)}


def main():
    folder, source = sys.argv[1:]
    pages = sorted(glob.glob(os.path.join(folder, "*.[1-7]")))
    findings, there, whole = [], set(), []
    for page in pages:
        there.add(os.path.basename(page))
        if not read(page).startswith(".so "):
            whole.append(page)
    for page in set(pages) - set(whole):
        target = os.path.basename(read(page).split()[1])
        if target not in there:
            findings.append(f"{page}: leads to {target}, which is not there")
    findings += [f"{page} is missing" for page in
                 sorted(wanted(source) - there)]
    findings += lint(whole)
    overview = read(os.path.join(folder, "poise.7"))
    for page in sorted(there):
        name = re.match(r"poise-(\S+)\.1$", page)
        if name and name[1] not in MINOR and \
                f".It Xr poise-{name[1]} 1" not in overview and \
                f".Xr poise-{name[1]} 1" not in overview:
            findings.append(f"poise.7: lacks {name[1]}")
    environment = read(os.path.join(folder, "poise-environment.7"))
    for name in sorted(variables(source)):
        if not re.search(rf"\b{name}\b", environment):
            findings.append(f"poise-environment.7: lacks {name}")
    for page in whole:
        name = re.match(r"poise(?:-(\S+))?\.1$", os.path.basename(page))
        documents = re.findall(r"^\.Pa (docs/\S+)$",
                               read(page).replace("\\-", "-"), re.M)
        if name and not documents and \
                name[1] not in ("completion", "help", "version"):
            findings.append(f"{page}: names no document")
        findings += [f"{page}: there is no {document}"
                     for document in documents
                     if not os.path.exists(os.path.join(source, document))]
    print("\n".join(findings) or f"{len(pages)} pages are right")
    return 1 if findings or len(whole) < 50 else 0


if __name__ == "__main__":
    sys.exit(main())
