#!/usr/bin/env python3
"""Every option of every command stands in docs/options.md as it is, and
nothing else stands there.

usage: options.py POISE ROOT

Beside the check of the real tables, each way to leave them is tried.
"""

import collections
import os
import re
import subprocess
import sys
import unittest

POISE, ROOT = sys.argv[1:3]
HEADS = {"words": ["Option", "Letter", "Argument", "Default", "Commands",
                   "Meaning"],
         "exceptions": ["Command", "Option", "Letter", "Argument", "Reason"],
         "imitated": ["Command", "Option", "Letter", "Argument", "As"],
         "renamed": ["Old", "Now", "Commands"]}
# Commands that all have the word.
ALL = "all"

Option = collections.namedtuple("Option",
                                "command long short argument renamed")


def read_listing(text):
    """The lines of `poise help --options`."""
    return [Option(*line.split("\t")) for line in text.splitlines()]


def cells_of(line):
    cells = re.split(r"(?<!\\)\|", line)[1:-1]
    return [cell.strip().replace("\\|", "|") for cell in cells]


def read_document(text):
    """The rows of docs/options.md by kind of table."""
    rows = {kind: [] for kind in HEADS}
    kind = None
    for line in text.splitlines():
        if not line.startswith("|"):
            kind = None
            continue
        cells = cells_of(line)
        for name, head in HEADS.items():
            if cells == head:
                kind = name
                break
        else:
            if kind and not re.fullmatch(r"[|\- ]+", line):
                rows[kind].append(cells)
    return rows


def code(cell):
    return cell.strip("`")


class Check:
    """What differs between the options and the document."""

    def __init__(self, options, rows):
        self.findings = []
        self.options = [o for o in options if not o.renamed]
        self.old = [o for o in options if o.renamed]
        self.commands = {o.command for o in options}
        self.exceptions = {}
        for command, name, letter, argument, reason in \
                rows["exceptions"] + rows["imitated"]:
            self.exceptions[command, code(name)] = (code(letter), argument)
            if not reason:
                self.say(f"the exception {command} {name} has no reason")
        self.words = {}
        for cells in rows["words"]:
            if code(cells[0]) in self.words:
                self.say(f"{cells[0]} stands twice in the tables")
            self.words[code(cells[0])] = cells
        self.check_options()
        self.check_rows()
        self.check_letters()
        self.check_renamed(rows["renamed"])

    def say(self, text):
        self.findings.append(text)

    def check_options(self):
        for o in self.options:
            name = o.long or o.short
            row = self.words.get(name)
            short = o.short if o.long else ""
            if not row:
                self.say(f"{o.command} {name} is in no table")
                continue
            meant = (code(row[1]), row[2])
            meant = self.exceptions.get((o.command, name), meant)
            if (short, o.argument) != meant:
                self.say(f"{o.command} {name} has '{short}' and "
                         f"'{o.argument}', the table {meant}")

    def check_rows(self):
        """What the tables say of commands and exceptions is so."""
        for name, row in self.words.items():
            have = {o.command for o in self.options
                    if (o.long or o.short) == name}
            listed = set(row[4].split(", "))
            if listed == {ALL}:
                # cc, c++ and fort pass all on to the compiler.
                listed = {o.command for o in self.options}
            for command in sorted(listed - have):
                self.say(f"the table gives {name} to {command}, "
                         "which has none")
            for command in sorted(have - listed):
                self.say(f"the table's commands of {name} lack {command}")
            if not row[5]:
                self.say(f"{name} has no meaning")
        known = {(o.command, o.long or o.short) for o in self.options}
        for command, name in sorted(set(self.exceptions) - known):
            self.say(f"an exception for {command} {name}, which there is not")

    def check_letters(self):
        """One letter, one word, but for exceptions."""
        words = collections.defaultdict(set)
        for o in self.options:
            name = o.long or o.short
            if o.short and (o.command, name) not in self.exceptions:
                words[o.short].add(name)
        for letter, names in sorted(words.items()):
            if len(names) > 1:
                self.say(f"{letter} stands for {', '.join(sorted(names))}")

    def check_renamed(self, rows):
        listed = set()
        for old, now, commands in rows:
            for command in commands.split(", "):
                for name in old.split(", "):
                    listed.add((command, code(name), code(now)))
        have = {(o.command, name, o.renamed) for o in self.old
                for name in (o.short, o.long) if name}
        for command, name, now in sorted(have - listed):
            self.say(f"renamed, but not listed: {command} {name}, now {now}")
        for command, name, now in sorted(listed - have):
            self.say(f"listed, but not renamed: {command} {name}, now {now}")


LISTING = subprocess.run([POISE, "help", "--options"], check=True,
                         capture_output=True, text=True).stdout
with open(os.path.join(ROOT, "docs", "options.md"), encoding="utf-8") as file:
    DOCUMENT = file.read()


def findings(listing=LISTING, document=DOCUMENT):
    return Check(read_listing(listing), read_document(document)).findings


# Words behind the first operand are the other program's own.
WRAPPERS = {"advise", "c++", "cc", "coll", "desync run", "find", "fort", "run",
            "trace run", "wan"}


def wrong_words(line, options):
    """The words of a command line that are no option of its command, or an old
    name of one."""
    words = line[line.index("poise ") + 6:].partition(" | ")[0].split()
    commands = {o.command for o in options}
    name = " ".join(words[:2])
    count = 2 if name in commands else 1
    name = " ".join(words[:count])
    known = {o.short: o for o in options if o.command == name and o.short}
    known.update({o.long: o for o in options if o.command == name and o.long})
    known.update({"--no-" + o.long[2:]: o for o in known.values()
                  if o.long and not o.argument})
    wrong, skip = [], False
    for word in words[count:]:
        option = known.get(re.match(r"--[^=]*|-.|", word)[0])
        if skip:
            skip = False
        elif word == "--where" or name in ("c++", "cc", "fort"):
            break
        elif option and not option.renamed:
            skip = bool(option.argument) and word in (option.short, option.long)
        elif word.startswith("-") and len(word) > 1:
            wrong.append(f"{name} {word}")
        elif name in WRAPPERS:
            break
    return wrong


class Options(unittest.TestCase):
    maxDiff = None

    def test_examples(self):
        """Command lines of the examples have words that there are."""
        options, wrong, seen = read_listing(LISTING), [], 0
        for command in sorted({o.command for o in options}):
            text = subprocess.run([POISE, "help", *command.split()], check=True,
                                  capture_output=True, text=True).stdout
            _, _, examples = text.partition("\nExamples:\n")
            examples = examples.partition("\n\n")[0]
            for line in re.findall(r"^  (?! )(.*poise .*)", examples, re.M):
                wrong += wrong_words(line, options)
                seen += 1
        self.assertEqual(wrong, [])
        self.assertGreater(seen, 60)
        self.assertEqual(wrong_words("poise wire model -d 1G --bits 3",
                                     options), ["wire model -d"])

    def test_man_pages(self):
        """The build makes a page for each command that help lists."""
        text = subprocess.run([POISE, "help"], check=True, capture_output=True,
                              text=True).stdout
        commands = {line[4:17].strip() for line in text.splitlines()
                    if re.match(r"    [a-z]", line)}
        with open(os.path.join(ROOT, "docs/man/meson.build"),
                  encoding="utf-8") as file:
            made = re.search(r"man_commands = \[(.*?)\]", file.read(), re.S)[1]
        self.assertEqual(commands, set(re.findall(r"'([^']+)'", made)))

    def test_real(self):
        self.assertEqual(findings(), [])
        self.assertGreater(len(read_listing(LISTING)), 250)

    def caught(self, part, listing=LISTING, document=DOCUMENT):
        said = findings(listing, document)
        self.assertTrue(any(part in line for line in said), said)

    def change(self, text, old, new):
        self.assertIn(old, text)
        return text.replace(old, new, 1)

    def test_unknown(self):
        self.caught("walk --new is in no table",
                    LISTING + "walk\t--new\t\tN\t\n")

    def test_other_letter(self):
        self.caught("run --threads has '-T' and 'N'", self.change(
            LISTING, "run\t--threads\t-j", "run\t--threads\t-T"))

    def test_other_argument(self):
        self.caught("sort --seed has '' and 'NUMBER'", self.change(
            LISTING, "sort\t--seed\t\tN", "sort\t--seed\t\tNUMBER"))

    def test_letter_of_two(self):
        self.caught("-x stands for --one-file-system, --top", self.change(
            LISTING, "walk\t--top\t", "walk\t--top\t-x"))

    def test_command_without(self):
        self.caught("the table gives --top to walk", self.change(
            LISTING, "walk\t--top\t\tN\t\n", ""))
        self.caught("the table's commands of --top lack du",
                    LISTING + "du\t--top\t\tN\t\n")

    def test_row_without_command(self):
        self.caught("the table gives --gone to walk", document=self.change(
            DOCUMENT, "| `--top` |",
            "| `--gone` | | | | walk | nothing |\n| `--top` |"))

    def test_exceptions(self):
        self.caught("find --threads has ''", document=re.sub(
            r"\| find \| `--threads` .*\n", "", DOCUMENT))
        self.caught("an exception for send --gone", document=self.change(
            DOCUMENT, "| send | `--dry-run`", "| send | `--gone`"))
        self.caught("has no reason", document=re.sub(
            r"(\| find \| `--threads` \|  \| N \|).*", r"\1 |", DOCUMENT))

    def test_renamed(self):
        self.caught("renamed, but not listed: walk --policy",
                    document=re.sub(r"\| `--policy` \| `--balance`.*\n", "",
                                    DOCUMENT))
        self.caught("listed, but not renamed: coll --report", self.change(
            LISTING, "coll\t--report\t\t\t--stats\n", ""))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
