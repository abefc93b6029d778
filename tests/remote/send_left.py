"""What poise send leaves behind when an end is killed, and who removes it."""
import fcntl
import os
import signal
import subprocess
import time

from send_tree import expect, same, temporaries, write

# The other end gets so much, and then nothing.
STALLED = """#!/bin/bash
shift
exec 3<&0
echo $$ >{pid}.new && mv {pid}.new {pid}
exec "$@" < <(exec python3 -c "$STALL" 3000000 <&3) 3<&-
"""


def kill_meanwhile(bench, source, target):
    """Kill the receiving end while it makes a file."""
    pid = bench.path("stalled-pid")
    shell = bench.path("stalled")
    write(shell, STALLED.format(pid=pid).encode())
    os.chmod(shell, 0o755)
    running = subprocess.Popen(
        [*bench.argv("-e", shell), source, "host:" + target],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    while not (os.path.isdir(target) and temporaries(target)):
        expect(running.poll() is None, "it was over before it was killed: "
               f"{running.stderr.read() if running.poll() else None}")
        time.sleep(0.005)
    with open(pid, encoding="ascii") as file:
        os.kill(int(file.read()), signal.SIGKILL)
    words = running.communicate()[1]
    expect(running.returncode == 1 and words, f"killed: {words}")


def promise_leftovers(bench):
    """What a killed end left goes with the next run; what somebody is making
    stays, also with --delete."""
    source, target = bench.path("left"), bench.path("left-there")
    os.makedirs(os.path.join(source, "sub"))
    write(os.path.join(source, "sub", "large"), bench.rng.randbytes(6 << 20))
    write(os.path.join(source, "small"), b"x")
    # What lies in a source is nobody's file either.
    write(os.path.join(source, ".poise-making-00000000000000aa"), b"mine")
    kill_meanwhile(bench, source + "/", target)
    expect(temporaries(target), "nothing was left: the test is at fault")
    held = os.path.join(target, "sub", ".poise-making-0123456789abcdef")
    write(held, b"somebody makes it")
    with open(held, "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        bench.good(source + "/", "host:" + target)
        expect(temporaries(target) == [held], f"left: {temporaries(target)}")
        bench.good("--delete", source + "/", "host:" + target)
        expect(temporaries(target) == [held], "--delete removes another's")
    # Nothing is sent, and it goes all the same.
    got = bench.good(source + "/", "host:" + target)
    expect(got["send"] == 0 and not temporaries(target),
           f"left: {temporaries(target)}")
    # The same beside a single file.
    write(os.path.join(target, ".poise-making-0123456789abcdef"), b"left")
    write(os.path.join(source, "small"), b"xy")
    bench.good(os.path.join(source, "small"), "host:" + target + "/")
    expect(not temporaries(target), f"left: {temporaries(target)}")
    os.unlink(os.path.join(source, ".poise-making-00000000000000aa"))
    same(os.path.join(source, "sub"), os.path.join(target, "sub"),
         "after leftovers")
