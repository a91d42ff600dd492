"""Previews and representations: what is shown, how, and that nothing is read for a selection not searched yet."""

from __future__ import annotations

import datetime
import pickle
import warnings

import numpy as np
import pandas as pd
import pytest

import colstore_io as cs
from colstore_io import col, config


@pytest.fixture(autouse=True)
def _settings(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    before = config.get_preview_rows(), config.get_preview_precision(), config.get_preview_memory_limit()
    yield
    config.set_preview_rows(before[0])
    config.set_preview_precision(before[1])
    config.set_preview_memory_limit(before[2])


@pytest.fixture
def stored(tmp_path):
    opened = []

    def store(data, **options):
        path = tmp_path / f"t{len(opened)}.cstore"
        cs.store(data, path, **options).close()
        opened.append(cs.open(path))
        return opened[-1]

    yield store
    for table in opened:
        table.close()


def cells(preview, row=None):
    """Return the cells of a text table; columns are separated by two spaces."""
    lines = [
        [cell.strip() for cell in line.split("  ") if cell.strip()] for line in repr(preview).splitlines()
    ]
    return lines if row is None else lines[1 + row][1:]


def column_cells(table, name):
    return [line[1] for line in cells(table[name].head())[1:-1]]


def test_table_preview_has_rows_numbers_and_a_footer(stored):
    table = stored({"x": np.arange(20.0), "n": np.arange(20)})
    assert repr(table.tail(2)).splitlines() == [
        "       x   n",
        "18  18.0  18",
        "19  19.0  19",
        "[2 rows x 2 columns; rows 18 to 20 of 20]",
    ]


def test_preview_passes_on_to_its_data(stored):
    table = stored({"x": np.arange(20.0), "n": np.arange(20)})
    preview = table.head(3)
    assert preview.shape == (3,)
    assert preview.dtype.names == ("x", "n")
    assert preview["n"].tolist() == [0, 1, 2]
    assert np.asarray(preview).dtype == preview.values.dtype
    assert table["n"].head(3).sum() == 3
    assert len(table["n"].tail(30)) == 20
    with pytest.raises(AttributeError):
        table["n"].head().no_such_attribute  # noqa: B018
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(table.head(2)))["n"], [0, 1])


def test_preview_with_nullable_columns_is_a_dict(stored):
    table = stored(pd.DataFrame({"n": pd.array([1, None], dtype="Int16"), "x": [0.5, 1.5]}))
    preview = table.head()
    assert preview.shape == (2,)
    assert preview["n"].to_pylist() == [1, None]
    assert preview["x"].tolist() == [0.5, 1.5]
    with pytest.raises(TypeError, match="no array form"):
        np.asarray(preview)


def test_nulls_are_shown_as_na_in_every_kind_of_column(stored):
    data = pd.DataFrame(
        {
            "i": pd.array([1, None], dtype="Int64"),
            "f": pd.array([1.25, None], dtype="Float64"),
            "b": pd.array([True, None], dtype="boolean"),
            "s": pd.array(["é", None], dtype="string"),
            "d": pd.Series([datetime.date(2020, 1, 2), None], dtype=object),
            "k": pd.Categorical(["low", None]),
        }
    )
    table = stored(data)
    assert cells(table.head(), 0) == ["1", "1.25", "True", "é", "2020-01-02", "low"]
    assert cells(table.head(), 1) == ["<NA>"] * 6
    assert "<td>&lt;NA&gt;</td>" in table.head()._repr_html_()
    assert "n.valid" not in repr(table.head())
    assert column_cells(table, "i.valid") == ["True", "False"]


@pytest.mark.parametrize(
    ("values", "places", "shown"),
    [
        ([1 / 3, 1.0], 6, ["0.333333", "1.000000"]),
        ([1.0, 2.5], 6, ["1.0", "2.5"]),
        ([1 / 3, 2 / 3], 2, ["0.33", "0.67"]),
        ([0.4, 10.0], 0, ["0", "10"]),
        ([100.0, -0.0], 6, ["100.0", "-0.0"]),
        ([1.5, np.nan, -np.inf], 6, ["1.5", "nan", "-inf"]),
        ([1.5e-9, 1e300, 2.5], 6, ["1.5e-09", "1e+300", "2.5"]),
        ([1e-3, 1e-7], 2, ["0.0", "1e-07"]),
    ],
)
def test_floats_have_the_configured_places(stored, values, places, shown):
    config.set_preview_precision(places)
    assert column_cells(stored({"x": np.array(values)}), "x") == shown


@pytest.mark.parametrize(
    ("values", "dtype", "shown"),
    [
        (["2020-01-01", "NaT"], "M8[D]", ["2020-01-01", "NaT"]),
        (["2020-01-01", "2021-06-15"], "M8[ns]", ["2020-01-01", "2021-06-15"]),
        (["2020-01-01T09", "NaT"], "M8[h]", ["2020-01-01 09:00", "NaT"]),
        (
            ["2020-01-01", "2020-01-01T00:00:00.25"],
            "M8[us]",
            ["2020-01-01 00:00:00.00", "2020-01-01 00:00:00.25"],
        ),
        (["2020-02", "NaT"], "M8[M]", ["2020-02", "NaT"]),
        ([86_400_000, 1500], "m8[ms]", ["1 days 00:00:00.0", "0 days 00:00:01.5"]),
        ([3 * 86_400, "NaT"], "m8[s]", ["3 days", "NaT"]),
        ([-90, 3600], "m8[s]", ["-00:01:30", "01:00:00"]),
        ([0, 0], "m8[ns]", ["00:00:00", "00:00:00"]),
        ([2**62, -(2**62)], "m8[W]", [f"{7 * 2**62} days", f"-{7 * 2**62} days"]),
        (["NaT", "NaT"], "M8[us]", ["NaT", "NaT"]),
    ],
)
def test_times_are_readable(stored, values, dtype, shown):
    assert column_cells(stored({"t": np.array(values, dtype)}), "t") == shown


def test_zoned_times_are_local_with_their_offset(stored):
    times = pd.date_range("2024-03-30 23:30", periods=3, freq="7h", tz="Europe/Prague").as_unit("us")
    table = stored(pd.DataFrame({"t": times}))
    assert column_cells(table, "t") == [
        "2024-03-30 23:30:00+01:00",
        "2024-03-31 07:30:00+02:00",
        "2024-03-31 14:30:00+02:00",
    ]
    np.testing.assert_array_equal(table.head()["t"], times.tz_convert("UTC").tz_localize(None).to_numpy())


def test_bytes_are_decoded_where_they_are_text(stored):
    table = stored({"s": np.array([b"SR", "é".encode(), b"\xff\x00a"])})
    assert column_cells(table, "s") == ["SR", "é", r"\xff\x00a"]


def test_text_cannot_act_on_terminal_or_page(stored):
    path = stored({"<b>\x1b": np.array(["a\x1b[31m", "x\ny", "\ue000", "<i>&"])}).path
    with open(path, "r+b") as file:  # such text is refused by our writers, and may come from others
        content = file.read()
        file.seek(0)
        file.write(content.replace(b"\0\xe0\0\0", b"\0\xd8\0\0"))
    table = cs.open(path)
    text = repr(table.head())
    assert "\x1b" not in text
    assert len(text.splitlines()) == 6
    assert column_cells(table, "<b>\x1b") == [r"a\x1b[31m", r"x\ny", r"\ud800", "<i>&"]
    page = table._repr_html_()
    assert "<td>&lt;i&gt;&amp;</td>" in page
    assert "&lt;b&gt;" in page
    assert "<i>" not in page
    for shown in (repr(table), repr(table[col("<b>\x1b") == "x"])):
        assert "\x1b" not in shown


def test_code_points_beyond_unicode_are_replaced(stored):
    values = np.array([0x110000, ord("a"), ord("b"), 0], "<u4").view("<U2")
    assert column_cells(stored({"s": values}), "s") == ["\ufffda", "b"]


def test_long_text_is_cut(stored):
    (shown,) = column_cells(stored({"s": np.array(["x" * 500])}), "s")
    assert shown == "x" * 49 + "…"


def test_wide_characters_keep_columns_aligned(stored):
    lines = repr(stored({"s": np.array(["日本", "ab"]), "n": np.array([1, 2])}).head()).splitlines()
    assert lines[1:3] == ["0  日本  1", "1    ab  2"]


@pytest.mark.parametrize("width", [30, 40, 80, 117])
def test_text_fits_the_terminal(stored, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    data = {f"column{k}": np.full(3, 10.0**k) for k in range(12)} | {"s": np.array(["y" * 400] * 3)}
    table = stored(data)
    for text in (repr(table.head()), repr(table[:2]), repr(table["s"]), repr(table[["s", "column0"]])):
        assert max(map(len, text.splitlines())) <= width
    assert "..." in repr(table[:2])
    assert repr(table[:2]).splitlines()[0].endswith("...")


def test_representation_reads_only_columns_that_can_fit(stored, monkeypatch):
    monkeypatch.setenv("COLUMNS", "30")
    wide = stored({f"c{k}": np.arange(4.0) for k in range(500)})
    seen = []
    original = type(wide[:]).recarray
    monkeypatch.setattr(
        type(wide[:]), "recarray", lambda view: (seen.append(view.n_columns), original(view))[1]
    )
    assert "4 rows x 500 columns" in " ".join(repr(wide[:]).split("\n"))
    assert seen == [11]
    assert "4 rows x 500 columns" in wide._repr_html_()
    assert wide._repr_html_().count("<td>...</td>") == 4


def test_long_previews_leave_out_the_middle(stored):
    table = stored({"n": np.arange(5000)})
    lines = repr(table.head(3000)).splitlines()
    assert len(lines) == 1 + 1001 + 1
    assert lines[501].split() == ["...", "..."]
    assert lines[502].split() == ["2500", "2500"]
    assert len(table.head(3000)["n"]) == 3000


def test_view_representation_names_class_and_columns(stored):
    table = stored({"price": np.arange(30.0), "qty": np.arange(30)})
    text = repr(table[["price", "qty"]])
    assert text.splitlines()[0].split() == ["price", "qty"]
    assert text.splitlines()[-1] == "[TableView: 30 rows x 2 columns, showing rows 0 to 10]"
    assert repr(table["price"]).endswith("[ColumnView 'price': 30 rows, float64, showing rows 0 to 10]")


def test_empty_selections_have_representations(stored):
    table = stored({"x": np.arange(3.0), "s": np.array(["a", "b", "c"])})
    assert repr(table[:0]) == "  x  s\n[TableView: 0 rows x 2 columns, showing rows 0 to 0]"
    assert "0 rows" in repr(table["s"][:0])
    assert "<table>" in table[:0]._repr_html_()
    assert repr(table.drop("x", "s")).endswith("[TableView: 3 rows x 0 columns, showing rows 0 to 3]")
    config.set_preview_rows(0)
    assert "3 rows x 2 columns" in repr(table[:])


@pytest.mark.parametrize(
    "lazy", [lambda t: t[col("x") > 1], lambda t: t[col("x") > 1, "x"], lambda t: t.query("x > 1")[:5]]
)
def test_selections_not_searched_yet_are_cards_and_read_nothing(stored, lazy):
    table = stored({"x": np.arange(3.0), "y": np.arange(3)})
    view = lazy(table)
    before = table.io.as_dict()
    text, page = repr(view), view._repr_html_()
    assert table.io.as_dict() == before
    assert view._rows.pending_predicate
    for card in (text, page):
        assert "lazy selection" in card
        assert ".evaluate()" in card
        assert "showing" not in card
    assert "<table" not in page
    view.evaluate()
    assert "showing rows 0 to 1" in repr(view)
    assert "<table" in view._repr_html_()


def test_notebook_form_of_tables_says_what_they_are(stored, tmp_path):
    table = stored({"x": np.arange(20.0)})
    page = table._repr_html_()
    assert page.startswith('<div class="cstore-tbl">')
    assert "<p>Reader: 20 rows x 1 column, showing rows 0 to 10</p>" in page
    with cs.open([table.path, table.path]) as dataset:
        assert "<p>Dataset: 40 rows x 1 column, showing rows 0 to 10</p>" in dataset._repr_html_()


def test_closed_tables_have_representations_still(stored):
    table = stored({"x": np.arange(20.0)})
    view, column = table[:3], table["x"]
    table.close()
    assert "closed" in repr(view)
    assert "closed" in repr(column)
    assert view._repr_html_() is None
    with pytest.raises(ValueError, match="closed"):
        view.head()


def test_large_previews_warn_before_they_read(stored):
    table = stored({"x": np.arange(100.0), "n": np.arange(100)})
    config.set_preview_memory_limit(16 * 50)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        table.head(50)
        table["x"].head(100)
        with pytest.raises(UserWarning, match="materialize about 816 bytes"):
            table.head(51)
        with pytest.raises(UserWarning, match="materialize"):
            table.tail(100)
    with pytest.warns(UserWarning, match="preview limit") as caught:
        table.head(99)
    assert caught[0].filename == __file__
    config.set_preview_memory_limit(0)
    table.head(100)


@pytest.mark.parametrize(
    ("setter", "bad", "message"),
    [
        (config.set_preview_rows, -1, ">= 0"),
        (config.set_preview_precision, -1, ">= 0"),
        (config.set_preview_precision, 1.5, ">= 0"),
        (config.set_preview_memory_limit, -1, ">= 0"),
        (config.set_max_workers, 0, ">= 1"),
    ],
)
def test_bad_preview_settings_are_refused(setter, bad, message):
    with pytest.raises(ValueError, match=message):
        setter(bad)


def test_defaults_of_previews():
    assert config.get_preview_rows() == 10
    assert config.get_preview_precision() == 6
    assert config.get_preview_memory_limit() == 256 << 20
