#!/usr/bin/env python3
"""Pages (--report). Each stands for itself, says what made it, and has a tooltip
on every mark; those of sort, listrank, send and tunnel have the figures that
--json has. Of run, trace and vnc see tests/vrank, tests/mon, tests/remote.

usage: tests/cli/reports.py POISE
"""

import html.parser
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import unittest

# By how much a machine is slower than an idle one: tools/test_all.py.
SLOWNESS = float(os.environ.get("POISE_TEST_SLOWNESS", "4"))
POISE = ""
VOID = {"meta", "br"}


def is_mark(tag, attributes):
    """What one points at in a drawing; axes and the like are none."""
    return (tag in ("rect", "circle", "path")
            and dict(attributes).get("class") in ("b", "c", "l", "o"))


class Page(html.parser.HTMLParser):
    """Figures, tables, titles of drawings and tooltips of a page."""

    def __init__(self, path):
        super().__init__()
        self.open, self.outside, self.text = [], [], ""
        self.pairs, self.rows, self.titles, self.tips = {}, [], [], []
        self.marks, self.nameless = [], []
        with open(path, encoding="utf-8") as file:
            self.feed(file.read())
        self.close()

    def handle_starttag(self, tag, attributes):
        self.outside += [value for name, value in attributes
                         if name in ("src", "href")]
        self.text = ""
        if tag not in VOID:
            self.open.append(tag)
            self.marks.append(is_mark(tag, attributes))
        if tag == "tr":
            self.rows.append([])

    def handle_startendtag(self, tag, attributes):
        if is_mark(tag, attributes):
            self.nameless.append(attributes)

    def handle_data(self, data):
        self.text += data

    def handle_endtag(self, tag):
        last = self.open.pop()
        assert last == tag, f"<{last}> is ended by </{tag}>"
        if self.marks.pop():
            self.nameless.append(last)
        text = self.text.strip()
        if tag == "dt":
            self.label = text
        elif tag == "dd":
            self.pairs[self.label] = text
        elif tag in ("td", "th"):
            self.rows[-1].append(text)
        elif tag == "figcaption":
            self.titles.append(text)
        elif tag == "title" and self.open[-1] != "head":
            self.tips.append(text)
            self.marks[-1] = False
        self.text = ""

    def numbers(self):
        """First cell and last of each row of the page's tables."""
        return {row[0]: row[-1] for row in self.rows if row}


def human(count):
    """As poise_human_bytes writes it."""
    if count < 1024:
        return f"{count} B"
    unit, at = 1024, 0
    while count // (unit // 2) >= 2047:
        unit, at = unit * 1024, at + 1
    name = ["KiB", "MiB", "GiB"][at]
    tenths = (count * 20 + unit) // (2 * unit)
    return f"{tenths // 10}.{tenths % 10} {name}" if tenths < 1000 \
        else f"{(count * 2 + unit) // (2 * unit)} {name}"


class Reports(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.environment = dict(os.environ, SOURCE_DATE_EPOCH="86399",
                                XDG_CACHE_HOME=self.path("cache"))

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def poise(self, *words, code=0):
        result = subprocess.run([POISE, *words], capture_output=True, text=True,
                                cwd=self.folder.name, env=self.environment,
                                timeout=60 * SLOWNESS)
        self.assertEqual(result.returncode, code, result.stderr)
        return result

    def page(self, command, checked):
        page = Page(self.path("page.html"))
        self.assertEqual(page.open, [])
        self.assertEqual(page.outside, [])
        self.assertEqual(page.nameless, [])
        self.assertTrue(page.pairs["Command"].startswith(f"poise {command} "))
        self.assertEqual(page.pairs["Date"], "1970-01-01 23:59:59 UTC")
        self.assertRegex(page.pairs["Version"], r"^poise \d")
        self.assertRegex(page.pairs["Machine"], r"cores?, .*B of memory$")
        self.assertRegex(page.pairs["Result checked"], checked)
        self.assertRegex(page.pairs["Seed"], r"^(\d+|drawn by the system|none: "
                         r"nothing is random)$")
        return page

    def tunnel(self, *words):
        end = subprocess.Popen([POISE, "tunnel", "--cache", "", *words],
                               text=True, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, env=self.environment,
                               cwd=self.folder.name)
        self.addCleanup(end.kill)
        return end

    def test_others(self):
        os.makedirs(self.path("tree/of"))
        for i in range(3):
            with open(self.path(f"tree/of/{i}"), "wb") as file:
                file.write(bytes(range(256)) * 100 * i)
        with open(self.path("plate"), "w", encoding="ascii") as file:
            file.write("9 9 9 9\n0 0 0 0\n0 0 0 0\n0 0 0 0\n")
        for command, words, checked in (
                ("walk", ["tree"], "^no$"),
                ("copy", ["tree", "one"], "^no$"),
                ("copy", ["--verify", "tree", "two"], "read back"),
                ("compare", ["tree", "two"], "."),
                ("remove", ["two"], "."),
                ("wire analyse", ["tree/of/1", "tree/of/2"], "."),
                ("solve", ["--sweeps", "5", "--block", "2", "--check", "plate",
                           "warm"], "computed twice"),
                ("bfs", ["--scale", "6"], "five rules")):
            with self.subTest(command):
                self.poise(*command.split(), "--report", "page.html", *words)
                page = self.page(command, checked)
                self.assertTrue(page.titles)

    def test_sort(self):
        self.poise("sort", "--generate", "200K", "in")
        out = self.poise("sort", "--memory", "4M", "--report", "page.html",
                         "--json", "-o", "out", "in").stdout
        said = json.loads(out)
        page = self.page("sort", "^no$")
        self.assertEqual(page.pairs["items"], f"{said['items_in']:,}")
        self.assertEqual(page.pairs["data"], human(said["bytes_in"]))
        self.assertEqual(page.pairs["buckets"], f"{said['buckets']:,}")
        rows = page.numbers()
        self.assertEqual(rows["read"], human(said["read_bytes"]))
        self.assertEqual(rows["written"], human(said["written_bytes"]))
        self.assertIn("read, planned", rows)
        self.assertIn("Phases", page.titles)
        # Each bar says what it is.
        self.assertIn(f"read: {human(said['read_bytes'])}", page.tips)
        self.poise("sort", "--verify", "--report", "page.html", "-o", "out",
                   "in")
        self.page("sort", "sorted, and has the checksum of the input")
        # What cannot be written is known before anything is done.
        os.unlink(self.path("out"))
        self.poise("sort", "--report", "none/page.html", "-o", "out", "in",
                   code=2)
        self.assertFalse(os.path.exists(self.path("out")))
        self.poise("sort", "-c", "--report", "page.html", "in", code=2)

    def test_listrank(self):
        self.poise("listrank", "--generate", "100K", "in")
        for memory, phase in ("64M", "walk"), ("1M", "bridge nodes out"):
            out = self.poise("listrank", "--memory", memory, "--json",
                             "--report", "page.html", "in", "out").stdout
            said = json.loads(out)
            page = self.page("listrank", "^no$")
            self.assertEqual(page.pairs["nodes"], f"{said['nodes']:,}")
            self.assertEqual(page.pairs["lists"], "1")
            rows = page.numbers()
            self.assertEqual(rows["read"], human(said["read_bytes"]))
            self.assertIn(phase, rows)

    def test_send(self):
        os.mkdir(self.path("src"))
        for i in range(20):
            with open(self.path(f"src/{i}"), "wb") as file:
                file.write(bytes(range(256)) * 40 * (i + 1))
        said = json.loads(self.poise("send", "--json", "--report", "page.html",
                                     "src", "dst").stdout)
        page = self.page("send", "by its digest")
        wire = said["wire_out_bytes"] + said["wire_in_bytes"]
        self.assertEqual(page.pairs["entries"], str(said["entries"]))
        self.assertEqual(page.pairs["files that were sent"],
                         human(said["file_bytes"]))
        self.assertEqual(page.pairs["on the link"], human(wire))
        self.assertEqual(page.pairs["problems"], "0")
        rows = page.numbers()
        self.assertEqual(rows["send"], "20")
        self.assertEqual(rows["as they are"], human(said["by_data_bytes"]))
        self.poise("send", "--report", "page.html", "--also", "two", "src",
                   "one")
        page = self.page("send", "by its digest")
        self.assertEqual([row[0] for row in page.rows], ["target", "one", "two"])
        result = self.poise("send", "-n", "--report", "-", "src", "three")
        self.assertTrue(result.stdout.startswith("<!DOCTYPE html>"))

    def test_tunnel(self):
        far = socket.create_server(("127.0.0.1", 0))
        port = far.getsockname()[1]

        def answer():
            connection, _ = far.accept()
            with connection:
                while connection.recv(4096):
                    pass
                connection.sendall(b"poise " * 10000)

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        ends = [self.tunnel("--serve", "0", "--allow", f"localhost:{port}")]
        via = re.search(r":(\d+)$", ends[0].stderr.readline().strip())[1]
        ends.append(self.tunnel("-L", f"0:localhost:{port}",
                                f"localhost:{via}", "--report", "page.html",
                                "--json"))
        near = re.search(r"127.0.0.1:(\d+) ", ends[1].stderr.readline())[1]
        with socket.create_connection(("127.0.0.1", int(near))) as connection:
            connection.sendall(b"x")
            connection.shutdown(socket.SHUT_WR)
            got = 0
            while True:
                some = connection.recv(65536)
                if not some:
                    break
                got += len(some)
        self.assertEqual(got, 60000)
        said = None
        for end in reversed(ends):
            end.send_signal(signal.SIGINT)
            out, err = end.communicate(timeout=60 * SLOWNESS)
            self.assertEqual(end.returncode, 0, err)
            said = said or json.loads(out)
        far.close()
        page = self.page("tunnel", "^no$")
        rows = page.numbers()
        self.assertEqual(rows["Connections carried"], "1")
        self.assertEqual(rows["Bytes from the other end"],
                         f"{said['data_in_bytes']:,}")
        self.assertIn(human(said["link_in_bytes"]) + " for "
                      + human(said["data_in_bytes"]),
                      page.pairs["in from the link"])


if __name__ == "__main__":
    POISE = os.path.abspath(sys.argv.pop(1))
    unittest.main()
