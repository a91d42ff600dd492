"""Random tables, and conditions on them, for the tests of what Dask's optimizer moves into the reader."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
from hypothesis import strategies as st

import colstore_io as cs


def random_table(rng, n):
    """Plain and nullable columns of every kind, with NaN and NaT, few distinct values."""

    def null(values, kind=None):
        mask = rng.random(n) < 0.3
        return pa.array(values, kind, mask=mask, from_pandas=False)

    when = np.datetime64("2024-01-01", "us") + rng.integers(0, 6, n).astype("m8[D]")
    when[rng.random(n) < 0.2] = np.datetime64("NaT")
    numbers = rng.choice([-1.5, 0.0, -0.0, 1.0, 2.5, np.inf, np.nan], n)
    texts = rng.choice(["", "a", "b", "bc", "é"], n)
    return {
        "i": rng.integers(-3, 4, n),
        "u": rng.integers(0, 4, n).astype(np.uint8),
        "f": numbers,
        "g": numbers[::-1].astype(np.float32),
        "b": rng.random(n) < 0.5,
        "s": texts,
        "when": when,
        "lag": rng.integers(-2, 3, n).astype("m8[s]"),
        "ni": null(rng.integers(-3, 4, n)),
        "nb": null(rng.random(n) < 0.5),
        "nf": null(numbers),
        "ns": null(texts.tolist(), pa.string()),
        "nt": null(when.astype("M8[us]"), pa.timestamp("us")),
    }


class RandomTables(dict):
    """Files of several records with statistics, by seed. In number 1 the values of `i` grow from record to record."""

    def __init__(self, folder):
        super().__init__()
        self.folder = folder

    def __missing__(self, seed):
        rng = np.random.default_rng(seed)
        path = self.folder / f"t{seed}.cstore"
        nullable = ["ni", "nb", "nf", "ns", "nt"]
        records = 5 if seed < 2 else int(rng.integers(1, 8))
        with cs.create(path, statistics=True, nullable=nullable, string_width={"s": 2, "ns": 2}) as writer:
            for record in range(records):
                data = random_table(rng, int(rng.integers(seed < 2, 12)))
                if seed == 1:
                    data["i"] = np.sort(data["i"]) + 10 * record
                writer.write(data)
        self[seed] = path
        return path


# ----------------------------------------------------------------------------------------------------------
# Conditions

NUMBERS = st.sampled_from([-2, 0, 1, 3, 12, 1.5, -0.0, 2.5, np.float64(1.0), np.int64(2)])
TIMES = st.sampled_from(
    [
        pd.Timestamp("2024-01-03"),
        np.datetime64("2024-01-02T12", "ms"),
        pd.Timestamp("2024-01-04 00:00:00.000001"),
    ]
)
LITERALS = {
    "i": NUMBERS,
    "u": NUMBERS,
    "f": NUMBERS,
    "g": NUMBERS,
    "ni": NUMBERS,
    "nf": NUMBERS,
    "b": st.booleans(),
    "nb": st.booleans(),
    "s": st.sampled_from(["", "a", "b", "bc", "é", "zz"]),
    "ns": st.sampled_from(["", "a", "b", "bc", "é", "zz"]),
    "when": TIMES | st.sampled_from(["2024-01-03", "2024-01-02 12:00:00"]),
    "nt": TIMES,
    "lag": st.sampled_from([pd.Timedelta(seconds=1), np.timedelta64(-1500, "ms"), pd.Timedelta(0)]),
}
OPERATORS = {
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
}


@st.composite
def leaves(draw):
    name = draw(st.sampled_from(list(LITERALS)))
    kind = draw(st.sampled_from(["compare", "isna", "notnull", "between", "isin", "flag"]))
    if kind == "isna":
        return f"{name} isna", lambda f: f[name].isna()
    if kind == "notnull":
        return f"{name} notnull", lambda f: f[name].notnull()
    if kind == "flag":
        flag = draw(st.sampled_from(["b", "nb"]))
        return flag, lambda f: f[flag]
    if kind == "between" and name not in ("b", "nb"):
        low, high = draw(LITERALS[name]), draw(LITERALS[name])
        inclusive = draw(st.sampled_from(["both", "neither", "left", "right"]))
        return f"{name} between {low} {high} {inclusive}", lambda f: f[name].between(
            low, high, inclusive=inclusive
        )
    if kind == "isin" and name in ("i", "u", "f", "g", "ni", "s", "ns"):
        members = draw(st.lists(LITERALS[name], max_size=3))
        return f"{name} isin {members}", lambda f: f[name].isin(members)
    operator = draw(st.sampled_from(["==", "!="] if name in ("b", "nb") else list(OPERATORS)))
    literal = draw(LITERALS[name])
    return f"{name} {operator} {literal!r}", lambda f: OPERATORS[operator](f[name], literal)


def combined(children):
    def both(pair):
        (a, left), (b, right) = pair
        return st.sampled_from(
            [
                (f"({a}) & ({b})", lambda f: left(f) & right(f)),
                (f"({a}) | ({b})", lambda f: left(f) | right(f)),
                (f"~({a})", lambda f: ~left(f)),
            ]
        )

    return st.tuples(children, children).flatmap(both)


CONDITIONS = st.recursive(leaves(), combined, max_leaves=5)
