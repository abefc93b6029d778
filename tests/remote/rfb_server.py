"""A server of RFB that shows random pictures: an encoder of its own for each
encoding, so that what a client makes of them can be held against what was
meant. One connection, in a thread."""
import random
import socket
import struct
import threading
import zlib

RAW, COPYRECT, RRE, HEXTILE, TIGHT, ZRLE = 0, 1, 2, 5, 7, 16
NAMES = {"raw": RAW, "copyrect": COPYRECT, "rre": RRE, "hextile": HEXTILE,
         "tight": TIGHT, "zrle": ZRLE}
DESKTOP_SIZE, LAST_RECT = -223, -224
# The bytes 0 to 15 by DES with the key "secret7", its bits turned round:
# openssl enc -des-ecb -provider legacy -nopad -K CEA6C64EA62EEC00
ANSWER = bytes.fromhex("064846053d27d25873664fa9c1de616b")


def bgrx(pixel):
    return struct.pack("<I", pixel)


def bgr(pixel):
    return struct.pack("<I", pixel)[:3]


def rgb(pixel):
    return struct.pack(">I", pixel)[1:]


class Picture:
    """Rows of numbers 0xRRGGBB."""

    def __init__(self, width, height):
        self.width, self.height = width, height
        self.rows = [[0] * width for _ in range(height)]

    def bytes(self):
        """As PPM has them."""
        return b"".join(rgb(p) for row in self.rows for p in row)

    def part(self, x, y, width, height):
        return [row[x:x + width] for row in self.rows[y:y + height]]


def paint(picture, rng, box):
    """Something new in a box: noise, few colours, or one."""
    x, y, width, height = box
    colours = rng.choice([1, 2, 3, 5, 16, 100, 1 << 24])
    palette = [rng.randrange(1 << 24) for _ in range(min(colours, 100))]
    run, pixel = 0, 0
    bars = rng.random() < 0.3
    for k, row in enumerate(picture.rows[y:y + height]):
        if bars and k % 7:  # the same as above
            row[x:x + width] = picture.rows[y + k - 1][x:x + width]
            continue
        for i in range(x, x + width):
            if run == 0:
                run = rng.choice([1, 1, 2, 5, 40, 300])
                pixel = (rng.randrange(1 << 24) if colours > 100
                         else rng.choice(palette))
            run -= 1
            row[i] = pixel


def raw(rows):
    return b"".join(bgrx(p) for row in rows for p in row)


def parts(rows, background):
    """Rectangles of another colour, as (pixel, x, y, width, height)."""
    left = [list(row) for row in rows]
    for y, row in enumerate(left):
        x = 0
        while x < len(row):
            pixel, end, low = row[x], x + 1, y + 1
            if pixel in (background, None):
                x += 1
                continue
            while end < len(row) and row[end] == pixel:
                end += 1
            while low < len(left) and left[low][x:end] == row[x:end]:
                left[low][x:end] = [None] * (end - x)
                low += 1
            yield pixel, x, y, end - x, low - y
            x = end


def rre(rows):
    background = rows[0][0]
    found = list(parts(rows, background))
    return struct.pack(">I", len(found)) + bgrx(background) + b"".join(
        bgrx(p) + struct.pack(">HHHH", x, y, w, h) for p, x, y, w, h in found)


def hextile(rows, rng):
    out, background, foreground = b"", None, None
    for ty in range(0, len(rows), 16):
        for tx in range(0, len(rows[0]), 16):
            tile = [row[tx:tx + 16] for row in rows[ty:ty + 16]]
            first = tile[0][0]
            found = list(parts(tile, first))
            if len(found) > 255 or rng.random() < 0.1:
                out += b"\x01" + raw(tile)
                background = foreground = None
                continue
            kind, body = 0, b""
            if first != background:
                kind, body, background = kind | 2, body + bgrx(first), first
            colours = {part[0] for part in found}
            if len(colours) == 1 and colours != {foreground}:
                kind, foreground = kind | 4, colours.pop()
                body += bgrx(foreground)
                colours = {foreground}
            if found:
                many = colours != {foreground}
                kind |= 8 | (16 if many else 0)
                foreground = None if many else foreground
                body += bytes([len(found)]) + b"".join(
                    (bgrx(p) if many else b"") +
                    bytes([x << 4 | y, (w - 1) << 4 | h - 1])
                    for p, x, y, w, h in found)
            out += bytes([kind]) + body
    return out


def runs_of(tile):
    flat = [p for row in tile for p in row]
    at = 0
    while at < len(flat):
        end = at + 1
        while end < len(flat) and flat[end] == flat[at]:
            end += 1
        yield flat[at], end - at
        at = end


def run_bytes(length):
    return b"\xff" * ((length - 1) // 255) + bytes([(length - 1) % 255])


def zrle_tile(tile, rng):
    colours = sorted({p for row in tile for p in row})
    kinds = ["plain", "runs"]
    kinds += ["one"] if len(colours) == 1 else []
    kinds += ["packed"] if 2 <= len(colours) <= 16 else []
    kinds += ["palette runs"] if 2 <= len(colours) <= 127 else []
    kind = rng.choice(kinds)
    if kind == "plain":
        return b"\0" + b"".join(bgr(p) for row in tile for p in row)
    if kind == "runs":
        return b"\x80" + b"".join(bgr(p) + run_bytes(n)
                                  for p, n in runs_of(tile))
    if kind == "one":
        return b"\x01" + bgr(colours[0])
    palette = b"".join(bgr(p) for p in colours)
    number = {p: i for i, p in enumerate(colours)}
    if kind == "palette runs":
        return bytes([128 + len(colours)]) + palette + b"".join(
            bytes([number[p]]) if n == 1
            else bytes([number[p] | 128]) + run_bytes(n)
            for p, n in runs_of(tile))
    bits = 4 if len(colours) > 4 else 2 if len(colours) > 2 else 1
    out = bytes([len(colours)]) + palette
    for row in tile:
        text = "".join(format(number[p], f"0{bits}b") for p in row)
        text += "0" * (-len(text) % 8)
        out += bytes(int(text[i:i + 8], 2) for i in range(0, len(text), 8))
    return out


def tight_length(length):
    if length < 128:
        return bytes([length])
    if length < 1 << 14:
        return bytes([length & 127 | 128, length >> 7])
    return bytes([length & 127 | 128, length >> 7 & 127 | 128, length >> 14])


def gradient(rows):
    out, above = b"", [(0, 0, 0)] * (len(rows[0]) + 1)
    for row in rows:
        here = [(0, 0, 0)] + [tuple(rgb(p)) for p in row]
        for x in range(1, len(here)):
            out += bytes((here[x][c] - min(255, max(
                0, here[x - 1][c] + above[x][c] - above[x - 1][c]))) & 255
                for c in range(3))
        above = here
    return out


class Encoder:
    """With the streams of zlib that last as long as a connection."""

    def __init__(self, rng):
        self.rng = rng
        self.stream = zlib.compressobj()
        self.tight = [None] * 4

    def zrle(self, rows):
        data = b"".join(
            zrle_tile([row[x:x + 64] for row in rows[y:y + 64]], self.rng)
            for y in range(0, len(rows), 64)
            for x in range(0, len(rows[0]), 64))
        data = self.stream.compress(data) + self.stream.flush(zlib.Z_SYNC_FLUSH)
        return struct.pack(">I", len(data)) + data

    def tight_rect(self, rows):
        colours = sorted({p for row in rows for p in row})
        rng, number = self.rng, self.rng.randrange(4)
        reset = self.tight[number] is None or rng.random() < 0.2
        if len(colours) == 1 and rng.random() < 0.7:
            return b"\x80" + rgb(colours[0])
        how = rng.choice(["copy", "gradient"] +
                         (["palette"] * 2 if 2 <= len(colours) <= 256 else []))
        control, head = number << 4, b""
        if how == "copy":
            data = b"".join(rgb(p) for row in rows for p in row)
            if rng.random() < 0.5:
                control, head = control | 0x40, b"\0"
        elif how == "gradient":
            control, head, data = control | 0x40, b"\x02", gradient(rows)
        else:
            index = {p: i for i, p in enumerate(colours)}
            head = b"\x01" + bytes([len(colours) - 1]) + b"".join(
                map(rgb, colours))
            control |= 0x40
            if len(colours) == 2:
                data = b"".join(
                    int("".join(str(index[p]) for p in row) +
                        "0" * (-len(row) % 8), 2).to_bytes(
                            (len(row) + 7) // 8, "big") for row in rows)
            else:
                data = bytes(index[p] for row in rows for p in row)
        if len(data) < 12:
            return bytes([control]) + head + data
        if reset:
            self.tight[number] = zlib.compressobj()
            control |= 1 << number
        stream = self.tight[number]
        data = stream.compress(data) + stream.flush(zlib.Z_SYNC_FLUSH)
        return bytes([control]) + head + tight_length(len(data)) + data

    def encode(self, encoding, rows):
        return (raw(rows) if encoding == RAW else
                rre(rows) if encoding == RRE else
                hextile(rows, self.rng) if encoding == HEXTILE else
                self.zrle(rows) if encoding == ZRLE else self.tight_rect(rows))


class Server(threading.Thread):
    """`updates` of random rectangles; `bad`: bytes that it says instead of the
    second one, and then no more; `locked`: the password is secret7."""

    def __init__(self, seed, updates=30, minor=8, bad=None, locked=False):
        super().__init__(daemon=True)
        self.locked = locked
        self.rng = random.Random(seed)
        self.updates, self.minor, self.bad = updates, minor, bad
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.picture = Picture(self.rng.randint(1, 150), self.rng.randint(1, 150))
        self.encodings, self.error, self.done = [], None, False

    def run(self):
        try:
            with self.listener:
                self.link, _ = self.listener.accept()
            with self.link:
                self.serve()
        except OSError as error:
            self.error = error

    def take(self, count):
        data = b""
        while len(data) < count:
            more = self.link.recv(count - len(data))
            if not more:
                raise ConnectionError("the client left")
            data += more
        return data

    def shake_hands(self):
        self.link.sendall(b"RFB 003.%03d\n" % self.minor)
        assert self.take(12) == b"RFB 003.%03d\n" % self.minor
        if self.locked:
            self.link.sendall(b"\x01\x02")
            assert self.take(1) == b"\x02"
            self.link.sendall(bytes(range(16)))
            if self.take(16) != ANSWER:
                self.link.sendall(struct.pack(">II", 1, 4) + b"no\x1b!")
                raise ConnectionError("a wrong password")
        elif self.minor == 3:
            self.link.sendall(struct.pack(">I", 1))
        else:
            self.link.sendall(b"\x03\x10\x01\x13")
            assert self.take(1) == b"\x01"
        if self.minor == 8:
            self.link.sendall(struct.pack(">I", 0))
        assert self.take(1) == b"\x01"  # shared
        name = "ä screen\n".encode()
        self.link.sendall(
            struct.pack(">HH", self.picture.width, self.picture.height) +
            bytes(16) + struct.pack(">I", len(name)) + name)

    def wait_for_request(self):
        while True:
            kind = self.take(1)[0]
            if kind == 0:
                assert self.take(19)[3:] == bytes(
                    [32, 24, 0, 1, 0, 255, 0, 255, 0, 255, 16, 8, 0, 0, 0, 0])
            elif kind == 2:
                count = struct.unpack(">xH", self.take(3))[0]
                self.encodings = struct.unpack(f">{count}i",
                                               self.take(4 * count))
            else:
                assert kind == 3
                incremental, x, y, width, height = struct.unpack(
                    ">BHHHH", self.take(9))
                assert (x, y, width, height) == (
                    0, 0, self.picture.width, self.picture.height)
                return incremental

    def box(self):
        rng, picture = self.rng, self.picture
        width = rng.randint(1, picture.width)
        height = rng.randint(1, picture.height)
        return (rng.randrange(picture.width - width + 1),
                rng.randrange(picture.height - height + 1), width, height)

    def copy(self, box):
        x, y, width, height = box
        from_x = self.rng.randrange(self.picture.width - width + 1)
        from_y = self.rng.randrange(self.picture.height - height + 1)
        rows = self.picture.part(from_x, from_y, width, height)
        for i, row in enumerate(rows):
            self.picture.rows[y + i][x:x + width] = row
        return struct.pack(">HH", from_x, from_y)

    def rectangle(self, encoder, encoding):
        box = self.box()
        if encoding == COPYRECT:
            body = self.copy(box)
        else:
            paint(self.picture, self.rng, box)
            body = encoder.encode(encoding, self.picture.part(*box))
        return struct.pack(">HHHHi", *box, encoding) + body

    def update(self, encoder):
        rng, known = self.rng, [e for e in self.encodings if e >= 0]
        if rng.random() < 0.03:
            self.picture = Picture(rng.randint(1, 150), rng.randint(1, 150))
            return struct.pack(">BxHHHHHi", 0, 1, 0, 0, self.picture.width,
                               self.picture.height, DESKTOP_SIZE)
        rects = [self.rectangle(encoder, rng.choice(known))
                 for _ in range(rng.randint(0, 5))]
        if rng.random() < 0.3:
            last = struct.pack(">HHHHi", 0, 0, 0, 0, LAST_RECT)
            return struct.pack(">BxH", 0, 0xffff) + b"".join(rects) + last
        return struct.pack(">BxH", 0, len(rects)) + b"".join(rects)

    def serve(self):
        self.shake_hands()
        encoder = Encoder(self.rng)
        for i in range(self.updates):
            incremental = self.wait_for_request()
            assert i > 0 or not incremental
            if i == 1 and self.bad is not None:
                self.link.sendall(self.bad)
                self.link.shutdown(socket.SHUT_WR)
                self.link.recv(1 << 16)
                return
            others = b"".join(self.rng.choice([
                b"\x02", struct.pack(">BxxxI", 3, 5) + b"hello",
                struct.pack(">BxHH", 1, 0, 2) + bytes(12)])
                for _ in range(self.rng.choice([0, 0, 2])))
            self.link.sendall(others + self.update(encoder))
        self.done = True
        while self.link.recv(1 << 16):  # until the client leaves
            pass
