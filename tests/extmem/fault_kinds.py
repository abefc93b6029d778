"""What sort_faults runs: commands over data larger than their memory, each with
an answer that was found in another way.

A kind makes its inputs in a folder, and knows the words of its command, what it
may take and the bytes that have to come out.
"""
import array
import os
import random
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "..", "vrank"))
import vrank_swap

UNITS = {"K": 1 << 10, "M": 1 << 20}
PACKING = ("--zstd", "--compress-program")


def size_of(word):
    return int(word[:-1]) * UNITS[word[-1]]


class Kind:
    """`words` of the command, `make` of the generator, the least of `memory`."""
    code = 2  # of what failed
    changes_input = False
    reads_again = False  # its output, which is whole and there by then
    reads_pipe = False
    writes = "out"
    is_ranks = False
    is_checked = False  # damage of its scratch files is found
    programs = 0  # memory that programs it starts take themselves

    def __init__(self, name, words, make, items, memory):
        self.name, self.words, self.make = name, words, make
        self.items, self.memory = items, memory

    def prepare(self, poise, folder, rng):
        """Make inputs; the names of them, and what has to come out."""
        path = os.path.join(folder, "in")
        self.generate(poise, path, self.items, rng)
        return ["in"], self.answer(poise, [path])

    def generate(self, poise, path, items, rng):
        types = self.words[1:3] if self.words[1:2] == ["--type"] else []
        subprocess.run([poise, self.words[0], *types, *self.make, "--generate",
                        str(items), "--seed", str(rng.randrange(1000)), path],
                       check=True)

    def options(self, folder, rng):
        """Drawn anew for each run."""
        del folder
        return ["--memory", self.memory, "-j", str(rng.choice([1, 2, 3])),
                "--io", rng.choice(["auto", "threads"])]

    def operands(self, names, out):
        return [*names, "-o", out]


def read(path):
    with open(path, "rb") as file:
        return file.read()


class Numbers(Kind):
    """Ours are sorted by Python."""

    def answer(self, _, paths):
        letter = {"u32": "I", "i32": "i", "u64": "Q", "i64": "q", "f32": "f",
                  "f64": "d"}[self.words[2]]
        numbers = array.array(letter)
        for path in paths:
            numbers.frombytes(read(path))
        found = sorted(set(numbers) if "--unique" in self.words else numbers)
        if "--head" in self.words:
            found = found[:int(self.words[self.words.index("--head") + 1])]
        return array.array(letter, found).tobytes()


class Records(Kind):
    """By keys of bytes alone."""

    def answer(self, _, paths):
        length, begin, size = (int(word)
                               for word in self.words[2][7:].split(","))
        data = b"".join(read(path) for path in paths)
        records = [data[i:i + length] for i in range(0, len(data), length)]
        return b"".join(sorted(
            records, key=lambda record: record[begin:begin + size]))


class Lines(Kind):
    """What GNU sort makes of them."""

    def answer(self, _, paths):
        words = [word for word in self.words[1:] if word not in (
            "--type", "lines", "--count") and not word.startswith(PACKING)]
        sort = ["sort"] + (["-u"] if "--count" in self.words else []) + words
        done = subprocess.run(
            [*sort, *paths], stdout=subprocess.PIPE, check=True,
            env=dict(os.environ, LC_ALL="C"))
        if "--count" not in self.words:
            return done.stdout
        plain = subprocess.run(
            f"LC_ALL=C sort {paths[0]} | uniq -c", shell=True,
            stdout=subprocess.PIPE, check=True)
        return plain.stdout


class Packed(Lines):
    """Scratch files are compressed, and so checked."""
    is_checked = True


class PackedByProgram(Packed):
    """One for each thread, three at most."""
    programs = 6 << 20


class CheckedRecords(Records):
    is_checked = True


class VerifiedRecords(CheckedRecords):
    reads_again = True


class Several(Lines):
    """Three inputs."""

    def prepare(self, poise, folder, rng):
        names = ["in1", "in2", "in3"]
        paths = [os.path.join(folder, name) for name in names]
        for path in paths:
            self.generate(poise, path, self.items // 3, rng)
            if "-m" in self.words:
                subprocess.run(["sort", "-o", path, path], check=True,
                               env=dict(os.environ, LC_ALL="C"))
        return names, self.answer(poise, paths)


class InPlace(Lines):
    changes_input = True
    writes = "in"

    def answer(self, poise, paths):
        words, self.words = self.words, [
            word for word in self.words if word != "--in-place"]
        found = super().answer(poise, paths)
        self.words = words
        return found

    def operands(self, names, out):
        return names


class Pipe(Lines):
    """From standard input, which is copied to a scratch file."""
    reads_pipe = True

    def operands(self, names, out):
        return ["-", "-o", out]


class Csv(Kind):
    def generate(self, poise, path, items, rng):
        draw = random.Random(rng.randrange(1000))
        with open(path, "w", encoding="ascii") as file:
            file.write("id,amount,text\n")
            for i in range(items):
                file.write(f'{i},{draw.randrange(10 ** 6)},"a,{i % 7}\n"\n')

    def answer(self, _, paths):
        rows = read(paths[0]).split(b'\n"\n')[:-1]
        header, rows[0] = rows[0].split(b"\n", 1)
        rows.sort(key=lambda row: int(row.split(b",")[1]))
        return header + b"\n" + b"".join(row + b'\n"\n' for row in rows)


class Ranking(Kind):
    """Each node's rank is one more than its successor's."""
    code = 1

    def operands(self, names, out):
        return [*names, out]

    def answer(self, _, paths):
        following = array.array("Q", read(paths[0]))
        ranks = array.array("q", [-1]) * len(following)
        for node in range(len(following)):
            way = []
            while ranks[node] < 0:
                after = following[node]
                if after == node or after == 2 ** 64 - 1:
                    ranks[node] = 0
                    break
                way.append(node)
                node = after
            for i, passed in enumerate(reversed(way), 1):
                ranks[passed] = ranks[node] + i
        return ranks.tobytes()


class Ranks(Kind):
    """Virtual ranks whose contexts are on disk: they check themselves."""
    code = 125
    writes = None
    is_ranks = True

    def __init__(self, poise, folder):
        super().__init__("run, contexts on disk", ["run", "-V", "12"], [], 0,
                         "48M")
        self.program = os.path.join(folder, "ranks")
        source = os.path.join(folder, "ranks.c")
        with open(source, "w", encoding="utf-8") as file:
            file.write(vrank_swap.LARGE)
        subprocess.run([poise, "cc", "-O1", "-w", "-o", self.program, source,
                        "-DMEGABYTES=4", "-DROUNDS=2"], check=True)

    def prepare(self, poise, folder, rng):
        return [], b"done\n"

    def options(self, folder, rng):
        return ["--memory", self.memory, "-j", str(rng.choice([1, 2])),
                "--track", rng.choice(["auto", "full"]), "--scratch", folder]

    def operands(self, names, out):
        return [self.program]


def kinds():
    lines = ["sort", "--type", "lines"]
    return [
        Numbers("u32", ["sort", "--type", "u32"], [], 400000, "400K"),
        Numbers("i64", ["sort", "--type", "i64"], ["--pattern", "few"], 200000,
                "500K"),
        Numbers("f64 --head", ["sort", "--type", "f64", "--head", "9000"],
                ["--pattern", "sorted"], 100000, "500K"),
        Numbers("u64 --unique", ["sort", "--type", "u64", "--unique"],
                ["--pattern", "skew"], 200000, "500K"),
        Records("records", ["sort", "--type", "record:100,0,10"], [], 20000,
                "600K"),
        Lines("lines", lines, [], 40000, "600K"),
        Lines("lines -k -k", lines + ["-k1.3,1.9r", "-k2n"], [], 30000,
              "800K"),
        Lines("lines --count", lines + ["--count"], ["--pattern", "few"],
              30000, "800K"),
        Packed("lines --zstd", lines + ["--zstd=always"], [], 120000, "2M"),
        Packed("lines -k --zstd", lines + ["--zstd=always", "-k2n", "-s"],
               [], 120000, "2M"),
        CheckedRecords("records --zstd", ["sort", "--type", "record:100,0,10",
                                          "--zstd=always"], [], 60000, "2M"),
        VerifiedRecords("records --verify", [
            "sort", "--type", "record:100,0,10", "--verify"], [], 60000, "2M"),
        PackedByProgram("lines --compress-program",
                        lines + ["--compress-program=gzip"], [], 60000, "2M"),
        Several("three inputs", lines, [], 40000, "700K"),
        Several("-m", lines + ["-m"], [], 30000, "700K"),
        InPlace("--in-place", lines + ["--in-place"], [], 30000, "700K"),
        Pipe("a pipe", ["sort"], [], 30000, "700K"),
        Csv("--csv", ["sort", "--csv", "-k", "amount:n", "-s"], [], 30000,
            "900K"),
        Ranking("listrank, 5 lists", ["listrank"], ["--lists", "5"], 60000,
                "1600K"),
        Ranking("listrank", ["listrank"], [], 60000, "1600K"),
        Ranking("listrank, in memory", ["listrank"], [], 60000, "64M"),
    ]
