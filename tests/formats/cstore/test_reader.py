"""Whole files: the golden vectors, many files at once, near and far."""

from __future__ import annotations

import hashlib
import json
import pickle
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from formats.cstore_builder import Table, build, read, schema_of, tables, values_of
from hypothesis import HealthCheck, given, settings

from colstore_io import storage
from colstore_io.errors import FormatError
from colstore_io.fields import Field, Schema
from colstore_io.formats import detect
from colstore_io.formats.cstore import reader as reader_module
from colstore_io.formats.cstore.encode import stored_array
from colstore_io.formats.cstore.header import encode_counters
from colstore_io.formats.cstore.reader import read_metadata, read_statistics
from colstore_io.formats.cstore.verify import verify_file
from colstore_io.storage import ByteFile, MemoryFile, StreamFile


def vectors(shared: Path) -> tuple[Path, dict[str, Any]]:
    folder = shared / "vectors/cstore"
    return folder, json.loads((folder / "manifest.json").read_text())


def native_bytes(values: np.ndarray[Any, Any]) -> bytes:
    return (values if values.dtype.isnative else values.byteswap()).tobytes()


def test_golden_files(shared: Path) -> None:
    """Schema, rows and every value of every file, of all three layouts."""
    folder, manifest = vectors(shared)
    assert len(manifest["files"]) == 40
    for entry in manifest["files"]:
        data = (folder / entry["file"]).read_bytes()
        assert hashlib.sha256(data).hexdigest() == entry["sha256"]
        meta = read(data, entry["file"])
        assert meta.layout == entry["layout"]
        assert meta.record_rows.tolist() == entry["record_rows"]
        assert meta.n_rows == entry["rows"]
        assert [(c.name, c.dtype.str) for c in meta.columns] == [
            (c["name"], c["dtype"]) for c in entry["schema"]
        ]
        with np.load(folder / entry["values"]) as full:
            for position, column in enumerate(meta.columns):
                assert native_bytes(values_of(data, meta, column.name)) == full[f"c{position}"].tobytes()
        if "footer" in entry:
            assert meta.statistics is not None
            for name, usable in meta.statistics.usable.items():
                want = entry["footer"][name]
                assert usable.tolist() == [bool(flag) for flag in want["prunable"]]
                assert meta.statistics.minimum[name].tobytes().hex() == want["min_hex"]
                assert meta.statistics.maximum[name].tobytes().hex() == want["max_hex"]
        assert [p for p in verify_file(MemoryFile(data)) if p.severity == "error"] == []


def test_malformed_files(shared: Path) -> None:
    folder, manifest = vectors(shared)
    assert len(manifest["malformed"]) == 56
    for entry in manifest["malformed"]:
        data = (folder / entry["file"]).read_bytes()
        if entry["required"].startswith("FormatError"):
            with pytest.raises(FormatError) as caught:
                read(data, entry["file"])
            assert entry["file"] in str(caught.value)
            assert caught.value.offset is not None
            assert caught.value.section is not None
            problems = verify_file(MemoryFile(data))
            assert [p.severity for p in problems] == ["error"]
            continue
        meta = read(data, entry["file"])
        want = entry["independent_parser"]
        assert meta.n_rows == want["rows"]
        assert meta.schema.names == want["columns"]
        assert (meta.statistics is None) or "no statistics" not in entry["required"]


@settings(max_examples=80, deadline=None)
@given(tables())
def test_what_is_written_is_read(records: list[Table]) -> None:
    data = build(records)
    meta = read(data)
    assert meta.schema.names == list(records[0])
    assert meta.record_rows.tolist() == [len(next(iter(record.values()))) for record in records]
    assert meta.committed_end == len(data)
    for name in records[0]:
        want = np.concatenate([stored_array(record[name]) for record in records])
        got = values_of(data, meta, name)
        assert got.dtype == want.dtype
        assert got.tobytes() == want.tobytes()
    assert verify_file(MemoryFile(data)) == []


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tables())
def test_files_of_the_reference_are_read(tmp_path: Path, records: list[Table]) -> None:
    colstore = pytest.importorskip("colstore")
    path = tmp_path / "r.cstore"
    path.unlink(missing_ok=True)
    with colstore.create(path) as writer:
        for record in records:
            writer.write(record)
    data = path.read_bytes()
    meta = read(data)
    for name in records[0]:
        want = np.concatenate([stored_array(record[name]) for record in records])
        assert values_of(data, meta, name).tobytes() == want.tobytes()


# ----------------------------------------------------------------------------------------------------------
# Many files


def sample(rows: int = 3, *, statistics: bool = True, records: int = 1) -> bytes:
    record = {"a": np.arange(rows, dtype="<i4"), "s": np.array(["x"] * rows, "<U2")}
    return build([record] * records, statistics=statistics)


def put(folder: Path, name: str, data: bytes) -> storage.Location:
    path = folder / name
    path.write_bytes(data)
    return storage.resolve(str(path)).locations[0]


def test_equal_manifests_are_understood_once() -> None:
    files = [MemoryFile(sample(rows)) for rows in range(1, 5)]
    metas = read_metadata(files, [file.read(0, file.size) for file in files])
    assert len({id(meta.columns) for meta in metas}) == 1
    assert len({id(meta.schema) for meta in metas}) == 1
    assert [meta.n_rows for meta in metas] == [1, 2, 3, 4]
    assert len({meta.fingerprint for meta in metas}) == 1


def test_one_warning_for_many_files_with_one_damaged_key() -> None:
    schema = Schema((Field("a", np.dtype("<i4"), logical="x"),))
    data = build([{"a": np.zeros(1, "<i4")}], schema=schema)
    data = data.replace(b'"logical": "x", "crc32"', b'"logical": "x", "crc3_"')
    data = data.replace(b"manifest_crc32", b"manifest_crc__")
    files = [MemoryFile(data, spelling=f"{i}.cstore") for i in range(5)]
    with pytest.warns(RuntimeWarning, match=r"0\.cstore: .*'a'") as caught:
        read_metadata(files, [file.read(0, file.size) for file in files])
    assert len(caught) == 1


def test_local_files_by_mapping_and_by_pread(tmp_path: Path) -> None:
    locations = [put(tmp_path, f"{i}.cstore", sample(i, records=400)) for i in range(1, 4)]
    for mmap in (True, False):
        opened = storage.open_files(locations, head_bytes=100, mmap=mmap)
        metas = read_metadata([file for file, _ in opened], [head for _, head in opened])
        assert [meta.record_rows.tolist() for meta in metas] == [[i] * 400 for i in range(1, 4)]
        assert all(meta.statistics is not None for meta in metas)
        for file, _ in opened:
            file.close()


def test_file_objects(tmp_path: Path) -> None:
    location = put(tmp_path, "a.cstore", sample(9, records=700))
    assert location.local_path is not None
    with open(location.local_path, "rb") as stream:
        file = StreamFile(stream)
        (meta,) = read_metadata([file], [file.read(0, 200)])
        assert meta.n_rows == 6300
        assert meta.statistics is not None


def test_open_reads_no_column_bytes(tmp_path: Path) -> None:
    """Heads, record headers and footer; of a body only what shares the first bytes."""
    record = {"a": np.zeros(1 << 20, "<i8")}
    location = put(tmp_path, "a.cstore", build([record] * 3, statistics=True))
    io = storage.IOStats()
    ((file, head),) = storage.open_files([location], io=io)
    (meta,) = read_metadata([file], [head])
    assert meta.n_rows == 3 << 20
    assert io.bytes < 70_000
    file.close()


class _Remote:
    """Files of a store in another place, with its rounds counted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, contents: Sequence[bytes], name: str) -> None:
        import fsspec

        fs = fsspec.filesystem("memory")
        self.locations = []
        for i, data in enumerate(contents):
            fs.pipe_file(f"/{name}/{i}.cstore", data)
            self.locations.append(storage.resolve(f"memory://{name}/{i}.cstore").locations[0])
        self.rounds = 0

        def counted(requests: Sequence[tuple[ByteFile, int, int]]) -> list[memoryview]:
            self.rounds += 1
            return storage.read_ranges(requests)

        monkeypatch.setattr(reader_module, "read_ranges", counted)
        from colstore_io.formats.cstore import records as records_module

        monkeypatch.setattr(records_module, "read_ranges", counted)

    def open(self, head_bytes: int) -> tuple[list[ByteFile], list[memoryview]]:
        opened = storage.open_files(self.locations, head_bytes=head_bytes)
        return [file for file, _ in opened], [head for _, head in opened]


def test_remote_files_in_common_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    remote = _Remote(monkeypatch, [sample(i, records=300) for i in range(1, 9)], "common")
    files, heads = remote.open(100)
    metas = read_metadata(files, heads)
    assert [meta.n_rows for meta in metas] == [300 * i for i in range(1, 9)]
    assert remote.rounds == 2  # the headers, then the records
    assert all(meta.statistics is None for meta in metas)
    metas = read_statistics(files, metas)
    assert remote.rounds == 3
    assert all(meta.statistics is not None for meta in metas)


def test_remote_files_that_fit_into_the_first_bytes_need_no_round(monkeypatch: pytest.MonkeyPatch) -> None:
    remote = _Remote(monkeypatch, [sample(i) for i in range(1, 9)], "fit")
    files, heads = remote.open(1 << 16)
    metas = read_metadata(files, heads)
    assert remote.rounds == 0
    assert all(meta.statistics is not None for meta in metas)


def test_statistics_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    remote = _Remote(monkeypatch, [sample(5000), sample(5000, statistics=False)], "request")
    files, heads = remote.open(1 << 10)
    assert [m.statistics for m in read_metadata(files, heads, statistics="none")] == [None, None]
    assert remote.rounds == 0
    with_all = read_metadata(files, heads, statistics="all")
    assert [m.statistics is not None for m in with_all] == [True, False]
    assert remote.rounds == 1


# ----------------------------------------------------------------------------------------------------------
# A commit in this very moment


class TornOnce(MemoryFile):
    """Gives the sound bytes when asked again."""

    __slots__ = ("reads",)

    def __init__(self, data: bytes) -> None:
        super().__init__(data, spelling="torn.cstore")
        self.reads = 0

    def read(self, offset: int, length: int) -> memoryview:
        self.reads += 1
        return super().read(offset, length)


def torn(data: bytes) -> bytes:
    new = encode_counters(2, 6)
    return data[:8] + new[:8] + data[16:]


def test_torn_counters_are_read_once_more() -> None:
    data = sample()
    file = TornOnce(data)
    (meta,) = read_metadata([file], [memoryview(torn(data))])
    assert meta.n_rows == 3
    assert file.reads == 1


def test_counters_that_stay_torn_are_an_error() -> None:
    file = TornOnce(torn(sample()))
    with pytest.raises(FormatError) as caught:
        read_metadata([file], [memoryview(torn(sample()))])
    assert caught.value.section == "counters"
    assert file.reads == 1


def test_a_footer_that_is_cut_off_meanwhile_costs_the_statistics_alone(tmp_path: Path) -> None:
    """What an append does between our look at the header and our look at the footer."""
    data = sample(20_000)
    locations = [put(tmp_path, f"{i}.cstore", data) for i in range(2)]
    opened = storage.open_files(locations)
    assert locations[0].local_path is not None
    Path(locations[0].local_path).write_bytes(data[: read(data).stats_offset])
    metas = read_metadata([file for file, _ in opened], [head for _, head in opened])
    assert [meta.statistics is not None for meta in metas] == [False, True]
    assert [meta.n_rows for meta in metas] == [20_000, 20_000]


# ----------------------------------------------------------------------------------------------------------
# Pickles and places


def equal(a: Any, b: Any) -> bool:
    return (
        a.columns == b.columns
        and [dict(c.manifest) for c in a.columns] == [dict(c.manifest) for c in b.columns]
        and a.schema == b.schema
        and a.record_rows.tolist() == b.record_rows.tolist()
        and a.body_start.tolist() == b.body_start.tolist()
        and a.record_rows.dtype == b.record_rows.dtype == np.int64
        and (a.committed_end, a.fingerprint, a.n_rows) == (b.committed_end, b.fingerprint, b.n_rows)
    )


@pytest.mark.parametrize(
    "sizes", [[], [3], [3, 3], [4] * 500, [4] * 500 + [1], [0] * 20, [(i * 7) % 23 for i in range(500)]]
)
def test_pickles_are_complete_and_small(sizes: list[int]) -> None:
    schema = Schema((Field("a", np.dtype("<i4"), attrs={"k": [1, np.float32(2)]}),), {"title": "t"})
    records = [{"a": np.zeros(n, "<i4")} for n in sizes]
    meta = read(build(records, schema=schema))
    raw = pickle.dumps(meta)
    assert equal(pickle.loads(raw), meta)
    assert len(raw) < 2500 + len(set(sizes)) * 70


def test_places_of_columns() -> None:
    meta = read(sample())
    assert meta.column_prefix("a") == 0
    assert meta.column_prefix("s") == 4
    assert meta.row_bytes == 12
    assert meta.physical("s").dtype == np.dtype("<U2")
    with pytest.raises(KeyError, match="available"):
        meta.column_prefix("t")


def test_format_is_found_by_its_first_bytes() -> None:
    data = sample()
    kind = detect(data, "x")
    file = MemoryFile(data)
    assert kind.read_metadata([file], [file.read(0, file.size)])[0].n_rows == 3
    assert kind.read_header(file, file.read(0, file.size)).committed_rows == 3
    assert kind.suffix == ".cstore"


def test_no_files() -> None:
    assert read_metadata([], []) == []


def test_sound_files_do_not_warn() -> None:
    schema = schema_of({"a": np.zeros(1)})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read(build([{"a": np.zeros(1)}], schema=Schema(schema.fields, {"x": 1})))
