"""Encoded files are tables in Dask as any other: the rows, types and filters of pandas, read where they are needed."""

from __future__ import annotations

import pickle
from collections import Counter
from typing import Annotated

import dask
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from dask.dataframe.dask_expr._expr import Filter
from encoded import ENCODED, SUFFIXES, as_pandas, random_table, write, write_files

import colstore_io as cs
from colstore_io import col, colbin, config
from colstore_io.formats.columns.decoder import ColumnsDecoder
from colstore_io.integrations.dask import read_colstore, read_colstore_array
from colstore_io.storage import LocalFile
from colstore_io.writing.messagelog import LogWriter


@colbin.record
class Row:
    n: Annotated[colbin.i64, 1]
    s: Annotated[str, 2]


CODEC = colbin.Codec(Row)


@pytest.fixture(autouse=True)
def _synchronous():
    with dask.config.set(scheduler="synchronous"):
        yield


@pytest.fixture(scope="module", params=SUFFIXES)
def suffix(request):
    return request.param


@pytest.fixture(scope="module", params=range(2))
def data(request, suffix, tmp_path_factory):
    """A pattern of files and the frame that they hold."""
    folder = tmp_path_factory.mktemp("encoded")
    counts = ([70, 0, 31], [100])[request.param]
    counts = [count for count in counts if count or suffix == ".cstore"]
    table = write_files(folder, suffix, request.param, counts, 25)
    path = str(folder / f"*{suffix}")
    return path, as_pandas(table, path)


def block_of(path):
    """Bytes that make some partitions of about 25 rows: text of fixed width takes most."""
    return 20_000 if path.endswith(".cstore") else 1500


def values_of(column):
    return [value if isinstance(value, str) else None for value in column]


def equal(found, wanted):
    pd.testing.assert_frame_equal(found, wanted, check_index_type=False)


def test_all_rows_and_types_are_those_of_pandas(data):
    path, frame = data
    df = read_colstore(path, blocksize=block_of(path))
    assert df.divisions == (*sorted({*df.divisions[:-1]}), len(frame) - 1)
    assert df._meta.dtypes.to_dict() == frame.dtypes.to_dict()
    equal(df.compute(), frame)
    for part in df.partitions:
        assert part.compute().dtypes.to_dict() == frame.dtypes.to_dict()


@pytest.mark.parametrize("columns", [["text"], ["note", "n"], ["raw", "sure", "f"], "note"], ids=str)
def test_a_projection_is_read_alone(data, columns):
    path, frame = data
    found = read_colstore(path, columns=columns, blocksize=block_of(path)).compute()
    if isinstance(columns, str):
        pd.testing.assert_series_equal(found, frame[columns], check_index_type=False)
    else:
        equal(found, frame[columns])
        equal(read_colstore(path, blocksize=block_of(path))[columns].compute(), frame[columns])


CONDITIONS = [
    lambda d: d.text == "bb",
    lambda d: d.text != "bb",
    lambda d: d.text >= "b",
    lambda d: d.note == "a",
    lambda d: d.note != "a",
    lambda d: ~(d.note == "a"),
    lambda d: d.note.isin(["a", "ñandú", "not there"]),
    lambda d: d.text.between("a", "n"),
    lambda d: d.note.isna(),
    lambda d: d.note.notnull() & (d.n < 50),
    lambda d: (d.text == "zebra") | (d.maybe > 2),
    lambda d: d.text == "not there",
    lambda d: d.maybe != 3,
    lambda d: d.f != 0.0,
    lambda d: d.sure & (d.x > 0),
    lambda d: (d.n >= 30) & (d.n < 60),
]


@pytest.mark.parametrize("number", range(len(CONDITIONS)))
def test_conditions_move_into_the_reader_and_keep_the_rows_of_pandas(data, number):
    path, frame = data
    condition = CONDITIONS[number]
    df = read_colstore(path, blocksize=block_of(path))
    filtered = df[condition(df)][["n", "note", "raw"]]
    assert not list(filtered.optimize(fuse=False).expr.find_operations(Filter))
    wanted = frame[condition(frame).fillna(False).astype(bool)][["n", "note", "raw"]]
    equal(filtered.compute(), wanted)
    if number % 4 == 0:  # what Dask's public function gives
        with dask.config.set({"colstore-io.dask-expression": False}):
            plain = read_colstore(path, blocksize=block_of(path))
            equal(plain[condition(plain)][["n", "note", "raw"]].compute(), wanted)


@pytest.mark.parametrize("string", [True, False])
def test_text_has_the_dtype_that_dask_is_set_to(data, string):
    path, frame = data
    with dask.config.set({"dataframe.convert-string": string}):
        df = read_colstore(path)
        kind = pd.StringDtype("pyarrow") if string else pd.StringDtype("pyarrow", na_value=np.nan)
        assert df.dtypes["text"] == df.dtypes["note"] == kind
        found = df[df.note != "a"].compute()
    wanted = frame[["n"]].assign(note=frame.note.astype(kind))
    kept = (wanted.note != "a").fillna(False).astype(bool)
    assert found.n.tolist() == wanted.n[kept].tolist()


@pytest.mark.parametrize("backend", ["pyarrow", "numpy_nullable"])
def test_dtype_backends_are_those_of_pandas(data, backend):
    path, frame = data
    df = read_colstore(path, dtype_backend=backend, blocksize=block_of(path))
    found = df.compute()
    assert df.dtypes.to_dict() == found.dtypes.to_dict()
    if backend == "pyarrow":
        assert all(isinstance(dtype, pd.ArrowDtype) for dtype in found.dtypes)
    assert found.note.isna().tolist() == frame.note.isna().tolist()
    wanted = frame[frame.text == "a"].n.tolist()
    assert df[df.text == "a"].compute().n.tolist() == wanted


@pytest.mark.parametrize("how", ["sum", "mean", "min", "max", "count"])
def test_reductions_are_computed_where_columns_are_read(data, how):
    path, frame = data
    df = read_colstore(path, blocksize=block_of(path))
    names = ["n", "x", "f", "maybe"]
    pd.testing.assert_series_equal(
        getattr(df[names], how)().compute(), getattr(frame[names], how)(), rtol=1e-6, check_dtype=False
    )
    assert getattr(df.n, how)().compute() == pytest.approx(getattr(frame.n, how)())
    if how == "count":
        assert df.note.count().compute() == frame.note.count()
        assert df[df.n > 20].raw.count().compute() == frame[frame.n > 20].raw.count()
    if how in ("min", "max"):
        assert getattr(df.text, how)().compute() == getattr(frame.text, how)()


@pytest.mark.parametrize("ending", [".colbin", ".abcd"])
def test_counts_are_those_that_files_have_of_their_nulls(tmp_path, monkeypatch, ending):
    from colstore_io.integrations import _dask_reduce

    frame = pd.DataFrame(
        {
            "i": pd.array([None if n % 7 == 0 else n for n in range(300)], dtype="Int64"),
            "s": pd.array([None if n % 5 == 0 else str(n) for n in range(300)], dtype="string"),
            "n": np.arange(300),
            "x": [np.nan if n % 3 == 0 else n / 2 for n in range(300)],
        }
    )
    for part in range(3):
        cs.store(frame.iloc[100 * part : 100 * part + 100], tmp_path / f"{part}{ending}")
    df = read_colstore(str(tmp_path / f"*{ending}"), aggregate_files=False)
    assert df.x.count().compute() == frame.x.count()  # NaN is no value either: the column is read
    with monkeypatch.context() as patch:
        patch.setattr(_dask_reduce, "read_fields", None)
        pd.testing.assert_series_equal(df[["i", "s", "n"]].count().compute(), frame[["i", "s", "n"]].count())
        assert df.s.count().compute() == 240
        assert df.partitions[1].i.count().compute() == frame.i[100:200].count()
    assert df[df.n > 10].s.count().compute() == frame[frame.n > 10].s.count()


def test_categories_are_those_of_the_values(data):
    path, frame = data
    df = read_colstore(path, categories=["text", "note"], blocksize=block_of(path))
    assert not df.text.cat.known
    found = df.compute()
    assert isinstance(found.dtypes["note"], pd.CategoricalDtype)
    assert found.text.astype(str).tolist() == frame.text.tolist()
    assert found.note.isna().tolist() == frame.note.isna().tolist()
    counts = df.groupby("text", observed=True).n.count().compute()
    assert {str(k): v for k, v in counts.items()} == dict(Counter(frame.text))


def test_lengths_heads_and_arrays(data):
    path, frame = data
    df = read_colstore(path, blocksize=block_of(path))
    assert len(df) == len(frame)
    equal(df.head(5, npartitions=-1), frame.head(5))
    text = read_colstore_array(path, "note", blocksize=block_of(path)).compute()
    assert values_of(text) == values_of(frame.note)


def test_grouping_and_joining_agree_with_pandas(data):
    path, frame = data
    df = read_colstore(path, blocksize=block_of(path))
    found = df.groupby("text").n.sum().compute().sort_index()
    pd.testing.assert_series_equal(found, frame.groupby("text").n.sum().sort_index(), check_names=False)
    joined = df[["n", "text"]].merge(df[df.flag][["n", "note"]], on="n").compute()
    assert len(joined) == int(frame.flag.sum())


# -- partitions and statistics

ROWS = 24000


@pytest.fixture(scope="module", params=ENCODED)
def segments(request, tmp_path_factory):
    """One file of several segments, whose `n` counts and whose `text` ascends."""
    path = tmp_path_factory.mktemp("segments") / f"s{request.param}"
    n = ROWS
    table = {
        "n": np.arange(n),
        "text": [f"k{i:07d}" + "x" * 200 for i in range(n)],
        "other": np.arange(n)[::-1].copy(),
    }
    cs.store(table, path, row_group_size=1000).close()
    return path


def test_partitions_are_runs_of_whole_segments(segments):
    with cs.open(segments) as ds:
        starts = ds.source.plan.segments.row_start.tolist()
        per_row = ds.source.plan.row_bytes(["n", "text"])
    assert len(starts) > 4
    df = read_colstore(segments, columns=["n", "text"], blocksize=2500 * per_row, split_records=True)
    assert set(df.divisions[:-1]) <= set(starts)
    assert 1 < df.npartitions < len(starts)
    small = read_colstore(segments, columns=["n"], blocksize=2500 * per_row)
    assert small.npartitions < df.npartitions  # bytes of the columns asked for, decoded
    assert read_colstore(segments, blocksize=None).npartitions == len(starts) - 1


def test_divisions_of_an_index_follow_from_statistics(segments):
    df = read_colstore(segments, index="n", blocksize="2MiB")
    assert df.known_divisions
    assert df.divisions[0] == 0
    assert df.divisions[-1] == ROWS - 1
    assert df.loc[5000:5002].compute().index.tolist() == [5000, 5001, 5002]
    assert not read_colstore(segments, index="other", blocksize="2MiB").known_divisions


def test_a_text_column_can_be_the_index(segments):
    df = read_colstore(segments, index="text", columns=["n"], blocksize="2MiB", calculate_divisions=True)
    assert df.known_divisions
    key = "k0005000" + "x" * 200
    assert df.loc[key].compute().n.tolist() == [5000]


def test_partitions_that_statistics_exclude_go_away(segments):
    whole = read_colstore(segments, blocksize="1MiB")
    few = read_colstore(segments, blocksize="1MiB", filters=[("n", "<", 100)])
    assert few.npartitions == 1 < whole.npartitions
    assert len(few) == 100
    if segments.suffix == ".abcd":  # has bounds of text
        one = read_colstore(segments, blocksize="1MiB", filters=[("text", "<", "k0000100")])
        assert one.npartitions == 1
        assert one.compute().n.tolist() == list(range(100))
    df = whole[(whole.text > "k0023990") & (whole.n > 5)]
    assert df.compute().n.tolist() == list(range(ROWS - 10, ROWS))
    mixed = read_colstore(segments, blocksize="1MiB", filters=(col("n") + col("other")) == ROWS - 1)
    assert len(mixed) == ROWS


def test_dictionary_chunks_stay_dictionaries(tmp_path, monkeypatch):
    write(random_table(1, 3000), tmp_path / "d.abcd", 1000)
    seen = []
    original = ColumnsDecoder.decode

    def spied(self, *args, **options):
        seen.append(len(options["dictionaries"]))
        return original(self, *args, **options)

    monkeypatch.setattr(ColumnsDecoder, "decode", spied)
    read_colstore(tmp_path / "d.abcd", columns=["text"], categories=["text"]).compute()
    assert seen
    assert all(seen)


def test_files_of_one_dataset_may_be_encoded_differently(tmp_path):
    parts = [random_table(seed, 300, first=300 * seed) for seed in range(3)]
    cs.store(parts[0], tmp_path / "0.abcd", row_group_size=100, compression="zstd").close()
    cs.store(parts[1], tmp_path / "1.abcd", compression="none", encoding="plain").close()
    cs.store(parts[2], tmp_path / "2.abcd", row_group_size=37).close()
    path = str(tmp_path / "*.abcd")
    frame = as_pandas(pa.concat_tables(parts), path)
    df = read_colstore(path, aggregate_files=True)
    assert df.npartitions == 1
    equal(df.compute(), frame)
    apart = read_colstore(path, aggregate_files=False, categories=["note"])
    assert apart.npartitions == 3
    assert values_of(apart.note.compute()) == values_of(frame.note)


def test_formats_are_not_mixed_in_one_dataset(tmp_path):
    write(random_table(0, 10), tmp_path / "a.abcd", 10)
    write(random_table(0, 10), tmp_path / "b.colbin", 10)
    with pytest.raises(ValueError, match="one"):
        read_colstore([str(tmp_path / "a.abcd"), str(tmp_path / "b.colbin")])


# -- tasks


def _parts(df):
    expression = df.optimize(fuse=False).expr
    return [expression.part(number) for number in range(expression.plan.n_partitions)]


def test_task_descriptors_are_small(tmp_path):
    wide = {f"c{i:02}": np.arange(20_000) + i for i in range(15)} | {
        "text": [f"v{i % 50}" for i in range(20_000)]
    }
    cs.store(wide, tmp_path / "w.abcd", row_group_size=100).close()
    with cs.open(tmp_path / "w.abcd") as ds:
        plan = ds.source.plan
        n_segments = plan.segments.n_segments
        assert n_segments == 200
        few = len(pickle.dumps(ds.source.restrict(0, 1, ds.columns)))
        assert len(pickle.dumps(ds.source)) - few <= 40 * n_segments + 6 * n_segments * len(ds.columns)
    ten = read_colstore(tmp_path / "w.abcd", columns=[f"c{i:02}" for i in range(10)], blocksize=None)
    task = pickle.dumps(ten.expr.part(7))
    assert (
        len(task) - task.count(str(tmp_path).encode()) * len(str(tmp_path)) < 1024
    )  # a segment of ten columns
    ((part),) = _parts(read_colstore(tmp_path / "w.abcd", columns=["c03", "text"]))
    assert len(pickle.dumps(part)) <= 1500 + 40 * n_segments + 6 * n_segments * 2


def test_a_task_carries_no_description_of_each_message(tmp_path):
    n = 60_000
    with LogWriter(tmp_path / "m.colbin", CODEC.schema, encode=CODEC.encode) as log:
        for number in range(n):
            log.write(Row(number, "x" * 40))
    df = read_colstore(tmp_path / "m.colbin", blocksize=None)
    assert df.npartitions > 2
    parts = _parts(df)
    assert max(len(pickle.dumps(part)) for part in parts) < 1500
    assert df.n.sum().compute() == n * (n - 1) // 2
    reader = df.optimize(fuse=False).expr.reader
    copies = [pickle.loads(pickle.dumps(part)) for part in parts]
    assert np.concatenate([reader(part).n.to_numpy() for part in copies]).tolist() == list(range(n))


def test_a_worker_opens_each_file_once(segments, monkeypatch):
    df = read_colstore(segments, columns=["n", "text"], blocksize=None)
    sent = pickle.dumps([*_parts(df)])
    opened = Counter()
    original = LocalFile.map

    def counted(self, end):
        opened[id(self)] += 1
        return original(self, end)

    monkeypatch.setattr(LocalFile, "map", counted)
    parts = pickle.loads(sent)
    assert len({id(part.source.files[0]) for part in parts}) == 1
    reader = df.optimize(fuse=False).expr.reader
    total = sum(len(reader(part)) for part in parts)
    assert total == ROWS
    assert len(opened) == 1


def test_a_threaded_computation_gives_the_same(segments):
    df = read_colstore(segments, blocksize="1MiB")
    wanted = int(np.arange(0, ROWS, 7).sum())
    with dask.config.set(scheduler="threads", num_workers=3):
        assert int(df[df.n % 7 == 0].n.sum().compute()) == wanted
        assert df[df.text > "k0018000"].n.count().compute() == 6000


def test_a_bounded_cache_does_not_change_what_is_read(segments):
    before = config.get_decoded_cache_bytes()
    try:
        config.set_decoded_cache_bytes(0)
        assert read_colstore(segments).n.sum().compute() == (ROWS - 1) * ROWS // 2
    finally:
        config.set_decoded_cache_bytes(before)
