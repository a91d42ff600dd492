"""Tables as references for fsspec's ``reference`` file system: equal to what our own engine opens."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from tables import LAYOUTS, columns, write_files
from zarr_views import FILES, about, assert_same, open_references, read_by_hand

import colstore_io as cs
from colstore_io.errors import ColumnNotFoundError, FormatError, StaleDatasetError, UnsupportedFeatureError
from colstore_io.formats.cstore.header import encode_header, encode_manifest
from colstore_io.formats.cstore.records import encode_record_header
from colstore_io.integrations.zarr import check_references, kerchunk_references, write_references

TEXT = ("name", "code")
"""Columns of `tables.columns` that are left out unless they are asked for."""


def ours(path: object, **options: object) -> xr.Dataset:
    return xr.open_dataset(path, engine="colstore", **options)


def table(folder: Path, name: str = "t.cstore", /, **data: object) -> Path:
    cs.store(data, folder / name)
    return folder / name


def foreign(path: Path, data: Mapping[str, np.ndarray]) -> None:
    """Write a file of one record with columns as no writer of ours stores them: big-endian ones, or none."""
    objects = [{"name": name, "dtype": values.dtype.str} for name, values in data.items()]
    n_rows = len(next(iter(data.values()), ()))
    body = b"".join(values.tobytes() for values in data.values())
    header = encode_header(encode_manifest(objects), 1, n_rows)
    path.write_bytes(header + encode_record_header(0, n_rows) + body.ljust(-(-len(body) // 8) * 8, b"\0"))


# ----------------------------------------------------------------------------------------------------------
# Equal to our own engine


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("chunk_rows", [None, 1])
def test_every_layout_opens_equal(tmp_path, layout, chunk_rows):
    paths = write_files(tmp_path, columns(), LAYOUTS[layout])
    spelled = [str(path) for path in paths]
    refs = kerchunk_references(spelled, text=True, chunk_rows=chunk_rows, smallest_chunk=1)
    view = open_references(json.loads(json.dumps(refs)))
    assert_same(view, ours(spelled))
    for name in view.variables:
        assert read_by_hand(refs, name).shape == (97,)


def test_view_is_lazy_and_opens_in_chunks(tmp_path):
    path = table(tmp_path, x=np.arange(1000.0), y=np.arange(1000, dtype="i2"))
    refs = kerchunk_references(path, chunk_rows=250)
    assert json.loads(refs["refs"]["x/.zarray"])["chunks"] == [250]
    view = xr.open_dataset(
        "reference://", engine="zarr", chunks={}, backend_kwargs={"storage_options": {"fo": refs}}
    )
    assert view.chunks == {"row": (250, 250, 250, 250)}
    assert float(view.x.sum()) == 499500.0


def test_default_chunks_are_4_to_16_mib_and_alike_for_all_columns(tmp_path):
    n = 3_000_001
    path = table(tmp_path, x=np.zeros(n), flag=np.zeros(n, bool), y=np.zeros(n, "i2"))
    refs = kerchunk_references(path)["refs"]
    (rows,) = {tuple(json.loads(refs[f"{name}/.zarray"])["chunks"]) for name in ("x", "flag", "y")}
    assert 4 << 20 <= rows[0] * 8 <= 16 << 20
    assert not any(isinstance(value, str) and value.startswith("base64:") for value in refs.values())


def test_single_record_is_cut_so_that_nothing_is_copied(tmp_path):
    path = table(tmp_path, x=np.arange(1_000_000.0))
    refs = kerchunk_references(path, chunk_bytes=1 << 20)
    chunks = json.loads(refs["refs"]["x/.zarray"])["chunks"][0]
    assert 1_000_000 % chunks == 0
    np.testing.assert_array_equal(read_by_hand(refs, "x"), np.arange(1_000_000.0))


def test_last_chunk_at_the_end_of_the_file_is_copied_in_full(tmp_path):
    path = table(tmp_path, x=np.arange(10.0), y=np.arange(10.0) * 2)
    refs = kerchunk_references(path, chunk_rows=3)
    assert isinstance(refs["refs"]["x/3"], list)  # what is read too much is the next column
    assert refs["refs"]["y/3"].startswith("base64:")
    assert_same(open_references(refs), ours(path))


def test_copies_have_a_limit(tmp_path):
    path = table(tmp_path, x=np.arange(10.0))
    with pytest.warns(UserWarning, match="x: its last chunk of 3 rows would end behind the end of the file"):
        refs = kerchunk_references(path, chunk_rows=3, inline_bytes=8)
    assert "x/.zarray" not in refs["refs"]
    with pytest.raises(ValueError, match="column 'x' cannot be shown"):
        kerchunk_references(path, chunk_rows=3, inline_bytes=8, columns="x")
    refs = kerchunk_references(path, inline_bytes=0)
    assert_same(open_references(refs), ours(path))


def test_times_are_integers_with_cf_attributes(tmp_path):
    times = np.array(["2001-01-01", "NaT", "1970-01-01", "2200-05-05"], "M8[D]")
    data = {unit: times.astype(f"M8[{unit}]") for unit in ("D", "h", "m", "s", "ms", "us", "ns")}
    data |= {
        f"took_{unit}": np.array([1, -5, "NaT", 0], f"m8[{unit}]") for unit in ("h", "s", "ms", "us", "ns")
    }
    path = table(tmp_path, **data)
    refs = kerchunk_references(path)
    assert json.loads(refs["refs"]["us/.zattrs"])["units"] == "microseconds since 1970-01-01"
    assert json.loads(refs["refs"]["us/.zarray"])["dtype"] == "<i8"
    assert_same(open_references(refs), ours(path))


@pytest.mark.parametrize("dtype", ["M8[W]", "M8[M]", "M8[25s]", "m8[ps]"])
def test_times_without_a_unit_in_cf_are_refused_by_name(tmp_path, dtype):
    path = table(tmp_path, t=np.array([1, 2], dtype), x=[1, 2])
    with pytest.warns(UserWarning, match=r"t: CF has no unit for .*engine='colstore'"):
        refs = kerchunk_references(path)
    assert list(open_references(refs)) == ["x"]
    with pytest.raises(ValueError, match="column 't' cannot be shown as a Zarr array"):
        kerchunk_references(path, columns=["t"])


def test_attributes_and_cf_encoding_come_along(tmp_path):
    attrs = {
        "packed": {"scale_factor": 0.5, "add_offset": 10.0, "_FillValue": np.int16(-1), "long_name": "é"},
        "masked": {"_FillValue": np.float32(1e20)},
        "gap": {"_FillValue": np.nan, "valid_range": np.array([0.0, 1.0])},
        "days": {"units": "days since 2000-01-01"},
    }
    data = {
        "packed": np.array([0, -1, 5], "i2"),
        "masked": np.array([1, 1e20, 2], "f4"),
        "gap": np.array([1, np.nan, 2]),
        "days": np.array([0, 1, 400]),
    }
    cs.store(data, tmp_path / "t.cstore", attrs={"title": "made up", "levels": [1, 2]}, column_attrs=attrs)
    refs = kerchunk_references(tmp_path / "t.cstore")
    assert json.loads(refs["refs"]["packed/.zarray"])["fill_value"] == -1
    view = open_references(refs)
    assert view.packed.encoding["_FillValue"] == -1
    assert_same(view, ours(tmp_path / "t.cstore"))


def test_attributes_that_json_cannot_hold_are_named(tmp_path):
    attrs = {"x": {"raw": np.bytes_(b"\xff"), "since": np.datetime64("2001-01-01"), "fine": 1}}
    cs.store({"x": [1, 2]}, tmp_path / "t.cstore", column_attrs=attrs)
    with pytest.warns(UserWarning, match=r"x@raw: .*x@since: "):
        refs = kerchunk_references(tmp_path / "t.cstore")
    assert open_references(refs).x.attrs == {"fine": 1}
    assert set(about(refs)["skipped"]) == {"x@raw", "x@since"}


def test_big_endian_columns_of_foreign_files(tmp_path):
    foreign(tmp_path / "t.cstore", {"x": np.arange(10).astype(">f8"), "n": np.arange(10).astype(">i4")})
    refs = kerchunk_references(tmp_path / "t.cstore", chunk_rows=3)
    assert json.loads(refs["refs"]["x/.zarray"])["dtype"] == ">f8"
    assert refs["refs"]["n/3"].startswith("base64:")
    assert_same(open_references(refs), ours(tmp_path / "t.cstore"))


def test_text_is_left_out_unless_asked_for(tmp_path):
    data = {"name": np.array(["a", "bcd"]), "code": np.array([b"xy", b""]), "one": np.array([b"a", b"b"])}
    path = table(tmp_path, **data)
    with pytest.warns(UserWarning, match="name: it is text of fixed width.*one: xarray would join"):
        assert not set(open_references(kerchunk_references(path)))
    with pytest.warns(UserWarning, match="one: xarray would join"):
        assert set(open_references(kerchunk_references(path, text=True))) == {"name", "code"}
    view = open_references(kerchunk_references(path, columns=["code", "name"]))
    assert_same(view, ours(path, columns=["code", "name"]))


def test_columns_come_in_the_order_asked_for_and_once(tmp_path):
    path = table(tmp_path, a=[1], b=[2], c=[3])
    refs = kerchunk_references(path, columns=["c", "a", "c"], row_dim="obs")
    assert [key[0] for key in refs["refs"] if key.endswith(".zarray")] == ["c", "a"]
    assert open_references(refs).sizes == {"obs": 1}


def test_open_readers_and_datasets_are_taken(tmp_path):
    paths = write_files(tmp_path, {"x": np.arange(20)}, [[10], [10]])
    with cs.open(paths[0]) as one, cs.open(str(tmp_path / "*.cstore")) as two:
        assert_same(open_references(kerchunk_references(one)), ours(paths[0]))
        assert_same(open_references(kerchunk_references(two)), ours(str(tmp_path / "*.cstore")))
    assert_same(open_references(kerchunk_references(tmp_path)), ours(tmp_path))


def test_years_beyond_nanoseconds_need_a_coarser_unit(tmp_path):
    path = table(tmp_path, t=np.array(["1000-01-01", "2999-12-31"], "M8[s]"))
    refs = kerchunk_references(path)
    view = xr.open_dataset(
        "reference://",
        engine="zarr",
        decode_times=xr.coders.CFDatetimeCoder(time_unit="s"),
        backend_kwargs={"storage_options": {"fo": refs}},
    )
    assert view.t.dtype == ours(path).t.dtype == "M8[s]"
    assert_same(view, ours(path))


def test_many_columns_with_a_short_last_record_are_hardly_copied(tmp_path):
    data = {f"c{k}": np.arange(60_007.0) for k in range(12)}
    (path,) = write_files(tmp_path, data, [[20_000] * 3 + [7]])
    refs = kerchunk_references(path, chunk_bytes=160_000)
    assert sum(len(value) for value in refs["refs"].values() if isinstance(value, str)) < 2_000_000
    np.testing.assert_array_equal(read_by_hand(refs, "c11"), data["c11"])


# ----------------------------------------------------------------------------------------------------------
# Laws

numbers = hnp.boolean_dtypes() | st.sampled_from(
    ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8"]
).map(np.dtype)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    dtypes=st.lists(numbers, min_size=1, max_size=4),
    records=st.lists(st.integers(0, 40), min_size=1, max_size=5),
    chunk_rows=st.none() | st.integers(1, 50),
    chunk_bytes=st.integers(1, 200),
    smallest_chunk=st.sampled_from([1, 5]),
)
def test_references_name_all_bytes_of_a_table_or_are_refused(
    tmp_path_factory, dtypes, records, chunk_rows, chunk_bytes, smallest_chunk
):
    rng = np.random.default_rng(7)
    data = {
        f"c{k}": np.frombuffer(rng.bytes(sum(records) * dtype.itemsize), dtype if dtype.kind != "b" else "u1")
        for k, dtype in enumerate(dtypes)
    }
    (path,) = write_files(tmp_path_factory.mktemp("t"), data, [records])
    options = {"chunk_bytes": chunk_bytes, "chunk_rows": chunk_rows, "smallest_chunk": smallest_chunk}
    filled = [n for n in records if n]
    starts = np.cumsum(filled)[:-1]
    step = int(np.gcd.reduce(starts)) if len(starts) else 0
    uniform = len({*filled[:-1]}) < 2
    refused = None
    if chunk_rows is not None and step % min(chunk_rows, max(sum(records), 1)):
        refused = "multiples"
    elif chunk_rows is None and not uniform and step < smallest_chunk:
        refused = "in common"
    if refused:
        with pytest.raises(ValueError, match=refused):
            kerchunk_references(path, **options)
        return
    refs = kerchunk_references(path, **options)
    for name, values in data.items():
        assert read_by_hand(refs, name).tobytes() == values.tobytes()


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(records=st.lists(st.integers(1, 30), min_size=1, max_size=3), chunk_bytes=st.integers(1, 300))
def test_zarr_reads_what_we_read(tmp_path_factory, records, chunk_bytes):
    (path,) = write_files(tmp_path_factory.mktemp("t"), columns(sum(records)), [records])
    refs = kerchunk_references(path, chunk_bytes=chunk_bytes, smallest_chunk=1, text=True)
    assert_same(open_references(refs), ours(path))


def test_golden_files_open_equal(shared):
    """Files of other writers: big-endian, older layouts, torn tails, statistics, irregular records."""
    folder = shared / "vectors" / "cstore"
    paths = sorted([*folder.glob("*.cstore"), *folder.glob("legacy/*.cstore")])
    tried = 0
    for path in paths:
        try:
            expected = ours(path)
        except (FormatError, UnsupportedFeatureError):
            continue
        for chunk_bytes in (64, 8 << 20):
            refs = kerchunk_references(
                path, text=True, smallest_chunk=1, chunk_bytes=chunk_bytes, on_skipped="ignore"
            )
            view = open_references(refs)
            assert_same(view, expected[list(view.variables)])
        tried += 1
    assert tried > 20


# ----------------------------------------------------------------------------------------------------------
# Nothing there


def test_empty_tables(tmp_path):
    none = table(tmp_path, "none.cstore", x=np.zeros(0), when=np.zeros(0, "M8[us]"))
    assert_same(open_references(kerchunk_references(none)), ours(none))
    assert_same(open_references(kerchunk_references(none, chunk_rows=5)), ours(none))
    foreign(tmp_path / "bare.cstore", {})
    assert_same(
        open_references(kerchunk_references(tmp_path / "bare.cstore")), ours(tmp_path / "bare.cstore")
    )
    assert_same(open_references(kerchunk_references(none, columns=[])), ours(none, columns=[]))
    open(tmp_path / "zero.cstore", "wb").close()
    with pytest.raises(FormatError, match="is empty"):
        kerchunk_references(tmp_path / "zero.cstore")


# ----------------------------------------------------------------------------------------------------------
# Bad input


def test_bad_chunk_rows(tmp_path):
    path = table(tmp_path, x=np.arange(10.0))
    for bad in (0, -1):
        with pytest.raises(ValueError, match="chunk_rows must be at least 1"):
            kerchunk_references(path, chunk_rows=bad)
        with pytest.raises(ValueError, match="chunk_bytes must be at least 1"):
            kerchunk_references(path, chunk_bytes=bad)
    with pytest.raises(TypeError, match="whole number"):
        kerchunk_references(path, chunk_rows=2.5)
    refs = kerchunk_references(path, chunk_rows=10**12)
    assert json.loads(refs["refs"]["x/.zarray"])["chunks"] == [10]
    assert_same(open_references(refs), ours(path))


def test_records_that_chunk_rows_would_join_are_named(tmp_path):
    (path,) = write_files(tmp_path, {"x": np.arange(40)}, [[12, 12, 12, 4]])
    with pytest.raises(ValueError, match="records begin at multiples of 12 rows, so it must divide 12"):
        kerchunk_references(path, chunk_rows=5)
    assert_same(open_references(kerchunk_references(path, chunk_rows=4)), ours(path))


def test_records_with_nothing_in_common_are_refused_with_a_remedy(tmp_path):
    (path,) = write_files(tmp_path, {"x": np.arange(30)}, [[7, 11, 12]])
    with pytest.raises(ValueError, match=r"only 1 in common.*equal length.*engine='colstore'"):
        kerchunk_references(path)
    assert_same(open_references(kerchunk_references(path, chunk_rows=1)), ours(path))


def test_nullable_columns_are_named(tmp_path):
    import pandas as pd

    frame = pd.DataFrame({"n": pd.array([1, None], "Int64"), "x": [1.0, 2.0]})
    cs.store(frame, tmp_path / "t.cstore")
    with pytest.warns(UserWarning, match="n: it is nullable or of variable length.*engine='colstore'"):
        refs = kerchunk_references(tmp_path / "t.cstore")
    assert list(open_references(refs)) == ["x"]
    assert list(about(refs)["skipped"]) == ["n"]
    with pytest.raises(ValueError, match="left out: n: "):
        kerchunk_references(tmp_path / "t.cstore", on_skipped="raise")
    kerchunk_references(tmp_path / "t.cstore", on_skipped="ignore")
    with pytest.raises(ValueError, match="column 'n' cannot be shown"):
        kerchunk_references(tmp_path / "t.cstore", columns=["x", "n"])


def test_encoded_files_are_refused(tmp_path):
    cs.store({"x": [1, 2, 3]}, tmp_path / "t.abcd")
    with pytest.raises(UnsupportedFeatureError, match=r"encoded columns.*engine='colstore'"):
        kerchunk_references(tmp_path / "t.abcd")


def test_names_that_zarr_reserves_are_left_out(tmp_path):
    cs.store(
        {"a/b": [1], ".": [2], "__x": [3], "zarr.json": [4], "c": [5], "é #?%20": [6]}, tmp_path / "t.cstore"
    )
    with pytest.warns(UserWarning, match="a/b: Zarr reserves"):
        refs = kerchunk_references(tmp_path / "t.cstore")
    assert list(open_references(refs)) == ["c", "é #?%20"]


def test_long_lists_of_what_was_left_out_are_shortened(tmp_path):
    path = table(tmp_path, **{f"t{k}": np.array(["a"]) for k in range(100)})
    with pytest.warns(UserWarning, match="t19: .*; and 80 more$"):
        refs = kerchunk_references(path)
    assert len(about(refs)["skipped"]) == 100


def test_unknown_columns_and_options(tmp_path):
    path = table(tmp_path, energy=[1.0])
    with pytest.raises(ColumnNotFoundError, match="did you mean 'energy'"):
        kerchunk_references(path, columns=["enrgy"])
    with pytest.raises(TypeError, match="names of columns must be str"):
        kerchunk_references(path, columns=[1])
    with pytest.raises(ValueError, match="on_skipped"):
        kerchunk_references(path, on_skipped="shout")
    with pytest.raises(ValueError, match="group= is for grid containers"):
        kerchunk_references(path, group="a")
    with pytest.raises(FileNotFoundError):
        kerchunk_references(tmp_path / "no.cstore")


def test_contents_without_an_address_are_refused(tmp_path):
    path = table(tmp_path, x=[1.0])
    with pytest.raises(ValueError, match="need files with an address"):
        kerchunk_references(path.read_bytes())
    with pytest.raises(ValueError, match="not chains"):
        kerchunk_references(f"simplecache::file://{path}")


def test_truncated_file_is_refused(tmp_path):
    path = table(tmp_path, x=np.arange(1000.0))
    os.truncate(path, 4000)
    with pytest.raises(FormatError):
        kerchunk_references(path)


@pytest.mark.parametrize("name", ["a b", "a#b", "a?b", "a%20b", "a[1]*", "ä", "a;b", "a{{b}}", "base64:x"])
def test_odd_characters_in_paths(tmp_path, name):
    path = table(tmp_path, f"{name}.cstore", x=np.arange(5.0))
    assert_same(open_references(kerchunk_references(path)), ours(path))


def test_relative_paths_are_written_as_absolute_ones(tmp_path, monkeypatch):
    table(tmp_path, x=np.arange(5.0))
    monkeypatch.chdir(tmp_path)
    refs = kerchunk_references("t.cstore")
    monkeypatch.chdir("/")
    assert open_references(refs).x.values.tolist() == [0, 1, 2, 3, 4]


# ----------------------------------------------------------------------------------------------------------
# Files that change, and files of references


def test_references_in_a_file(tmp_path):
    path = table(tmp_path, x=np.arange(5.0))
    write_references(path, tmp_path / "refs.json", chunk_rows=2)
    assert_same(open_references(str(tmp_path / "refs.json")), ours(path))
    check_references(tmp_path / "refs.json")
    write_references(path, "memory://zarr-views/refs.json")
    assert_same(open_references("memory://zarr-views/refs.json"), ours(path))
    check_references("memory://zarr-views/refs.json")


def test_replaced_appended_and_missing_files_are_noticed_when_asked(tmp_path):
    path = table(tmp_path, x=np.arange(5.0))
    refs = kerchunk_references(path)
    ((url, size, token),) = about(refs)["files"]
    assert (url, size) == (str(path), path.stat().st_size)
    assert token
    check_references(refs)
    with cs.update(path) as writer:
        writer.write({"x": np.arange(5.0)})
    with pytest.raises(StaleDatasetError, match=r"t.cstore has changed since the references were made"):
        check_references(refs)
    assert open_references(refs).x.values.tolist() == [0, 1, 2, 3, 4]  # rows stay where they are
    cs.store({"x": np.arange(5.0) + 1}, path, mode="recreate")
    with pytest.raises(StaleDatasetError):
        check_references(refs)
    path.unlink()
    with pytest.raises(FileNotFoundError):
        check_references(refs)


@pytest.mark.parametrize(
    "bad",
    [{}, {"refs": {}}, {"refs": {".zattrs": "{"}}, {"refs": {".zattrs": json.dumps({FILES: "[1]"})}},
     {"refs": {".zattrs": json.dumps({FILES: json.dumps({"files": [["a"]]})})}},
     {"refs": {".zattrs": json.dumps({FILES: json.dumps({"files": [["a", "b", 3]]})})}}],
)  # fmt: skip
def test_foreign_references_are_told_apart(bad, tmp_path):
    with pytest.raises(ValueError, match="do not say which files"):
        check_references(bad)
    (tmp_path / "bad.json").write_text(json.dumps(bad))
    with pytest.raises(ValueError, match="do not say which files"):
        check_references(tmp_path / "bad.json")


def test_references_that_are_not_there(tmp_path):
    with pytest.raises(FileNotFoundError):
        check_references(tmp_path / "none.json")
    with pytest.raises(IsADirectoryError):
        check_references(tmp_path)
    (tmp_path / "deep.json").write_text("[" * 100_000)
    with pytest.raises(ValueError, match="do not say which files"):
        check_references(tmp_path / "deep.json")


def test_references_need_no_library_of_zarr(tmp_path):
    path = table(tmp_path, x=np.arange(5.0))
    code = (
        "import sys\n"
        "from colstore_io.integrations.zarr import ColstoreParser, kerchunk_references\n"
        f"assert kerchunk_references({str(path)!r})['refs']['x/0']\n"
        "ColstoreParser(chunk_rows=5)\n"
        "heavy = {'zarr', 'kerchunk', 'virtualizarr', 'xarray', 'obstore', 'pandas'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ})


def test_references_never_replace_data(tmp_path):
    path = tmp_path / "t.cstore"
    cs.store({"a": np.arange(4)}, path)
    other = tmp_path / "t.dat"
    other.write_bytes(path.read_bytes())
    for source, target in (
        (path, path),
        (path, tmp_path / "u.cstore"),
        (other, other),
        (path, tmp_path / "_colstore-00000001.json"),
    ):
        with pytest.raises(ValueError, match=r"data file|point to"):
            write_references(source, target)
    with pytest.raises(IsADirectoryError):
        write_references(path, tmp_path)
    assert sorted(x.name for x in tmp_path.iterdir()) == ["t.cstore", "t.dat"]
    assert cs.open(path)["a"].array().tolist() == [0, 1, 2, 3]
