"""Tables whose chunks are decoded whole, over a decoder made for tests: selections, predicates, frames, pickles."""

from __future__ import annotations

import dataclasses
import io
import pickle
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import colstore_io as cs
from colstore_io import assembly, loading
from colstore_io.dataset import Source
from colstore_io.fields import Field, Schema
from colstore_io.formats import DecodedColumn, ShardMeta, Statistics
from colstore_io.opening import Opened
from colstore_io.plan import build_plan
from colstore_io.storage import MemoryFile
from colstore_io.tables import Reader
from colstore_io.taking import Take

FIELDS = (
    Field("n", np.dtype("i8")),
    Field("x", np.dtype("f4")),
    Field("flag", np.dtype("?")),
    Field("maybe", np.dtype("i4"), optional=True),
    Field("text", np.dtype(object), logical="string"),
    Field("note", np.dtype(object), logical="string", optional=True),
    Field("raw", np.dtype(object), logical="binary"),
)


def table(n_rows: int, seed: int = 0) -> pa.Table:
    rng = np.random.default_rng(seed)
    null = rng.random(n_rows) < 0.3
    words = np.array(["", "a", "bb", "zebra", "ñandú", "z" * 40])
    texts = words[rng.integers(0, len(words), n_rows)].tolist()
    return pa.table(
        {
            "n": pa.array(np.arange(n_rows)),
            "x": pa.array(rng.standard_normal(n_rows).astype("f4")),
            "flag": pa.array(rng.random(n_rows) < 0.5),
            "maybe": pa.array(rng.integers(-5, 5, n_rows).astype("i4"), mask=null),
            "text": pa.array(texts, pa.string()),
            "note": pa.array(texts, pa.string(), mask=null),
            "raw": pa.array([text.encode() for text in texts], pa.binary()),
        }
    )


@dataclasses.dataclass(frozen=True)
class PickleDecoder:
    """A chunk is the Arrow IPC form of one column; `where[segment][column]` is its range in the file."""

    where: tuple[tuple[tuple[int, int], ...], ...]
    columns: tuple[int, ...]
    independent: bool = True

    def ranges(
        self, segment: int, columns: Sequence[int], rows: tuple[int, int] | None = None
    ) -> list[tuple[int, int]]:
        return [self.where[segment][c] for c in columns]

    def decode(
        self,
        segment: int,
        columns: Sequence[int],
        data: Sequence[memoryview],
        *,
        rows: tuple[int, int] | None = None,
        out: Sequence[Any] | None = None,
        threads: int = 1,
        dictionaries: Sequence[int] = (),
        allocate: Any = None,
    ) -> list[DecodedColumn]:
        assert len(data) == len(columns) == len(out or columns)
        found = []
        for number, column in enumerate(columns):
            array = pa.ipc.open_stream(pa.py_buffer(data[number])).read_all().column(0).combine_chunks()
            array = array.slice(rows[0], rows[1] - rows[0]) if rows else array
            field = FIELDS[self.columns[column]]
            if field.variable:
                found.append(
                    DecodedColumn(array=array.dictionary_encode() if column in dictionaries else array)
                )
                continue
            validity = np.asarray(array.is_valid()) if array.null_count else None
            filled = array.fill_null(0) if array.null_count else array
            values = filled.to_numpy(zero_copy_only=False).astype(field.dtype)
            target = out[number] if out is not None else None
            if target is not None:
                target[...] = values
                values = target
            found.append(DecodedColumn(values, validity))
        return found

    def select(self, low: int, high: int, columns: Sequence[int]) -> PickleDecoder:
        kept = tuple(tuple(chunks[c] for c in columns) for chunks in self.where[low:high])
        return PickleDecoder(kept, tuple(self.columns[c] for c in columns), self.independent)

    def unchanged(self, file: Any) -> bool:
        return False

    def decoded_row_bytes(self, columns: Sequence[int]) -> float:
        return 8.0 * len(columns)


class PickingDecoder(PickleDecoder):
    """The same, which picks rows itself."""

    def take(
        self,
        segment: int,
        columns: Sequence[int],
        data: Sequence[memoryview],
        take: Take,
        *,
        out: Sequence[Any] | None = None,
        threads: int = 1,
        dictionaries: Sequence[int] = (),
        allocate: Any = None,
    ) -> list[DecodedColumn]:
        whole = self.decode(segment, columns, data, dictionaries=dictionaries)
        found = []
        for number, column in enumerate(whole):
            if column.array is not None:
                rows = take.positions() + take.start
                found.append(DecodedColumn(array=column.array.take(pa.array(rows))))
                continue
            target = out[number] if out is not None else np.empty(take.count, column.values.dtype)
            take.put(0, column.values, target)
            validity = None if column.validity is None else take.pick(0, column.validity)
            found.append(DecodedColumn(target, validity))
        return found


class WholeDecoder(PickleDecoder):
    """The same with one range for a whole segment, as in a log of messages."""

    def __init__(self, where: Any, columns: Any, independent: bool = False) -> None:
        super().__init__(where, columns, False)


def reader(data: pa.Table, segments: Sequence[int], kind: type[PickleDecoder] = PickleDecoder) -> Reader:
    """Return an open table of `data`, cut into segments of these numbers of rows."""
    out = io.BytesIO()
    where, first, starts = [], 0, []
    bounds: dict[str, list[Any]] = {"n": [], "text": []}
    nulls: dict[str, list[int]] = {"maybe": [], "note": []}
    for rows in segments:
        piece = data.slice(first, rows)
        first += rows
        starts.append(out.tell())
        chunks = []
        for name in data.column_names:
            begin = out.tell()
            with pa.ipc.new_stream(out, pa.schema([piece.schema.field(name)])) as stream:
                stream.write_table(piece.select([name]))
            chunks.append((begin, out.tell() - begin))
        where.append(tuple(chunks))
        for name in bounds:
            values = piece.column(name).to_pylist()
            bounds[name].append((min(values), max(values)) if values else (0, 0) if name == "n" else ("", ""))
        for name in nulls:
            nulls[name].append(piece.column(name).null_count)
    usable = np.array([rows > 0 for rows in segments], np.bool_)
    kinds = {"n": "i8", "text": object}
    meta = ShardMeta(
        "test",
        "1",
        "<test>",
        (),
        Schema(FIELDS),
        np.array(segments, np.int64),
        np.array(starts, np.int64),
        out.tell(),
        Statistics(
            {k: np.array([b[0] for b in v], kinds[k]) for k, v in bounds.items()},
            {k: np.array([b[1] for b in v], kinds[k]) for k, v in bounds.items()},
            dict.fromkeys(bounds, usable),
            {k: np.array(v, np.int64) for k, v in nulls.items()},
        ),
        b"fingerprint",
        decoder=kind(tuple(where), tuple(range(len(FIELDS)))),
    )
    file = MemoryFile(out.getvalue())
    source = Source(build_plan([meta]), [file], metas=[meta])
    source.__dict__["statistics"] = (meta.statistics,)  # no registered format to ask
    source.__dict__["blocks"] = None
    return Reader(Opened(source, "file", ("<test>",)))


DATA = table(97)
LAYOUTS = ([97], [24, 24, 24, 24, 1], [10, 0, 40, 1, 46])

rows_keys = st.one_of(
    st.slices(97),
    st.lists(st.integers(-97, 96), max_size=60).map(lambda v: np.array(v, np.int64)),
    st.lists(st.booleans(), min_size=97, max_size=97).map(lambda v: np.array(v, np.bool_)),
)


def expected(key: Any) -> pa.Table:
    return DATA.take(pa.array(np.arange(97)[key]))


@pytest.mark.parametrize(
    ("kind", "kept"), [(PickleDecoder, 1 << 20), (PickleDecoder, 1000), (PickingDecoder, 0)]
)
@given(key=rows_keys, layout=st.sampled_from(LAYOUTS))
@settings(deadline=None, max_examples=80)
def test_every_selection_gives_the_rows_of_the_table(
    kind: type[PickleDecoder], kept: int, key: Any, layout: list[int]
) -> None:
    with reader(DATA, layout, kind) as ds, pytest.MonkeyPatch.context() as patch:
        patch.setattr(assembly, "KEPT_BYTES", kept)
        wanted = expected(key)
        found = ds[key].dict()
        for field in FIELDS:
            column = wanted.column(field.name)
            if field.nullable or field.variable:
                assert found[field.name].to_pylist() == column.to_pylist()
            else:
                assert found[field.name].dtype == field.dtype
                np.testing.assert_array_equal(found[field.name], column.to_numpy())
        assert ds[key].arrow().to_pydict() == wanted.to_pydict()
        assert ds[key].arrow(categories=["note", "text"]).to_pydict() == wanted.to_pydict()


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_a_frame_has_the_dtypes_of_pandas(layout: list[int]) -> None:
    with reader(DATA, layout) as ds:
        frame = ds.frame()
        assert frame.dtypes.map(str).to_dict()["n"] == "int64"
        assert frame.dtypes.map(str).to_dict()["maybe"] == "Int32"
        assert isinstance(frame.dtypes["text"], pd.StringDtype)
        assert frame["note"].isna().tolist() == [v is None for v in DATA.column("note").to_pylist()]
        assert frame["raw"].tolist() == DATA.column("raw").to_pylist()


PREDICATES = [
    (cs.col("n") < 30, lambda d: d["n"] < 30),
    (cs.col("text") == "zebra", lambda d: d["text"] == "zebra"),
    (cs.col("text") >= "bb", lambda d: d["text"] >= "bb"),
    (cs.col("note") != "a", lambda d: (d["note"] != "a") & d["note"].notna()),
    (~(cs.col("note") == "a"), lambda d: (d["note"] != "a") & d["note"].notna()),
    (cs.col("note").isin(["a", "ñandú"]), lambda d: d["note"].isin(["a", "ñandú"])),
    (cs.col("note").isna(), lambda d: d["note"].isna()),
    (
        cs.col("note").notna() & (cs.col("maybe") > 0),
        lambda d: d["note"].notna() & (d["maybe"] > 0).fillna(False),
    ),
    (cs.col("text") == cs.col("note"), lambda d: (d["text"] == d["note"]).fillna(False) & d["note"].notna()),
    (cs.col("raw") == b"bb", lambda d: d["raw"] == b"bb"),
    (cs.col("maybe").isna() | cs.col("flag"), lambda d: d["maybe"].isna() | d["flag"]),
    (cs.col("text") == "not there", lambda d: d["text"] == "not there"),
]


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize(("predicate", "pandas"), PREDICATES, ids=lambda v: repr(v)[:40])
def test_predicates_select_what_pandas_does(predicate: Any, pandas: Any, layout: list[int]) -> None:
    frame = DATA.to_pandas(
        types_mapper={pa.int32(): pd.Int32Dtype(), pa.string(): pd.StringDtype("pyarrow")}.get
    )
    wanted = frame["n"][pandas(frame).fillna(False).astype(bool)].tolist()
    with reader(DATA, layout) as ds:
        assert ds.where(predicate).array("n").tolist() == wanted
        assert ds[5:90].where(predicate).array("n").tolist() == [n for n in wanted if 5 <= n < 90]


def test_segments_that_cannot_match_are_not_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[int] = []
    original = PickleDecoder.decode

    def counted(self: PickleDecoder, segment: int, *args: Any, **options: Any) -> Any:
        decoded.append(segment)
        return original(self, segment, *args, **options)

    monkeypatch.setattr(PickleDecoder, "decode", counted)
    with reader(DATA, [24, 24, 24, 24, 1]) as ds:
        assert ds.where(cs.col("n") >= 96).array("n").tolist() == [96]
        assert set(decoded) == {4}
        decoded.clear()
        assert len(ds.where(cs.col("text") > "\U0010ffff")) == 0
        assert decoded == []


def test_a_pickle_reads_the_same() -> None:
    with reader(DATA, [10, 0, 40, 1, 46]) as ds:
        copy = pickle.loads(pickle.dumps(ds))
        assert copy.arrow().to_pydict() == DATA.to_pydict()
        part = ds.source.restrict(1, 4, ["text", "n"])
        assert part.schema.names == ["text", "n"]
        assert part.n_rows == 41
        task = Reader(Opened(pickle.loads(pickle.dumps(part)), "file", ("<task>",)))
        assert task.arrow().to_pydict() == DATA.slice(10, 41).select(["text", "n"]).to_pydict()


def test_out_takes_fixed_width_columns_only() -> None:
    with reader(DATA, [50, 47]) as ds:
        target = np.empty(97, "i8")
        assert ds.array("n", out=target) is target
        assert target.tolist() == list(range(97))
        with pytest.raises(ValueError, match="variable length"):
            ds.array("text", out=np.empty(97, object))
        with pytest.raises(ValueError, match="are decoded"):
            ds.array("n", copy=False)
        with pytest.raises(IndexError):
            ds[[0, 97]].array("n")


def test_a_decoded_table_can_be_stored_as_cstore(tmp_path: Any) -> None:
    with reader(DATA, [50, 47]) as ds, cs.store(ds, tmp_path / "x.cstore") as stored:
        assert stored.frame()["n"].tolist() == list(range(97))
        assert stored.array("note").to_pylist() == DATA.column("note").to_pylist()
        assert stored.array("text").tolist() == DATA.column("text").to_pylist()


def test_a_concatenation_keeps_the_decoders_of_both() -> None:
    with reader(DATA, [97]) as a, reader(DATA, [24, 73]) as b:
        both = a | b
        assert both.n_rows == 194
        assert both[[0, 97, 193, 96]].array("n").tolist() == [0, 0, 96, 96]


def test_partitions_are_runs_of_whole_segments() -> None:
    with reader(DATA, [24, 24, 24, 24, 1]) as ds:
        bounds = ds.source.plan.partitions(["n"], blocksize=8 * 30).tolist()
        assert bounds == [0, 48, 96, 97]


def test_categories_stay_dictionaries() -> None:
    with reader(DATA, [50, 47]) as ds:
        column = ds.arrow(categories=["text"]).column("text")
        assert pa.types.is_dictionary(column.type)
        assert column.to_pylist() == DATA.column("text").to_pylist()
        frame = ds[["note"]].frame(categories=["note"])
        assert isinstance(frame["note"].dtype, pd.CategoricalDtype)
        assert [None if pd.isna(v) else v for v in frame["note"]] == DATA.column("note").to_pylist()
        assert (
            ds[::-1].arrow(categories=["text"]).column("text").to_pylist()
            == DATA.column("text").to_pylist()[::-1]
        )


def test_scoped_columns_live_in_memory_that_is_used_again() -> None:
    with reader(DATA, [50, 47]) as ds:
        with ds[:40].scoped() as columns:
            assert columns["n"].tolist() == list(range(40))
            assert columns["note"].to_pylist() == DATA.column("note").to_pylist()[:40]
            first = columns["n"]
        with ds[40:80].scoped() as columns:
            assert columns["n"].tolist() == list(range(40, 80))
            assert np.shares_memory(first, columns["n"])
            with ds[:3].scoped() as inner:
                assert inner["n"].tolist() == [0, 1, 2]
            assert columns["n"].tolist() == list(range(40, 80))


def test_bytes_that_were_fetched_in_one_round_are_not_fetched_for_a_second_pass(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assembly, "KEPT_BYTES", 0)
    path = tmp_path / "t.abcd"
    cs.store(DATA, path, row_group_size=10).close()
    key = np.random.default_rng(0).permutation(97)
    rounds: list[int] = []
    read = loading.read_ranges
    monkeypatch.setattr(
        loading, "read_ranges", lambda requests: (rounds.append(len(requests)), read(requests))[1]
    )
    with cs.open(path, mmap=False) as table:
        want = DATA["note"].combine_chunks().take(pa.array(key))
        assert table[key, "note"].array().equals(want)
        assert sum(rounds) == 10
        rounds.clear()
        monkeypatch.setattr(loading, "WAVE_BYTES", 100)
        assert table[key, "note"].array().equals(want)
        assert len(rounds) > 2
        assert sum(rounds) == 20
        assert table[key, "n"].array().tolist() == key.tolist()
        assert table[np.sort(key), "note"].array().equals(DATA["note"].combine_chunks())


def test_an_output_that_is_part_of_the_index_takes_the_rows_all_the_same(tmp_path: Any) -> None:
    path = tmp_path / "t.abcd"
    cs.store({"n": np.arange(1000)}, path, row_group_size=100, encoding="delta").close()
    with cs.open(path) as table:
        for key in (np.arange(500) * 2, np.random.default_rng(0).permutation(1000)):
            want = key.copy()
            table[key, "n"].array(out=key)
            assert key.tolist() == want.tolist()
