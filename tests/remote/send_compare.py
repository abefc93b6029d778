"""How poise send tells whether a file is there already: by size and time, by
content (--checksum), or not at all (--ignore-times); and what a file is like
whose permissions are not kept; as rsync's options."""
import os

from send_tree import expect, same, write


def promise_compare(bench):
    source, target = bench.path("compare"), bench.path("compare-there")
    os.makedirs(os.path.join(source, "sub"))
    names = ["one", "two", os.path.join("sub", "three")]
    for name in names:
        write(os.path.join(source, name), bench.rng.randbytes(70000))
    write(os.path.join(source, "empty"), b"")
    os.link(os.path.join(source, "one"), os.path.join(source, "one-more"))
    bench.good(source + "/", "host:" + target)

    def spoil():
        """Other content, but the same size and time."""
        path = os.path.join(target, "two")
        st = os.stat(path)
        with open(path, "r+b") as file:
            file.seek(30000)
            file.write(b"spoilt")
        os.utime(path, ns=(st.st_atime_ns, st.st_mtime_ns))

    def check(words, back, sends, changes=0):
        paths = [source + "/", target]
        got = bench.good(*words, *(
            ["host:" + paths[0], paths[1]] if back else
            [paths[0], "host:" + paths[1]]))
        expect(got["send"] == sends and got["change"] == changes,
               f"{words}: {got}")

    for back in (False, True):
        spoil()
        check((), back, 0)
        check(("-n", "-c"), back, 1)
        check(("-c",), back, 1)
        same(source, target, "--checksum")
        spoil()
        check(("-n", "--ignore-times"), back, 4)
        check(("-I",), back, 4)
        same(source, target, "--ignore-times")
        # What has only another time gets that.
        os.utime(os.path.join(target, "sub", "three"), ns=(0, 0))
        check(("--checksum",), back, 0, 1)
        same(source, target, "--checksum, other times")
        # Content has the last word.
        check(("-c", "-I"), back, 0)


def promise_no_perms(bench):
    """New files get what the umask leaves of the source's permissions, files
    that are there keep theirs."""
    source, target = bench.path("perms"), bench.path("perms-there")
    os.makedirs(os.path.join(source, "sub"))
    for name, mode in (("program", 0o777), ("text", 0o666), ("own", 0o600)):
        write(os.path.join(source, "sub", name), b"one")
        os.chmod(os.path.join(source, "sub", name), mode)
    os.mkfifo(os.path.join(source, "pipe"))
    os.chmod(os.path.join(source, "pipe"), 0o644)
    os.chmod(os.path.join(source, "sub"), 0o777)
    before = os.umask(0o027)
    try:
        bench.good("--no-perms", source + "/", "host:" + target)
    finally:
        os.umask(before)

    def modes():
        return [os.stat(os.path.join(target, name)).st_mode & 0o7777
                for name in ("sub", "sub/program", "sub/text", "sub/own",
                             "pipe")]

    expect(modes() == [0o750, 0o750, 0o640, 0o600, 0o640],
           f"new, without --perms: {[oct(mode) for mode in modes()]}")
    os.chmod(os.path.join(target, "sub", "text"), 0o444)
    os.chmod(os.path.join(target, "sub", "own"), 0o664)
    for name in ("text", "own"):
        write(os.path.join(source, "sub", name), b"another")
    bench.good("--no-perms", source + "/", "host:" + target)
    expect(modes() == [0o750, 0o750, 0o444, 0o664, 0o640],
           f"there, without --perms: {[oct(mode) for mode in modes()]}")
