#!/usr/bin/env python3
"""Show that each structure check fails on a bad input and passes a good one.

usage: tests/structure.py TOOLS_DIR COMPILER...
"""

import os
import re
import subprocess
import sys
import tempfile
import unittest

TOOLS, COMPILER = "", []

PLAN = """
| level | room | what lives there | may include |
|---|---|---|---|
| 0 | core | everything below | - |
| 1 | trace | rings | core |
| 2 | comm | the world | core trace |
| 6 | cli | commands | all |
"""


# Of docs, and of tools, whose row has the term and what stands behind the meaning.
GLOSSARIES = ["| term | meaning |\n|---|---|\n",
              "| term | not | where |\n|---|---|---|\n"]
CORE_TERM = "| core | What all stand on. | | `src/core/` |\n"


def run(name, *args, cwd=None):
    return subprocess.run([os.path.join(TOOLS, name), *args], cwd=cwd,
                          capture_output=True, text=True)


class Structure(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="poise-structure-")
        self.root = self.folder.name
        self.write("ARCHITECTURE.md", PLAN)

    def tearDown(self):
        self.folder.cleanup()

    def write(self, path, text):
        path = os.path.join(self.root, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def good(self, result):
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)

    def bad(self, result, *texts):
        self.assertEqual(result.returncode, 1, result.stdout + result.stderr)
        for text in texts:
            self.assertIn(text, result.stdout)

    def layers(self, path, text):
        self.write(path, text)
        return run("layers", self.root)

    def test_layers_allows(self):
        self.write("src/trace/internal.h", "int trace_x;\n")
        self.good(self.layers(
            "src/trace/a.c", '#include <stdio.h>\n#include <sys/mman.h>\n'
            '#include <poise/core.h>\n#include "internal.h"\n'
            '/* printf(1); MPI_Send */ // exit(1)\n'
            'const char *s = "abort() \\" MPI_Send";\n'
            'int snprintf_like(void);\n'))
        self.good(self.layers("src/cli/main.c",
                              '#include <poise/comm.h>\nvoid f(void)\n'
                              '{\n    printf("x");\n}\n'))
        self.good(self.layers("src/comm/backend/b.c",
                              "#include <mpi.h>\nint x = MPI_VERSION;\n"))

    def test_layers_upward(self):
        self.bad(self.layers("src/trace/a.c", "#include <poise/comm.h>\n"),
                 "src/trace/a.c:1", "<poise/comm.h>")

    def test_layers_private(self):
        self.write("src/core/internal.h", "int core_x;\n")
        self.bad(self.layers("src/trace/a.c",
                             '\n#include "../core/internal.h"\n'),
                 "src/trace/a.c:2", "another wing")

    def test_layers_library(self):
        self.bad(self.layers("src/core/a.c", "#include <sqlite3.h>\n"),
                 "<sqlite3.h> belongs to walk")
        self.bad(self.layers("src/core/a.c", "#include <mpi.h>\n"),
                 "<mpi.h> belongs to")
        self.bad(self.layers("src/core/a.c", "#include <lzma.h>\n"),
                 "on no list")

    def test_layers_unknown_room(self):
        self.bad(self.layers("src/attic/a.c", "int x;\n"), "room attic")

    def test_layers_calls(self):
        for call in ("printf(\"x\")", "exit(1)", "abort()", "fputs(s, stderr)",
                     "assert(x)", "_exit(2)"):
            self.bad(self.layers("src/core/a.c",
                                 "void f(void)\n{\n    %s;\n}\n" % call),
                     "src/core/a.c:3")

    def test_layers_mpi_name(self):
        self.bad(self.layers("src/comm/a.c", "int x = MPI_SUCCESS;\n"),
                 "MPI_SUCCESS")

    def test_layers_rooms(self):
        """Rooms of a wing: by include, by symbol, without circles."""
        plan = PLAN + ("| 1 | trace/low | x | - |\n"
                       "| 1 | trace/high | x | low |\n")
        self.write("ARCHITECTURE.md", plan)
        self.write("src/trace/low/low.h", "int trace_low(void);\n")
        self.write("src/trace/high/high.h", "int trace_high(void);\n")
        self.write("src/trace/high/internal.h", "int trace_x;\n")
        self.good(self.layers("src/trace/high/a.c",
                              '#include "internal.h"\n'
                              '#include "trace/low/low.h"\n'
                              '#include <poise/core.h>\n'
                              '#include <poise/trace.h>\n'))
        self.bad(self.layers("src/trace/low/a.c",
                             '#include "trace/high/high.h"\n'),
                 "room trace/low may not include")
        self.bad(self.layers("src/trace/low/a.c",
                             '#include "trace/high/internal.h"\n'),
                 "another room's")
        self.write("src/trace/low/a.c", "int x;\n")
        self.write("ARCHITECTURE.md", plan.replace("| x | - |", "| x | high |"))
        self.bad(run("layers", self.root),
                 "circle of rooms: trace/high -> trace/low -> trace/high")
        self.write("ARCHITECTURE.md", plan.replace("| low |", "| lower |"))
        self.bad(run("layers", self.root), "lower, which is no room")

    def test_layers_symbols(self):
        objects = []
        for path, text in (("src/comm/a.c", "int comm_a(void)\n{\n"
                            "    return 1;\n}\n"),
                           ("src/trace/a.c", "int comm_a(void);\n"
                            "int trace_a(void)\n{\n    return comm_a();\n}\n")):
            objects.append(os.path.join(self.root,
                                        path.replace("/", "_") + ".o"))
            subprocess.run([*COMPILER, "-c", self.write(path, text), "-o",
                            objects[-1]], check=True)
        archive = os.path.join(self.root, "b.a")
        subprocess.run(["ar", "rc", archive, *objects], check=True)
        self.bad(run("layers", self.root, archive), "src/trace/a.c",
                 "room trace may not use comm_a of src/comm/a.c")
        os.remove(archive)
        subprocess.run(["ar", "rc", archive, objects[0]], check=True)
        self.good(run("layers", self.root))

    def test_layers_sizes(self):
        self.bad(self.layers("src/core/a.c", "int x;\n" * 8001),
                 "src/core: has 8001 lines")
        self.write("src/core/a.c", "int x;\n")
        for i in range(24):
            self.write(f"src/core/b{i}.c", "int x;\n")
        self.bad(run("layers", self.root), "src/core: has 25 files")

    def test_layers_nothing(self):
        self.bad(run("layers", self.root), "nothing to check")

    def functions(self, lines, branches):
        body = "    x++;\n" * lines + "    if (x) {\n    }\n" * branches
        self.write("src/core/a.c",
                   "int f(int x)\n{\n%s    return x;\n}\n" % body)
        return run("functions", self.root)

    def limit(self, name):
        """The number of that name in tools/functions."""
        with open(os.path.join(TOOLS, "functions"), encoding="utf-8") as file:
            return int(re.search(rf"^{name} = (\d+)$", file.read(), re.M)[1])

    def test_functions(self):
        limit = self.limit("LINES")
        self.good(self.functions(limit - 4, 0))
        self.bad(self.functions(limit - 3, 0), "src/core/a.c:1",
                 f"{limit + 1} lines")
        self.good(self.functions(0, 24))
        self.bad(self.functions(0, 25), "complexity 26")

    def test_files(self):
        """As many lines as a file may have, in each kind of file, and one
        more in each."""
        limit = self.limit("FILE_LINES")
        self.write("src/core/a.c", "int f(int x)\n{\n    return x;\n}\n")
        os.chmod(self.write("tools/c", ""), 0o755)
        for name, first, line in (
                ("src/core/b.c", "", "extern int x;\n"),
                ("src/core/b.h", "", "extern int x;\n"),
                ("tools/b.py", "", "x = 1\n"),
                ("tools/c", "#!/usr/bin/env python3\n", "x = 1\n")):
            lines = limit - first.count("\n")
            self.write(name, first + line * lines)
            self.good(run("functions", self.root))
            self.write(name, first + line * (lines + 1))
            self.bad(run("functions", self.root), name,
                     f"has {limit + 1} lines")
            self.write(name, line)

    def test_files_others(self):
        """What is no script of Python may have any number of lines."""
        limit = self.limit("FILE_LINES")
        self.write("src/core/a.c", "int f(int x)\n{\n    return x;\n}\n")
        os.chmod(self.write("tools/b", "#!/bin/sh\n" + ":\n" * limit), 0o755)
        self.write("tools/c", "#!/usr/bin/env python3\n" + "\n" * limit)
        self.good(run("functions", self.root))

    def test_functions_unreadable(self):
        self.write("src/core/a.c", "int f(int x)\n{\n    if (x) {\n")
        result = run("functions", self.root)
        self.assertEqual(result.returncode, 1)

    def papers(self, row, glossary="", more_terms=""):
        self.write("src/core/a.c", "int core_a(void)\n{\n    return 1;\n}\n"
                   'const char *const option = "fast";\n'
                   'const char *const command = "walk";\n')
        self.write("tests/core/a.c", "void test_a(void)\n{\n}\n")
        self.write("docs/a.md", "# A\n\n## How fast, and why\n")
        run_file = self.write("bench/run", "#!/bin/sh\necho quick-case\n")
        os.chmod(run_file, 0o755)
        self.write("docs/papers.md",
                   "| section | idea | code | test | state |\n"
                   "|---|---|---|---|---|\n" + row + "\n")
        docs, code = GLOSSARIES
        for row in (CORE_TERM + glossary).splitlines():
            _, term, meaning, *more = row.split("|")
            docs += f"|{term}|{meaning}|\n"
            code += f"|{term}|{'|'.join(more)}\n"
        self.write("docs/glossary.md", docs)
        self.write("tools/glossary.md", code + more_terms)
        return run("mentions", self.root)

    def test_papers(self):
        good = ("| 1 | idea | `core_a` in `src/core/a.c`, `poise walk --fast` "
                "| `test_a` in `tests/core/a.c` | tested; measured: "
                "`quick-case`, [a](a.md#how-fast-and-why) |")
        self.good(self.papers(good))
        self.good(self.papers("| 1 | idea | | | neither: too slow |"))
        for old, new, text in (
                ("`core_a`", "`core_b`", "nothing is called core_b"),
                ("src/core/a.c", "src/core/b.c", "there is no src/core/b.c"),
                ("--fast", "--slow", "option --slow"),
                ("poise walk", "poise run", "no command run"),
                ("test_a", "test_b", "has test_b"),
                ("`quick-case`", "`slow-case`", "nothing is called slow"),
                ("`quick-case`, ", "", "names no case"),
                ("#how-fast-and-why", "#how", "no heading #how"),
                ("(a.md#how-fast-and-why)", "(a.md)", "links to no table"),
                ("`test_a` in `tests/core/a.c`", "", "names no test"),
                ("tested; measured: ", "", "state is not")):
            self.assertIn(old, good)
            self.bad(self.papers(good.replace(old, new)), text)
        self.bad(self.papers("| 1 | idea | | | neither |"), "with the reason")

    def test_links(self):
        row = "| 1 | idea | | | neither: too slow |"
        self.write("docs/more/b.md", "[a](../a.md#how-fast-and-why) `[x](y)`\n")
        self.good(self.papers(row))
        self.write("docs/more/b.md", "[a](a.md)\n")
        self.bad(self.papers(row), "docs/more/a.md, which does not exist")
        self.write("docs/more/b.md", "[a](../a.md#how-slow)\n")
        self.bad(self.papers(row), "no heading #how-slow")
        self.bad(self.papers("| 1 | idea | | |"), "has 4 columns")

    def test_ways(self):
        """What ARCHITECTURE.md says of the ways through the code."""
        row = "| 1 | idea | | | neither: too slow |"
        self.write("ARCHITECTURE.md", PLAN + "\n## Two ways\n\n`core_a` in "
                   "`src/core/a.c`.\n\n## More\n\n`core_b`\n")
        self.good(self.papers(row))
        self.write("ARCHITECTURE.md", PLAN + "\n## Two ways\n\n`core_b`\n"
                   "\n## More\n")
        self.bad(self.papers(row), "nothing is called core_b")

    def test_glossary(self):
        row = "| 1 | idea | | | neither: too slow |"
        self.good(self.papers(row, "| b | A b. | bee | `src/core/` |\n"))
        self.bad(self.papers(row, "| b | A b. | a | `src/core/` |\n"),
                 "core_a: the glossary says 'b', not 'a'")
        self.bad(self.papers(row, "| b | A b. | | `src/c/` |\n"),
                 "there is no src/c")
        self.bad(self.papers(row, "| b | A b | | `src/core/` |\n"),
                 "a sentence")
        self.bad(self.papers(row, "| b | A b. | | `src/core/` |\n" * 80),
                 "has 81 terms")
        self.bad(self.papers(row, more_terms="| b | | `src/core/` |\n"),
                 "docs/glossary.md has no b")

    def archive(self, text):
        source = self.write("src/core/a.c", text)
        object_file = os.path.join(self.root, "src_core_a.c.o")
        archive = os.path.join(self.root, "a.a")
        subprocess.run([*COMPILER, "-fPIC", "-c", source, "-o", object_file],
                       check=True)
        if os.path.exists(archive):
            os.remove(archive)
        subprocess.run(["ar", "rc", archive, object_file], check=True)
        return archive

    def globals(self, text, listed):
        return run("globals", self.root, self.archive(text),
                   self.write("globals.list", listed))

    def test_globals(self):
        constant = ('const char *const names[] = {"a", 0};\n'
                    "static const int table[] = {1, 2};\n"
                    "int f(int x)\n{\n    return table[x] + *names[0];\n}\n")
        self.good(self.globals(constant, ""))
        for text in ("int counter;\n", "int counter = 3;\n",
                     "_Thread_local int counter;\n",
                     "int f(void)\n{\n    static int counter;\n"
                     "    return ++counter;\n}\n",
                     "static const char *counter = \"a\";\n"
                     "void f(const char *x)\n{\n    counter = x;\n}\n"
                     "const char *g(void)\n{\n    return counter;\n}\n"):
            self.bad(self.globals(text, "# none\n"), "counter", "core/a.c")
            self.good(self.globals(text, "core/a.c counter counts\n"))
        self.bad(self.globals(constant, "core/a.c gone was there\n"), "gone")
        self.bad(self.globals("int counter;\n", "core/a.c counter\n"),
                 "REASON")

    def shared(self, text, *flags):
        source = self.write("a.c", text)
        path = os.path.join(self.root, "a.so")
        subprocess.run([*COMPILER, "-fPIC", "-shared", *flags, source, "-o",
                        path], check=True)
        return path

    def test_symbols(self):
        self.good(run("symbols", self.shared("int poise_x(void)\n"
                                             "{\n    return 1;\n}\n")))
        self.bad(run("symbols", self.shared("int helper(void)\n"
                                            "{\n    return 1;\n}\n")),
                 "exports helper")
        text = ("int MPI_Init(int *, char ***);\nint poise_x(void)\n"
                "{\n    return MPI_Init(0, 0);\n}\n")
        self.bad(run("symbols", self.shared(text)), "MPI_Init")
        self.good(run("symbols", "--backend", self.shared(text)))

    def abi(self, header, users=()):
        """Build a library of src/a.h with the list that is there; check."""
        header = self.write("a.h", header)
        listed = os.path.join(self.root, "abi.list")
        if not os.path.exists(listed):
            self.good(run("abi", "--update", listed, "0.2.0", header))
        self.good(run("abi", "--script", listed,
                      os.path.join(self.root, "map"), header))
        library = self.shared("int poise_x(void)\n{\n    return 1;\n}\n"
                              "int poise_inner(void)\n{\n    return 1;\n}\n",
                              f"-Wl,--version-script={self.root}/map")
        return run("abi", "--check", listed, library, header, "--", *users)

    def test_abi(self):
        text = "struct poise_s { int a; };\nPOISE_API int poise_x(void);\n"
        user = os.path.join(self.root, "user.o")
        subprocess.run([*COMPILER, "-c", self.write(
            "user.c", "int poise_inner(void);\nint f(void)\n{\n"
            "    return poise_inner();\n}\n"), "-o", user], check=True)
        self.good(self.abi(text, [user]))
        self.bad(self.abi(text), "exports poise_inner, which neither")
        self.bad(self.abi(text.replace("int a", "long a"), [user]),
                 "struct:poise_s is declared otherwise")
        self.bad(self.abi(text.replace("(void)", "(int)"), [user]),
                 "poise_x is declared otherwise")
        self.bad(self.abi("struct poise_s { int a; };\n", [user]),
                 "poise_x is in no public header")
        self.bad(self.abi(text + "POISE_API int poise_y(void);\n", [user]),
                 "lacks poise_y", "does not define poise_y")

    def test_abi_update(self):
        header = self.write("a.h", "POISE_API int poise_x(void);\n")
        listed = os.path.join(self.root, "abi.list")
        self.good(run("abi", "--update", listed, "0.2.0", header))
        self.write("a.h", "POISE_API int poise_x(int a);\n")
        self.bad(run("abi", "--update", listed, "0.3.0", header),
                 "poise_x; keep what they declare")
        self.good(run("abi", "--update", listed, "0.2.1", header))
        self.write("a.h", "POISE_API int poise_x(int a);\n"
                   "POISE_API int poise_y(void);\n")
        self.good(run("abi", "--update", listed, "0.3.0", header))
        with open(listed, encoding="utf-8") as file:
            self.assertIn("POISE_0.3 poise_y int poise_y(void);", file.read())

    def test_format(self):
        with open(os.path.join(TOOLS, "..", ".clang-format"),
                  encoding="utf-8") as style:
            self.write(".clang-format", style.read())
        self.write("src/core/a.c", "int f(void)\n{\n    return 1;\n}\n")
        self.good(run("format", self.root))
        self.write("src/core/a.c", "int f(void) {\n  return 1; }\n")
        self.assertEqual(run("format", self.root).returncode, 1)
        self.good(run("format", "--fix", self.root))
        self.good(run("format", self.root))


if __name__ == "__main__":
    TOOLS = os.path.abspath(sys.argv.pop(1))
    COMPILER = sys.argv[1:]
    unittest.main(argv=sys.argv[:1])
