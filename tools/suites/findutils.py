"""GNU findutils' tests of find (tests/find), the shell scripts. Those of
find/testsuite want DejaGnu and are not run."""

import os

import suite

NAME = "findutils"
SUBJECT = "find"
OWNER = "www.gnu.org/software/findutils"
WANTS = "findutils/findutils-VERSION, its sources"

# They compare messages, or look at what -D shows of GNU's insides.
TEXTS = ("debug-missing-arg.sh", "printf_escapechars.sh", "printf_escape_c.sh")


def find(context):
    return suite.unpacked(context, "findutils", "tests", "find")


def version(context):
    return os.path.basename(find(context))


def run(context):
    yield from suite.run_shell(context, find(context), "find", "find", TEXTS)
