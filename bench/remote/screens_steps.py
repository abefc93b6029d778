"""What bench/remote/screens_table and screens_link know of sessions alike."""
import json
import os
import subprocess


def replay(poise, path, *words):
    done = subprocess.run([poise, "vnc", "replay", "--json", *words, path],
                          capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def share(values, part):
    values = sorted(values)
    return values[min(len(values) - 1, int(part * len(values)))]


def kinds_of(poise, path, updates=None):
    """What each update belongs to: the step that was drawn last. The first step
    is the first update that paints half of the screen. None: not known."""
    name = path[:-len(".screen")] + ".steps"
    if not os.path.exists(name):
        return None
    with open(name, encoding="ascii") as file:
        steps = [(int(ms), what) for ms, what in map(str.split, file)]
    if not updates:
        updates = replay(poise, path, "--method",
                         "zstd")["methods"][0]["updates"]
    if not steps:
        return None
    big = max(u["pixels"] for u in updates[1:])
    start = next(u["at_us"] / 1e3 for u in updates[1:] if u["pixels"] > big / 2)
    out, at = [], 0
    for u in updates:
        while at + 1 < len(steps) and \
                steps[at + 1][0] <= u["at_us"] / 1e3 - start + 40:
            at += 1
        out.append(steps[at][1])
    return out
