"""The index beside a file: it makes opening and filtering cheaper, and never changes a result."""

from __future__ import annotations

import io
import os
import shutil
import struct
import zlib

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import colstore_io as cs
from colstore_io import col, rows
from colstore_io.formats.cstore import sidecar
from colstore_io.formats.cstore.records import RecordWalk

N_BLOCK = 1 << 16
PREAMBLE = 120
KEY = 96


def write(path, pieces, **options):
    with cs.create(path, **options) as writer:
        for piece in pieces:
            writer.write(piece)
    return path


def index_of(path):
    return path.parent / f".{path.name}.idx"


def many_records(n=200, seed=0):
    random = np.random.default_rng(seed)
    counts = random.integers(0, 9, n)
    return [{"k": random.integers(0, 100, m), "x": random.random(m), "u": np.full(m, "ab")} for m in counts]


@pytest.fixture
def records(tmp_path):
    return write(tmp_path / "r.cstore", many_records())


@pytest.fixture
def big(tmp_path):
    n = 5 * N_BLOCK + 777
    path = tmp_path / "big.cstore"
    cs.store({"k": np.arange(n), "x": np.arange(n) * 0.5, "text": np.full(n, "t")}, path).close()
    return path


@pytest.fixture
def walks(monkeypatch):
    """Count the files whose records are walked."""
    seen = []
    original = RecordWalk.walk_descriptor
    monkeypatch.setattr(
        RecordWalk, "walk_descriptor", lambda self, fd: (seen.append(self.path), original(self, fd))[1]
    )
    return seen


def shape_of(path):
    with cs.open(path) as table:
        segments = table.source.plan.segments
        result = {name: table[name].array() for name in table.columns}
        return segments.row_start.tolist(), segments.body_start.tolist(), result


def assert_same(left, right):
    assert left[:2] == right[:2]
    for name, values in left[2].items():
        np.testing.assert_array_equal(values, right[2][name])


# ---- writing


def test_index_returns_the_hidden_file_beside_the_data(records):
    assert cs.index(records) == index_of(records)
    assert index_of(records).exists()


def test_a_directory_or_pattern_gets_one_index_per_member(tmp_path):
    for number in range(3):
        cs.store({"a": np.arange(number + 1)}, tmp_path / f"p{number}.cstore").close()
    expected = [tmp_path / f".p{number}.cstore.idx" for number in range(3)]
    assert cs.index(tmp_path) == expected
    assert cs.index(str(tmp_path / "*.cstore")) == expected
    with cs.open(tmp_path) as table:  # not members themselves
        assert len(table.paths) == 3


def test_files_elsewhere_are_refused(records):
    import fsspec

    fsspec.filesystem("memory").pipe_file("/idx/r.cstore", records.read_bytes())
    with pytest.raises(io.UnsupportedOperation, match="file of this machine"):
        cs.index("memory://idx/r.cstore")


def test_what_is_no_colstore_file_is_refused(tmp_path):
    (tmp_path / "x.cstore").write_bytes(b"nothing of the kind")
    with pytest.raises(cs.FormatError):
        cs.index(tmp_path / "x.cstore")
    assert not index_of(tmp_path / "x.cstore").exists()
    with pytest.raises(FileNotFoundError):
        cs.index(tmp_path / "absent.cstore")


def test_the_layout_is_the_documented_one(tmp_path):
    path = write(tmp_path / "d.cstore", [{"i": np.array([3, 1], "<i2"), "x": [np.nan, 2.5]}])
    cs.index(path)
    raw, data = path.read_bytes(), index_of(path).read_bytes()
    with cs.open(path) as table:
        crc = table.source.metas[0].manifest_crc32
    key = struct.pack("<8sIIq64sq", b"CSIDX\0\1\0", 1, crc, len(raw), raw[8:72], path.stat().st_mtime_ns)
    start = raw.index(b"REC\1")
    sample = zlib.crc32(raw[start : start + 32 + 24])
    front = key + struct.pack("<IIqB3xI", 65536, 2, 1, 1, sample) + b"\2"
    body = front + struct.pack("<I", zlib.crc32(front))
    body += struct.pack("<hhB", 1, 3, 1) + struct.pack("<ddB", 2.5, 2.5, 1)
    assert data == body + struct.pack("<I", zlib.crc32(body))


def test_an_open_writes_nothing(records):
    shape_of(records)
    assert not index_of(records).exists()


# ---- opening


def test_an_indexed_file_is_not_walked(records, walks):
    plain = shape_of(records)
    assert len(walks) == 1
    cs.index(records)
    del walks[:]
    assert_same(plain, shape_of(records))
    assert walks == []


def test_files_of_few_records_never_ask_for_an_index(tmp_path, monkeypatch):
    asked = []
    original = os.open
    path = write(tmp_path / "few.cstore", many_records(sidecar.MIN_RECORDS - 1))
    monkeypatch.setattr(
        os, "open", lambda name, *rest, **more: (asked.append(str(name)), original(name, *rest, **more))[1]
    )
    cs.open(path).close()
    assert [name for name in asked if name.endswith(".idx")] == []


@pytest.mark.parametrize("counts", [[0] * 100, [70000] + [1] * 80, [0, 1] * 50, [300] * 99 + [7]])
def test_every_width_of_row_counts_gives_the_same_places(tmp_path, counts, walks):
    path = write(
        tmp_path / "w.cstore", [{"a": np.arange(n, dtype="i2"), "b": np.ones(n, "i1")} for n in counts]
    )
    plain = shape_of(path)
    cs.index(path)
    del walks[:]
    assert_same(plain, shape_of(path))
    assert walks == []


def test_writers_and_verify_do_not_use_the_index(records, walks, monkeypatch):
    cs.index(records)
    monkeypatch.setattr(sidecar, "open_beside", None)  # would fail
    assert cs.verify(records)[str(records)] == []
    cs.compact(records, records.parent / "one.cstore")
    assert walks


# ---- stale and damaged


def ignored(path, plain, walks):
    del walks[:]
    assert_same(plain, shape_of(path))
    with cs.open(path) as table:
        assert table.source.blocks is None
    return len(walks) == 2


def test_every_byte_of_the_front_flipped_is_ignored(records, walks):
    plain = shape_of(records)
    cs.index(records)
    data = index_of(records).read_bytes()
    for position in [*range(PREAMBLE), PREAMBLE + 50, len(data) // 2, len(data) - 5, len(data) - 1]:
        damaged = bytearray(data)
        damaged[position] ^= 1 << position % 8
        index_of(records).write_bytes(damaged)
        with cs.open(records) as table:
            assert table.source.blocks is None
        if position < PREAMBLE + 200:
            assert ignored(records, plain, walks)


def test_a_cut_or_extended_index_is_ignored(records, walks):
    plain = shape_of(records)
    cs.index(records)
    data = index_of(records).read_bytes()
    for length in [0, 1, 8, KEY, PREAMBLE - 1, PREAMBLE, PREAMBLE + 10]:
        index_of(records).write_bytes(data[:length])
        assert ignored(records, plain, walks)
    for other in (data[:-1], data[:-4], data + b"\0"):
        index_of(records).write_bytes(other)
        with cs.open(records) as table:
            assert table.source.blocks is None


def resealed(data, n_records=200, width=1):
    """Return `data` with checksums that fit."""
    end = PREAMBLE + n_records * width
    front = data[:end] + struct.pack("<I", zlib.crc32(data[:end]))
    body = front + data[end + 4 : -4]
    return body + struct.pack("<I", zlib.crc32(body))


def test_hostile_contents_with_sound_checksums_are_ignored(records, walks):
    plain = shape_of(records)
    cs.index(records)
    data = index_of(records).read_bytes()

    def changed(offset, new):
        return resealed(data[:offset] + new + data[offset + len(new) :])

    assert resealed(data) == data
    for offset, new in [
        (8, struct.pack("<I", 2)),  # a version to come
        (KEY, struct.pack("<I", 1)),  # block rows
        (112, b"\x00"),
        (112, b"\x08"),  # a width that the file has no room for
        (112, b"\xff"),
    ]:
        index_of(records).write_bytes(changed(offset, new))
        assert ignored(records, plain, walks)
    for offset in (PREAMBLE, PREAMBLE + 199):  # row counts that do not add up
        index_of(records).write_bytes(changed(offset, bytes([data[offset] ^ 1])))
        del walks[:]
        assert_same(plain, shape_of(records))
        assert len(walks) == 1
    for offset, new in [
        (100, struct.pack("<I", 99)),
        (104, struct.pack("<q", 1 << 60)),
        (104, struct.pack("<q", -1)),
    ]:
        index_of(records).write_bytes(changed(offset, new))
        with cs.open(records) as table:
            assert table.source.blocks is None
    # Counts that add up, but of which the last record knows nothing.
    swapped = bytearray(data)
    first = next(i for i in range(199) if data[PREAMBLE + i] != data[PREAMBLE + 199])
    swapped[PREAMBLE + first], swapped[PREAMBLE + 199] = data[PREAMBLE + 199], data[PREAMBLE + first]
    index_of(records).write_bytes(resealed(bytes(swapped)))
    del walks[:]
    assert_same(plain, shape_of(records))
    assert len(walks) == 1


@pytest.mark.parametrize("kind", ["directory", "pipe", "dangling link"])
def test_what_is_no_regular_file_is_ignored(records, walks, kind):
    plain = shape_of(records)
    if kind == "directory":
        index_of(records).mkdir()
    elif kind == "pipe":
        os.mkfifo(index_of(records))
    else:
        index_of(records).symlink_to(records.parent / "nowhere")
    assert ignored(records, plain, walks)


@pytest.mark.parametrize("change", ["append", "compact", "recreate", "touch"])
def test_any_change_of_the_file_makes_the_index_void(records, walks, change):
    cs.index(records)
    before = index_of(records).read_bytes()
    if change == "append":
        with cs.update(records) as writer:
            writer.write(many_records(1, seed=5)[0])
        index_of(records).write_bytes(before)  # as a writer leaves it that knows of none
    elif change == "compact":
        cs.compact(records)
    elif change == "recreate":  # the same shape: size, counters and columns are as they were
        old = records.read_bytes()
        records.unlink()
        random = np.random.default_rng(0)
        random_pieces = many_records()
        for piece in random_pieces:
            piece["k"] = random.integers(500, 900, len(piece["k"]))
        write(records, random_pieces)
        assert len(records.read_bytes()) == len(old)
        assert records.read_bytes()[:72] == old[:72]
    else:
        os.utime(records, ns=(1, 1))
    assert index_of(records).read_bytes() == before
    del walks[:]
    expected = shape_of(records)
    assert bool(walks) is (change != "compact")
    with cs.open(records) as table:
        assert table.source.blocks is None
        found = table.where(col("k") >= 500)["k"].array()
    np.testing.assert_array_equal(found, expected[2]["k"][expected[2]["k"] >= 500])
    cs.index(records)
    with cs.open(records) as table:
        assert table.source.blocks is not None


@pytest.mark.parametrize("what", ["values", "rows of the first records"])
def test_the_index_of_another_file_of_the_same_state_is_told(tmp_path, walks, what):
    """Equal size, counters, columns and modification time: only what is in the file says that it is another one."""
    counts = [3, 5] * 50
    paths = [tmp_path / name / "r.cstore" for name in ("a", "b")]
    for number, path in enumerate(paths):
        path.parent.mkdir()
        order = counts[::-1] if what != "values" and number else counts
        write(path, [{"k": np.arange(m) + (1000 * number if what == "values" else 0)} for m in order])
        os.utime(path, ns=(10**18, 10**18))
    cs.index(paths[0])
    shutil.copy(index_of(paths[0]), index_of(paths[1]))
    for path, trusted in zip(paths, (True, False), strict=True):
        walks.clear()
        with cs.open(path) as table:
            assert bool(walks) is not trusted
            assert (table.source.blocks is not None) is trusted
            want = np.concatenate([table.source.segment_view((0, False), s) for s in range(100)])
            assert table.query("k >= 1000")["k"].array().tolist() == want[want >= 1000].tolist()


def test_an_index_without_a_sample_is_still_believed(records, walks):
    cs.index(records)
    data = bytearray(index_of(records).read_bytes())
    assert data[116:120] != bytes(4)
    data[116:120] = bytes(4)
    front = PREAMBLE + 200 * data[112]
    data[front : front + 4] = struct.pack("<I", zlib.crc32(data[:front]))
    data[-4:] = struct.pack("<I", zlib.crc32(data[:-4]))
    index_of(records).write_bytes(data)
    walks.clear()
    with cs.open(records) as table:
        assert not walks
        assert table.source.blocks is not None


def test_a_reader_of_the_old_state_does_not_believe_the_new_index(big):
    with cs.open(big) as table:
        with cs.update(big) as writer:
            writer.write({"k": np.arange(10) - 50, "x": np.zeros(10), "text": np.full(10, "t")})
        cs.index(big)
        assert table.where(col("k") < 3)["k"].array().tolist() == [0, 1, 2]
        assert table.source.blocks is None


def test_a_file_copied_without_its_index_reads_the_same(records, tmp_path, walks):
    cs.index(records)
    plain = shape_of(records)
    (tmp_path / "elsewhere").mkdir()
    copied = shutil.copy2(records, tmp_path / "elsewhere" / "r.cstore")
    assert_same((plain[0], plain[1], plain[2]), shape_of(copied))
    shutil.copy2(index_of(records), tmp_path / "elsewhere" / ".r.cstore.idx")  # with its time: it fits again
    del walks[:]
    assert_same(plain, shape_of(copied))
    assert walks == []


# ---- filtering


def test_a_range_of_a_sorted_column_reads_the_blocks_that_can_match(big):
    predicate = col("k").between(N_BLOCK + 5, N_BLOCK + 9)
    with cs.open(big, mmap=False) as table:
        whole = table.io.bytes
        plain = table.where(predicate)["x"].array()
        whole = table.io.bytes - whole
    cs.index(big)
    with cs.open(big, mmap=False) as table:
        before = table.io.bytes
        pruned = table.where(predicate)["x"].array()
        spent = table.io.bytes - before
    np.testing.assert_array_equal(plain, pruned)
    assert whole > 5 * N_BLOCK * 8
    assert spent < N_BLOCK * 8 + 10_000
    with cs.open(big) as table:
        _, starts, stops = rows.matching_runs(table.source, table.where(predicate)._rows.key)
        assert (starts.tolist(), stops.tolist()) == ([N_BLOCK], [2 * N_BLOCK])


def test_blocks_and_segments_prune_together(tmp_path):
    """Records with statistics in the footer; some files with an index, some without."""
    for number in range(3):
        first = number * 100_000
        pieces = [{"k": np.arange(first + i, first + i + 25_000)} for i in range(0, 100_000, 25_000)]
        write(tmp_path / f"p{number}.cstore", pieces, statistics=number != 1)
    cs.index(tmp_path / "p0.cstore")
    cs.index(tmp_path / "p1.cstore")
    everything = np.arange(300_000)
    with cs.open(tmp_path) as table:
        for low, high in [
            (0, 10),
            (70_000, 70_001),
            (99_999, 100_000),
            (165_530, 165_540),
            (299_999, 10**6),
            (-5, -1),
        ]:
            view = table.where(col("k").between(low, high))
            expected = everything[(everything >= low) & (everything <= high)]
            np.testing.assert_array_equal(view["k"].array(), expected)
            numbers, starts, stops = rows.matching_runs(table.source, view._rows.key)
            assert (stops > starts).all()
            assert (starts[1:] >= stops[:-1]).all()
            assert (stops - starts).sum() <= 2 * N_BLOCK
            segments = rows.matching_segments(table.source, view._rows.key)
            assert set(numbers.tolist()) == set(np.flatnonzero(segments).tolist())


def test_many_files_are_looked_for_by_one_listing(tmp_path, monkeypatch):
    for number in range(20):
        cs.store({"k": np.arange(5) + 5 * number}, tmp_path / f"p{number}.cstore").close()
    cs.index(tmp_path / "p7.cstore")
    asked = []
    original = os.open
    with cs.open(tmp_path) as table:
        monkeypatch.setattr(
            os,
            "open",
            lambda name, *rest, **more: (asked.append(str(name)), original(name, *rest, **more))[1],
        )
        assert table.where(col("k") == 36)["k"].array().tolist() == [36]
        assert table.where(col("k") == 37)["k"].array().tolist() == [37]
    assert [name for name in asked if name.endswith(".idx")] == [str(tmp_path / ".p7.cstore.idx")]


def test_views_pickles_and_the_numpy_backend_agree(big):
    import pickle

    cs.index(big)
    with cs.open(big, backend="numpy") as table:
        view = table.where((col("k") > N_BLOCK - 3) & (col("x") < N_BLOCK / 2 + 1))
        expected = [N_BLOCK - 2, N_BLOCK - 1, N_BLOCK, N_BLOCK + 1]
        assert view["k"].array().tolist() == expected
        assert pickle.loads(pickle.dumps(view))["k"].array().tolist() == expected


VALUES = st.sampled_from([-3.0, -0.0, 0.0, 1.0, 2.5, 7.0, np.nan, np.inf, -np.inf])


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_an_index_never_changes_a_result(tmp_path, monkeypatch, data):
    monkeypatch.setattr(sidecar, "BLOCK_ROWS", 4)
    monkeypatch.setattr(cs.formats, "BLOCK_ROWS", 4)
    monkeypatch.setattr(sidecar, "MIN_RECORDS", 0)
    folder = tmp_path / str(len(list(tmp_path.iterdir())))
    folder.mkdir()
    counts = data.draw(st.lists(st.integers(0, 9), min_size=1, max_size=5))
    statistics = data.draw(st.booleans())
    pieces = []
    for n in counts:
        floats = data.draw(st.lists(VALUES, min_size=n, max_size=n))
        ints = data.draw(st.lists(st.none() | st.integers(-3, 3), min_size=n, max_size=n))
        times = data.draw(st.lists(st.integers(0, 3), min_size=n, max_size=n))
        flags = data.draw(st.lists(st.booleans(), min_size=n, max_size=n))
        stamps = np.array(times, "M8[s]")
        stamps[stamps == np.datetime64(3, "s")] = np.datetime64("NaT")
        pieces.append(
            pa.table(
                {
                    "f": pa.array(floats, pa.float64(), from_pandas=False),
                    "i": pa.array(ints, pa.int16()),
                    "t": pa.array(stamps),
                    "b": pa.array(flags, pa.bool_()),
                    "s": pa.array(["xy"[:1] for _ in range(n)], pa.string()),
                }
            )
        )
    path = write(
        folder / "f.cstore", pieces, statistics=statistics, nullable=["i", "t"], string_width={"s": 2}
    )
    number = data.draw(st.sampled_from([-3, 0, 1, 2.5, 5]))
    low, high = data.draw(st.tuples(st.integers(-4, 4), st.integers(-4, 4)))
    second = np.datetime64(data.draw(st.integers(0, 3)), "s")
    leaves = [
        col("f") > number, col("f") <= number, col("f") == 0.0, col("f") != number, col("f").isna(),
        col("f").between(low, high), col("i") >= low, col("i") == high, col("i") != high, col("i").isin([low, high]),
        col("i").isna(), col("i").notna(), col("t") < second, col("t") == second, col("t").isna(),
        col("b") == True, col("s") == "x", col("s") > "x",  # noqa: E712
    ]  # fmt: skip
    first, other = data.draw(st.sampled_from(leaves)), data.draw(st.sampled_from(leaves))
    predicate = data.draw(st.sampled_from([first, ~first, first & other, first | other, ~(first & other)]))
    with cs.open(path) as table:
        assert table.source.blocks is None
        plain = table.where(predicate)._rows.resolve(table.source)
        plain_rows = [table.where(predicate).count(), str(table.where(predicate).frame().to_dict())]
    monkeypatch.setattr("colstore_io.writing.indexing._SETTLED_NS", 0)
    cs.index(path)
    with cs.open(path) as table:
        assert table.source.blocks is not None
        assert [table.where(predicate).count(), str(table.where(predicate).frame().to_dict())] == plain_rows
        assert table.where(predicate)._rows.resolve(table.source).count == plain.count


# ---- command line


def test_the_command_writes_and_names_the_indexes(records, capsys):
    from colstore_io.cli import main

    assert main(["index", str(records)]) == 0
    assert capsys.readouterr().out == f"{index_of(records)}\n"
    assert main(["index", str(records.parent / "absent.cstore")]) == 1


# ---- appending to a file that has an index


def fresh_index(path):
    """Return the bytes of the index that `index` makes of a copy of the same age."""
    copy = path.parent / "copy" / path.name
    copy.parent.mkdir(exist_ok=True)
    shutil.copy2(path, copy)
    return cs.index(copy).read_bytes()


@pytest.mark.parametrize("first", [[5], [N_BLOCK], [N_BLOCK - 1, 0, 3], [300] * 250])
@pytest.mark.parametrize("more", [[1], [0], [N_BLOCK, 7], [100] * 700])
def test_an_append_keeps_the_index_of_its_file(tmp_path, first, more):
    random = np.random.default_rng(len(first) + len(more))

    def pieces(counts):
        for n in counts:
            yield {
                "i": random.integers(-99, 99, n).astype("i2"),
                "x": np.where(random.random(n) < 0.5, np.nan, random.random(n)),
                "t": random.integers(0, 9, n).astype("M8[s]"),
                "flag": random.random(n) < 0.5,
                "u": np.full(n, "ab"),
            }

    path = write(tmp_path / "r.cstore", pieces(first))
    cs.index(path)
    with cs.update(path) as writer:
        for piece in pieces(more):
            writer.write(piece)
    assert index_of(path).read_bytes() == fresh_index(path)
    with cs.update(path, statistics=True) as writer:  # and again, in two commits, with a footer behind
        writer.write(next(pieces([70_000])))
        writer.commit()
        writer.write(next(pieces([3])))
    assert index_of(path).read_bytes() == fresh_index(path)


def test_an_append_reads_the_new_rows_alone(big, monkeypatch):
    cs.index(big)
    looked_at = []
    original = sidecar._bound_blocks
    monkeypatch.setattr(
        sidecar, "_bound_blocks", lambda blocks, *rest: (looked_at.extend(blocks), original(blocks, *rest))[1]
    )
    with cs.update(big) as writer:
        writer.write({"k": np.arange(9), "x": np.arange(9) * 0.5, "text": np.full(9, "t")})
    assert looked_at == [5]  # the block that was not full


def test_an_index_that_does_not_fit_is_not_kept(records):
    cs.index(records)
    kept = index_of(records).read_bytes()
    time_ns = records.stat().st_mtime_ns + 1
    os.utime(records, ns=(time_ns, time_ns))
    with cs.update(records) as writer:
        writer.write(many_records(1, seed=4)[0])
    assert index_of(records).read_bytes() == kept
    with cs.update(records) as writer:
        writer.write(many_records(1, seed=5)[0])
    assert index_of(records).read_bytes() == kept


def test_an_update_without_a_write_leaves_the_index_alone(records):
    cs.index(records)
    kept = index_of(records).read_bytes()
    with cs.update(records):
        pass
    assert index_of(records).read_bytes() == kept == fresh_index(records)


def test_an_update_of_a_file_without_an_index_makes_none(records):
    with cs.update(records) as writer:
        writer.write(many_records(1, seed=4)[0])
    assert not index_of(records).exists()


def test_rows_are_committed_when_the_index_cannot_be_kept(records, monkeypatch):
    from colstore_io.writing import indexing

    def full(*args, **kwargs):
        raise OSError(28, "no space left")

    cs.index(records)
    monkeypatch.setattr(indexing, "write_small_file", full)
    with cs.open(records) as table:
        n = len(table)
    with cs.update(records) as writer:
        writer.write({"k": np.arange(9), "x": np.arange(9) * 0.5, "u": np.full(9, "ab")})
    with cs.open(records) as table:
        assert len(table) == n + 9
        assert table[-9:, "k"].array().tolist() == list(range(9))
