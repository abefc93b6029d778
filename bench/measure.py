"""What bench/run measures with: commands, their interleaved runs, tables."""

import os
import shlex
import statistics
import subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.path.join(ROOT, "build")
POISE = os.path.join(BUILD, "poise")
PEAK = os.path.join(BUILD, "bench", "peak")
MIB = 1 << 20


class Command:
    """One line of a case's table.

    `peer` is the program that must be there; `seconds` takes what the command
    printed and the wall time and returns the time that counts.
    """

    def __init__(self, label, argv, peer=None, seconds=None, shell=None,
                 repeat=None, good=(0,), env=None):
        self.label = label
        self.argv = argv
        self.peer = peer
        self.seconds = seconds
        self.shell = shell
        self.repeat = repeat
        self.good = good
        self.env = env or {}

    def text(self):
        words = [f"{k}={shlex.quote(v)}" for k, v in self.env.items()]
        if self.shell:
            return " ".join(words + [self.shell])
        short = [os.path.relpath(a, ROOT) if a.startswith(BUILD) else a
                 for a in self.argv]
        return " ".join(words + [shlex.quote(a) for a in short])


class Case:
    """Commands that are run in turn.

    `prepare` is called with the folder for what is made, once, before; `tables`
    are functions of the case, its results and whether they are to be Markdown.
    """

    def __init__(self, name, title, tree, commands, bars=(), cold=False,
                 note="", tables=None, prepare=None):
        self.name = name
        self.title = title
        self.trees = [tree] if isinstance(tree, str) else tree
        self.commands = commands
        self.bars = list(bars)  # (ours, other, at most)
        self.cold = cold
        self.note = note
        self.tables = tables or [case_tables]
        self.prepare = prepare
        self.svg = None  # of the case and its results, if it can be drawn


class Result:
    """What a command did over its repetitions."""

    def __init__(self):
        self.seconds, self.cpu, self.rss, self.output = [], [], [], []
        self.problem = None

    def median(self):
        return statistics.median(self.seconds) if self.seconds else None


# ---- running ----------------------------------------------------------------------

def drop_caches():
    subprocess.run(["sync"], check=True)
    try:
        with open("/proc/sys/vm/drop_caches", "w", encoding="ascii") as file:
            file.write("3\n")
        return True
    except PermissionError:
        return False


def run_once(command, scratch):
    """(wall, cpu seconds, peak RSS in bytes, output, exit code)."""
    env = dict(os.environ, LC_ALL="C", OMPI_ALLOW_RUN_AS_ROOT="1",
               OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", **command.env)
    argv = ["sh", "-c", command.shell] if command.shell else command.argv
    out_path = os.path.join(scratch, "stdout")
    err_path = os.path.join(scratch, "stderr")
    took_path = os.path.join(scratch, "took")
    with open(out_path, "wb") as out, open(err_path, "wb") as err:
        subprocess.run([PEAK, took_path, *argv], stdin=subprocess.DEVNULL,
                       stdout=out, stderr=err, env=env, check=True)
    with open(took_path, encoding="ascii") as took:
        wall, cpu, rss, code = took.read().split()
    # Only words are wanted from it, not a list of a million names.
    size = os.path.getsize(out_path)
    output = ""
    with open(out_path, "r", encoding="utf-8", errors="replace") as out:
        if size <= 8 * MIB:
            output = out.read()
    with open(err_path, "r", encoding="utf-8", errors="replace") as err:
        problem = err.read(2000)
    os.unlink(out_path)
    os.unlink(err_path)
    return (float(wall), float(cpu), int(rss), output, problem, int(code))


def run_case(case, peers, repeat, scratch):
    """Label -> Result, interleaved."""
    results = {command.label: Result() for command in case.commands}
    able = []
    for command in case.commands:
        missing = [p for p in (command.peer or "").split() if p not in peers]
        if missing:
            results[command.label].problem = "not available"
        else:
            able.append(command)
    rounds = range(repeat if case.cold else repeat + 1)
    for number in rounds:
        for command in able:
            result = results[command.label]
            if result.problem or (command.repeat is not None
                                  and number >= command.repeat):
                continue
            if case.cold and not drop_caches():
                result.problem = "not root: caches cannot be dropped"
                continue
            wall, cpu, rss, output, problem, code = run_once(command, scratch)
            if code not in command.good:
                result.problem = f"exit code {code}"
                if problem.strip():
                    first = problem.strip().splitlines()[0]
                    result.problem += f": {first[:120]}"
                continue
            # The first round of a warm case is the warm-up.
            if not case.cold and number == 0 and command.repeat is None:
                continue
            text = output if "{" in output or "Walked" in output \
                else output + problem
            result.seconds.append(command.seconds(text, wall)
                                  if command.seconds else wall)
            result.cpu.append(cpu)
            result.rss.append(rss)
            result.output.append(text)
    return results


# ---- tables ----------------------------------------------------------------------

def table(headings, rows, markdown):
    rows = [[str(cell) for cell in row] for row in rows]
    if markdown:
        lines = ["| " + " | ".join(headings) + " |",
                 "|---" + "|---:" * (len(headings) - 1) + "|"]
        lines += ["| " + " | ".join(row) + " |" for row in rows]
        return "\n".join(lines) + "\n"
    widths = [max(len(row[i]) for row in [headings, *rows])
              for i in range(len(headings))]
    lines = []
    for row in [headings, *rows]:
        cells = [row[0].ljust(widths[0])]
        cells += [cell.rjust(width)
                  for cell, width in zip(row[1:], widths[1:])]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines) + "\n"


def case_tables(case, results, markdown):
    rows = []
    for command in case.commands:
        result = results[command.label]
        if result.problem or not result.seconds:
            rows.append([command.label, result.problem or "no run", "", "",
                         ""])
            continue
        rows.append([command.label, f"{result.median():.3f}",
                     f"{min(result.seconds):.3f}-{max(result.seconds):.3f}",
                     f"{statistics.median(result.cpu):.2f}",
                     f"{max(result.rss) / MIB:.0f}"])
    text = table(["", "median s", "range", "CPU s", "peak MB"], rows, markdown)
    bars = []
    for ours, other, most in case.bars:
        a, b = results[ours].median(), results[other].median()
        if a is None or b is None:
            bars.append([f"{ours} / {other}", "-", f"{most:.3g}",
                         "not measured"])
        else:
            bars.append([f"{ours} / {other}", f"{a / b:.3f}", f"{most:.3g}",
                         "met" if a / b <= most else "MISSED"])
    if bars:
        text += "\n" + table(["ratio", "is", "at most", ""], bars, markdown)
    return text


class Report:
    """Text on the terminal, and the same as Markdown in a file."""

    def __init__(self, path):
        self.path = path
        self.parts = []

    def say(self, make):
        print(make(False), flush=True)
        self.parts.append(make(True))
        if self.path:
            with open(self.path, "w", encoding="utf-8") as file:
                file.write("\n".join(self.parts))

    def heading(self, title):
        self.say(lambda md: f"### {title}\n" if md else f"\n== {title}")
