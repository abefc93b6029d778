"""What a remote shell and the end that it starts may do for poise send.

No host is an option of the shell; the other end loads no code because this one
says so; and one that sshd is forced to run with --restrict does for whoever
has the key what its words say and nothing else.
"""
import os
import shutil
import subprocess

from send_tree import expect, same, write

# Runs what an authorized_keys file forces, whatever was asked for.
FORCED = """#!/bin/bash
exec {words}
"""
# A remote shell that writes down its words.
NOTED = """#!/bin/bash
printf '%s\\n' "$@" >{file}
while [ "$1" != -- ]; do shift; done
shift 2
exec "$@"
"""


def make_script(bench, name, text):
    path = bench.path(name)
    write(path, text.encode())
    os.chmod(path, 0o755)
    return path


def promise_hosts(bench):
    """A host that is an option would have the shell run a command here."""
    evil = "-oProxyCommand=id>made:x"
    for words in (("--", bench.source + "/", evil),
                  ("--", evil, bench.path("to")),
                  (bench.source + "/", "user@" + evil),
                  (bench.source + "/", "--also", evil, "host:x")):
        done = subprocess.run([bench.poise, "send", "--cache=", *words],
                              capture_output=True, text=True, check=False,
                              cwd=bench.folder, timeout=bench.limit)
        expect(not os.path.exists(bench.path("made")), f"{words}: it was run")
        expect(done.returncode == 2 and "begin with '-'" in done.stderr,
               f"{words}: {done.returncode} {done.stderr}")
    # And ssh is told where its options end.
    os.mkdir(bench.path("bin"))
    noted = bench.path("noted")
    shell = make_script(bench, os.path.join("bin", "ssh"),
                        NOTED.format(file=noted))
    bench.good("-e", shell + " -p 22", bench.source + "/",
               "host:" + bench.path("dashes"))
    with open(noted, encoding="utf-8") as file:
        got = file.read().split("\n")
    expect(got[:4] == ["-p", "22", "--", "host"], f"ssh's words: {got}")
    shutil.rmtree(bench.path("dashes"))


def promise_no_code(bench):
    """A shared object is loaded by the end whose user names it, only."""
    done = bench.run("--segmenter", bench.path("no", "such.so"),
                     "host:" + bench.source + "/", bench.path("to"))
    expect(done.returncode == 1 and "no code is loaded" in done.stderr,
           f"code of the other end: {done.stderr}")


def promise_restricted(bench):
    """What rrsync does for rsync."""
    home = bench.path("home")
    os.makedirs(os.path.join(home, "sub", "deep"))
    write(os.path.join(home, "sub", "file"), b"inside")
    write(os.path.join(home, "sub", "deep", "file"), b"deeper")
    write(bench.path("outside"), b"not for you")
    os.symlink("../outside", os.path.join(home, "leak"))
    os.symlink("..", os.path.join(home, "up"))
    os.symlink("sub", os.path.join(home, "within"))

    def forced(*words):
        text = FORCED.format(words=" ".join(
            [bench.poise, "send", "--server", *words]))
        return ["--cache=", "--json", "-e",
                make_script(bench, "forced", text)]

    def send(shell, *words):
        return subprocess.run([bench.poise, "send", *shell, *words],
                              capture_output=True, text=True, check=False,
                              timeout=bench.limit,
                              env={**os.environ, "HOME": bench.path("nobody")})

    def refused(shell, *words, why):
        done = send(shell, *words)
        expect(done.returncode == 1 and why in done.stderr,
               f"{words}: {done.returncode} {done.stderr}")
        expect(not os.path.exists(bench.path("got", "outside")) and
               not os.path.exists(bench.path("got", "passwd")),
               f"{words}: it came")

    reads = forced("--restrict", home, "--read-only")
    for path in ("sub/", "/sub/", "//./sub/./"):
        done = send(reads, "host:" + path, bench.path("got"))
        expect(done.returncode == 0, f"{path}: {done.stderr}")
        same(os.path.join(home, "sub"), bench.path("got"), path)
        shutil.rmtree(bench.path("got"))
    done = send(reads, "host:sub/file", "host:/sub/deep", bench.path("got"))
    expect(done.returncode == 0, done.stderr)
    same(os.path.join(home, "sub", "deep"), bench.path("got", "deep"), "deep")
    # A link is a link; what it leads to is not there.
    done = send(reads, "host:leak", bench.path("got"))
    expect(done.returncode == 0 and os.path.islink(bench.path("got", "leak")),
           f"a link: {done.stderr}")
    for path, why in (("../outside", "'..'"), ("sub/../../outside", "'..'"),
                      ("/etc/passwd", "No such file"),
                      ("up/outside", "symbolic link"), ("leak/", "symbolic"),
                      ("within/file", "symbolic link"),
                      ("up/", "symbolic link")):
        refused(reads, "host:" + path, bench.path("got"), why=why)
    before = sorted(os.listdir(home))
    refused(reads, bench.path("outside"), "host:x", why="only sends")
    refused([*reads, "--remote-cache", bench.path("cache9")], "host:sub/",
            bench.path("got"), why="has its own or none")
    # Both ends are here: the other one, which is free, has a name for caches.
    wrote = {name for _, _, names in os.walk(bench.path("nobody"))
             for name in names}
    expect(sorted(os.listdir(home)) == before and
           not os.path.exists(bench.path("cache9")) and
           wrote <= {"id"}, f"it wrote something: {wrote}")

    writes = forced("--restrict", home, "--write-only")
    refused(writes, "host:sub/", bench.path("got"), why="only receives")
    for target, there in (("new", "new"), ("/new/", "new/outside"),
                          ("sub/deep", "sub/deep/outside")):
        done = send(writes, bench.path("outside"), "host:" + target)
        expect(done.returncode == 0 and os.path.isfile(
            os.path.join(home, there)), f"{target}: {done.stderr}")
        if there == "new":
            os.unlink(os.path.join(home, "new"))
    for target, why in (("../x", "'..'"), ("up/x", "Not a directory"),
                        ("up/", "symbolic link"), ("no/such/way", "No such"),
                        ("sub/../..", "'..'")):
        refused(writes, bench.path("outside"), "host:" + target, why=why)
        expect(not os.path.exists(bench.path("x")), f"{target}: it is there")
    # Over the link, not through it.
    done = send(writes, bench.path("outside"), "host:leak")
    expect(done.returncode == 0 and
           not os.path.islink(os.path.join(home, "leak")), done.stderr)
    both = forced("--restrict", home, "--cache", bench.path("cache8"))
    done = send(both, bench.path("outside"), "host:y")
    expect(done.returncode == 0 and os.path.isdir(bench.path("cache8")),
           f"its own cache: {done.stderr}")
    done = subprocess.run([bench.poise, "send", "--read-only", "a", "b"],
                          capture_output=True, text=True, check=False)
    expect(done.returncode == 2 and "--server" in done.stderr, done.stderr)
    shutil.rmtree(bench.path("got"))
    shutil.rmtree(home)
