"""What stands behind the last whole message is told apart: rest of a crash, of an index, or damage; and reported."""

from __future__ import annotations

import re
from typing import Annotated

import numpy as np
import pytest

import colstore_io as cs
from colstore_io.cli import main
from colstore_io.formats.colbin import FORMAT
from colstore_io.formats.colbin import tail as tail_module
from colstore_io.formats.colbin.log import encode_frame
from colstore_io.formats.colbin.reader import frames_of
from colstore_io.formats.colbin.tail import find_whole, look_behind
from colstore_io.storage import MemoryFile


@cs.colbin.record
class Event:
    number: Annotated[cs.i64, 1]
    text: Annotated[str, 2]


CODEC = cs.colbin.Codec(Event)
MESSAGES = 60


@pytest.fixture(scope="module")
def log(tmp_path_factory) -> tuple[bytes, list[int]]:
    """A closed log, and where its messages begin and the last one ends."""
    path = tmp_path_factory.mktemp("log") / "t.colbin"
    with cs.LogWriter(path, CODEC.schema, encode=CODEC.encode) as writer:
        places = [writer._end]
        for number in range(MESSAGES):
            writer.write(Event(number + 1, f"event {number}"))
            places.append(writer._end)
    return path.read_bytes(), places


def flipped(data: bytes, at: int, bits: int = 1) -> bytes:
    broken = bytearray(data)
    broken[at] ^= bits
    return bytes(broken)


def behind(data: bytes, **options):
    file = MemoryFile(data, spelling="x.colbin")
    ((_, frames),) = frames_of([file], [memoryview(data)])
    return look_behind(file, frames, counted=False, **options)


def said(data: bytes) -> tuple[list[str], str]:
    """What `verify` calls errors, and what `inspect` says behind its last semicolon."""
    file = MemoryFile(data, spelling="x.colbin")
    errors = [str(p) for p in FORMAT.verify_file(file) if p.severity == "error"]
    title = FORMAT.inspect(file, memoryview(data)).title
    return errors, title.partition("without an index; ")[2]


TAILS = {
    "zeros": (lambda d, p: d[: p[-1]] + bytes(100), "torn", "100 bytes behind .* are no message"),
    "garbage": (lambda d, p: d[: p[-1]] + b"garbage" * 9, "torn", "63 bytes behind .* are no message"),
    "false frames": (lambda d, p: d[: p[-1]] + b"\5\0\0\0" * 50, "torn", "200 bytes .* are no message"),
    "a few bytes": (lambda d, p: d[: p[-1] + 6], "torn", "6 bytes behind .* are no message"),
    "a torn message": (lambda d, p: d[: p[-1] - 3], "torn", r"the last message is cut short: \d+ of \d+ bytes"),
    "a last message unwritten": (
        lambda d, p: flipped(d[: p[-1]], p[-1] - 2),
        "torn",
        "the checksum of the last message does not fit$",
    ),
    "the same and zeros": (
        lambda d, p: flipped(d[: p[-1]], p[-1] - 2) + bytes(30),
        "torn",
        "the checksum of the last message does not fit, and 30 bytes behind it are no message",
    ),
    "an index with a flipped bit": (
        lambda d, p: flipped(d, p[-1] + 20),
        "index",
        "the index behind the last message is damaged",
    ),
    "an index with another count": (lambda d, p: flipped(d, p[-1]), "index", "the index .* is damaged"),
    "a torn index": (lambda d, p: d[:-10], "index", "the index .* is not valid: its end is missing"),
    "an index and more": (lambda d, p: d + b"garbage" * 9, "index", "not valid.*or other bytes follow it"),
    "a trailer without magic": (lambda d, p: flipped(d, len(d) - 3), "index", "the index .* is not valid"),
    "a trailer that leads elsewhere": (lambda d, p: flipped(d, len(d) - 24), "index", "the index .* is not valid"),
    "a last message damaged in a log that was closed": (
        lambda d, p: flipped(flipped(d, p[-1] - 2), p[-1] + 20),
        "damage",
        rf"message {MESSAGES - 1} is damaged: the file's trailer says",
    ),
    "the last but one damaged, the last torn": (
        lambda d, p: flipped(d[: p[-1] - 4], p[-2] - 2),
        "damage",
        rf"message {MESSAGES - 2} is damaged: its checksum .* another begins at offset",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TAILS)
def test_tails_are_told_apart_and_reported(log, name):
    damage, kind, text = TAILS[name]
    data = damage(*log)
    found = behind(data)
    assert found is not None
    assert found.kind == kind
    errors, shown = said(data)
    assert len(errors) == 1
    assert errors[0].startswith(f"{'index' if kind == 'index' else 'frames'} (offset {found.offset}): ")
    for told in (found.text, errors[0].partition(": ")[2], shown):
        assert "do not fit their checksums" not in told
        assert re.search(text, told), told


def test_nothing_is_behind_logs_that_are_whole(log):
    data, places = log
    assert behind(data) is None
    assert behind(data[: places[-1]]) is None
    assert behind(data[: places[0]]) is None
    assert said(data[: places[-1]]) == ([], "")


@pytest.mark.parametrize("number", [0, 1, 30, MESSAGES - 2])
@pytest.mark.parametrize("indexed", [False, True])
@pytest.mark.parametrize(("at", "bits"), [(0, 1), (0, 4), (1, 1), (2, 0x40), (3, 0x80)], ids=lambda v: str(v))
def test_whole_messages_behind_a_broken_length_are_found(log, number, indexed, at, bits):
    data, places = log
    broken = flipped(data, places[number] + at, bits)
    broken = flipped(broken, places[-1] + 20) if indexed else broken[: places[-1]]
    found = behind(broken)
    assert found is not None
    assert (found.kind, found.offset) == ("damage", places[number])
    assert found.text.endswith(f"begins behind it, at offset {places[number + 1]}")
    (error,) = said(broken)[0]
    assert found.text in error


def test_whole_messages_are_found_across_blocks(log, monkeypatch):
    data, places = log
    file = MemoryFile(data[: places[-1]])
    for block in (20, 64, 1 << 20):
        monkeypatch.setattr(tail_module, "_BLOCK", block)
        for number in (0, 7, MESSAGES - 2):
            assert find_whole(file, places[number], counted=False) == places[number + 1]
        assert find_whole(file, places[-2], counted=False) == -1
        assert find_whole(file, places[0], counted=True) == -1


def test_compressed_and_counted_messages_are_found():
    text = b"\xd0" + b"all the same " * 50
    for rows, compress in ((3, True), (3, False), (None, True)):
        frame = b"".join(map(bytes, encode_frame(text, rows, compress=compress)))
        file = MemoryFile(b"\xff" * 31 + frame + b"\xff" * 5)
        assert find_whole(file, 0, counted=rows is not None) == 31
        assert find_whole(file, 0, counted=rows is None) == -1


def test_false_frames_cannot_make_a_search_long(monkeypatch):
    monkeypatch.setattr(tail_module, "_CHECKED", 1 << 20)
    false = np.frombuffer((b"\x00\x10\0\0crc!\xd0" * 30_000), np.uint8)
    summed = 0
    real = tail_module._first_sound

    def counting(file, window, base, offset, size, rows):
        nonlocal summed
        summed += int(size.sum())
        return real(file, window, base, offset, size, rows)

    monkeypatch.setattr(tail_module, "_first_sound", counting)
    assert find_whole(MemoryFile(false.tobytes()), 0, counted=False) == -1
    assert summed <= max(1 << 20, 4 * len(false))


def test_the_command_line_reports_them(log, tmp_path, capsys):
    data, places = log
    path = tmp_path / "t.colbin"
    path.write_bytes(data[: places[-1] - 3])
    assert main(["verify", str(path)]) == 1
    assert "the last message is cut short" in capsys.readouterr().out
    assert main(["inspect", str(path)]) == 0
    assert "the last message is cut short" in capsys.readouterr().out
    path.write_bytes(data[: places[-1]])
    assert cs.verify(path) == {str(path): []}
    assert main(["verify", str(path)]) == 0
