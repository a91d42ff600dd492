"""What a user does, in each of the three formats: store, open, select, append, inspect."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import colstore_io as cs
from colstore_io.cli import main

FORMATS = {"cstore": "cstore", "columns": "abcd", "colbin": "colbin"}
ENCODED = {name: suffix for name, suffix in FORMATS.items() if name != "cstore"}

TABLE = pa.table(
    {
        "id": pa.array(range(100), pa.int64()),
        "score": pa.array(np.linspace(0, 200, 100)),
        "small": pa.array([k % 7 for k in range(100)], pa.int16()),
        "flag": pa.array([k % 3 == 0 for k in range(100)]),
        "text": pa.array([f"word {k % 11}" if k % 5 else "" for k in range(100)]),
    }
)


@pytest.fixture(params=FORMATS.items(), ids=FORMATS)
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    place: Path = tmp_path / f"t.{request.param[1]}"
    return place


@pytest.fixture(params=ENCODED.items(), ids=ENCODED)
def encoded(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    place: Path = tmp_path / f"t.{request.param[1]}"
    return place


def test_the_suffix_tells_the_format(path: Path) -> None:
    with cs.store(TABLE, path) as table:
        assert FORMATS[table.source.plan.format] == path.suffix[1:]
        assert table.arrow().to_pydict() == TABLE.to_pydict()


def test_format_overrules_the_suffix(tmp_path: Path) -> None:
    with cs.store(TABLE, tmp_path / "t.dat", format="columns") as table:
        assert table.source.plan.format == "columns"
    with pytest.raises(ValueError, match="format must be one of"):
        cs.store(TABLE, tmp_path / "u.dat", format="parquet")
    assert not (tmp_path / "u.dat").exists()


def test_rows_columns_and_conditions(path: Path) -> None:
    with cs.store(TABLE, path) as table:
        frame = TABLE.to_pandas()
        assert table[[5, 3, -1]].frame()["id"].tolist() == [5, 3, 99]
        assert table["text"].arrow().to_pylist() == TABLE.column("text").to_pylist()
        assert set(table[["id", "score"]].dict()) == {"id", "score"}
        wanted = frame[(frame.score > 100) & (frame.text != "")]
        found = table.where((cs.col("score") > 100) & (cs.col("text") != "")).frame()
        assert found["id"].tolist() == wanted["id"].tolist()
        assert table.query("text in ['word 1', 'word 2'] and flag").count() == int(
            (frame.text.isin(["word 1", "word 2"]) & frame.flag).sum()
        )


def test_a_stored_table_goes_from_format_to_format(tmp_path: Path) -> None:
    previous: Any = TABLE
    for name in ("a.abcd", "b.colbin", "c.cstore", "d.abcd"):
        with cs.store(previous, tmp_path / name) as table:
            assert table.arrow().to_pydict() == TABLE.to_pydict()
        previous = cs.open(tmp_path / name)


@pytest.mark.parametrize("suffix", ENCODED.values())
def test_columns_without_nulls_stay_plain_in_cstore(tmp_path: Path, suffix: str) -> None:
    data = {"n": np.arange(3), "b": np.array([True, False, True])}
    with cs.store(data, tmp_path / f"a.{suffix}") as table, cs.store(table, tmp_path / "b.cstore") as plain:
        assert plain.frame().dtypes.map(str).to_dict() == {"n": "int64", "b": "bool"}
        assert [column["name"] for column in cs.schema(tmp_path / "b.cstore")] == ["n", "b"]


def test_nulls_survive(path: Path) -> None:
    data = pd.DataFrame({"n": pd.array([1, None, 3], "Int64"), "t": ["a", None, ""]})
    with cs.store(data, path) as table:
        assert table.arrow().to_pydict() == {"n": [1, None, 3], "t": ["a", None, ""]}


def test_append_and_update_add_rows_to_an_encoded_file(encoded: Path) -> None:
    cs.store(TABLE, encoded).close()
    assert cs.append(encoded, TABLE) == str(encoded)
    with cs.update(encoded) as writer:
        writer.write(TABLE.slice(0, 10))
        writer.commit()
        writer.write(TABLE.slice(10, 5))
        assert "5 rows pending" in repr(writer)
    with cs.open(encoded) as table:
        assert table["id"].array().tolist() == [*range(100), *range(100), *range(15)]
    assert cs.verify(encoded) == {str(encoded): []}


def test_an_update_keeps_other_writers_out(encoded: Path) -> None:
    cs.store(TABLE, encoded).close()
    with cs.update(encoded) as writer:
        writer.write(TABLE)
        with pytest.raises(cs.WriterLockedError):
            cs.append(encoded, TABLE)
        with pytest.raises(cs.WriterLockedError):
            cs.store(TABLE, encoded, mode="recreate")
        writer.commit()
        with pytest.raises(cs.WriterLockedError):
            cs.update(encoded)
        assert cs.open(encoded).n_rows == 200
    cs.append(encoded, TABLE)
    assert cs.open(encoded).n_rows == 300


def test_an_append_that_does_not_fit_changes_nothing(encoded: Path) -> None:
    cs.store(TABLE, encoded).close()
    before = encoded.read_bytes()
    with pytest.raises((ValueError, TypeError)):
        cs.append(encoded, {"other": [1, 2]})
    with pytest.raises((ValueError, TypeError)), cs.update(encoded) as writer:
        writer.write({"other": [1, 2]})
    assert encoded.read_bytes() == before


@pytest.mark.parametrize("suffix", [".cstore", ".abcd", ".colbin"])
@pytest.mark.parametrize("mode", ["create", "recreate", "update"])
def test_rows_that_a_writer_has_taken_count_when_its_block_is_left_by_an_exception(
    tmp_path: Path, suffix: str, mode: str
) -> None:
    path = tmp_path / f"t{suffix}"
    if mode != "create":
        cs.store(TABLE, path).close()
    before = 100 if mode == "update" else 0
    with pytest.raises(ZeroDivisionError), getattr(cs, mode)(path) as writer:  # noqa: PT012 - it comes inside
        writer.write(TABLE)
        writer.write(TABLE.slice(0, 30))
        raise ZeroDivisionError
    with cs.open(path) as table:
        assert len(table) == before + 130
    with cs.update(path) as writer:  # the lock was given back
        writer.write(TABLE)


@pytest.mark.parametrize("suffix", [".cstore", ".abcd", ".colbin"])
def test_an_exception_before_the_first_row_leaves_what_was_there(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"t{suffix}"
    with pytest.raises(ZeroDivisionError), cs.create(path):
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []
    cs.store(TABLE, path).close()
    before = path.read_bytes()
    for mode in (cs.recreate, cs.update):
        with pytest.raises(ZeroDivisionError), mode(path):
            raise ZeroDivisionError
        with cs.open(path) as table:
            assert len(table) == 100
    assert suffix == ".colbin" or path.read_bytes() == before


@pytest.mark.parametrize("suffix", [".cstore", ".abcd", ".colbin"])
def test_a_call_that_writes_a_stream_writes_all_or_nothing(tmp_path: Path, suffix: str) -> None:
    def stream() -> Any:
        yield TABLE
        raise ZeroDivisionError

    path = tmp_path / f"t{suffix}"
    with pytest.raises(ZeroDivisionError):
        cs.store(stream(), path)
    assert list(tmp_path.iterdir()) == []
    cs.store(TABLE, path).close()
    for call in (
        lambda: cs.store(stream(), path, mode="recreate"),
        lambda: cs.append(tmp_path / "d", stream()),
    ):
        with pytest.raises(ZeroDivisionError):
            call()
    with cs.open(path) as table:
        assert len(table) == 100


@pytest.mark.parametrize("suffix", [".cstore", ".abcd", ".colbin"])
def test_text_that_is_no_text_is_refused_by_column_and_row(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"t{suffix}"
    with cs.create(path) as writer:
        writer.write({"k": np.arange(2), "s": np.array(["a", "b"])})
        for bad in (np.array(["x", "\ud800"]), np.array(["x", "\ud800"], object), ["x", "\ud800"]):
            with pytest.raises(ValueError, match=r"'s'.*surrogate"):
                writer.write({"k": np.arange(2), "s": bad})
        writer.write({"k": np.arange(2), "s": np.array(["c", "d"])})
    with cs.open(path) as table:
        assert table.arrow()["s"].to_pylist() == ["a", "b", "c", "d"]


def test_options_of_one_format_are_refused_by_another(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="statistics="):
        cs.store(TABLE, tmp_path / "t.abcd", statistics=True)
    with pytest.raises(TypeError, match="optimise"):
        cs.store(TABLE, tmp_path / "t.abcd", optimise=True)
    with pytest.raises(TypeError):
        cs.store(TABLE, tmp_path / "t.cstore", compression="flate")
    assert list(tmp_path.iterdir()) == []


def test_inspect_describes_the_parts(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cs.store(TABLE, path).close()
    found = cs.inspect(path)
    assert sum(row["rows"] for row in found) == (500 if path.suffix == ".abcd" else 100)
    assert "100 rows" in repr(found)
    assert "<table" in found._repr_html_()
    assert main(["inspect", str(path)]) == 0
    assert str(path) in capsys.readouterr().out


def test_inspect_of_a_directory_lists_its_files(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = path.parent / "folder"
    for part in (TABLE, TABLE.slice(0, 30)):
        cs.append(folder, part, format={".abcd": "columns", ".colbin": "colbin"}.get(path.suffix))
    found = cs.inspect(folder)
    assert [row["rows"] for row in found] == [100, 30]
    assert [(folder / row["file"]).stat().st_size for row in found] == [row["bytes"] for row in found]
    assert "2 " in found.title
    assert "130 rows" in found.title
    assert main(["inspect", str(folder)]) == 0
    assert "130 rows" in capsys.readouterr().out
    assert [row["rows"] for row in cs.inspect(f"{folder}/*{path.suffix}")] == [100, 30]
    with pytest.raises(ValueError, match="is about one file"):
        cs.inspect(folder, candidates=True)


def test_objects_of_a_store_cannot_be_updated(path: Path) -> None:
    with pytest.raises(io.UnsupportedOperation, match="Make the dataset a directory and append a shard"):
        cs.update(f"memory://tidy/none{path.suffix}")


def test_candidates_name_one_winner_for_each_chunk(tmp_path: Path) -> None:
    cs.store(TABLE, tmp_path / "t.abcd").close()
    found = cs.inspect(tmp_path / "t.abcd", candidates=True)
    for name in TABLE.column_names:
        rows = [row for row in found if row["column"] == name]
        (chosen,) = (row for row in rows if row["chosen"])
        assert chosen["compressed"] == min(row["compressed"] for row in rows)
    cs.store(TABLE, tmp_path / "t.cstore").close()
    with pytest.raises(ValueError, match="columns files"):
        cs.inspect(tmp_path / "t.cstore", candidates=True)


def test_info_and_schema_read_the_header_alone(path: Path) -> None:
    cs.store(TABLE, path).close()
    info = cs.info(path)
    assert (info.n_rows, info.n_records) == (100, 1)
    assert [column["name"] for column in info.columns] == TABLE.column_names
    assert {column["name"] for column in cs.schema(path)} >= set(TABLE.column_names)


def test_files_of_two_formats_are_no_dataset(tmp_path: Path) -> None:
    cs.store(TABLE, tmp_path / "a.abcd").close()
    cs.store(TABLE, tmp_path / "b.cstore").close()
    with pytest.raises(ValueError, match="one file format"):
        cs.open([str(tmp_path / "a.abcd"), str(tmp_path / "b.cstore")])


def test_streaming_writers(path: Path) -> None:
    with cs.create(path) as writer:
        for start in range(0, 100, 30):
            writer.write(TABLE.slice(start, 30))
    with cs.open(path) as table:
        assert table["id"].array().tolist() == list(range(100))
    with pytest.raises(FileExistsError):
        cs.create(path)


def test_bytes_of_fixed_width_lose_what_fills_them_up(tmp_path):
    table = cs.store({"a": np.array([b"a", b"bcd", b""], "S5")}, tmp_path / "s.cstore")
    for name in ("c.abcd", "c.colbin"):
        assert cs.store(table, tmp_path / name)["a"].arrow().to_pylist() == [b"a", b"bcd", b""]
        assert cs.store(table[1:], tmp_path / f"part-{name}")["a"].arrow().to_pylist() == [b"bcd", b""]


def test_out_must_be_an_array(tmp_path):
    for name in ("o.cstore", "o.abcd", "o.colbin"):
        table = cs.store({"a": np.arange(3)}, tmp_path / name)
        with pytest.raises(TypeError, match=r"numpy\.ndarray"):
            table["a"].array(out=bytearray(24))
        with pytest.raises(TypeError, match=r"out\['a'\]"):
            table.dict(out={"a": [1, 2, 3]})


def test_arrow_takes_categories_as_frame_does(tmp_path):
    frame = pd.DataFrame({"c": pd.Categorical(["x", "y", "x"]), "s": ["a", "b", "a"]})
    table = cs.store(frame, tmp_path / "c.cstore")
    assert [str(t).split("<")[0] for t in table.arrow(categories=True).schema.types] == [
        "dictionary",
        "string",
    ]
    assert [str(t).split("<")[0] for t in table.arrow(categories="s").schema.types][1] == "dictionary"
