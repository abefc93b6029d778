"""Applications of Debian that bench/remote/screens records: Java TreeView
(treeview), a genome browser (igv) and a viewer of trees (figtree), with data
and steps that a seed draws, moved by xdotool."""
import os
import random
import socket
import subprocess
import time

WIDE, HIGH = 1280, 1024
START_S = 90


def expression(choice, path):
    """Genes that are expressed alike side by side, as TreeView reads them."""
    arrays = 60
    with open(path, "w", encoding="ascii") as file:
        names = "\t".join(f"array{i}" for i in range(arrays))
        file.write(f"GID\tYORF\tNAME\tGWEIGHT\t{names}\n")
        file.write("EWEIGHT\t\t\t\t" + "\t".join("1" * arrays) + "\n")
        for gene in range(2000):
            if gene % 40 == 0:
                centre = [choice.gauss(0, 1.2) for _ in range(arrays)]
            values = "\t".join(f"{v + choice.gauss(0, 0.5):.2f}"
                               for v in centre)
            file.write(f"GENE{gene}X\tY{gene}W\tY{gene}W some gene "
                       f"{choice.randrange(9999)}\t1\t{values}\n")


def tree(choice, leaves):
    if leaves == 1:
        return f"species_{choice.randrange(10 ** 5)}:{choice.random():.4f}"
    left = choice.randint(max(1, leaves // 4), leaves - max(1, leaves // 4))
    return (f"({tree(choice, left)},{tree(choice, leaves - left)})"
            f":{choice.random():.4f}")


def genome(choice, folder):
    bases = os.path.join(folder, "genome.fa")
    with open(bases, "w", encoding="ascii") as file:
        file.write(">chr1\n")
        for _ in range(5000):
            file.write("".join(choice.choices("ACGT", k=60)) + "\n")
    genes = os.path.join(folder, "genes.gtf")
    with open(genes, "w", encoding="ascii") as file:
        for i in range(1500):
            at = choice.randrange(295000)
            file.write(f"chr1\tx\texon\t{at}\t{at + choice.randrange(80, 2000)}"
                       f"\t.\t+\t.\tgene_id \"G{i}\"; transcript_id \"T{i}\";\n")
    return bases, genes


class Application:
    def __init__(self, kind, seed, folder, display):
        self.kind, self.folder = kind, folder
        self.choice = random.Random(seed)
        self.env = dict(os.environ, DISPLAY=f":{display}", HOME=folder,
                        PATH="/usr/bin:" + os.environ["PATH"],
                        _JAVA_OPTIONS=f"-Duser.home={folder}")
        self.program = None

    def xdo(self, *words):
        return subprocess.run(["xdotool", *map(str, words)], env=self.env,
                              capture_output=True, text=True).stdout.split()

    def begin(self):
        words = getattr(self, "start_" + self.kind)()
        self.program = subprocess.Popen(
            words, env=self.env, cwd=self.folder, start_new_session=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        title = {"treeview": "TreeView", "igv": "IGV",
                 "figtree": "FigTree"}[self.kind]
        end = time.monotonic() + START_S
        while not (found := self.xdo("search", "--onlyvisible", "--name",
                                     title)):
            if time.monotonic() > end:
                raise SystemExit(f"screens: {self.kind} does not start")
            if self.kind == "treeview":  # it wants to be registered
                self.xdo("mousemove", 771, 538, "click", 1)
            time.sleep(1)
        time.sleep(6)
        if self.kind == "igv":  # it says that it finds no server
            self.xdo("key", "Return")
        self.xdo("windowmove", found[0], 0, 0)
        self.xdo("windowsize", found[0], WIDE, HIGH)
        time.sleep(3)

    def end(self):
        os.killpg(self.program.pid, 15)
        self.program.wait()

    def start_treeview(self):
        path = os.path.join(self.folder, "genes.cdt")
        expression(self.choice, path)
        return ["java", "-jar", "/usr/share/treeview/TreeView.jar", "-r", path]

    def step_treeview(self):
        what = self.choice.randrange(10)
        if what < 2:  # another region into the large view
            top = self.choice.randrange(180, 700)
            self.xdo("mousemove", 110, top, "mousedown", 1, "mousemove", 160,
                     top + 60, "mousemove", 222, top + 150, "mouseup", 1)
            return "page"
        down = self.choice.randrange(3) > 0
        at = (290, 996 if down else 181) if what < 7 else (782, 996 if down
                                                           else 231)
        self.xdo("mousemove", *at, "click", "--repeat", 4, "--delay", 20, 1)
        return "scroll"

    def start_igv(self):
        bases, genes = genome(self.choice, self.folder)
        self.at, self.wide = 20000, 20000
        return ["igv", "-g", bases, genes]

    def step_igv(self):
        what, kind = self.choice.randrange(20), "scroll"
        if what < 15:
            self.at += self.wide // 10 * (1 if what < 10 else -1)
        elif what < 18:
            self.wide = self.wide * 2 if what < 17 else max(200, self.wide // 4)
            kind = "zoom"
        else:
            self.at, kind = self.choice.randrange(250000), "jump"
        self.wide = min(self.wide, 80000)
        self.at = min(max(1, self.at), 300000 - self.wide)
        with socket.create_connection(("127.0.0.1", 60151), 30) as link:
            link.sendall(f"goto chr1:{self.at}-{self.at + self.wide}\n"
                         .encode())
            link.recv(100)
        return kind

    def start_figtree(self):
        path = os.path.join(self.folder, "species.tre")
        with open(path, "w", encoding="ascii") as file:
            file.write(tree(self.choice, 300) + ";\n")
        return ["figtree", path]

    def step_figtree(self):
        """Branches are chosen, and the tree is stretched and scrolled."""
        what = self.choice.randrange(10)
        if what < 3:
            self.xdo("mousemove", self.choice.randrange(300, 1200),
                     self.choice.randrange(150, 980), "click", 1)
            return "choose"
        if what < 5:
            self.xdo("key", "ctrl+equal" if what == 3 else "ctrl+minus")
            return "zoom"
        self.xdo("mousemove", 700, 600, "click", "--repeat", 3,
                 4 if what < 7 else 5)
        return "scroll"

    def run(self, steps, ms):
        """What was done when, as the painter says it."""
        begun = time.monotonic()
        for i in range(steps):
            now = time.monotonic()
            kind = getattr(self, "step_" + self.kind)()
            yield f"{int(1000 * (now - begun))} {kind if i else 'first'}\n"
            time.sleep(max(0, ms / 1000 - (time.monotonic() - now)))
        yield "end\n"
