"""A table in xarray is NumPy arrays that are read when they are needed, whatever they are indexed with."""

from __future__ import annotations

import asyncio
import io
import pickle
import subprocess
import sys
import warnings

import dask
import fsspec
import numpy as np
import pyarrow as pa
import pytest
import xarray as xr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from servers import CountingFileSystem, new_store
from tables import LAYOUTS, WAYS, columns, open_way, write_files

import colstore_io as cs
from colstore_io.integrations.xarray import ColstoreBackendEntrypoint, ColumnArray

DATA = columns()
N = len(DATA["id"])

# Cutting a record costs nothing here, but xarray cannot know.
cuts_chunks = pytest.mark.filterwarnings("ignore:The specified chunks separate the stored chunks")


def opened(path, **options):
    return xr.open_dataset(path, engine="colstore", **options)


@pytest.fixture(scope="module", params=[(layout, way) for layout in LAYOUTS for way in WAYS], ids=": ".join)
def table(request, tmp_path_factory):
    layout, way = request.param
    with open_way(write_files(tmp_path_factory.mktemp("xarray"), DATA, LAYOUTS[layout]), way) as table:
        yield table


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    """One file of 10 records of 100 rows."""
    path = tmp_path_factory.mktemp("records") / "r.cstore"
    with cs.create(path, attrs={"title": "ten"}, column_attrs={"t": {"units": "m"}}) as writer:
        for r in range(10):
            writer.write({"t": np.arange(100 * r, 100 * r + 100), "x": np.linspace(r, r + 1, 100)})
    return path


def remote(path, name):
    fsspec.filesystem("memory").pipe_file(f"/{name}", path.read_bytes())
    return f"memory://{name}"


# ----------------------------------------------------------------------------------------------------------
# Laws


def test_every_column_is_a_variable_with_its_dtype(table):
    ds = opened(table)
    assert dict(ds.sizes) == {"row": N}
    assert list(ds.data_vars) == list(DATA)
    assert not ds.coords
    for name, values in DATA.items():
        assert ds[name].dtype == values.dtype
        np.testing.assert_array_equal(ds[name].values, values)
        assert ds[name].values.flags.writeable


index_arrays = st.lists(st.integers(-N, N - 1), max_size=30).map(lambda v: np.array(v, np.int64))
slices = st.builds(
    slice,
    st.none() | st.integers(-N, N + 5),  # xarray itself takes a start before the first row for the last one
    st.none() | st.integers(-N - 5, N + 5),
    st.none() | st.integers(-9, 9).filter(bool),
)
keys = st.one_of(
    st.integers(-N, N - 1),
    slices,
    index_arrays,
    st.lists(st.booleans(), min_size=N, max_size=N).map(np.array),
)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(first=keys, data=st.data())
def test_indexing_and_indexing_again_is_what_numpy_does(table, first, data):
    ds = opened(table)
    for name in ("x", "name", "flag"):
        lazy, want = ds[name].isel(row=first), DATA[name][first]
        np.testing.assert_array_equal(lazy.values, want)
        assert lazy.dtype == want.dtype
        if want.ndim and len(want):
            n = len(want)
            second = data.draw(
                st.one_of(
                    slices, st.lists(st.integers(-n, n - 1), max_size=9).map(lambda v: np.array(v, int))
                )
            )
            chained = ds[name].isel(row=first).isel(row=second)
            np.testing.assert_array_equal(chained.values, want[second])


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(rows=st.lists(st.integers(-N, N - 1), min_size=6, max_size=6).map(lambda v: np.array(v).reshape(2, 3)))
def test_pointwise_indexing_keeps_the_shape_of_the_indexer(table, rows):
    ds = opened(table)
    picked = ds.isel(row=xr.DataArray(rows, dims=("a", "b")))
    np.testing.assert_array_equal(picked.x.values, DATA["x"][rows])
    np.testing.assert_array_equal(picked.x.isel(a=1, b=[2, 0]).values, DATA["x"][rows][1, [2, 0]])
    np.testing.assert_array_equal(picked.x.transpose("b", "a").values, DATA["x"][rows].T)


def test_rows_out_of_range_are_refused(table):
    ds = opened(table)
    for bad in (N, -N - 1, [0, N]):
        with pytest.raises(IndexError):
            ds.x.isel(row=bad).load()


@cuts_chunks
def test_chunked_variables_are_the_same(table):
    ds = opened(table, chunks={"row": 13})
    with dask.config.set(scheduler="synchronous"):
        for name, values in DATA.items():
            np.testing.assert_array_equal(ds[name].values, values)
            np.testing.assert_array_equal(ds[name].isel(row=[90, 3, 3, 41]).values, values[[90, 3, 3, 41]])


def test_loading_asynchronously_is_the_same(table):
    ds = asyncio.run(opened(table).isel(row=[5, 3, 90]).load_async())
    for name, values in DATA.items():
        np.testing.assert_array_equal(ds[name].values, values[[5, 3, 90]])


def test_pickled_dataset_reads_the_same(table):
    ds = opened(table)
    again = pickle.loads(pickle.dumps(ds))
    xr.testing.assert_identical(again.load(), ds.load())


# ----------------------------------------------------------------------------------------------------------
# Laziness


def test_nothing_is_read_before_it_is_asked_for(records):
    with cs.open(remote(records, "lazy.cstore")) as table:
        before = table.io.as_dict()
        ds = opened(table, chunks=None)
        repr(ds)
        part = ds.isel(row=slice(10, 20))
        assert part.x.dtype == np.float64
        opened(table, chunks={})
        assert table.io.as_dict() == before
        part.x.load()
        assert table.io.requests == before["requests"] + 1
        assert table.io.bytes == before["bytes"] + 80
        part.x.load()
        assert table.io.bytes == before["bytes"] + 80


@cuts_chunks
def test_a_chunk_is_read_by_itself(records):
    with cs.open(remote(records, "chunk.cstore")) as table, dask.config.set(scheduler="synchronous"):
        ds = opened(table, chunks={"row": 100})
        before = table.io.bytes
        assert ds.t[730].values == 730
        assert table.io.bytes - before <= 800


def test_index_column_alone_is_read_at_open(records):
    url = remote(records, "index.cstore")
    with cs.open(url) as table:
        before = table.io.bytes
        ds = opened(table, index="t")
        assert table.io.bytes - before < 16_000
        assert "x" not in ds.indexes
        assert ds.sizes == {"t": 1000}
        assert ds.x.sel(t=500).values == np.linspace(5, 6, 100)[0]
        assert ds.sel(t=slice(10, 12)).sizes == {"t": 3}


# ----------------------------------------------------------------------------------------------------------
# Chunks


def test_preferred_chunks_are_segments_of_a_mebibyte_and_more(tmp_path):
    path = tmp_path / "m.cstore"
    with cs.create(path) as writer:
        for rows in (150_000, 150_000, 140_000):
            writer.write({"a": np.zeros(rows), "b": np.zeros(rows, "i2")})
    ds = opened(path, chunks={})
    assert ds.chunks == {"row": (150_000, 150_000, 140_000)}
    assert opened(path).a.encoding["preferred_chunks"] == {"row": (150_000, 150_000, 140_000)}
    with cs.create(tmp_path / "i.cstore") as writer:
        for rows in (150_000, 200_000, 180_000):
            writer.write({"a": np.zeros(rows)})
    irregular = opened(tmp_path / "i.cstore")
    assert irregular.a.encoding["preferred_chunks"] == {"row": (150_000, 200_000, 180_000)}
    assert opened(tmp_path / "i.cstore", chunks={}).chunks == {"row": (150_000, 200_000, 180_000)}


@pytest.mark.parametrize("chunks", [{}, "auto", {"row": 200_000}, {"row": "auto"}, 70_000])
def test_lengths_of_chunks_mean_the_same_as_one_number(tmp_path, monkeypatch, chunks):
    path = tmp_path / "m.cstore"
    with cs.create(path) as writer:
        for rows in (150_000, 150_000, 150_000, 140_000):
            writer.write({"a": np.zeros(rows), "b": np.zeros(rows, "i2")})

    def shown():
        with warnings.catch_warnings(record=True) as found, dask.config.set({"array.chunk-size": "3MiB"}):
            warnings.simplefilter("always")
            return opened(path, chunks=chunks).a.chunks, [str(w.message) for w in found]

    few = shown()
    monkeypatch.setattr("colstore_io.integrations._xarray_table.FEW_CHUNKS", 2)
    assert opened(path).a.encoding["preferred_chunks"] == {"row": 150_000}
    assert shown() == few


def test_small_segments_share_chunks_and_large_ones_are_cut(records, tmp_path):
    assert opened(records, chunks={}).chunks == {"row": (1000,)}
    path = tmp_path / "large.cstore"
    with cs.create(path) as writer:
        writer.write({"x": np.zeros(40_000_000)})  # 320 MB in one record, sparse on most file systems' caches
    chunks = opened(path, chunks={}).chunks["row"]
    assert len(chunks) == 3
    assert sum(chunks) == 40_000_000


def test_automatic_chunks_warn_about_nothing(records):
    with dask.config.set({"array.chunk-size": "64 KiB"}):
        ds = opened(records, chunks="auto")
    assert ds.chunks == {"row": (1000,)}


def test_table_without_rows(tmp_path):
    path = tmp_path / "empty.cstore"
    cs.store({name: values[:0] for name, values in DATA.items()}, path)
    for options in ({}, {"chunks": {}}):
        ds = opened(path, **options).load()
        assert ds.sizes["row"] == 0
        assert ds.name.dtype == DATA["name"].dtype


# ----------------------------------------------------------------------------------------------------------
# What may be opened


@pytest.mark.parametrize(
    "kind",
    ["str", "path", "list", "pattern", "directory", "bytes", "BytesIO", "open file", "fsspec file", "reader"],
)
def test_every_kind_of_source(tmp_path, kind):
    paths = write_files(tmp_path, DATA, LAYOUTS["uniform files"])
    one, some = DATA["id"][:33], DATA["id"]
    with fsspec.open(str(paths[0])) as file, cs.open(paths[0]) as reader:
        source, want = {
            "str": (str(paths[0]), one),
            "path": (paths[0], one),
            "list": (paths, some),
            "pattern": (str(tmp_path / "part_*.cstore"), some),
            "directory": (str(tmp_path), some),
            "bytes": (paths[0].read_bytes(), one),
            "BytesIO": (io.BytesIO(paths[0].read_bytes()), one),
            "open file": (fsspec.open(str(paths[0])), one),
            "fsspec file": (file, one),
            "reader": (reader, one),
        }[kind]
        np.testing.assert_array_equal(opened(source).id.values, want)


def test_local_files_are_guessed(tmp_path, records):
    other = tmp_path / "no_suffix"
    other.write_bytes(records.read_bytes())
    for source in (str(records), records, str(other), records.read_bytes(), str(records.parent)):
        with xr.open_dataset(source) as ds:
            assert ds.sizes == {"row": 1000}
    engine = ColstoreBackendEntrypoint()
    assert engine.guess_can_open("s3://bucket/x.cstore")
    for suffix in ("abcd", "colbin"):
        encoded = tmp_path / f"t.{suffix}"
        cs.store({"a": [1, 2]}, encoded).close()
        unnamed = tmp_path / f"{suffix}_without_suffix"
        unnamed.write_bytes(encoded.read_bytes())
        for source in (str(encoded), str(unnamed), unnamed.read_bytes()):
            with xr.open_dataset(source) as ds:
                assert ds.sizes == {"row": 2}
    assert not engine.guess_can_open("s3://bucket/x.nc")
    assert not engine.guess_can_open(str(tmp_path / "missing.nc"))
    assert not engine.guess_can_open(b"CDF\x01")
    assert not engine.guess_can_open(3)


def test_many_files_by_open_mfdataset(tmp_path):
    paths = write_files(tmp_path, DATA, LAYOUTS["uniform files"])
    ds = xr.open_mfdataset([str(p) for p in paths], engine="colstore", combine="nested", concat_dim="row")
    with dask.config.set(scheduler="synchronous"), ds:
        for name, values in DATA.items():
            np.testing.assert_array_equal(ds[name].values, values)


def test_changed_file_gives_new_data(tmp_path):
    path = tmp_path / "r.cstore"
    cs.store({"x": np.arange(5)}, path)
    old = opened(path)
    cs.store({"x": np.arange(5) * 2}, path, mode="recreate")
    assert opened(path).x.values.tolist() == [0, 2, 4, 6, 8]
    assert old.x.values.tolist() == [0, 1, 2, 3, 4]


def test_closed_dataset_releases_its_file_and_borrowed_tables_stay_open(records):
    ds = opened(str(records))
    loaded = ds.t[:3].load()
    ds.close()
    assert loaded.values.tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match="closed"):
        ds.x.load()
    with cs.open(records) as table:
        opened(table).close()
        assert table.array("t")[7] == 7


def test_options_reach_the_reader(tmp_path, records):
    ds = opened(records, mmap=False, backend="numpy")
    assert ds.t.values.tolist() == list(range(1000))
    with pytest.raises(ValueError, match="backend"):
        opened(records, backend="fortran")
    with pytest.raises(FileNotFoundError):
        opened(tmp_path / "missing.cstore")
    other = tmp_path / "bad.cstore"
    other.write_bytes(b"not a store")
    with pytest.raises(cs.FormatError):
        opened(other)


# ----------------------------------------------------------------------------------------------------------
# The data model


def test_columns_dimension_and_dropped_variables(records):
    assert list(opened(records, columns=["x"]).variables) == ["x"]
    assert list(opened(records, columns=["x", "t"]).variables) == ["x", "t"]
    assert list(opened(records, columns="x").variables) == ["x"]
    assert list(opened(records, drop_variables="x").variables) == ["t"]
    assert list(opened(records, columns=["x", "t"]).colstore.load().data_vars) == ["x", "t"]
    assert list(opened(records, drop_variables=["x", "nothing"]).variables) == ["t"]
    assert dict(opened(records, row_dim="obs").sizes) == {"obs": 1000}
    with pytest.raises(KeyError, match="did you mean"):
        opened(records, columns=["xx"])


def test_index_keeps_a_named_dimension(records):
    ds = opened(records, index="t", row_dim="obs")
    assert ds.x.dims == ("obs",)
    assert ds.sel(t=3).x.values == np.linspace(0, 1, 100)[3]
    with pytest.raises(KeyError):
        opened(records, index="nope")


def test_column_named_like_the_dimension_is_its_coordinate(tmp_path):
    path = tmp_path / "row.cstore"
    cs.store({"row": np.arange(10) * 2, "x": np.arange(10)}, path)
    with cs.open(remote(path, "row.cstore")) as table:
        before = table.io.bytes
        lazy = opened(table, create_default_indexes=False)
        assert table.io.bytes == before
        assert lazy.row.values.tolist() == list(range(0, 20, 2))
        assert opened(table).sel(row=6).x.values == 3
        assert opened(table, row_dim="obs").row.dims == ("obs",)


def test_attributes_come_back_with_their_types(tmp_path):
    path = tmp_path / "attrs.cstore"
    cs.store(
        {"x": np.arange(3.0)},
        path,
        attrs={"title": "t", "n": np.int16(4), "list": [1, 2]},
        column_attrs={"x": {"long_name": "ex", "valid_min": np.float32(0.5)}},
    )
    ds = opened(path)
    assert ds.attrs["title"] == "t"
    assert ds.attrs["n"].dtype == np.int16
    assert ds.x.attrs["valid_min"].dtype == np.float32
    assert ds.x.attrs["long_name"] == "ex"


def test_cf_attributes_are_decoded_unless_refused(tmp_path):
    path = tmp_path / "cf.cstore"
    cs.store(
        {"x": np.array([1, -99, 3], "i2"), "t": np.array([0, 1, 2])},
        path,
        column_attrs={
            "x": {"_FillValue": np.int16(-99), "scale_factor": 0.5},
            "t": {"units": "days since 2000-01-01"},
        },
    )
    ds = opened(path)
    np.testing.assert_array_equal(ds.x.values, [0.5, np.nan, 1.5])
    assert ds.t.values.astype("M8[D]").astype(str).tolist() == ["2000-01-01", "2000-01-02", "2000-01-03"]
    assert ds.x.encoding["preferred_chunks"] == {"row": (3,)}
    raw = opened(path, decode_cf=False)
    assert raw.x.values.tolist() == [1, -99, 3]
    assert raw.x.attrs["scale_factor"] == 0.5
    assert opened(path, decode_times=False).t.values.tolist() == [0, 1, 2]
    assert opened(path, mask_and_scale=False).x.values.tolist() == [1, -99, 3]


def test_times_are_native(tmp_path):
    path = tmp_path / "times.cstore"
    days = np.array(["2024-02-28", "NaT", "1969-12-31"], "M8[D]")
    data = {
        "D": days,
        "us": days.astype("M8[us]"),
        "ns": days.astype("M8[ns]"),
        "h": np.array([1, 2, -3], "m8[h]"),
    }
    cs.store(data, path)
    ds = opened(path)
    assert {n: v.dtype.str[1:] for n, v in ds.data_vars.items()} == {
        "D": "M8[s]",
        "us": "M8[us]",
        "ns": "M8[ns]",
        "h": "m8[s]",
    }
    for name, values in data.items():
        assert ds[name].values.dtype == ds[name].dtype
        np.testing.assert_array_equal(ds[name].values, values)


@pytest.fixture(scope="module")
def nullable(tmp_path_factory):
    path = tmp_path_factory.mktemp("nullable") / "n.cstore"
    cs.store(
        pa.table(
            {
                "i": pa.array([1, None, 3], pa.int64()),
                "small": pa.array([1, None, 3], pa.int8()),
                "b": pa.array([True, None, False]),
                "s": pa.array(["ä", None, ""]),
                "raw": pa.array([b"\xff", None, b""], pa.binary()),
                "d": pa.array([0, None, 1], pa.date32()),
                "t": pa.array([0, None, 1], pa.timestamp("us", tz="Europe/Berlin")),
            }
        ),
        path,
    )
    return path


def test_nulls_take_the_form_that_numpy_has(nullable):
    ds = opened(nullable).load()
    np.testing.assert_array_equal(ds.i.values, [1.0, np.nan, 3.0])
    assert ds.small.dtype == np.float32
    assert ds.b.values[[0, 2]].tolist() == [True, False]
    assert ds.s.values[[0, 2]].tolist() == ["ä", ""]
    assert ds.raw.values[[0, 2]].tolist() == [b"\xff", b""]
    assert all(ds[name].isnull().values.tolist() == [False, True, False] for name in ds.data_vars)
    assert ds.d.values.astype("M8[D]").astype(str).tolist() == ["1970-01-01", "NaT", "1970-01-02"]
    assert ds.t.encoding["timezone"] == "Europe/Berlin"


def test_masks_keep_values_exact_in_a_variable_of_their_own(nullable):
    ds = opened(nullable, mask="variable", columns=["i", "s"])
    assert list(ds.variables) == ["i", "i_mask", "s", "s_mask"]
    assert ds.i.dtype == np.int64
    assert ds.i_mask.values.tolist() == [False, True, False]
    assert ds.i.values[[0, 2]].tolist() == [1, 3]
    assert ds.s.dtype.kind == "U"
    assert ds.i.where(~ds.i_mask).isnull().values.tolist() == [False, True, False]
    with pytest.raises(ValueError, match="mask"):
        opened(nullable, mask="yes")


@cuts_chunks
def test_nullable_columns_can_be_indexed_and_chunked(nullable):
    for options in ({}, {"chunks": {"row": 1}}):
        ds = opened(nullable, **options)
        with dask.config.set(scheduler="synchronous"):
            np.testing.assert_array_equal(ds.i.isel(row=[2, 1]).values, [3.0, np.nan])
            assert ds.s.isel(row=0).values == "ä"


# ----------------------------------------------------------------------------------------------------------
# Dask names, the accessor, pickles, import


def test_open_tables_name_their_dask_arrays_by_version(records):
    url = remote(records, "token.cstore")
    with cs.open(url) as first, cs.open(url) as second:
        a, b = opened(first, chunks={}), opened(second, chunks={})
        assert a.x.data.name == b.x.data.name
    fsspec.filesystem("memory").pipe_file("/token.cstore", records.read_bytes())
    with cs.open(url) as third:
        assert opened(third, chunks={}).x.data.name != a.x.data.name


def test_no_data_are_hashed_for_dask(records, monkeypatch):
    def refuse(*_):
        raise AssertionError("data were read to name a dask array")

    monkeypatch.setattr(ColumnArray, "_read", refuse)
    opened(str(records), chunks={})


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(rows=keys.filter(lambda k: not isinstance(k, int)))
def test_take_reads_the_same_rows(table, rows):
    taken = opened(table).colstore.take(rows)
    for name, values in DATA.items():
        assert taken[name].variable._in_memory
        np.testing.assert_array_equal(taken[name].values, values[rows])


def test_accessor_reads_all_variables_in_one_pass(records):
    with cs.open(remote(records, "accessor.cstore")) as table:
        ds = opened(table).assign(extra=("row", np.arange(1000)))
        before = table.io.requests
        loaded = ds.isel(row=slice(500, 510)).colstore.load()
        assert table.io.requests - before == 1
        xr.testing.assert_identical(loaded, ds.isel(row=slice(500, 510)).load())
        assert loaded.t.encoding == ds.t.encoding
        assert list(opened(table).colstore.load("t", rows=[3, 1]).t.values) == [3, 1]


@cuts_chunks
def test_accessor_on_nulls_chunks_and_decoded_variables(nullable, records):
    ds = opened(nullable, mask="variable")
    xr.testing.assert_identical(ds.colstore.take([2, 0]), ds.isel(row=[2, 0]).load())
    with dask.config.set(scheduler="synchronous"):
        chunked = opened(records, chunks={"row": 300})
        xr.testing.assert_identical(chunked.colstore.take([700, 3]), chunked.isel(row=[700, 3]).compute())
        assert chunked.colstore.load().x.variable._in_memory
        assert chunked.chunks  # the dataset itself stays as it was


def test_pickles_are_small(records):
    ds = opened(records)
    assert len(pickle.dumps(ds)) < 4000


def test_remote_variables_are_read_in_one_round_by_load_async(tmp_path):
    name, store = new_store()
    n_columns, n_rows = 40, 40_000  # columns too far apart to be fetched as one range
    cs.store({f"c{i}": np.full(n_rows, i) for i in range(n_columns)}, tmp_path / "many.cstore")
    store.put("bucket/many.cstore", (tmp_path / "many.cstore").read_bytes())
    fs = CountingFileSystem(store=name, latency_seconds=0.01)
    ds = opened("bucket/many.cstore", filesystem=fs)
    for read in (lambda d: asyncio.run(d.load_async()), lambda d: d.colstore.load()):
        store.log.clear()
        store.most_in_flight = 0
        loaded = read(ds.isel(row=slice(5, 7)))
        assert all(loaded[f"c{i}"].values.tolist() == [i, i] for i in range(n_columns))
        assert store.count("range") == store.most_in_flight == n_columns
        assert store.count("info") == store.count("list") == 0
        assert store.bytes_asked() == n_columns * 16


def test_neighbouring_variables_are_one_request_under_load_async(records):
    with cs.open(remote(records, "async.cstore")) as table:
        ds = opened(table).isel(row=slice(500, 510))
        before = table.io.requests
        loaded = asyncio.run(ds.load_async())
        assert loaded.t.values.tolist() == list(range(500, 510))
        assert table.io.requests - before == 1


def test_failing_asynchronous_reads_raise_for_every_variable(records):
    ds = opened(remote(records, "vanishes.cstore"))
    fsspec.filesystem("memory").rm("/vanishes.cstore")
    with pytest.raises(cs.StaleDatasetError):
        asyncio.run(ds.load_async())

    async def both():
        return await asyncio.gather(ds.t.load_async(), ds.x.load_async(), return_exceptions=True)

    assert all(isinstance(result, cs.StaleDatasetError) for result in asyncio.run(both()))


def test_listing_engines_imports_no_heavy_library():
    code = (
        "import sys, xarray; before = set(sys.modules); engines = xarray.backends.list_engines();"
        "assert 'colstore' in engines, engines;"
        "new = {m.partition('.')[0] for m in set(sys.modules) - before};"
        "print(sorted(new & {'dask', 'pyarrow', 'numba', 's3fs', 'aiohttp', 'distributed'}))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
