"""Nasty trees, and whether two are the same: for tests of what copies, compares
and removes them. All by descriptors, so depth has no limit, and by no code of
Poise's."""
import os
import random
import socket
import stat
import struct
import subprocess

TEMPORARY = b".poise-making-"


def acl(*entries):
    """The value of system.posix_acl_*: entries are (tag, permissions, id)."""
    return struct.pack("<I", 2) + b"".join(
        struct.pack("<HHI", tag, bits, who & 0xffffffff)
        for tag, bits, who in entries)


def put(fd, name, data=b"x", mode=0o644, times=None):
    made = os.open(name, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600,
                   dir_fd=fd)
    os.write(made, data)
    os.fchmod(made, mode)
    os.close(made)
    if times:
        os.utime(name, ns=times, dir_fd=fd)


def put_holes(fd, name, size, *pieces):
    made = os.open(name, os.O_CREAT | os.O_WRONLY, 0o640, dir_fd=fd)
    for at, data in pieces:
        os.pwrite(made, data, at)
    os.ftruncate(made, size)
    os.close(made)


def enter(fd, name, mode=0o755):
    os.mkdir(name, mode, dir_fd=fd)
    return os.open(name, os.O_RDONLY | os.O_DIRECTORY, dir_fd=fd)


ODD_NAMES = [b"a\nnewline", b" leading", b"-rf", b"\xff\xfe not UTF-8", b"pi|pe",
             b"*", b"...", b"n" * 255, b"\x1b[31m", "\u00fcn\u00ef".encode(),
             b".poise", b"q'uote\""]


def names(root):
    for name in ODD_NAMES:
        put(root, name, name * 3)
        fd = enter(root, name[:240] + b"-dir")
        put(fd, name, name)
        os.close(fd)


def modes_and_times(root):
    put(root, b"empty", b"")
    for name, mode in ((b"setuid", 0o4755), (b"setgid", 0o2755),
                       (b"sticky", 0o1644), (b"none", 0), (b"read", 0o444)):
        put(root, name, name, mode)
    put(root, b"before1970", times=(-12345678901234567, -1000000007))
    put(root, b"after2038", times=(4200000000123456789, 4100000000987654321))
    put(root, b"zero-time", times=(0, 0))
    os.close(enter(root, b"locked", 0o500))
    os.close(enter(root, b"sgid"))
    os.chmod(b"sgid", 0o2775, dir_fd=root)


def contents(root, big):
    put(root, b"big", random.Random(1).randbytes(big))
    put_holes(root, b"sparse", 9 << 20, (0, b"begin"), (5 << 20, b"middle"))
    put_holes(root, b"hole", 1 << 20)
    put_holes(root, b"tail", (1 << 20) + 80, ((1 << 20) + 77, b"end"))


def specials(root, path):
    for to, name in ((b"nowhere", b"dangling"), (b"..", b"up"),
                     (b"x" * 4000, b"longlink"), (b"\xff\n", b"oddlink")):
        os.symlink(to, name, dir_fd=root)
    os.utime(b"dangling", ns=(5, 1234567890123), dir_fd=root,
             follow_symlinks=False)
    os.mkfifo(b"fifo", 0o620, dir_fd=root)
    with socket.socket(socket.AF_UNIX) as end:
        end.bind("/proc/self/fd/%d/socket" % root)
    if os.geteuid() == 0:
        put(root, b"owned")
        os.chown(b"owned", 12345, 54321, dir_fd=root)
        os.chmod(b"owned", 0o6711, dir_fd=root)
        os.chown(b"dangling", 77, 88, dir_fd=root, follow_symlinks=False)
        try:
            os.mknod(b"null", 0o666 | stat.S_IFCHR, os.makedev(1, 3),
                     dir_fd=root)
            os.mknod(b"block", 0o600 | stat.S_IFBLK, os.makedev(7, 200),
                     dir_fd=root)
        except OSError:
            pass  # not in this container


def hard_links(root):
    fd = enter(root, b"links")
    put(fd, b"first", b"linked")
    for i in range(5):
        os.link(b"first", b"name%d" % i, src_dir_fd=fd, dst_dir_fd=fd)
    os.link(b"first", b"linked-above", src_dir_fd=fd, dst_dir_fd=root)
    os.symlink(b"to", b"symlink", dir_fd=fd)
    os.link(b"symlink", b"symlink2", src_dir_fd=fd, dst_dir_fd=fd,
            follow_symlinks=False)
    os.link(b"fifo", b"fifo2", src_dir_fd=root, dst_dir_fd=fd)
    os.close(fd)


def attributes(root):
    here = b"/proc/self/fd/%d/" % root
    try:
        put(root, b"xattrs", b"x")
        os.setxattr(here + b"xattrs", b"user.one", b"1\0\xff")
        os.setxattr(here + b"xattrs", b"user.empty", b"")
        os.setxattr(here + b"xattrs", b"user.long", b"v" * 3000)
        os.chmod(b"xattrs", 0o400, dir_fd=root)
        os.setxattr(here + b"links", b"user.directory", b"d")
    except OSError:
        pass  # not on this file system
    try:
        put(root, b"acl", b"x", 0o640)
        os.setxattr(here + b"acl", b"system.posix_acl_access",
                    acl((1, 6, -1), (2, 7, 1234), (4, 4, -1), (16, 7, -1),
                        (32, 0, -1)))
        fd = enter(root, b"acldir")
        os.setxattr(here + b"acldir", b"system.posix_acl_default",
                    acl((1, 7, -1), (2, 7, 4321), (4, 5, -1), (16, 7, -1),
                        (32, 5, -1)))
        put(fd, b"inherits")
        os.close(enter(fd, b"below"))
        put(fd, b"plain")
        os.removexattr(here + b"acldir/plain", b"system.posix_acl_access")
        os.close(fd)
    except OSError:
        pass
    if os.geteuid() == 0:
        try:
            os.setxattr(here + b"setuid", b"trusted.t", b"t")
            os.setxattr(here + b"empty", b"security.capability", bytes.fromhex(
                "0100000200200000000000000000000000000000"))
        except OSError:
            pass


def deep(root, depth=40):
    fd = os.dup(root)
    for i in range(depth):
        below = enter(fd, b"deep%02d-" % i + b"d" * 120)
        os.close(fd)
        fd = below
    put(fd, b"bottom", b"bottom")
    os.close(fd)


def each(fd, path=b""):
    """(path, descriptor of its directory, name, lstat), directories after what
    is in them."""
    for name in sorted(os.fsencode(n) for n in os.listdir(fd)):
        st = os.stat(name, dir_fd=fd, follow_symlinks=False)
        if stat.S_ISDIR(st.st_mode):
            below = os.open(name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=fd)
            yield from each(below, path + name + b"/")
            os.close(below)
        yield path + name, fd, name, st


def set_directory_times(root):
    for _, fd, name, st in each(root):
        if stat.S_ISDIR(st.st_mode):
            at = 10 ** 18 + st.st_ino * 1000003
            os.utime(name, ns=(at, at), dir_fd=fd)


def make_nasty(path, big=3 << 20):
    """All types, sparse, hard links, odd names, attributes, times, depth."""
    os.mkdir(path)
    root = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    names(root)
    modes_and_times(root)
    contents(root, big)
    specials(root, path)
    hard_links(root)
    attributes(root)
    deep(root)
    set_directory_times(root)
    os.close(root)
    os.utime(path, ns=(7, 99000000007))


# ---- comparison ---------------------------------------------------------

def read(fd, name):
    made = os.open(name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=fd)
    try:
        parts = []
        while True:
            part = os.read(made, 1 << 22)
            if not part:
                return b"".join(parts)
            parts.append(part)
    finally:
        os.close(made)


def xattrs_of(fd, name):
    path = b"/proc/self/fd/%d/" % fd + name
    try:
        return sorted((key, os.getxattr(path, key, follow_symlinks=False))
                      for key in os.listxattr(path, follow_symlinks=False))
    except OSError:
        return []


def describe(fd, name, st):
    """What a copy has to keep of an entry."""
    kind = stat.S_IFMT(st.st_mode)
    what = {"mode": oct(st.st_mode), "owner": (st.st_uid, st.st_gid),
            "mtime": st.st_mtime_ns, "xattrs": xattrs_of(fd, name)}
    if kind == stat.S_IFREG:
        what["data"] = read(fd, name) if st.st_size < 1 << 26 else st.st_size
        what["sparse"] = st.st_blocks * 512 + (64 << 10) < st.st_size
    elif kind == stat.S_IFLNK:
        what["target"] = os.readlink(name, dir_fd=fd)
    elif kind in (stat.S_IFCHR, stat.S_IFBLK):
        what["device"] = st.st_rdev
    return what


def describe_tree(path):
    """{path: what}, and the sets of paths that are one file."""
    root = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    found, links = {}, {}
    for where, fd, name, st in each(root):
        found[where] = describe(fd, name, st)
        if not stat.S_ISDIR(st.st_mode):
            links.setdefault((st.st_dev, st.st_ino), []).append(where)
    os.close(root)
    st = os.stat(path)
    found[b""] = {"mode": oct(st.st_mode), "owner": (st.st_uid, st.st_gid),
                  "mtime": st.st_mtime_ns,
                  "xattrs": xattrs_of(os.open("/", os.O_PATH),
                                      os.fsencode(os.path.abspath(path))[1:])}
    return found, sorted(tuple(group) for group in links.values()
                         if len(group) > 1)


def differences(a, b):
    """What differs between two trees, as lines; [] if nothing does."""
    (a_all, a_links), (b_all, b_links) = describe_tree(a), describe_tree(b)
    lines = []
    for where in sorted(a_all.keys() | b_all.keys()):
        one, other = a_all.get(where), b_all.get(where)
        short = repr(where if len(where) < 200 else where[:90] + b"..." +
                     where[-90:])
        if one is None or other is None:
            lines.append("%s: only in %s" % (short, b if one is None else a))
            continue
        for key in one.keys() | other.keys():
            if one.get(key) != other.get(key):
                lines.append("%s: %s: %.200r, %.200r" % (
                    short, key, one.get(key), other.get(key)))
    if a_links != b_links:
        lines.append("hard links: %.600r, %.600r" % (a_links, b_links))
    return lines


def temporaries(path):
    """Paths that have a temporary name."""
    root = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    found = [where for where, _, name, _ in each(root)
             if name.startswith(TEMPORARY)]
    os.close(root)
    return found


def launcher(mpi, ranks):
    if ranks == 0:
        return []
    if mpi == "ompi":
        root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
        return ["mpirun.openmpi", *root, "--oversubscribe", "-n", str(ranks)]
    return ["mpirun.mpich", "-n", str(ranks)]


def expect(truth, *why):
    if not truth:
        raise AssertionError(" ".join(str(w)[:2000] for w in why))


def fresh(*paths):
    for path in paths:
        subprocess.run(["rm", "-rf", path], check=True)


def write(path, text="x", at=None):
    with open(path, "w", encoding="ascii") as file:
        file.write(text)
    if at is not None:
        os.utime(path, ns=(at, at))


def many(path, directories, files):
    """A tree of small files, some of them linked."""
    rng = random.Random(7)
    for d in range(directories):
        os.makedirs("%s/%d" % (path, d))
        for f in range(files):
            write("%s/%d/%d" % (path, d, f), "%d " % f * rng.randrange(300))
        os.link("%s/%d/0" % (path, d), "%s/linked%d" % (path, d))
        if d:
            os.link("%s/0/1" % path, "%s/%d/one" % (path, d))


def nothing_half(src, dst):
    """All that has its final name is whole."""
    if not os.path.exists(dst):
        return
    whole, _ = describe_tree(src)
    root = os.open(dst, os.O_RDONLY)
    for where, fd, name, st in each(root):
        if stat.S_ISREG(st.st_mode) and not any(
                part.startswith(TEMPORARY) for part in where.split(b"/")):
            got = describe(fd, name, st)
            want = whole[where]
            expect(got["data"] == want["data"] and
                   got["mode"] == want["mode"] and
                   got["mtime"] == want["mtime"], where[-90:])
    os.close(root)
