"""What users of Polars, pandas and NumPy hand over, and what they are told when it does not fit."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import colstore_io as cs
from colstore_io.arrays import without_views

SUFFIXES = ("cstore", "abcd", "colbin")
ENCODED = SUFFIXES[1:]


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize(
    "frame",
    [
        pl.DataFrame({"text": ["a", "b" * 40, ""], "id": [1, 2, 3]}),
        pl.DataFrame({"text": ["a", None, "b" * 40], "id": [1, None, 3]}),
        pl.DataFrame({"text": [None, None]}, schema={"text": pl.String}),
        pl.DataFrame({"text": []}, schema={"text": pl.String}),
        pl.DataFrame({"category": pl.Series(["x", "y" * 20, None], dtype=pl.Categorical)}),
        pl.DataFrame({"level": pl.Series(["x", "y", None], dtype=pl.Enum(["y", "x"]))}),
        pl.DataFrame({"content": [b"x", b"", b"y" * 40]}),
    ],
    ids=["text", "nulls", "only nulls", "no rows", "categories", "enum", "bytes"],
)
def test_polars_frames_are_stored_with_their_text(tmp_path: Path, suffix: str, frame: pl.DataFrame) -> None:
    with cs.store(frame, tmp_path / f"t.{suffix}") as table:
        assert table.arrow().to_pydict() == frame.to_dict(as_series=False)


@pytest.mark.parametrize("suffix", ENCODED)
def test_lists_of_polars_text_are_refused_or_stored(tmp_path: Path, suffix: str) -> None:
    frame = pl.DataFrame({"words": [["a", "b" * 40], []]})
    if suffix == "abcd":
        with pytest.raises(TypeError, match="column 'words'"):
            cs.store(frame, tmp_path / "t.abcd")
    else:
        with cs.store(frame, tmp_path / "t.colbin") as table:
            assert table.arrow().to_pydict() == frame.to_dict(as_series=False)


def test_a_polars_frame_is_a_colbin_table() -> None:
    frame = pl.DataFrame({"text": ["a", None, "b" * 40]})
    message = cs.colbin.encode_table(frame)
    decoded: Any = cs.colbin.decode_table(message)["text"]
    assert decoded.to_pylist() == ["a", None, "b" * 40]


def test_values_of_one_width_are_bytes_of_a_log(tmp_path: Path) -> None:
    data = pa.table({"digest": pa.array([b"ab", b"cd"], pa.binary(2))})
    with cs.store(data, tmp_path / "t.colbin") as table:
        assert table.arrow().to_pydict() == data.to_pydict()


def test_arrays_without_views_stay_as_they_are() -> None:
    for array in (pa.array(["a"]), pa.chunked_array([[1]]), pa.array(["a"]).dictionary_encode()):
        assert without_views(array) is array
    views = pa.chunked_array([pa.array(["a", None, "b" * 40], pa.string_view()).slice(1)])
    assert without_views(views).type == pa.large_string()
    assert without_views(views).to_pylist() == [None, "b" * 40]
    assert without_views(pa.chunked_array([], pa.binary_view())).type == pa.large_binary()


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_an_array_may_be_filled_anew_between_writes(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"t.{suffix}"
    cs.store({"a": np.zeros(1)}, path).close()
    row = np.empty(2)
    with cs.update(path) as writer:
        for number in (1, 2, 3):
            row[:] = number
            writer.write({"a": row})
    with cs.open(path) as table:
        assert table["a"].array().tolist() == [0, 1, 1, 2, 2, 3, 3]


@pytest.mark.parametrize("suffix", ENCODED)
def test_an_array_may_be_filled_anew_between_the_batches_of_an_appended_stream(
    tmp_path: Path, suffix: str
) -> None:
    path = tmp_path / f"t.{suffix}"
    cs.store({"a": np.zeros(1)}, path).close()

    def batches() -> Any:
        row = np.empty(1)
        for number in (1, 2, 3):
            row[:] = number
            yield {"a": row}

    cs.append(path, batches())
    with cs.open(path) as table:
        assert table["a"].array().tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("suffix", ENCODED)
def test_names_that_are_no_text_are_refused_by_name(tmp_path: Path, suffix: str) -> None:
    with pytest.raises(ValueError, match=r"name of column 'a\\ud800'"):
        cs.store({"a\ud800": [1]}, tmp_path / f"t.{suffix}")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("suffix", ENCODED)
def test_a_new_encoded_file_says_that_it_has_no_commits(tmp_path: Path, suffix: str) -> None:
    with cs.create(tmp_path / f"t.{suffix}") as writer:
        writer.write({"a": [1]})
        with pytest.raises(io.UnsupportedOperation, match="update"):
            writer.commit()
    with cs.open(tmp_path / f"t.{suffix}") as table:
        assert len(table) == 1


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_create_and_recreate_have_no_mode(tmp_path: Path, suffix: str) -> None:
    for function in (cs.create, cs.recreate):
        with pytest.raises(TypeError, match=r"no mode=.*recreate\(\) replaces"):
            function(tmp_path / f"t.{suffix}", mode="recreate")


def test_options_of_other_formats_are_refused_with_their_formats(tmp_path: Path) -> None:
    path = tmp_path / "t.cstore"
    for call in (
        lambda: cs.store({"a": [1]}, path, compression="zstd"),
        lambda: cs.create(path, compression="zstd"),
    ):
        with pytest.raises(TypeError, match=r"compression= is an option of the columns format \(\.abcd\)"):
            call()


@pytest.mark.parametrize("suffix", ENCODED)
def test_only_cstore_files_have_an_index(tmp_path: Path, suffix: str) -> None:
    cs.store({"a": [1]}, tmp_path / f"t.{suffix}").close()
    with pytest.raises(cs.UnsupportedFeatureError, match=r"only \.cstore files have an index"):
        cs.index(tmp_path / f"t.{suffix}")


@pytest.mark.parametrize("source", SUFFIXES)
@pytest.mark.parametrize("out", SUFFIXES)
def test_tables_of_any_format_are_joined_into_one_file_of_any(tmp_path: Path, source: str, out: str) -> None:
    paths = [tmp_path / f"{number}.{source}" for number in range(2)]
    for number, path in enumerate(paths):
        cs.store({"a": [number], "t": ["x" * number]}, path).close()
    with cs.concat(paths, out=tmp_path / f"t.{out}") as table:
        assert table.arrow().to_pydict() == {"a": [0, 1], "t": ["", "x"]}
        assert table.source.plan.format == {"cstore": "cstore", "abcd": "columns", "colbin": "colbin"}[out]
    if source == out:
        with pytest.raises(ValueError, match="also one of the sources"):
            cs.concat(paths, out=paths[1])
        with cs.open(paths) as table:
            assert table["a"].arrow().to_pylist() == [0, 1]
