#!/usr/bin/env python3
"""Does each installed header compile alone, in every C and in C++?

usage: tests/headers.py [--full] MESON BUILD

Installs the headers of BUILD, a build folder, into a temporary one and compiles
each, twice in a row so that its guard is seen, with gcc and clang: as C11, C17
and C23 and as C++17, warnings being errors. Then all at once with the flags that
pkg-config gives to those who use BUILD without installing it. Without --full
the compilers share the dialects: each header is compiled by both, and in all.
"""

import concurrent.futures
import os
import shlex
import subprocess
import sys
import tempfile

WARNINGS = ["-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only"]
DIALECTS = [
    ("c", ["-std=c11"]),
    ("c", ["-std=c17"]),
    ("c", ["-std=c2x"]),
    ("c++", ["-std=c++17"]),
]
COMPILERS = {"c": ["gcc", "clang"], "c++": ["g++", "clang++"]}

# The one header that needs an MPI's; that of virtual ranks is one.
OF_MPI = "poise/mpi.h"


def installed(meson, build, folder):
    """The include folder below `folder`, and names such as poise/walk.h."""
    subprocess.run([*meson, "install", "-C", build, "--no-rebuild", "--quiet",
                    "--tags", "devel", "--destdir", folder], check=True,
                   stdout=subprocess.DEVNULL)
    for where, folders, _ in os.walk(folder):
        if os.path.basename(where) == "include" and "poise" in folders:
            names = [os.path.join("poise", name)
                     for name in os.listdir(os.path.join(where, "poise"))
                     if name.endswith(".h")]
            return where, sorted(names)
    sys.exit(f"no include/poise was installed into {folder}")


def uninstalled(build):
    where = os.path.join(build, "meson-uninstalled")
    done = subprocess.run(
        ["pkg-config", "--cflags", "poise"], check=True, capture_output=True,
        text=True, env=dict(os.environ, PKG_CONFIG_PATH=where))
    return shlex.split(done.stdout)


def compile_alone(job):
    """What a compiler says of headers, or an empty string."""
    compiler, language, flags, names = job
    text = "".join(f"#include <{name}>\n" for name in 2 * names)
    text += "extern int end;\n"
    done = subprocess.run(
        [compiler, "-x", language, *flags, *WARNINGS, "-"], input=text,
        capture_output=True, text=True, check=False)
    if not done.returncode:
        return ""
    return f"FAILED: {compiler} {' '.join(flags)}: {' '.join(names)}\n{done.stderr}"


def jobs_of(names, include, full):
    """Each header in each dialect and by each compiler; unless `full`, the
    dialects by gcc and clang in turns, other ones for the next header."""
    for number, name in enumerate(names):
        more = [f"-I{include}/poise/vmpi"] if name == OF_MPI else []
        for turn, (language, dialect) in enumerate(DIALECTS, number):
            compilers = COMPILERS[language]
            if not full:
                compilers = [compilers[turn % len(compilers)]]
            for compiler in compilers:
                yield compiler, language, [*dialect, f"-I{include}", *more], \
                    [name]


def main():
    full = sys.argv[1] == "--full"
    words = sys.argv[2:] if full else sys.argv[1:]
    meson, build = shlex.split(words[0]), os.path.abspath(words[1])
    with tempfile.TemporaryDirectory(prefix="poise-headers-") as folder:
        include, names = installed(meson, build, folder)
        jobs = list(jobs_of(names, include, full))
        flags = uninstalled(build)
        jobs.append(("gcc", "c", [*flags, "-std=c17"],
                     [name for name in names if name != OF_MPI]))
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            findings = [said for said in pool.map(compile_alone, jobs) if said]
    print("\n".join(findings), end="")
    print(f"{len(jobs) - len(findings)} passed, {len(findings)} failed")
    return 1 if findings or not jobs else 0


if __name__ == "__main__":
    sys.exit(main())
