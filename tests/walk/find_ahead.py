#!/usr/bin/env python3
"""poise find reads ahead, whether or not that is quick here, while commands
change what it comes to: output and what is left are GNU find's, to the byte.

usage: find_ahead.py POISE
"""

import os
import shutil
import subprocess
import sys
import tempfile

SLOWNESS = float(os.environ.get("POISE_TEST_SLOWNESS", "4"))


def shell(text):
    return ["-exec", "sh", "-c", text, "sh", "{}", ";"]


# Each comes to f of every directory, and changes others, most of them ahead.
CASES = [
    ["-name", "d*", "-print"],
    ["-printf", "%p %s %n %m\\n"],
    ["-name", "d3", "-prune", "-o", "-print"],
    ["-name", "c4", "-quit", "-o", "-print"],
    ["-depth", "-printf", "%p %y\\n"],
    ["-maxdepth", "2", "-print"],
    ["-name", "f"] + shell("mkdir t/d*/c*/new 2>&-; : > t/d5/c1/late") +
    ["-maxdepth", "2", "-o", "-print"],
    ["-path", "*2/f"] + shell("rm -rf t/d[4-7] t/d*/c3") + ["-o", "-print"],
    ["-path", "*2/f"] + shell("mv t/d4 t/d4.old; mkdir t/d4; : > t/d4/other") +
    ["-o", "-print"],
    ["-path", "*/c1/f"] + shell("rm -rf t/d6; ln -s d1 t/d6") + ["-o", "-print"],
    ["-path", "*/c1/f"] + shell("chmod 600 t/d*/c*/g; echo more >> t/d3/c2/g") +
    ["-o", "-printf", "%p %m %s\\n"],
    # What is known of each entry is read ahead, too.
    ["-printf", "%p %m %s\\n", "-path", "*/c1/[fg]"] +
    shell("chmod 600 t/d*/c*/[fg]; echo more >> t/d3/c2/g"),
    ["-path", "*/c1/g"] + shell('ln "$1" t/d5/c5/link$$; rm t/d5/c5/link*') +
    ["-o", "-links", "1", "-print"],
    ["-path", "*/c1/g", "-execdir", "mv", "g", "h", ";", "-o", "-print"],
    ["-name", "c*", "-exec", "rm", "-r", "{}", ";", "-print"],
    ["-depth", "-path", "*3*", "-print", "-delete", "-o", "-name", "f", "-exec",
     "rm", "{}", "+"],
    ["-path", "*/c2/g"] + shell("mv t/d5/c1 t/d5/c9; mv t/d6/c1 t/d5/c1") +
    ["-o", "-print"],
    ["-path", "t/d*/g"] + shell("find t -maxdepth 1 -amin -9 -type d | wc -l") +
    ["-o", "-print"],
]


def make_tree():
    for i in range(8):
        for k in range(6):
            os.makedirs(f"t/d{i}/c{k}/e")
            for name in ("f", "g"):
                with open(f"t/d{i}/c{k}/{name}", "w") as file:
                    file.write("x" * (10 * i + k))
        for name in ("f", "g"):
            with open(f"t/d{i}/{name}", "w"):
                pass
    # Reading sets times of access that are older than the time of change.
    for root, _, files in os.walk("t"):
        for path in [root] + [os.path.join(root, name) for name in files]:
            os.utime(path, (10 ** 9, 10 ** 9 + 5))


def what_is_left():
    left = []
    for root, names, files in os.walk("t"):
        for name in sorted(names + files):
            path = os.path.join(root, name)
            st = os.lstat(path)
            left.append((path, st.st_mode, st.st_nlink))
    return sorted(left)


def run(words, environment):
    make_tree()
    ran = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                         stdin=subprocess.DEVNULL, env=environment,
                         timeout=60 * SLOWNESS)
    result = ran.stdout, ran.returncode, what_is_left()
    shutil.rmtree("t")
    return result, ran.stderr


def main():
    poise = os.path.abspath(sys.argv[1])
    environment = {**os.environ, "LC_ALL": "C"}
    ahead = {**environment, "POISE_WALK_READ_AHEAD": "1"}
    folder = tempfile.mkdtemp()
    os.chdir(folder)
    bad = 0
    for case in CASES:
        # A command at the end makes it a walk in order.
        words = ["t"] + case + ["-o", "-name", "none", "-exec", "false", ";"]
        gnu, said = run(["find", *words], environment)
        for threads in ("2", "4"):
            ours, told = run([poise, "find", "--threads=" + threads, *words],
                             ahead)
            if ours != gnu:
                bad += 1
                print("differs:", threads, words)
                print("  GNU find", gnu[:2], said)
                print("  poise", ours[:2], told)
                print("  left", set(gnu[2]) ^ set(ours[2]))
    os.chdir("/")
    shutil.rmtree(folder)
    print(f"{len(CASES)} expressions, {bad} differ")
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())
