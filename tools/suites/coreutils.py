"""GNU coreutils' tests of du (tests/du), the shell scripts. Those of sort (tests/misc/sort*)
are mostly Perl, which wants a built coreutils around it: they are not run from here."""

import os

import suite

NAME = "coreutils"
SUBJECT = "du"
OWNER = "www.gnu.org/software/coreutils"
WANTS = "coreutils/coreutils-VERSION, its sources"

# They compare messages.
TEXTS = ("bind-mount-dir-cycle.sh", "bind-mount-dir-cycle-v2.sh",
         "inodes.sh", "long-sloop.sh",
         "files0-from-dir.sh", "long-from-unreadable.sh")


def find(context):
    return suite.unpacked(context, "coreutils", "tests", "du")


def version(context):
    return os.path.basename(find(context))


def run(context):
    yield from suite.run_shell(context, find(context), "du", "du", TEXTS)
