#!/usr/bin/env python3
"""poise archive against GNU tar, both ways, and against hostile and damaged
archives.

usage: archive.py POISE

The tree has all types, hard links, holes, odd and long names, extended
attributes, access lists, times before 1970 and after 2038, a deep chain. What
comes out is compared by this program (types, modes, owners, times, attributes,
links, content), and by rsync where it is installed.
"""

import gzip
import hashlib
import io
import os
import shutil
import socket
import stat
import subprocess
import sys
import tarfile
import tempfile
import unittest

SLOWNESS = float(os.environ.get("POISE_TEST_SLOWNESS", "4"))
POISE = os.path.abspath(sys.argv.pop(1))
# As patterns, tar would compare them for hours with deep names.
LEAVE = ["--no-wildcards", "--anchored", "--exclude=tree/sparse",
         "--exclude=tree/hole"]
ROOT = os.geteuid() == 0
ENV = dict(os.environ, LC_ALL="C")
XATTRS = "user." if not ROOT else ("user.", "trusted.", "security.capability",
                                   "system.posix_acl_access",
                                   "system.posix_acl_default")


def run(*words, code=0, **more):
    done = subprocess.run(words, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, env=ENV, check=False,
                          timeout=120 * SLOWNESS, **more)
    if code is not None and done.returncode != code:
        raise AssertionError(f"{words}: exit code {done.returncode}\n"
                             f"{done.stdout[-600:]}\n{done.stderr[-2000:]}")
    return done


def poise(*words, code=0, **more):
    return run(POISE, "archive", *words, code=code, **more)


def xattrs_work(folder):
    path = os.path.join(folder, "probe")
    with open(path, "wb"):
        pass
    try:
        os.setxattr(path, "user.x", b"y")
    except OSError:
        return False
    finally:
        os.unlink(path)
    return True


def write(path, data=b""):
    with open(path, "wb") as file:
        file.write(data)


def read(path):
    with open(path, "rb") as file:
        return file.read()


def make_tree(top):
    """A nasty tree; below it relative names."""
    os.mkdir(top)
    os.chdir(top)
    names = [b"a\nnewline", b" leading", b"-rf", b"\xff\xfe", b"*", b"...",
             b"n" * 255, b"\xc3\xa4", b"=%", b"tab\t"]
    for i, name in enumerate(names):
        write(name, b"x" * (i * 700))
        os.mkdir(b"dir-" + name[:200])
        write(os.path.join(b"dir-" + name[:200], name), os.urandom(513 * i))
    os.makedirs("p" * 150 + "/" + "q" * 120)
    write("p" * 150 + "/" + "q" * 120 + "/" + "r" * 90, b"prefix and name")
    os.makedirs("s" * 100)
    write("s" * 100 + "/" + "t" * 99, b"fits")
    os.symlink("nowhere", "dangling")
    os.symlink("l" * 3000, "long-link")
    os.symlink("/etc/passwd", "absolute")
    os.mkfifo("pipe", 0o640)
    os.mkdir("empty")
    os.mkdir("closed")
    write("closed/inside", b"1")
    for i in range(6):
        write(f"empty-{i}")
    write("big", os.urandom(3 << 20))
    os.mkdir("linked")
    write("linked/one", b"the data" * 5000)
    os.link("linked/one", "two")
    os.link("linked/one", "linked/" + "three" * 40)
    os.link("pipe", "linked/pipe")
    os.symlink("x", "linked/soft")
    os.link("linked/soft", "soft-too", follow_symlinks=False)
    with open("sparse", "wb") as file:
        file.truncate(1 << 27)
        for at in (0, 1 << 20, 5 << 24):
            file.seek(at)
            file.write(b"data" * 3000)
    with open("hole", "wb") as file:
        file.truncate(9 << 20)
    if xattrs_work("."):
        os.setxattr("big", "user.a=b%", b"v\0\n=")
        os.setxattr("linked", "user.long", os.urandom(3000))
        if ROOT:
            os.setxattr("big", "trusted.t", b"")
            os.setxattr("dangling", "trusted.on-link", b"1",
                        follow_symlinks=False)
        if shutil.which("setfacl"):
            run("setfacl", "-m", "u:1234:rw,g:7:r", "big", code=None)
            run("setfacl", "-d", "-m", "u:99:rx", "linked", code=None)
    at = os.open(".", os.O_RDONLY)
    for i in range(240):
        os.mkdir("deep-directory", dir_fd=at)
        below = os.open("deep-directory", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
        if i % 50 == 0:
            os.close(os.open("f", os.O_CREAT | os.O_WRONLY, dir_fd=at))
    os.close(at)
    if ROOT:
        os.mknod("null", stat.S_IFCHR | 0o600, os.makedev(1, 3))
        os.mknod("block", stat.S_IFBLK | 0o600, os.makedev(7, 300))
        os.chown("two", 3000000000, 4000000000)
        os.chown("dangling", 5, 6, follow_symlinks=False)
        os.chmod("empty-1", 0o6755)
    os.utime("empty-0", ns=(0, -1500000000))
    os.utime("empty-2", ns=(0, 5000000000123456789))
    os.utime("empty-3", ns=(0, 999999999))
    os.utime("dangling", ns=(0, 12345), follow_symlinks=False)
    os.chmod("closed", 0o555)
    os.utime("closed", ns=(0, 1234567890123456789))
    os.chmod("empty", 0o700)
    os.chdir("..")


def describe(top):
    """What a tree is: by path. Descriptors only, for deep ones."""
    found, inodes = {}, {}

    def entry(dir_fd, name, path):
        info = os.lstat(name, dir_fd=dir_fd)
        via = b"/proc/self/fd/%d/%s" % (dir_fd, name)
        kind = stat.S_IFMT(info.st_mode)
        what = [info.st_mode, info.st_uid, info.st_gid]
        what.append(info.st_mtime_ns)
        if stat.S_ISREG(info.st_mode):
            what += [info.st_size, content(via, info)]
        elif stat.S_ISLNK(info.st_mode):
            what.append(os.readlink(name, dir_fd=dir_fd))
        elif kind in (stat.S_IFCHR, stat.S_IFBLK):
            what.append(info.st_rdev)
        try:
            what.append(sorted(
                (key, os.getxattr(via, key, follow_symlinks=False))
                for key in os.listxattr(via, follow_symlinks=False)
                if key.startswith(XATTRS)))
        except OSError:
            pass
        if not stat.S_ISDIR(info.st_mode):
            inodes.setdefault(info.st_ino, []).append(path)
        found[path] = what
        if stat.S_ISDIR(info.st_mode):
            walk(os.open(name, os.O_RDONLY, dir_fd=dir_fd), path)

    def walk(fd, path):
        for name in sorted(os.listdir(fd)):
            entry(fd, os.fsencode(name), path + b"/" + os.fsencode(name))
        os.close(fd)

    sys.setrecursionlimit(5000)
    here = os.open(os.path.dirname(os.path.abspath(top)) or b"/", os.O_RDONLY)
    entry(here, os.path.basename(os.fsencode(top)), b"")
    os.close(here)
    groups = sorted(sorted(names) for names in inodes.values()
                    if len(names) > 1)
    return found, groups


def content(path, info):
    digest = hashlib.sha1()
    with open(path, "rb") as file:
        at = 0
        while at < info.st_size:
            try:
                at = os.lseek(file.fileno(), at, os.SEEK_DATA)
            except OSError:
                break
            end = os.lseek(file.fileno(), at, os.SEEK_HOLE)
            while at < end:
                piece = os.pread(file.fileno(), min(1 << 20, end - at), at)
                if piece.strip(b"\0"):
                    first = len(piece) - len(piece.lstrip(b"\0"))
                    digest.update(b"%d:" % (at + first))
                    digest.update(piece.strip(b"\0"))
                at += len(piece)
    return digest.hexdigest()


class Archive(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        os.umask(0o022)
        cls.where = tempfile.mkdtemp(prefix="poise-test-")
        os.chdir(cls.where)
        make_tree("tree")
        cls.truth = describe("tree")

    @classmethod
    def tearDownClass(cls):
        os.chdir("/")
        run("chmod", "-R", "u+rwX", cls.where)
        run("rm", "-rf", cls.where)

    def setUp(self):
        self.out = tempfile.mkdtemp(dir=self.where)

    def tearDown(self):
        run("chmod", "-R", "u+rwX", self.out)
        run("rm", "-rf", self.out)

    def path(self, name):
        return os.path.join(self.out, name)

    def same(self, got, of_tar=False, again=True):
        """tar takes no notice of pipes with several names. `again`: and
        rsync finds no difference."""
        found, groups = describe(got)
        want, want_groups = self.truth
        if of_tar:
            want_groups = [names for names in want_groups
                           if b"/pipe" not in names]
        self.assertEqual(sorted(found), sorted(want))
        for name, what in want.items():
            self.assertEqual(found[name], what, name)
        self.assertEqual(groups, want_groups)
        if shutil.which("rsync") and not of_tar and again:
            for a, b in (("tree", got), (got, "tree")):
                done = run("rsync", "-anHAXi", "--checksum", "--delete",
                           f"{a}/", f"{b}/")
                self.assertEqual(done.stdout, b"")

    def test_there_and_back(self):
        for words in ([], ["--parts", "4"], ["-j", "1"], ["-j", "4"]):
            name = self.path("a" + "".join(words) + ".tar")
            poise(*words, "tree", name)
            poise("-x", name, self.path("out" + "".join(words)))
            self.same(self.path("out" + "".join(words) + "/tree"),
                      again="-j" not in words)
            os.unlink(name + ".index")
            poise("-x", *words[:2] if "-j" in words else [], name,
                  self.path("bare" + "".join(words)))
            self.same(self.path("bare" + "".join(words) + "/tree"),
                      again=False)
            shutil.rmtree(self.path("out" + "".join(words)),
                          ignore_errors=True)

    def test_again(self):
        name = self.path("a.tar")
        poise("tree", name)
        for _ in range(2):
            poise("-x", name, self.path("out"))
        self.same(self.path("out/tree"))

    def test_tar_reads_ours(self):
        for parts in ("1", "3"):
            name = self.path(f"p{parts}.tar")
            poise("--parts", parts, "tree", name)
            os.mkdir(self.path(parts))
            words = ["tar", "-C", self.path(parts), "-x", "--xattrs",
                     "--warning=no-timestamp", "--delay-directory-restore",
                     "--xattrs-include=*", "-p", "--same-owner", "-i", "-f"]
            if parts == "1":
                done = run(*words, name)
            else:
                data = b"".join(read(f"{name}.{i}")
                                for i in range(3))
                done = run(*words, "-", input=data)
                for i in range(3):
                    run("tar", "-tf", f"{name}.{i}")
            self.assertEqual(done.stderr, b"")
            self.same(self.path(f"{parts}/tree"))

    def test_we_read_tar(self):
        formats = [["--format=pax"], ["--format=pax", "-S"],
                   ["--format=pax", "-S", "--sparse-version=0.1"],
                   ["--format=pax", "-S", "--sparse-version=0.0"]]
        for words in formats:
            name = self.path("t.tar")
            # Without -S holes become zeros.
            leave = [] if "-S" in words else LEAVE
            run("tar", *words, "--xattrs", "--xattrs-include=*", *leave,
                "-cf", name, "tree")
            poise("-x", name, self.path("out"))
            if leave:
                for lost in ("sparse", "hole"):
                    run("cp", "-a", f"tree/{lost}", self.path("out/tree"))
                os.utime(self.path("out/tree"),
                         ns=(0, os.stat("tree").st_mtime_ns))
            self.same(self.path("out/tree"), of_tar=True)
            run("chmod", "-R", "u+rwX", self.path("out"))
            run("rm", "-rf", self.path("out"))

    def test_we_read_old_tar(self):
        """GNU's and ustar's formats: times are of seconds, ids limited."""
        for words in (["--format=gnu", "-S"], ["--format=oldgnu", "-S"],
                      ["--format=ustar"], ["--format=v7"]):
            name, out = self.path("t.tar"), self.path("out")
            leave = LEAVE
            run("tar", *words, *([] if "-S" in words else leave), "-cf", name,
                "tree", code=None)
            poise("-x", name, out)
            run("mkdir", self.path("theirs"))
            run("tar", "-C", self.path("theirs"), "-xpf", name)
            ours = describe(self.path("out/tree"))
            theirs = describe(self.path("theirs/tree"))
            self.assertEqual(ours, theirs)
            for folder in (out, self.path("theirs")):
                run("chmod", "-R", "u+rwX", folder)
                run("rm", "-rf", folder)

    def test_list(self):
        name = self.path("a.tar")
        poise("--parts", "2", "tree", name)
        listed = poise("-t", "-0", name).stdout.split(b"\0")[:-1]
        paths = [b"tree" + path for path in self.truth[0]]
        self.assertEqual(sorted(listed), sorted(paths))

    def test_filter_and_names(self):
        name = self.path("a.tar")
        poise(os.path.abspath("tree"), name, "--where", "-type", "f", "-name",
              "empty-*")
        listed = poise("-t", name).stdout.decode().split()
        top = os.path.abspath("tree").lstrip("/")
        self.assertEqual(sorted(listed),
                         [f"{top}/empty-{i}" for i in range(6)])
        os.chdir("tree/empty")
        try:
            poise("../linked", ".", name)
        finally:
            os.chdir(self.where)
        listed = poise("-t", name).stdout.decode().split()
        self.assertIn("linked/one", listed)
        self.assertIn(".", listed)

    def test_names(self):
        """Some members, by the index, the headers, and read through."""
        os.chdir(self.out)
        try:
            os.makedirs("t/d/e")
            for name in ("t/a", "t/d/b", "t/d/e/c", "t/dd"):
                write(name, name.encode())
            os.link("t/d/b", "t/d/l")
            poise("t", "a")
            poise("--zstd", "t", "z")
            run("tar", "--zstd", "-cf", "s", "t")
            os.rename("a", "bare")
            shutil.copy("bare", "a")
            for archive in ("a", "bare", "z", "s"):
                poise("-x", archive, "o", "t/d/", "./t/a")
                self.assertEqual(sorted(os.listdir("o/t")), ["a", "d"])
                self.assertEqual(sorted(os.listdir("o/t/d")), ["b", "e", "l"])
                self.assertEqual(read("o/t/d/e/c"), b"t/d/e/c")
                run("rm", "-rf", "o")
                done = poise("-x", archive, "o", "t/a", "t/d/x", code=1)
                self.assertIn(b"'t/d/x': no member", done.stderr)
                self.assertEqual(os.listdir("o/t"), ["a"])
                run("rm", "-rf", "o")
        finally:
            os.chdir(self.where)

    def test_sockets(self):
        os.mkdir(self.path("t"))
        sock = socket.socket(socket.AF_UNIX)
        os.chdir(self.path("t"))
        try:
            sock.bind("s")
            done = poise(".", "../s.tar")
        finally:
            os.chdir(self.where)
            sock.close()
        self.assertIn(b"left out: 1 sockets", done.stderr)
        self.assertEqual(poise("-t", self.path("s.tar")).stdout, b".\n")

    # ---- hostile archives --------------------------------------------------

    def hostile(self, members, code=1):
        """An archive of (name, type, link, data) is extracted; what else there
        was stays."""
        name = self.path("evil.tar")
        with tarfile.open(name, "w", format=tarfile.PAX_FORMAT) as tar:
            for path, kind, link, data in members:
                info = tarfile.TarInfo(path)
                info.type, info.linkname, info.size = kind, link, len(data)
                info.mode = 0o755
                tar.addfile(info, io.BytesIO(data))
        os.makedirs(self.path("victim"), exist_ok=True)
        write(self.path("victim/file"), b"precious")
        before = describe(self.path("victim"))
        done = poise("-x", name, self.path("dst"), code=code)
        self.assertEqual(describe(self.path("victim")), before)
        self.assertEqual(
            set(os.listdir(self.out)) - {"evil.tar", "victim", "dst"}, set())
        return done

    def test_hostile(self):
        file, link, soft, folder = (tarfile.REGTYPE, tarfile.LNKTYPE,
                                    tarfile.SYMTYPE, tarfile.DIRTYPE)
        victim = self.path("victim")
        for members in (
                [("../victim/file", file, "", b"evil")],
                [("a/../../victim/file", file, "", b"evil")],
                [("..", folder, "", b"")],
                [("s", soft, "../victim", b""), ("s/file", file, "", b"evil")],
                [("s", soft, victim, b""), ("s/new", file, "", b"evil")],
                [("s", soft, victim, b""), ("s/new", folder, "", b"")],
                [("s", soft, victim, b""), ("s/x/new", file, "", b"evil")],
                [("h", link, "../victim/file", b"")],
                [("s", soft, victim, b""), ("h", link, "s/file", b"")],
                [("s", soft, victim, b""), ("s/h", link, "t", b""),
                 ("t", file, "", b"evil")],
                [("", file, "", b"evil")],
                [(".", file, "", b"evil")],
                [("t", file, "", b"x"), ("t/u", file, "", b"y")],
        ):
            self.hostile(members)
            run("rm", "-rf", self.path("dst"))
        # These are allowed, and change nothing else: a link that is replaced
        # by a file, a link to a link, an absolute name.
        self.hostile([("s", soft, victim + "/file", b""),
                      ("s", file, "", b"new")], code=0)
        self.assertEqual(read(self.path("dst/s")), b"new")
        self.hostile([("/victim/file", file, "", b"new")], code=0)
        self.assertTrue(os.path.exists(self.path("dst/victim/file")))
        # A symbolic link that is where a directory should be.
        os.symlink(victim, self.path("dst/out"))
        self.hostile([("out/file", file, "", b"evil")])

    # ---- damage ------------------------------------------------------------

    def archive(self, *words):
        name = self.path("a.tar")
        os.mkdir(self.path("t"))
        for i in range(40):
            write(self.path(f"t/{i:02}"), b"%d" % i * 3000)
        os.chdir(self.out)
        try:
            poise(*words, "t", "a.tar")
        finally:
            os.chdir(self.where)
        return name

    def whole(self, got):
        """How many files are there; each is whole."""
        count = 0
        for name in os.listdir(got):
            self.assertEqual(read(os.path.join(got, name)),
                             b"%d" % int(name) * 3000)
            count += 1
        return count

    def test_truncated(self):
        name = self.archive()
        data = read(name)
        for keep in (100, 4000, len(data) // 2, len(data) - 1024):
            for index in (True, False):
                write(name, data[:keep])
                if not index and os.path.exists(name + ".index"):
                    os.rename(name + ".index", name + ".kept")
                done = poise("-x", name, self.path("dst"), code=1)
                self.assertNotEqual(done.stderr, b"")
                if keep > 4000:
                    count = self.whole(self.path("dst/t"))
                    # Large ones may lie in front.
                    self.assertTrue(count >= 15, count)
                run("rm", "-rf", self.path("dst"))
            os.rename(name + ".kept", name + ".index")

    def test_damaged(self):
        name = self.archive()
        data = bytearray(read(name))
        for at in (0, 1700, len(data) // 2, len(data) // 2 + 600,
                   3 * len(data) // 4 + 5000):
            bad = bytearray(data)
            bad[at] ^= 0xff
            write(name, bad)
            done = poise("-x", name, self.path("dst"), code=1)
            self.assertIn(b"damaged", done.stderr)
            self.assertTrue(self.whole(self.path("dst/t")) >= 39)
            run("rm", "-rf", self.path("dst"))

    def test_old_index(self):
        """Of version 2, where hashes of several chunks were chained."""
        where = os.path.join(os.path.dirname(os.path.abspath(__file__)),
                             "archive_v2")
        data = gzip.decompress(read(where + "/a.gz"))
        shutil.copy(where + "/a.index", self.path("a.index"))
        write(self.path("a"), data)
        poise("-x", "--no-owner", self.path("a"), self.path("o"))
        self.assertEqual(read(self.path("o/s/zeros")), bytes(1300000))
        write(self.path("a"), data[:1200000] + b"x" + data[1200001:])
        done = poise("-x", self.path("a"), self.path("p"), code=1)
        self.assertIn(b"damaged", done.stderr)
        self.assertEqual(os.listdir(self.path("p/s")), [])

    def test_damaged_index(self):
        name = self.archive()
        data = bytearray(read(name + ".index"))
        data[len(data) // 2] ^= 1
        write(name + ".index", data)
        done = poise("-x", name, self.path("dst"), code=1)
        self.assertIn(b"index", done.stderr)
        self.assertEqual(self.whole(self.path("dst/t")), 40)

    def test_missing_part(self):
        name = self.archive("--parts", "3", "-j", "3")
        os.unlink(name + ".1")
        done = poise("-x", name, self.path("dst"), code=1)
        self.assertIn(b"a.tar.1", done.stderr)

    def faulty(self, fault, *words):
        done = subprocess.run([POISE, "archive", "-j1", *words],
                              env=dict(ENV, POISE_FAULT=fault), cwd=self.out,
                              stderr=subprocess.PIPE, check=False)
        self.assertIn(done.returncode, (0, 1), (fault, words, done.stderr))
        return done

    def test_create_faults(self):
        """A full disk, or a source that cannot be read: no archive, or one of
        which it was said what is wrong in it."""
        self.archive()
        write(self.path("t/99"), b"99" * 3000 * 100)
        before = sorted(os.listdir(self.out))
        for words in ([], ["--zstd"]):
            for k in (1, 2, 4):
                done = self.faulty(f"write:{k}:ENOSPC", *words, "t", "b")
                self.assertEqual(done.returncode, 1)
                self.assertIn(b"No space left", done.stderr)
                self.assertEqual(sorted(os.listdir(self.out)), before)
            for k in (3, 20):
                done = self.faulty(f"read:{k}:EIO", *words, "t", "b")
                self.assertEqual(done.returncode, 1)
                self.assertIn(b"Input/output error", done.stderr)
                self.assertEqual(len(done.stderr.splitlines()), 1)
                bad = done.stderr.split(b"'")[1].decode()
                poise("-x", self.path("b"), self.path("dst"))
                for name in os.listdir(self.path("dst/t")):
                    data = b"%d" % int(name) * 3000 * (100 if name == "99"
                                                       else 1)
                    got = read(self.path("dst/t/" + name))
                    self.assertEqual(len(got), len(data))
                    self.assertEqual(got == data, "t/" + name != bad, name)
                run("rm", "-rf", self.path("dst"), self.path("b"),
                    self.path("b.index"))

    def test_extract_faults(self):
        """A full disk, or an archive that cannot be read: what has its name is
        whole, and nothing temporary is left."""
        for words in ([], ["--zstd"]):
            self.archive(*words)
            for fault in ("write:1:ENOSPC", "write:20:ENOSPC", "open:30:EMFILE",
                          "rename:9:EIO", "read:4:EIO", "read:8:EIO"):
                done = self.faulty(fault, "-x", "a.tar", "dst")
                if fault[0] != "r" or done.returncode:
                    self.assertEqual(done.returncode, 1, fault)
                    self.assertNotEqual(done.stderr, b"")
                if os.path.exists(self.path("dst/t")):
                    self.whole(self.path("dst/t"))
                run("rm", "-rf", self.path("dst"))
            run("rm", "-rf", self.path("t"))

    def test_changing(self):
        """A file that is written to is told, or what was read is of one
        moment; small, and large, by one write each."""
        os.mkdir(self.path("t"))
        for size, words in ((1 << 14, []), (5 << 20, ["--zstd"])):
            write(self.path("t/f"), bytes(size))
            writer = subprocess.Popen(
                [sys.executable, "-c", "import os, sys\n"
                 "file, words, i = os.open(sys.argv[1], os.O_RDWR), "
                 "int(sys.argv[2]) // 8, 0\n"
                 "while os.getppid() == int(sys.argv[3]):\n"
                 "    os.pwrite(file, (i := i + 1).to_bytes(8, 'little') * words, 0)\n",
                 self.path("t/f"), str(size), str(os.getpid())])
            try:
                while read(self.path("t/f"))[:8] == bytes(8):
                    pass
                done = poise(*words, self.path("t"), self.path("a"),
                             code=None)
                self.assertIn(done.returncode, (0, 1))
                poise("-x", self.path("a"), self.path("o"))
                got = read(self.path("o" + self.path("t/f")))
                self.assertEqual(len(got), size)
                if done.returncode == 0:
                    self.assertEqual(got, got[:8] * (size // 8), "torn")
                else:
                    self.assertIn(b"it changed", done.stderr)
                run("rm", "-rf", self.path("o"))
            finally:
                writer.kill()
                writer.wait()

    # ---- compressed --------------------------------------------------------

    def test_zstd(self):
        """Ours by tar and zstd, and by the index; and tar's."""
        name = self.path("a.tar.zst")
        poise("tree", name)
        run("zstd", "-tq", name)
        self.assertTrue(os.path.getsize(name) < 5 << 20)
        self.assertEqual(poise("-t", "-0", name).stdout.count(b"\0"),
                         len(self.truth[0]))
        os.mkdir(self.path("theirs"))
        done = run("tar", "-C", self.path("theirs"), "--zstd", "-xpf", name,
                   "--xattrs", "--xattrs-include=*", "--same-owner",
                   "--warning=no-timestamp", "--delay-directory-restore")
        self.assertEqual(done.stderr, b"")
        self.same(self.path("theirs/tree"), again=False)
        poise("-x", name, self.path("index"))
        os.unlink(name + ".index")
        self.assertTrue(int.from_bytes(read(name)[-9:-5], "little") > 3)
        self.same(self.path("index/tree"), again=False)
        run("tar", "--format=pax", "-S", "--xattrs", "--xattrs-include=*",
            "--zstd", "-cf", name, "tree")
        poise("-x", name, self.path("tar"))
        self.same(self.path("tar/tree"), of_tar=True)

    def test_zstd_through(self):
        """Members whose headers lie over the end of what is unpacked at a
        time, 256 KiB."""
        with tarfile.open(self.path("t"), "w",
                          format=tarfile.PAX_FORMAT) as tar:
            for i in range(400):
                info = tarfile.TarInfo(f"{i}")
                info.size = 600
                info.pax_headers = {"comment": "a header of its own"}
                tar.addfile(info, io.BytesIO(b"%03d" % i * 200))
        run("zstd", "-q", self.path("t"))
        poise("-x", self.path("t.zst"), self.path("o"))
        for i in range(400):
            self.assertEqual(read(self.path(f"o/{i}")), b"%03d" % i * 200)

    def test_zstd_words(self):
        write(self.path("f"), b"x" * 100000)
        os.chdir(self.out)
        try:
            for words, name, packed in (
                    ([], "a", False), ([], "a.tzst", True),
                    (["--zstd"], "b", True), (["--level", "9"], "c", True),
                    (["--zstd=never"], "b.zst", False),
                    (["--zstd", "--parts", "2"], "d", True)):
                poise(*words, "f", name)
                part = name + (".1" if "--parts" in words else "")
                self.assertEqual(read(part)[:4] == b"\x28\xb5\x2f\xfd", packed)
                poise("-x", name, "out")
                self.assertEqual(read("out/f"), b"x" * 100000)
        finally:
            os.chdir(self.where)
        for words in (["-x", "--zstd", "a", "b"], ["-t", "--level=1", "a"],
                      ["--zstd=never", "--level=1", "a", "b"],
                      ["--level=20", "a", "b"]):
            poise(*words, code=2)

    def test_zstd_damaged(self):
        """Whatever is wrong: an error, and what is there is whole."""
        name = self.archive("--zstd")
        os.rename(name + ".index", name + ".kept")
        data = read(name)
        table = len(data) - 8 * int.from_bytes(data[-9:-5], "little") - 17
        cases = [data[:keep] for keep in (20, table // 2)]
        for at in (table // 2, table - 6, len(data) - 15):
            bad = bytearray(data)
            bad[at] ^= 0x55
            cases.append(bytes(bad))
        for case in cases:
            for index in (False, True):
                write(name, case)
                if index:
                    shutil.copy(name + ".kept", name + ".index")
                done = poise("-x", name, self.path("dst"), code=None)
                # A table that is wrong is not used without an index.
                if done.returncode == 0:
                    self.assertEqual(self.whole(self.path("dst/t")), 40)
                else:
                    self.assertEqual(done.returncode, 1)
                    self.assertTrue(b"damaged" in done.stderr or
                                    b"cut short" in done.stderr, done.stderr)
                if os.path.exists(self.path("dst/t")):
                    self.whole(self.path("dst/t"))
                # With the index nobody looks at the end mark.
                if not index:
                    self.assertEqual(done.returncode,
                                     int(case[:table] != data[:table]))
                run("rm", "-rf", self.path("dst"), name + ".index")

    def test_zstd_hostile(self):
        """Neither a window nor a table makes it take memory."""
        def row(packed, plain):
            return packed.to_bytes(4, "little") + plain.to_bytes(4, "little")

        def table(rows, count=None):
            count = len(rows) if count is None else count
            text = b"".join(rows) + count.to_bytes(4, "little") + b"\0"
            text += (0x8F92EAB1).to_bytes(4, "little")
            return b"\x5e\x2a\x4d\x18" + len(text).to_bytes(
                4, "little") + text
        magic = b"\x28\xb5\x2f\xfd"
        window = magic + b"\x00\xa8" + b"\x03\x10\x00\x00"
        frame = read(self.archive("--zstd"))
        frame = frame[:int.from_bytes(frame[-33:-29], "little")]
        for bad in (window, window + table([row(10, 1 << 20)]),
                    frame + table([row(len(frame), 0xffffffff)]),
                    frame + table([row(len(frame), 4 << 20)]),
                    frame + table([row(len(frame), 512)]),
                    frame + table([], 0x7fffffff),
                    frame + table([row(0xffffffff, 1)]),
                    frame + table([row(0, 0)] * 9), magic, b"\x5e\x2a\x4d\x18",
                    frame + b"garbage behind the end" * 50):
            write(self.path("evil"), bad)
            child = subprocess.Popen([POISE, "archive", "-x", "evil", "dst"],
                                     cwd=self.out, stderr=subprocess.PIPE,
                                     env=ENV)
            err = child.stderr.read()
            _, status, usage = os.wait4(child.pid, 0)
            child.stderr.close()
            child.returncode = os.waitstatus_to_exitcode(status)
            self.assertEqual(child.returncode, 1, (bad[-40:], err))
            self.assertIn(b"evil", err)
            self.assertTrue(usage.ru_maxrss < 400 << 10, usage.ru_maxrss)

    def test_fsync(self):
        """Under each policy something is synced, and fails if that does."""
        name = self.archive()
        for policy, creates, extracts in (("none", 0, 0), ("file", 4, 42),
                                          ("tree", 1, 1)):
            words = ["-j1", "--max-in-flight=1", f"--fsync={policy}"]
            for make, most in ((["--parts=1", "t", "b.tar"], creates),
                               (["-x", "a.tar", "dst"], extracts)):
                for k in {1, most, most + 1} - {0}:
                    done = subprocess.run(
                        [POISE, "archive", *words, *make], cwd=self.out,
                        env=dict(ENV, POISE_FAULT=f"sync:{k}:EIO"),
                        capture_output=True, check=False)
                    self.assertEqual(done.returncode, int(k <= most),
                                     (policy, make, k, done.stderr))
                    run("rm", "-rf", self.path("dst"), self.path("b.tar"),
                        self.path("b.tar.index"))
        self.assertTrue(os.path.exists(name))

    def test_words(self):
        for words in ([], ["a"], ["-x", "a"], ["-t"], ["-x", "-t", "a"],
                      ["-x", "a", "b", "--where", "-type", "f"]):
            poise(*words, code=2)
        for words in (["none", self.path("o.tar")],
                      ["-x", "none", self.path("d")], ["-t", "none"]):
            done = poise(*words, code=1)
            self.assertIn(b"none", done.stderr)

    def test_few_descriptors(self):
        name = self.path("a.tar")
        run("sh", "-c", 'ulimit -n 64; "$0" archive tree "$1" && '
            '"$0" archive -x "$1" "$2"', POISE, name, self.path("out"))
        self.same(self.path("out/tree"))


if __name__ == "__main__":
    unittest.main()
