"""Tables with columns of variable length, written in each format: what tests of encoded files share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

import colstore_io as cs

SUFFIXES = (".cstore", ".abcd", ".colbin")
ENCODED = (".abcd", ".colbin")
WORDS = ("", "a", "bb", "zebra", "ñandú", "z" * 40, "same", "naïve ☃")


def random_table(seed: int, n_rows: int, *, first: int = 0, nulls: float | None = None) -> pa.Table:
    """Return rows [first, first + n_rows) of a table whose `n` counts them; nulls, NaN, empty text, few words."""
    rng = np.random.default_rng((seed, first))
    null = rng.random(n_rows) < (rng.choice([0.0, 0.3, 0.9]) if nulls is None else nulls)
    words = np.array(WORDS)[: rng.integers(1, len(WORDS) + 1)]
    text = words[rng.integers(0, len(words), n_rows)].tolist()
    x = rng.standard_normal(n_rows)
    x[rng.random(n_rows) < 0.1] = np.nan
    schema = pa.schema(
        [
            pa.field("n", pa.int64(), nullable=False),
            pa.field("x", pa.float64(), nullable=False),
            pa.field("f", pa.float32()),
            pa.field("flag", pa.bool_(), nullable=False),
            pa.field("maybe", pa.int32()),
            pa.field("sure", pa.bool_()),
            pa.field("text", pa.string(), nullable=False),
            pa.field("note", pa.string()),
            pa.field("raw", pa.binary(), nullable=False),
        ]
    )
    return pa.table(
        [
            pa.array(np.arange(first, first + n_rows)),
            pa.array(x),
            pa.array(rng.standard_normal(n_rows).astype("f4"), mask=null),
            pa.array(rng.random(n_rows) < 0.5),
            pa.array(rng.integers(-5, 5, n_rows).astype("i4"), mask=null),
            pa.array(rng.random(n_rows) < 0.5, mask=null),
            pa.array(text, pa.string()),
            pa.array(text, pa.string(), mask=null),
            pa.array([value.encode() for value in text], pa.binary()),
        ],
        schema=schema,
    )


def write(table: Any, path: Path, rows: int) -> Path:
    """Write `table` so that it has segments of about `rows` rows."""
    if path.suffix == ".cstore":
        schema = table.schema
        with cs.create(path, statistics=True, string_width={"text": 40, "note": 40, "raw": 48}) as writer:
            for first in range(0, table.num_rows, rows):
                writer.write(table.slice(first, rows).cast(schema))
    else:
        cs.store(table, path, row_group_size=rows).close()
    return path


def write_files(folder: Path, suffix: str, seed: int, counts: Sequence[int], rows: int) -> pa.Table:
    """Write files of these numbers of rows, which go on counting, and return them as one table."""
    first, tables = 0, []
    for number, count in enumerate(counts):
        table = random_table(seed, count, first=first)
        write(table, folder / f"part_{number}{suffix}", rows)
        tables.append(table)
        first += count
    return pa.concat_tables(tables)


def as_pandas(table: pa.Table, like: Any) -> pd.DataFrame:
    """Return a table as the frames of Dask have it when it is read from `like`, what `colstore_io.open` takes.

    Whether a column is nullable is in the file, or found by its writer; bytes of fixed width are objects.
    """
    with cs.open(like) as opened:
        schema = opened.source.schema
    text = pd.StringDtype("pyarrow")
    frame = pd.DataFrame(
        {
            "n": table["n"].to_numpy(),
            "x": table["x"].to_numpy(),
            "f": table["f"].to_pandas(),
            "flag": table["flag"].to_pandas(),
            "maybe": pd.array(table["maybe"].to_pylist(), dtype="Int32"),
            "sure": pd.array(table["sure"].to_pylist(), dtype="boolean"),
            "text": pd.array(table["text"].to_pylist(), dtype=text),
            "note": pd.array(table["note"].to_pylist(), dtype=text),
            "raw": pd.Series(
                table["raw"].to_pylist(),
                dtype=pd.ArrowDtype(pa.binary()) if schema["raw"].variable else object,
            ),
        }
    )
    plain = {"maybe": "int32", "sure": "bool"}
    return frame.astype({name: dtype for name, dtype in plain.items() if not schema[name].nullable})
