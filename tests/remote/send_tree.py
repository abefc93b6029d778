"""The trees of tests/remote/send: makes, changes and compares them.

A comparison that finds a difference raises Failed, which names it.
"""
import os
import random
import stat

TEMPORARY = ".poise-making-"


class Failed(Exception):
    pass


def expect(condition, what):
    if not condition:
        raise Failed(what)


def xattrs_of(path):
    try:
        return {name: os.getxattr(path, name, follow_symlinks=False)
                for name in os.listxattr(path, follow_symlinks=False)
                if name.startswith(("user.", "trusted.poise"))}
    except OSError:
        return {}


def describe(path):
    """All that is to be the same of one entry."""
    st = os.lstat(path)
    what = [stat.S_IFMT(st.st_mode), st.st_mtime_ns, st.st_uid, st.st_gid]
    if stat.S_ISLNK(st.st_mode):
        return what + [os.readlink(path), xattrs_of(path)]
    what.append(st.st_mode & 0o7777)
    if stat.S_ISREG(st.st_mode):
        with open(path, "rb") as file:
            what.append(file.read())
    return what + [xattrs_of(path)]


def look(root):
    """Path -> description; and which paths are one file."""
    entries, inodes = {}, {}
    pending = [b""]
    root = os.fsencode(root)
    while pending:
        below = pending.pop()
        path = os.path.join(root, below) if below else root
        entries[below] = describe(path)
        st = os.lstat(path)
        if stat.S_ISDIR(st.st_mode):
            pending += [os.path.join(below, name)
                        for name in os.listdir(path)]
        elif st.st_nlink > 1:
            inodes.setdefault(st.st_ino, set()).add(below)
    links = {frozenset(paths) for paths in inodes.values() if len(paths) > 1}
    return entries, links


def same(source, target, why):
    (left, left_links), (right, right_links) = look(source), look(target)
    for path in sorted(set(left) | set(right)):
        if path not in left or path not in right:
            raise Failed(f"{why}: {path!r} is only in one tree")
        if left[path] != right[path]:
            raise Failed(f"{why}: {path!r} differs: "
                         f"{str(left[path])[:200]} {str(right[path])[:200]}")
    expect(left_links == right_links, f"{why}: hard links differ")


def same_files(source, target, why):
    """All of the source's files are in the target, which may have others."""
    left, right = look(source)[0], look(target)[0]
    for path, what in left.items():
        expect(right.get(path) == what, f"{why}: {path!r} differs")


def temporaries(root):
    return [os.path.join(folder, name) for folder, _, names in os.walk(root)
            for name in names if name.startswith(TEMPORARY)]


def check_pieces(new, old, target):
    """Each file of the target is one of these, whole."""
    for path, what in look(target)[0].items():
        if what[0] != stat.S_IFREG or TEMPORARY.encode() in path:
            continue
        data = what[5]
        good = [tree[path][5] for tree in (new, old)
                if path in tree and tree[path][0] == stat.S_IFREG]
        expect(data in good, f"{path!r} is neither old nor new")


def text(rng, lines):
    words = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta"]
    return "".join(f"{rng.choice(words)} {rng.randrange(10 ** 6)} "
                   f"{rng.choice(words)}\n" for _ in range(lines)).encode()


def write(path, data, mtime=None):
    with open(path, "wb") as file:
        file.write(data)
    os.utime(path, (1e9, mtime or random.randrange(10 ** 9)))


def make_tree(root, rng):
    """A tree of everything."""
    os.makedirs(os.path.join(root, "a", "deep", "er"))
    os.makedirs(os.path.join(root, "empty"))
    rootb = os.fsencode(root)
    for name in (b"plain", b" blank ", b"new\nline", b"not-utf8-\xff\xfe",
                 b"-dash", b"quote'\"$(touch x)`", b"*", b"a" * 255):
        write(os.path.join(rootb, name), text(rng, rng.randrange(200)))
    write(os.path.join(root, "zero"), b"")
    for i in range(30):
        write(os.path.join(root, "a", "deep", f"file{i}"),
              text(rng, rng.randrange(400)))
    write(os.path.join(root, "a", "big"), text(rng, 40000))
    write(os.path.join(root, "a", "random"), rng.randbytes(300000))
    with open(os.path.join(root, "a", "sparse"), "wb") as file:
        file.seek(3 << 20)
        file.write(b"x" * 10000)
        file.truncate(9 << 20)
    os.link(os.path.join(root, "a", "big"), os.path.join(root, "empty-not"))
    os.link(os.path.join(root, "a", "big"),
            os.path.join(root, "a", "deep", "er", "again"))
    os.symlink("a/big", os.path.join(root, "link"))
    os.symlink("/nowhere/at all", os.path.join(root, "a", "dangling"))
    os.mkfifo(os.path.join(root, "pipe"))
    try:
        os.setxattr(os.path.join(root, "plain"), "user.poise", b"\0value")
        os.setxattr(os.path.join(root, "a"), "user.poise", b"directory")
        # Root's alone, and the only ones that links have.
        os.setxattr(os.path.join(root, "a", "dangling"), "trusted.poise",
                    b"of a link", follow_symlinks=False)
        os.setxattr(os.path.join(root, "pipe"), "trusted.poise", b"pipe")
    except OSError:
        pass  # not on this file system, or not root
    os.chmod(os.path.join(root, "plain"), 0o4751)
    os.chmod(os.path.join(root, "a", "random"), 0o400)
    os.chmod(os.path.join(root, "a", "deep"), 0o1755)
    for folder in ("a/deep/er", "a/deep", "a", "empty", ""):
        os.utime(os.path.join(root, folder),
                 ns=(0, rng.randrange(10 ** 18)))


def change_tree(root, rng):
    """What happens to a tree between two transfers."""
    files = [os.path.join(folder, name)
             for folder, _, names in os.walk(root) for name in sorted(names)
             if stat.S_ISREG(os.lstat(os.path.join(folder, name)).st_mode)]
    for path in rng.sample(sorted(files), min(8, len(files))):
        deed = rng.randrange(4)
        if deed == 0:
            os.unlink(path)
        elif deed == 1:
            os.rename(path, path[:200] + str(rng.randrange(1000)))
        else:
            with open(path, "rb") as file:
                data = bytearray(file.read())
            os.unlink(path)
            at = rng.randrange(len(data) + 1)
            data[at:at] = text(rng, rng.randrange(30))
            write(path, data, rng.randrange(10 ** 9))
    write(os.path.join(root, f"new{rng.randrange(1000)}"),
          text(rng, rng.randrange(3000)))
