"""What the scripts about programs of virtual ranks share: compile, run."""

import os
import subprocess
import tempfile
import unittest

# By how much a machine is slower than an idle one: tools/test_all.py.
SLOWNESS = float(os.environ.get("POISE_TEST_SLOWNESS", "4"))


def run(words, **more):
    return subprocess.run(words, capture_output=True, text=True, timeout=60 * SLOWNESS,
                          **more)


class Case(unittest.TestCase):
    POISE = ""  # the command

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def write(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def compile(self, text, *flags, name="prog.c", out="prog"):
        """The path of the program that `text` makes."""
        source = self.write(name, text)
        out = os.path.join(self.folder, out)
        kind = {".cc": "c++", ".f90": "fort"}.get(
            os.path.splitext(name)[1], "cc")
        result = run([self.POISE, kind, "-O2", "-o", out, source, *flags],
                     cwd=self.folder)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return out

    def ranks(self, count, program, *words, options=(), **more):
        return run([self.POISE, "run", "-V", str(count), *options, program, *words],
                   cwd=self.folder, **more)

    def lines(self, count, program, *words, options=()):
        """The sorted lines of a run that does well."""
        result = self.ranks(count, program, *words, options=options)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return sorted(result.stdout.splitlines())
