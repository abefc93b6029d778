"""What exports of a session hold, read with other eyes: Perfetto's messages by
a walk over their fields, and by protoc --decode_raw; OTF2 by otf2-print."""

import collections
import re
import shutil
import subprocess


def fields(data):
    """(number, value) of each field of a message."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7f) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
        elif key & 7 == 1:
            yield key >> 3, int.from_bytes(data[at:at + 8], "little")
            at += 8
        elif key & 7 == 2:
            size = varint()
            assert at + size <= len(data), "a field that is cut off"
            yield key >> 3, data[at:at + size]
            at += size
        else:
            raise AssertionError(f"a field of kind {key & 7}")


def perfetto(path):
    """Slices and instants by name, and the slices' time; each slice ends on
    its track, after those in it."""
    with open(path, "rb") as file:
        data = file.read()
    names, tracks, parents = {}, set(), set()
    slices, instants = collections.Counter(), collections.Counter()
    open_slices, clocks = collections.defaultdict(list), {}
    inside_ns = 0
    for number, packet in fields(data):
        assert number == 1, "a packet"
        packet = dict(fields(packet))
        if 12 in packet:
            for kind, entry in fields(packet[12]):
                if kind == 2:
                    entry = dict(fields(entry))
                    names[entry[1]] = entry[2].decode()
        elif 60 in packet:
            track = dict(fields(packet[60]))
            assert track[1] not in tracks, "a track twice"
            tracks.add(track[1])
            if 5 in track:
                assert track[5] in tracks, "a track of no process"
            else:
                parents.add(track[1])
        else:
            event, now = dict(fields(packet[11])), packet[8]
            track = event[11]
            assert track in tracks - parents, "an event of no track"
            assert clocks.get(track, 0) <= now, "time runs backwards"
            clocks[track] = now
            if event[9] == 1:
                slices[names[event[10]]] += 1
                open_slices[track].append(now)
            elif event[9] == 2:
                inside_ns += now - open_slices[track].pop()
            else:
                instants[names[event[10]]] += 1
    assert not any(open_slices.values()), "a slice without an end"
    if shutil.which("protoc"):
        with open(path, "rb") as file:
            raw = subprocess.run(["protoc", "--decode_raw"], stdin=file,
                                 capture_output=True, text=True, check=True)
        begins = len(re.findall(r"^  11 \{(?:\n    .*)*?\n    9: 1$",
                                raw.stdout, re.M))
        assert begins == sum(slices.values()), "as protoc reads it"
    return slices, instants, inside_ns


def reads_otf2():
    """Whether archives can be looked at here."""
    if not shutil.which("otf2-print"):
        print("otf2-print is not installed: no archive is made")
    return shutil.which("otf2-print") is not None


def otf2(folder):
    """Enter events by region, and ends of collectives by communicator and
    operation."""
    out = subprocess.run(["otf2-print", f"{folder}/traces.otf2"],
                         capture_output=True, text=True, check=True).stdout
    enters = collections.Counter(
        re.findall(r'^ENTER .*Region: "([^"]*)"', out, re.M))
    leaves = collections.Counter(
        re.findall(r'^LEAVE .*Region: "([^"]*)"', out, re.M))
    assert enters == leaves, "each region is left"
    ends = collections.Counter(
        re.findall(r'^MPI_COLLECTIVE_END .*Operation: (\w+), '
                   r'Communicator: "([^"]*)"', out, re.M))
    definitions = subprocess.run(
        ["otf2-print", "-G", f"{folder}/traces.otf2"], capture_output=True,
        text=True, check=True).stdout
    assert "INVALID" not in definitions, "something names what is not there"
    return enters, ends
