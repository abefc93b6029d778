#!/usr/bin/env python3
"""Completion: a shell that has read the script offers every command, and every
option of each, and no words that are none; zsh's and fish's scripts name them
all, and are read by their shells where those are installed."""

import os
import shutil
import subprocess
import sys
import tempfile

POISE = sys.argv[1]
# Asks the function for each line of words on stdin, as bash does at TAB.
ASK = r"""
source "$1"
while IFS= read -r line; do
    IFS=$'\t' read -ra COMP_WORDS <<<"$line"
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    [[ ${COMP_WORDS[COMP_CWORD]} == . ]] && COMP_WORDS[COMP_CWORD]=
    COMPREPLY=()
    _poise
    echo "${COMPREPLY[*]}"
done
"""


def poise(*words):
    return subprocess.run([POISE, *words], check=True, text=True,
                          stdout=subprocess.PIPE).stdout


def table():
    """The options of each command, without those that are old names."""
    options = {line[4:17].strip(): set() for line in poise("help").splitlines()
               if line.startswith("    ") and line[4] != " "}
    for line in poise("help", "--options").splitlines():
        command, long, _, _, renamed = line.split("\t")
        if long and not renamed:
            options.setdefault(command, set()).add(long)
    return options


def bash(script, questions):
    lines = "".join("\t".join(["poise", *q]) + "\n" for q in questions)
    done = subprocess.run(["bash", "-c", ASK, "ask", script], input=lines,
                          check=True, text=True, stdout=subprocess.PIPE)
    return [set(line.split()) for line in done.stdout.splitlines()]


def check_bash(options, folder):
    script = os.path.join(folder, "poise.bash")
    with open(script, "w", encoding="utf-8") as out:
        out.write(poise("completion", "bash"))
    first = {name.split()[0] for name in options}
    offered = bash(script, [["."]])[0]
    assert offered == first | {"--help", "--version"}, offered ^ first
    asked = sorted(options)
    for name, offered in zip(asked, bash(script, [[*name.split(), "--"]
                                                  for name in asked])):
        assert offered == options[name], (name, offered ^ options[name])
    groups = sorted({name.split()[0] for name in options if " " in name})
    assert len(groups) >= 5
    for group, offered in zip(groups, bash(script, [[g, "."] for g in groups])):
        seconds = {name.split()[1] for name in options
                   if name.startswith(group + " ")}
        assert offered == seconds, (group, offered ^ seconds)
    # The argument of an option of a command of two words; files after it.
    choices, files = bash(script, [["bfs", "convert", "--to", "."],
                                   ["bfs", "convert", script[:-2]]])
    assert "mtx" in choices and "convert" not in choices, choices
    assert files == {script}, files


def check_text(options, shell):
    text = poise("completion", shell)
    for name, words in options.items():
        if shell == "zsh":
            start = text.index(f"    '{name}')\n")
            part = text[start:text.index(";;", start)]
            missing = {w for w in words if w not in part}
        else:
            of = " ".join(name.split()[-1:]) + "'"
            part = [line for line in text.splitlines() if of in line]
            missing = {w for w in words
                       if not any(f" -l {w[2:]} " in line for line in part)}
        assert not missing, (shell, name, missing)
    if shutil.which(shell):
        subprocess.run([shell, "-n", "/dev/stdin"], input=text, text=True,
                       check=True)


def main():
    options = table()
    assert len(options) > 30
    with tempfile.TemporaryDirectory() as folder:
        check_bash(options, folder)
    check_text(options, "zsh")
    check_text(options, "fish")


main()
