"""`EncodedWriter`: a file appears whole or not at all, in row groups of the right size."""

from __future__ import annotations

import os
import pickle

import fsspec
import numpy as np
import pyarrow as pa
import pytest

import colstore_io
from colstore_io.errors import SchemaMismatchError, WriterLockedError
from colstore_io.formats.columns import encoder as encoder_module
from colstore_io.ingest.variable import ingest_columns
from colstore_io.writing import encoding
from colstore_io.writing.encoding import EncodedWriter, RowGroups, encoder_for, format_of_path, store_encoded
from colstore_io.writing.locks import open_locked


def rows(path):
    with colstore_io.open(path) as table:
        return pa.table(table).to_pydict()


def groups(path):
    with open(path, "rb") as handle:
        data = handle.read()
    from colstore_io.formats.columns import FORMAT
    from colstore_io.storage import MemoryFile

    (meta,) = FORMAT.read_metadata([MemoryFile(data)], [memoryview(data)])
    return meta.record_rows.tolist()


def test_a_file_appears_when_it_is_closed(tmp_path):
    path = tmp_path / "t.abcd"
    with EncodedWriter(path) as writer:
        writer.write({"a": [1, 2], "s": ["x", None]})
        writer.write(pa.table({"a": [3], "s": pa.array([None], pa.string())}))
        assert len(writer) == 3
        assert not path.exists()
    assert writer.closed
    assert writer.path == path
    assert rows(path) == {"a": [1, 2, 3], "s": ["x", None, None]}
    assert os.listdir(tmp_path) == ["t.abcd"]


def test_nothing_is_left_after_an_error(tmp_path):
    path = tmp_path / "t.abcd"
    with pytest.raises(ZeroDivisionError), EncodedWriter(path) as writer:
        writer.write({"a": [1 // len(writer)]})
    with pytest.raises(ValueError, match="nothing was written"), EncodedWriter(path):
        pass
    with pytest.raises(TypeError):
        store_encoded({"t": np.array([1], "M8[s]")}, path)
    with pytest.raises(TypeError):
        store_encoded(pa.table({"t": pa.array([1], pa.timestamp("s"))}), path)
    assert os.listdir(tmp_path) == []


def test_data_that_do_not_fit_leave_the_writer_usable(tmp_path):
    path = tmp_path / "t.abcd"
    with EncodedWriter(path) as writer:
        with pytest.raises(TypeError, match="does not have"):
            writer.write({"t": np.array([1], "M8[s]")})
        writer.write({"a": [1]})
        with pytest.raises(SchemaMismatchError):
            writer.write({"a": ["x"]})
        writer.write({"a": [2]})
    assert rows(path) == {"a": [1, 2]}


def test_what_was_written_does_not_change_with_the_callers_arrays(tmp_path):
    path = tmp_path / "t.abcd"
    numbers, masked = np.arange(3), np.ma.array([1, 2, 3], mask=[False, True, False])
    with EncodedWriter(path) as writer:
        writer.write({"a": numbers, "m": masked})
        numbers[:] = 7
        masked.data[:] = 7
        writer.write({"a": numbers, "m": [4, 5, None]})
    assert rows(path) == {"a": [0, 1, 2, 7, 7, 7], "m": [1, None, 3, 4, 5, None]}

    def reused():
        for i in range(3):
            numbers[:] = i
            yield {"a": numbers}

    store_encoded(reused(), path, mode="recreate")
    assert rows(path) == {"a": [0] * 3 + [1] * 3 + [2] * 3}


def test_a_failing_disk_ends_the_writer(tmp_path, monkeypatch):
    path = tmp_path / "t.abcd"
    writer = EncodedWriter(path, row_group_size=1)

    def fail(*args, **options):
        raise OSError(28, "no space")

    monkeypatch.setattr(encoding.AlignedOutput, "append", fail)
    with pytest.raises(OSError, match="no space"):
        writer.write({"a": [1]})
    assert writer.closed
    with pytest.raises(ValueError, match="closed"):
        writer.write({"a": [1]})
    writer.close()
    assert os.listdir(tmp_path) == []


def test_an_unclosed_writer_warns_and_leaves_nothing(tmp_path):
    writer = EncodedWriter(tmp_path / "t.abcd")
    writer.write({"a": [1]})
    with pytest.warns(ResourceWarning, match="never closed"):
        writer.__del__()
    assert os.listdir(tmp_path) == []


def test_modes_and_locks(tmp_path):
    path = tmp_path / "t.abcd"
    store_encoded({"a": [1]}, path)
    for call in (lambda: EncodedWriter(path), lambda: store_encoded({"a": [2]}, path)):
        with pytest.raises(FileExistsError):
            call()
    assert store_encoded({"a": [2]}, path, mode="recreate") == path
    assert rows(path) == {"a": [2]}
    with open_locked(str(path)), pytest.raises(WriterLockedError):
        store_encoded({"a": [3]}, path, mode="recreate")
    with pytest.raises(ValueError, match="mode"):
        EncodedWriter(path, mode="append")
    with EncodedWriter(path, mode="recreate") as writer:
        writer.abort()
        with pytest.raises(TypeError, match="pickled"):
            pickle.dumps(writer)


@pytest.mark.parametrize("size", [1, 3, 7, 100])
def test_row_groups_have_the_size_asked_for(tmp_path, size):
    path = tmp_path / "t.abcd"
    batches = [np.arange(n) for n in (1, 2, 8, 0, 5, 1)]
    store_encoded(iter([{"a": b} for b in batches]), path, row_group_size=size)
    assert groups(path) == [size] * (17 // size) + ([17 % size] if 17 % size else [])
    assert rows(path)["a"] == np.concatenate(batches).tolist()


def test_row_groups_are_cut_by_their_bytes(monkeypatch):
    monkeypatch.setattr(encoding, "ROW_GROUP_BYTES", 80)
    gathered = RowGroups()
    full = [len(columns[0]) for columns in gathered.add(ingest_columns({"a": np.arange(25)}))]
    assert full == [10, 10]
    assert len(gathered.rest()[0]) == 5
    with pytest.raises(ValueError, match="at least 1"):
        RowGroups(0)


def test_batches_of_several_arrow_layouts_share_a_row_group(tmp_path):
    path = tmp_path / "t.abcd"
    words = ["x", None, "y"]
    layouts = [
        pa.array(words),
        pa.array(words, pa.large_string()),
        pa.array(words).dictionary_encode(),
        pa.array(words, pa.string_view()),
    ]
    store_encoded(iter([pa.table({"s": column, "n": pa.array([1, None, 2])}) for column in layouts]), path)
    assert rows(path) == {"s": words * 4, "n": [1, None, 2] * 4}
    assert groups(path) == [12]
    mixed = iter([{"n": [1, None]}, {"n": np.array([7])}])
    store_encoded(mixed, path, mode="recreate")
    assert rows(path) == {"n": [1, None, 7]}


def test_no_rows_make_a_file_with_a_schema(tmp_path):
    path = tmp_path / "t.abcd"
    store_encoded({"a": np.empty(0, "i2")}, path)
    assert groups(path) == []
    assert rows(path) == {"a": []}


def test_an_object_store_gets_one_upload():
    fs = fsspec.filesystem("memory")
    store_encoded({"a": [1, 2]}, "memory://bucket/t.abcd")
    assert fs.cat_file("/bucket/t.abcd")[:4] == b"ABCD"
    with pytest.raises(FileExistsError):
        store_encoded({"a": [1]}, "memory://bucket/t.abcd")
    assert rows("memory://bucket/t.abcd") == {"a": [1, 2]}
    fs.rm("/bucket", recursive=True)


def test_formats_and_options_are_looked_up(tmp_path):
    schema = ingest_columns({"a": [1]}).schema
    assert isinstance(encoder_for("columns", schema, compression="lzw"), encoder_module.ColumnsEncoder)
    with pytest.raises(ValueError, match="unknown format 'parquet'"):
        encoder_for("parquet", schema)
    with pytest.raises(TypeError, match="no option 'codec'; options are encoding, compression"):
        encoder_for("columns", schema, codec="lzw")
    assert format_of_path("x/y.ABCD") == "columns"
    with pytest.raises(ValueError, match="format="):
        format_of_path("x.bin")
    with pytest.raises(TypeError, match="no option"):
        EncodedWriter(tmp_path / "t.abcd", codec="lzw")
    assert os.listdir(tmp_path) == []
