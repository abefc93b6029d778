"""A viewer of RFB with decoders of its own, and a server that shows one picture
to several clients and keeps what they say."""
import os
import socket
import struct
import threading
import time
import zlib

SLOWNESS = float(os.environ.get("POISE_TEST_SLOWNESS", "1"))
RAW, HEXTILE, TIGHT, ZRLE = 0, 5, 7, 16
SIZE, CURSOR, EXTENDED_SIZE, FENCE, CONTINUOUS = -223, -239, -308, -312, -313
CLIPBOARD = 0xc0a1e5ce - (1 << 32)
# bits, depth, big, true, maxima, shifts
PLAIN = (32, 24, 0, 1, 255, 255, 255, 16, 8, 0)
FORMATS = [PLAIN, (32, 24, 1, 1, 255, 255, 255, 0, 8, 16),
           (32, 24, 0, 1, 255, 255, 255, 24, 16, 8),
           (32, 30, 0, 1, 1023, 1023, 1023, 20, 10, 0),
           (16, 16, 0, 1, 31, 63, 31, 11, 5, 0),
           (16, 16, 1, 1, 31, 63, 31, 11, 5, 0),
           (8, 8, 0, 1, 7, 7, 3, 0, 3, 6), (8, 8, 0, 0, 0, 0, 0, 0, 0, 0)]


def take_from(link, count):
    data = b""
    while len(data) < count:
        more = link.recv(count - len(data))
        if not more:
            raise ConnectionError("it left")
        data += more
    return data


def wait_for(what, seconds=60):
    end = time.monotonic() + seconds * SLOWNESS
    while not what():
        if time.monotonic() > end:
            raise TimeoutError(what)
        time.sleep(0.01)


class Format:
    def __init__(self, fields=PLAIN):
        self.fields = fields
        self.bytes = fields[0] // 8
        self.mapped = not fields[3]
        self.max = (7, 7, 3) if self.mapped else fields[4:7]
        self.shift = (0, 3, 6) if self.mapped else fields[7:10]
        whole = sum(m << s for m, s in zip(self.max, self.shift))
        self.order = "big" if fields[2] else "little"
        self.tight = (self.bytes == 4 and fields[1] == 24 and
                      self.max == (255, 255, 255))
        self.low = whole < 1 << 24
        self.compact = (self.bytes == 4 and fields[1] <= 24 and
                        (self.low or not whole & 255))

    def of(self, pixel):
        """What a pixel 0xRRGGBB is to this viewer."""
        parts = (pixel >> 16, pixel >> 8 & 255, pixel & 255)
        return sum((part * top + 127) // 255 << shift for part, top, shift in
                   zip(parts, self.max, self.shift))

    def split(self, data, size):
        """Pixels of `size` bytes each."""
        found = []
        for i in range(0, len(data), size):
            part = data[i:i + size]
            if size == 3 and self.bytes == 4:
                rest = b"\0"
                high = not self.low
                part = (rest + part if (self.order == "big") != high
                        else part + rest)
            found.append(int.from_bytes(part, self.order))
        return found

    def split_tight(self, data):
        if not self.tight:
            return self.split(data, self.bytes)
        return [sum(byte << shift for byte, shift in
                    zip(data[i:i + 3], self.shift))
                for i in range(0, len(data), 3)]


class Viewer:
    """Its picture are rows of numbers in its own format."""

    def __init__(self, port, minor=8, answer=None, link=None):
        self.link = link or socket.create_connection(("127.0.0.1", port))
        self.link.settimeout(60 * SLOWNESS)
        self.format, self.zrle, self.tight = Format(), None, [None] * 4
        self.cursor, self.layout, self.texts, self.fences = None, None, [], []
        self.bells = self.updates = 0
        self.stopped = False
        self.shake(minor, answer)

    def take(self, count):
        return take_from(self.link, count)

    def number(self, form):
        return struct.unpack(">" + form, self.take(struct.calcsize(form)))[0]

    def reason(self):
        return self.take(self.number("I")).decode()

    def shake(self, minor, answer):
        assert self.take(12) == b"RFB 003.008\n"
        self.link.sendall(b"RFB 003.%03d\n" % minor)
        if minor == 3:
            self.types = [self.number("I")]
            if self.types == [0]:
                raise PermissionError(self.reason())
        else:
            self.types = list(self.take(self.number("B")))
            if not self.types:
                raise PermissionError(self.reason())
            self.link.sendall(bytes([2 if answer else 1]))
        if answer:
            self.challenge = self.take(16)
            self.link.sendall(answer)
        if (minor == 8 or answer) and self.number("I"):
            raise PermissionError(self.reason() if minor == 8 else "refused")
        self.link.sendall(b"\1")
        self.size(self.number("H"), self.number("H"))
        assert self.take(16)[:4] == bytes([32, 24, 0, 1])
        self.name = self.take(self.number("I"))

    def size(self, width, height):
        self.width, self.height = width, height
        self.rows = [[None] * width for _ in range(height)]

    # -- what it says ------------------------------------------------------

    def set_format(self, fields):
        """What comes before the fence is as it was."""
        self.link.sendall(struct.pack(">BxxxBBBBHHHBBBxxx", 0, *fields) +
                          struct.pack(">BxxxIB", 248, 1 << 31, 4) + b"then")
        while (0, b"then") not in self.fences:
            self.message()
        self.fences.remove((0, b"then"))
        self.format = Format(fields)
        self.rows = [[None] * self.width for _ in range(self.height)]

    def set_encodings(self, *numbers):
        self.link.sendall(struct.pack(f">BxH{len(numbers)}i", 2, len(numbers),
                                      *numbers))

    def ask(self, incremental=True):
        self.link.sendall(struct.pack(">BBHHHH", 3, incremental, 0, 0,
                                      self.width, self.height))

    # -- what it hears -----------------------------------------------------

    def message(self):
        kind = self.number("B")
        if kind == 0:
            self.take(1)
            for _ in range(self.number("H")):
                self.rectangle()
            self.updates += 1
        elif kind == 1:
            self.take(3)
            self.take(6 * self.number("H"))
        elif kind == 2:
            self.bells += 1
        elif kind == 3:
            self.take(3)
            size = self.number("i")
            self.texts.append((size < 0, self.take(abs(size))))
        elif kind == 150:
            self.stopped = True
        else:
            assert kind == 248, kind
            self.take(3)
            flags = self.number("I")
            self.fences.append((flags, self.take(self.number("B"))))
        return kind

    def rectangle(self):
        x, y, width, height = struct.unpack(">HHHH", self.take(8))
        encoding = self.number("i")
        if encoding in (SIZE, EXTENDED_SIZE):
            if encoding == EXTENDED_SIZE:
                self.layout = x, y, self.take(3 and 4)
                self.layout += (self.take(16 * self.layout[2][0]),)
            if (width, height) != (self.width, self.height):
                self.size(width, height)
            return
        if encoding == CURSOR:
            pixels = self.take(width * height * self.format.bytes)
            self.cursor = (x, y, width, height,
                           self.format.split(pixels, self.format.bytes),
                           self.take((width + 7) // 8 * height))
            return
        paint = {RAW: self.raw, HEXTILE: self.hextile, TIGHT: self.tight_rect,
                 ZRLE: self.zrle_rect}[encoding]
        for px, py, pixels, columns in paint(width, height):
            for i in range(0, len(pixels), columns):
                row = self.rows[y + py + i // columns]
                assert x + px + columns <= self.width
                row[x + px:x + px + columns] = pixels[i:i + columns]

    def raw(self, width, height):
        size = self.format.bytes
        yield 0, 0, self.format.split(self.take(width * height * size),
                                      size), width

    def hextile(self, width, height):
        size, colours = self.format.bytes, [None, None]
        for y in range(0, height, 16):
            for x in range(0, width, 16):
                w, h = min(16, width - x), min(16, height - y)
                kind = self.number("B")
                if kind & 1:
                    yield x, y, self.format.split(self.take(w * h * size),
                                                  size), w
                    continue
                for bit in (0, 1):
                    if kind & 2 << bit:
                        colours[bit], = self.format.split(self.take(size), size)
                pixels = [colours[0]] * (w * h)
                for _ in range(self.number("B") if kind & 8 else 0):
                    at, part = self.take(2)
                    for py in range(at & 15, (at & 15) + (part & 15) + 1):
                        for px in range(at >> 4, (at >> 4) + (part >> 4) + 1):
                            assert px < w and py < h
                            pixels[py * w + px] = colours[1]
                yield x, y, pixels, w

    def zrle_rect(self, width, height):
        self.zrle = self.zrle or zlib.decompressobj()
        data = self.zrle.decompress(self.take(self.number("I")))
        size, at = 3 if self.format.compact else self.format.bytes, 0
        for y in range(0, height, 64):
            for x in range(0, width, 64):
                w, h = min(64, width - x), min(64, height - y)
                kind, at = data[at], at + 1
                assert kind <= 16, kind
                count = kind or w * h
                colours = self.format.split(data[at:at + count * size], size)
                at += count * size
                if kind > 1:
                    bits = 1 if kind == 2 else 2 if kind <= 4 else 4
                    row = (w * bits + 7) // 8
                    colours = [colours[data[at + i * row + j * bits // 8] >>
                                       (8 - bits - j * bits % 8) &
                                       (1 << bits) - 1]
                               for i in range(h) for j in range(w)]
                    at += row * h
                yield x, y, colours * (w * h if kind == 1 else 1), w
        assert at == len(data)

    def tight_data(self, stream, count):
        if count < 12:
            return self.take(count)
        size = shift = 0
        while shift < 21:
            byte = self.number("B")
            size |= (byte & (127 if shift < 14 else 255)) << shift
            shift += 7 if byte & 128 else 21
        self.tight[stream] = self.tight[stream] or zlib.decompressobj()
        data = self.tight[stream].decompress(self.take(size))
        assert len(data) == count
        return data

    def tight_rect(self, width, height):
        size = 3 if self.format.tight else self.format.bytes
        control = self.number("B")
        assert not control & 15 and width <= 2048
        if control == 0x80:
            yield 0, 0, self.format.split_tight(
                self.take(size)) * (width * height), width
            return
        stream = control >> 4 & 3
        if not control & 0x40:
            yield 0, 0, self.format.split_tight(
                self.tight_data(stream, width * height * size)), width
            return
        assert self.number("B") == 1
        colours = self.format.split_tight(
            self.take((self.number("B") + 1) * size))
        if len(colours) == 2:
            row = (width + 7) // 8
            data = self.tight_data(stream, row * height)
            places = [data[i * row + j // 8] >> (7 - j % 8) & 1
                      for i in range(height) for j in range(width)]
        else:
            places = self.tight_data(stream, width * height)
        yield 0, 0, [colours[p] for p in places], width

    # -- until it is so ----------------------------------------------------

    def shows(self, picture):
        """Whether it shows this; what it cannot have of it is left out."""
        of = {p: self.format.of(p) for row in picture.rows for p in row}
        return len(self.rows) > 0 and all(
            a[:picture.width] == [of[p] for p in b[:self.width]]
            for a, b in zip(self.rows, picture.rows))

    def follow(self, until, seconds=60):
        """Ask for updates until it is so."""
        end = time.monotonic() + seconds * SLOWNESS
        asked = None
        self.link.settimeout(0.05)
        while not until():
            if time.monotonic() > end:
                raise TimeoutError
            if asked != self.updates:
                asked = self.updates
                self.ask(asked > 0)
            try:
                if not self.link.recv(1, socket.MSG_PEEK):
                    raise ConnectionError("it left")
            except TimeoutError:
                continue
            self.link.settimeout(60 * SLOWNESS)
            self.message()
            self.link.settimeout(0.05)
        self.link.settimeout(60 * SLOWNESS)


class Board(threading.Thread):
    """A server of one picture for several clients, which sends what changed as
    raw, and keeps what clients say."""

    def __init__(self, picture, types=(1,), extras=()):
        super().__init__(daemon=True)
        self.picture, self.types, self.extras = picture, types, extras
        self.version, self.lock = 1, threading.Condition()
        self.heard, self.links, self.encodings = b"", [], []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]

    def run(self):
        while True:
            try:
                link, _ = self.listener.accept()
            except OSError:
                return
            self.links.append(link)
            threading.Thread(target=self.serve, args=(link,),
                             daemon=True).start()

    def close(self):
        # Who still waits there would serve the next board's clients.
        self.listener.shutdown(socket.SHUT_RDWR)
        self.join()
        self.listener.close()
        for link in self.links:
            link.close()

    def change(self, paint):
        with self.lock:
            self.picture = paint(self.picture) or self.picture
            self.version += 1
            self.lock.notify_all()

    def say(self, data):
        for link in self.links:
            link.sendall(data)

    def serve(self, link):
        try:
            link.sendall(b"RFB 003.008\n")
            take_from(link, 12)
            link.sendall(bytes([len(self.types), *self.types]))
            take_from(link, 1)
            link.sendall(bytes(4))
            take_from(link, 1)
            size = self.picture.width, self.picture.height
            link.sendall(struct.pack(">HH16xI", *size, 5) + b"board")
            self.listen(link, [size, 0, False])
        except (OSError, ConnectionError):
            pass

    def listen(self, link, seen):
        threading.Thread(target=self.answer, args=(link, seen),
                         daemon=True).start()
        while True:
            kind = take_from(link, 1)[0]
            size = {0: 19, 3: 9, 4: 7, 5: 5, 150: 9, 255: 11}.get(kind)
            if kind == 2:
                count = struct.unpack(">xH", take_from(link, 3))[0]
                self.encodings = struct.unpack(f">{count}i",
                                               take_from(link, 4 * count))
            elif kind == 3:
                asked = take_from(link, size)
                with self.lock:
                    seen[2] = True
                    if not asked[0]:
                        seen[1] = 0
                    self.lock.notify_all()
            elif kind == 6:
                head = take_from(link, 7)
                self.heard += bytes([kind]) + head + take_from(
                    link, abs(struct.unpack(">xxxi", head)[0]))
            elif kind == 248:
                head = take_from(link, 8)
                self.heard += bytes([kind]) + head + take_from(link, head[7])
            elif kind == 251:
                head = take_from(link, 7)
                self.heard += bytes([kind]) + head + take_from(
                    link, 16 * head[5])
            else:
                body = take_from(link, size)
                if kind in (4, 5, 255):
                    self.heard += bytes([kind]) + body

    def answer(self, link, seen):
        try:
            while True:
                with self.lock:
                    self.lock.wait_for(
                        lambda: seen[2] and seen[1] < self.version)
                    picture, seen[1], seen[2] = self.picture, self.version, False
                    size = picture.width, picture.height
                    data = b"".join(struct.pack("<I", p) for row in picture.rows
                                    for p in row)
                if size != seen[0]:
                    seen[0] = size
                    link.sendall(struct.pack(">BxHHHHHi", 0, 1, 0, 0, *size,
                                             SIZE))
                    with self.lock:
                        seen[1] = 0
                    continue
                extras = b"".join(extra for number, extra in self.extras
                                  if number in self.encodings)
                count = sum(number in self.encodings
                            for number, _ in self.extras)
                link.sendall(struct.pack(">BxH", 0, 1 + count) + extras +
                             struct.pack(">HHHHi", 0, 0, *size, RAW) + data)
        except OSError:
            pass
