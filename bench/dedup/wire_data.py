"""Data for bench/run's cases wire-*: two versions each, the same bytes from
run to run. A table of text of which little changes; a window of floats that
slides over a field; fields of which each cell changes."""

import array
import math
import os
import random


def rows_of(rng, count):
    for number in range(count):
        yield (f"{number},{rng.randrange(10 ** 9)},"
               f"2024-{rng.randrange(1, 13):02d}-{rng.randrange(1, 29):02d},"
               f"{rng.random():.6f},{rng.random() * 1e4:.3f},"
               f"{rng.choice(('north', 'south', 'east', 'west'))},"
               f"{rng.getrandbits(64):016x}\n")


def table(old, new, count=1200000):
    """Of the rows 0.5 % change, 0.1 % are new, 0.1 % go."""
    rng, other = random.Random(1), random.Random(2)
    with open(old, "w", encoding="ascii") as before, \
            open(new, "w", encoding="ascii") as after:
        for row in rows_of(rng, count):
            before.write(row)
            dice = other.random()
            if dice < 0.001:
                after.write(next(rows_of(other, 1)))
            elif dice < 0.002:
                continue
            elif dice < 0.007:
                words = row.split(",")
                words[4] = f"{other.random() * 1e4:.3f}"
                row = ",".join(words)
            after.write(row)


def field(width, height, seed):
    """Rows of float32: waves, and noise that no compressor foresees."""
    rng = random.Random(seed)
    across = [math.sin(x / 61) + math.sin(x / 17) for x in range(width)]
    for y in range(height):
        down = math.sin(y / 47) * 2
        yield array.array("f", [value + down + noise / 65536 for value, noise
                                in zip(across, array.array("H", rng.randbytes(
                                    2 * width)))])


def window(old, new, size=2048, frames=4, step=(37, 53)):
    """A window that slides by `step` from frame to frame."""
    rows = list(field(size + 2 * frames * step[1],
                      size + 2 * frames * step[0], 3))
    for path, first in ((old, 0), (new, frames)):
        with open(path, "wb") as file:
            for frame in range(first, first + frames):
                for y in range(size):
                    at = frame * step[1]
                    rows[frame * step[0] + y][at:at + size].tofile(file)


def diffusion(old, new, size=1448):
    """Float64, each cell the mean of those around it: nothing repeats."""
    rng = random.Random(4)
    cells = [[rng.random() for _ in range(size)] for _ in range(size)]
    for path in (old, new):
        with open(path, "wb") as file:
            for _ in range(2):
                cells = [[0.2 * (row[x] + row[x - 1] + row[(x + 1) % size] +
                                 above[x] + below[x]) for x in range(size)]
                         for above, row, below in zip(
                             cells[-1:] + cells[:-1], cells,
                             cells[1:] + cells[:1])]
                for row in cells:
                    array.array("d", row).tofile(file)


def unlike(old, new, size=64 << 20):
    """Random bytes."""
    for path, seed in ((old, 5), (new, 6)):
        with open(path, "wb") as file:
            rng = random.Random(seed)
            for _ in range(size >> 20):
                file.write(rng.randbytes(1 << 20))


MADE = {"csv": table, "window": window, "diffusion": diffusion,
        "random": unlike}


def make(name, folder):
    """The paths of both versions."""
    paths = [os.path.join(folder, f"{name}.{version}")
             for version in ("old", "new")]
    if not all(os.path.exists(path) for path in paths):
        MADE[name](*paths)
    return paths
