"""Frames and Arrow tables come back with the same values, nulls, zones, categories and attributes."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import colstore_io as cs
from colstore_io import col


def frame(n: int = 200) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    missing = rng.random(n) < 0.2
    numbers = pd.array(rng.integers(-5, 5, n), dtype="Int16")
    numbers[missing] = pd.NA
    text = pd.Series([f"tail{k % 9}é" for k in range(n)], dtype="str")
    text[rng.random(n) < 0.1] = np.nan
    flags = pd.array(rng.random(n) < 0.5, dtype="boolean")
    flags[::7] = pd.NA
    floats = rng.random(n)
    floats[::5] = np.nan
    return pd.DataFrame(
        {
            "number": numbers,
            "text": text,
            "flag": flags,
            "float": floats,
            "plain": np.arange(n),
            "when": pd.date_range("2024-03-30", periods=n, freq="h", tz="Europe/Prague").as_unit("us"),
            "kind": pd.Categorical.from_codes(rng.integers(-1, 3, n), ["a", "b", "c"], ordered=True),
        }
    )


@pytest.fixture(params=["one file", "several records", "several files"])
def table(request, tmp_path):
    data = frame()
    pieces = [data[:50], data[50:51], data[51:]]
    if request.param == "one file":
        cs.store(data, tmp_path / "t.cstore").close()
        path = tmp_path / "t.cstore"
    elif request.param == "several records":
        path = tmp_path / "t.cstore"
        cs.store(iter(pieces), path, string_width={"text": 6}).close()
    else:
        for piece in pieces:
            cs.append(tmp_path / "parts", piece, string_width={"text": 6})
        path = tmp_path / "parts"
    with cs.open(path) as opened:
        yield opened, data


def test_frame_comes_back_equal(table):
    opened, data = table
    again = opened.frame(categories=True)
    pd.testing.assert_frame_equal(again, data, check_categorical=False)
    assert opened.columns == list(data.columns)
    assert opened.shape == data.shape


@pytest.mark.parametrize("key", [slice(None, None, -3), [5, -1, 5, 0], np.arange(200) % 3 == 1], ids=str)
def test_selected_rows_of_a_frame(table, key):
    opened, data = table
    want = data.iloc[key].reset_index(drop=True)
    pd.testing.assert_frame_equal(opened[key].frame(categories=True), want, check_categorical=False)


def test_nullable_columns_are_arrow_arrays_and_the_companion_is_readable(table):
    opened, data = table
    numbers = opened["number"].array()
    assert isinstance(numbers, pa.Array)
    assert numbers.type == pa.int16()
    assert opened.dtypes["number"] == pa.int16()
    assert numbers.null_count == data["number"].isna().sum()
    assert opened["text"].array().to_pylist() == [None if pd.isna(v) else v for v in data["text"]]
    np.testing.assert_array_equal(opened.array("number.valid"), data["number"].notna())
    assert "number.valid" not in opened.columns
    assert isinstance(opened["plain"].array(), np.ndarray)


def test_operators_and_reductions_of_nullable_columns_skip_nulls(table):
    opened, data = table
    doubled = opened["number"] + opened["number"]
    assert doubled.to_pylist() == [None if pd.isna(v) else 2 * v for v in data["number"]]
    assert (opened["number"] > 0).to_pylist() == [None if pd.isna(v) else bool(v > 0) for v in data["number"]]
    assert opened["number"].sum() == data["number"].sum()
    assert opened["number"].mean() == pytest.approx(data["number"].mean())
    assert opened["number"].max() == data["number"].max()
    assert opened["number"].std(ddof=1) == pytest.approx(data["number"].std())
    np.testing.assert_array_equal(
        opened["number"].isin([1, 2]), data["number"].isin([1, 2]).fillna(False).to_numpy(bool)
    )
    with pytest.raises(TypeError):
        opened["text"].mean()


def test_predicates_follow_na_logic_on_nullable_and_nan_logic_on_plain_columns(table):
    opened, data = table
    cases = {
        "number > 1": data["number"] > 1,
        "not number > 1": ~(data["number"] > 1),
        "number != 2": data["number"] != 2,
        "float != 0.5": data["float"] != 0.5,
        "not float > 0.5": ~(data["float"] > 0.5),
        "flag": data["flag"],
        "flag or number > 0": data["flag"] | (data["number"] > 0),
    }
    for text, mask in cases.items():
        want = np.flatnonzero(mask.fillna(False).to_numpy(bool))
        np.testing.assert_array_equal(opened.query(text)["plain"].array(), want, err_msg=text)
    np.testing.assert_array_equal(
        opened.where(col("number").isna())["plain"].array(), np.flatnonzero(data["number"].isna())
    )
    want = np.flatnonzero((data["text"] == "tail3é").fillna(False))
    np.testing.assert_array_equal(opened.query("text == 'tail3é'")["plain"].array(), want)


def test_forms_that_have_no_place_for_nulls_refuse_naming_the_column(table):
    opened, _ = table
    for attempt in (
        lambda: opened.recarray(),
        lambda: opened["number"].array(copy=False),
        lambda: opened.dict(copy=False),
        lambda: opened[["number"]].frame(copy=False),
        lambda: opened["number"].array(out=np.empty(200, "i2")),
    ):
        with pytest.raises(ValueError, match="number"):
            attempt()


def test_arrow_table_and_stream(table):
    opened, data = table
    arrow = opened.arrow()
    assert arrow.num_rows == len(data)
    assert arrow.schema.field("when").type == pa.timestamp("us", tz="Europe/Prague")
    assert arrow["number"].to_pylist() == [None if pd.isna(v) else v for v in data["number"]]
    without = [n for n in arrow.column_names if n != "float"]  # a NaN is not equal to itself
    assert pa.table(opened).select(without).equals(arrow.select(without))
    assert pa.table(opened[10:20]).column("plain").to_pylist() == list(range(10, 20))
    assert pa.chunked_array(opened["text"]).to_pylist() == arrow["text"].to_pylist()


def test_polars_reads_the_stream(table):
    polars = pytest.importorskip("polars")
    opened, data = table
    assert (
        polars.DataFrame(opened.select("plain", "number"))["number"].null_count()
        == data["number"].isna().sum()
    )


def test_rewriting_keeps_everything(table, tmp_path):
    opened, data = table
    cs.concat([opened], tmp_path / "joined.cstore").close()
    with cs.open(tmp_path / "joined.cstore") as joined:
        pd.testing.assert_frame_equal(joined.frame(categories=True), data, check_categorical=False)
    cs.compact(tmp_path / "joined.cstore")
    cs.store(opened.arrow(), tmp_path / "arrow.cstore").close()
    with cs.open(tmp_path / "arrow.cstore") as again:
        assert again["number"].array().equals(opened["number"].array())
        assert again["when"].dtype == opened["when"].dtype


def test_attributes_of_table_and_columns_come_back_typed(tmp_path):
    attrs = {"run": 7, "scale": np.float32(0.5), "names": ["a", "b"], "nothing": None, "bad": float("nan")}
    cs.store(
        {"x": np.arange(3.0)},
        tmp_path / "a.cstore",
        attrs=attrs,
        column_attrs={"x": {"units": "GeV", "fill": np.int16(-1)}},
    ).close()
    with cs.open(tmp_path / "a.cstore") as table:
        assert table.attrs["run"] == 7
        assert isinstance(table.attrs["scale"], np.float32)
        assert np.isnan(table.attrs["bad"])
        assert table["x"].attrs["units"] == "GeV"
        assert table["x"].attrs["fill"].dtype == np.int16
    with cs.update(tmp_path / "a.cstore") as writer:
        writer.write({"x": np.arange(2.0)})
    cs.compact(tmp_path / "a.cstore")
    with cs.open(tmp_path / "a.cstore") as table:
        assert table.n_rows == 5
        assert table.attrs["names"] == ["a", "b"]
        assert table["x"].attrs["units"] == "GeV"


def test_a_companion_that_only_some_files_have_is_no_mismatch(tmp_path):
    cs.store({"n": np.arange(4), "k": np.arange(4)}, tmp_path / "p_0.cstore").close()
    cs.store(
        pd.DataFrame({"n": pd.array([1, None, 3], "Int64"), "k": np.arange(3)}), tmp_path / "p_1.cstore"
    ).close()
    with cs.open(str(tmp_path / "p_*.cstore")) as table:
        want = [0, 1, 2, 3, 1, None, 3]
        assert table["n"].array().to_pylist() == want
        assert table[::-1, "n"].array().to_pylist() == want[::-1]
        assert table[np.arange(7) % 2 == 1, "n"].array().to_pylist() == want[1::2]
        np.testing.assert_array_equal(table.query("n >= 2")["k"].array(), [2, 3, 2])


def test_tables_and_views_can_be_stored_and_appended_as_they_are(table, tmp_path):
    opened, data = table
    cs.store(opened, tmp_path / "copy.cstore").close()
    cs.store(opened.query("plain % 2 == 0").select("plain", "number"), tmp_path / "half.cstore").close()
    with cs.open(tmp_path / "copy.cstore") as copied, cs.open(tmp_path / "half.cstore") as half:
        pd.testing.assert_frame_equal(copied.frame(categories=True), data, check_categorical=False)
        assert [f.validity for f in copied.schema] == [f.validity for f in opened.schema]
        assert half.shape == (100, 2)
        assert half["number"].array().equals(opened[::2, "number"].array())
    cs.append(tmp_path / "dir", opened[:30])
    cs.append(tmp_path / "dir", opened)
    with cs.open(tmp_path / "dir") as joined:
        assert joined.n_rows == 230
        assert joined["text"].array().to_pylist()[30:] == opened["text"].array().to_pylist()


def test_masks_with_nulls_select_what_is_true(table):
    opened, data = table
    want = np.flatnonzero((data["number"] > 0).fillna(False))
    for mask in (
        opened["number"] > 0,
        pa.chunked_array([opened["number"] > 0]),
        (data["number"] > 0).array,
        data["number"] > 0,
        pd.array((data["number"] > 0).array, dtype="boolean[pyarrow]"),
    ):
        np.testing.assert_array_equal(opened[mask, "plain"].array(), want)
