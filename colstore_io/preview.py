"""How do rows look? The first or last rows of a selection as a text table or as HTML.

Everything shown comes out of a file: characters that a terminal would act on are escaped, HTML is quoted, and long
values are cut.
"""

from __future__ import annotations

import textwrap
import unicodedata
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from . import config
from .fields import Field
from .rows import Rows

__all__ = ["Preview", "html_of", "summary_of", "text_of"]

MAX_CELL = 50
"""Characters of one cell; longer text ends in an ellipsis."""

MAX_ROWS = 1000
"""Rows that are printed; of a longer preview the middle is left out."""

MAX_HTML_COLUMNS = 100
"""Columns of the HTML form."""

_NA = "<NA>"
_GAP = "  "
_ELIDED = "..."

_LARGE = 1e15
"""Floats from here on have no decimals worth printing: they are shown with an exponent."""

_SMALL = 1e-4
"""Floats below this that would print as zero are shown with an exponent."""

_SECOND_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9, "ps": 12, "fs": 15, "as": 18}
_UNIT_SECONDS = {"m": 60, "h": 3600, "D": 86400, "W": 604800}


class Viewed(Protocol):
    """What a preview needs of a column or table."""

    def head(self, n: int | None = None) -> Preview: ...
    def count(self) -> int: ...


class Preview:
    """A window of rows that prints as a table.

    Parameters
    ----------
    view : column or table view
        The rows of the window; read here.
    first : int
        Position of the first of them in the selection.
    total : int
        Rows of the selection.
    fields : sequence of Field
        The columns of `view`.

    Attributes
    ----------
    values : ndarray, pyarrow.Array or dict
        The data of the window. Of a column what ``array()`` gives. Of a table a structured array, or a dict of arrays
        by name where a column that is nullable or of variable length, or a repeated name, rules that out. Indexing,
        iteration and attributes of arrays (``dtype``, ``tolist``, ...) are passed on to it.

    Warns
    -----
    UserWarning
        If the rows are estimated to take more than ``config.get_preview_memory_limit()`` bytes; before they are read.
    """

    def __init__(self, view: Any, *, first: int, total: int, fields: Sequence[Field]) -> None:
        self._first = first
        self._total = total
        self._rows: int = view.count()
        size = self._rows * sum(field.row_bytes for field in fields)
        limit = config.get_preview_memory_limit()
        if 0 < limit < size:
            warnings.warn(
                f"this preview will materialize about {size:,} bytes ({self._rows:,} rows), more than the preview "
                f"limit of {limit:,}; ask for fewer rows, or raise it by colstore_io.config.set_preview_memory_limit",
                UserWarning,
                stacklevel=3,
            )
        self._columns: Mapping[str, Any]
        if hasattr(view, "column"):
            self.values: Any = view.array()
            self._columns = {view.column: self.values}
        elif _packs(fields):
            self.values = view.recarray()
            self._columns = {field.name: self.values[field.name] for field in fields}
        else:
            self.values = self._columns = view.dict()
        self._zones = {field.name: field.tz for field in fields}

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the data; (rows,), also where it is a dict of arrays."""
        return (self._rows,)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "values":
            raise AttributeError(name)
        return getattr(self.values, name)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        if isinstance(self.values, dict):
            raise TypeError(
                "a preview with columns that are nullable or of variable length has no array form; "
                "take its columns one by one"
            )
        return np.asarray(self.values, dtype=dtype, copy=copy)

    def __len__(self) -> int:
        return self._rows

    def __getitem__(self, key: Any) -> Any:
        return self.values[key]

    def __iter__(self) -> Any:
        return iter(self.values)

    def __repr__(self) -> str:
        return self.text(f"{_size(self._rows, len(self._columns))}; {self._place()}")

    def _repr_html_(self) -> str:
        return self.html(f"{_size(self._rows, len(self._columns))}; {self._place()}")

    def _place(self) -> str:
        return f"rows {self._first:,} to {self._first + self._rows:,} of {self._total:,}"

    def text(self, footer: str, *, more_columns: bool = False) -> str:
        """Return the rows as a table no wider than the terminal; columns that do not fit are left out.

        Parameters
        ----------
        footer : str
            What to say below the table.
        more_columns : bool
            Whether the selection has columns that the preview has not.
        """
        room = _terminal_width()
        index, columns = self._cells(room // (1 + len(_GAP)) + 1)
        elided = more_columns or len(columns) < len(self._columns)
        longest = room - max(map(len, index), default=0) - 2 * len(_GAP) - len(_ELIDED)
        parts = [_justified(["", *index])]
        used = _width(parts[0][0])
        for position, (name, cells) in enumerate(columns):
            column = _justified([_cut(cell, max(8, min(MAX_CELL, longest))) for cell in (name, *cells)])
            used += len(_GAP) + _width(column[0])
            last = position == len(columns) - 1 and not elided
            if position and used + (0 if last else len(_GAP) + len(_ELIDED)) > room:
                elided = True
                break
            parts.append(column)
        if elided:
            parts.append([_ELIDED] * len(parts[0]))
        lines = [_GAP.join(cells).rstrip() for cells in zip(*parts, strict=True)]
        return "\n".join([*lines, *textwrap.wrap(f"[{footer}]", max(room, 20))])

    def html(self, caption: str, *, more_columns: bool = False) -> str:
        """Return the rows as an HTML table; the parameters are those of `text`."""
        index, columns = self._cells(MAX_HTML_COLUMNS)
        parts = [[_cut(cell, MAX_CELL) for cell in (name, *cells)] for name, cells in columns]
        if more_columns or len(columns) < len(self._columns):
            parts.append([_ELIDED] * (1 + len(index)))
        header, *body = zip(*parts, strict=True) if parts else [(), *([()] * len(index))]
        lines = [f"<tr>{_tagged('th', ('', *header))}</tr>"]
        lines += [
            f"<tr>{_tagged('th', (number,))}{_tagged('td', cells)}</tr>"
            for number, cells in zip(index, body, strict=True)
        ]
        table = f"<thead>{lines[0]}</thead>\n<tbody>\n" + "\n".join(lines[1:]) + "\n</tbody>"
        return f'<div class="cstore-tbl">\n<table>\n{table}\n</table>\n{_paragraph(caption)}\n</div>'

    def _cells(self, most: int) -> tuple[list[str], list[tuple[str, list[str]]]]:
        """Return row numbers, and the name and cells of at most `most` columns, as many cells as row numbers."""
        numbers = np.arange(self._rows)
        half = MAX_ROWS // 2
        elided = self._rows > MAX_ROWS
        if elided:
            numbers = np.concatenate([numbers[:half], numbers[-half:]])
        index = [str(self._first + k) for k in numbers.tolist()]
        columns = []
        for name, values in list(self._columns.items())[:most]:
            shown = values.take(numbers) if elided else values
            columns.append((_readable(name), _column_cells(shown, self._zones.get(name))))
        if elided:
            for cells in (index, *(cells for _, cells in columns)):
                cells.insert(half, _ELIDED)
        return index, columns


def _packs(fields: Sequence[Field]) -> bool:
    """Tell whether the columns can be the fields of a structured array."""
    names = {field.name for field in fields if field.name and not field.nullable and not field.variable}
    return 0 < len(names) == len(fields)


# ----------------------------------------------------------------------------------------------------------
# Views


def text_of(view: Viewed, rows: Rows | None) -> str:
    """Return the representation of a view: its first rows, or a card where showing them would mean to search for them.

    Parameters
    ----------
    view : column or table view
    rows : Rows or None
        Its row chain.
    """
    label = _label(view)
    if rows is not None and rows.pending_predicate:
        return f"<{_lazy_card(label, view, rows)}>"
    try:
        total = view.count()
        shown, n_columns = _head_of(view, _terminal_width() // (1 + len(_GAP)) + 1)
        footer = f"{label}: {_view_size(view, total, n_columns)}, showing {_range(shown)}"
        return shown.text(footer, more_columns=n_columns > len(shown._columns))
    except Exception as error:  # closed, moved, damaged: the object must be printable all the same
        return f"<{label}: {summary_of(view)}; cannot be shown: {_readable(str(error))}>"


def html_of(view: Viewed, rows: Rows | None) -> str | None:
    """Return the HTML form of a view or table, as `text_of`; ``None`` (use the text) if it cannot be shown."""
    label = _label(view)
    if rows is not None and rows.pending_predicate:
        return f'<div class="cstore-card">\n{_paragraph(_lazy_card(label, view, rows))}\n</div>'
    try:
        total = view.count()
        shown, n_columns = _head_of(view, MAX_HTML_COLUMNS)
        caption = f"{label}: {_view_size(view, total, n_columns)}, showing {_range(shown)}"
        return shown.html(caption, more_columns=n_columns > len(shown._columns))
    except Exception:  # notebooks then ask for the text form
        return None


def _label(view: Viewed) -> str:
    column = getattr(view, "column", None)
    return type(view).__name__ if column is None else f"{type(view).__name__} {_quoted(column)}"


def _head_of(view: Any, most: int) -> tuple[Preview, int]:
    """Return the first rows of at most `most` columns, without reading the others, and the number of all columns."""
    names = getattr(view, "columns", None)
    if names is None:
        return view.head(), 1
    first = names[:most]
    if len(names) > most and len(set(names)) == len(names):
        return view.select(*first).head(), len(names)
    shown: Preview = view.head()
    return shown, len(shown._columns)


def _lazy_card(label: str, view: Viewed, rows: Rows) -> str:
    return (
        f"{label} {_readable(rows.describe())}: lazy selection, {summary_of(view)}, rows not evaluated yet; "
        ".head() reads the first, .evaluate() finds all"
    )


def summary_of(view: Any) -> str:
    """Return number and names of the columns of a table, or the dtype of a column; nothing is read."""
    names = getattr(view, "columns", None)
    if names is None:
        return str(view.dtype)
    listed = ", ".join(_cut(_readable(name), MAX_CELL) for name in names[:8])
    return f"{_counted(len(names), 'column')} ({listed}{', ...' if len(names) > 8 else ''})"


def _view_size(view: Any, total: int, n_columns: int) -> str:
    return f"{_counted(total, 'row')}, {view.dtype}" if hasattr(view, "column") else _size(total, n_columns)


def _size(n_rows: int, n_columns: int) -> str:
    return f"{_counted(n_rows, 'row')} x {_counted(n_columns, 'column')}"


def _range(shown: Preview) -> str:
    return f"rows {shown._first:,} to {shown._first + len(shown):,}"


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


# ----------------------------------------------------------------------------------------------------------
# Layout


def _terminal_width() -> int:
    import shutil

    return shutil.get_terminal_size().columns


def _readable(text: str) -> str:
    """Return `text` with characters that are no glyphs (line ends, terminal codes, surrogates) as escapes."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def _quoted(name: str) -> str:
    return f"'{_cut(_readable(name), MAX_CELL)}'"


def _width(text: str) -> int:
    """Return how many character cells of a terminal `text` takes."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text
    )


def _cut(text: str, limit: int) -> str:
    if len(text) <= limit // 2 or _width(text) <= limit:
        return text
    used = 0
    for position, character in enumerate(text):
        used += _width(character)
        if used >= limit:
            return text[:position] + "…"
    return text


def _justified(cells: Sequence[str]) -> list[str]:
    widths = [_width(cell) for cell in cells]
    widest = max(widths)
    return [" " * (widest - width) + cell for cell, width in zip(cells, widths, strict=True)]


def _tagged(tag: str, cells: Iterable[str]) -> str:
    from html import escape

    return "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells)


def _paragraph(text: str) -> str:
    from html import escape

    return f"<p>{escape(text)}</p>"


# ----------------------------------------------------------------------------------------------------------
# Cells


def _column_cells(values: Any, zone: str | None) -> list[str]:
    """Return the values of an ndarray or Arrow array as text, formatted alike over the column."""
    if not isinstance(values, np.ndarray):
        return _arrow_cells(values, zone)
    kind = values.dtype.kind
    if kind == "f":
        return _float_cells(values)
    if kind == "M":
        return _datetime_cells(values, zone)
    if kind == "m":
        return _timedelta_cells(values)
    if (
        kind == "U" and values.dtype.itemsize
    ):  # code points that no str can hold have to go before one is made
        codes = np.ascontiguousarray(values).view(np.uint32)
        values = np.where(codes > 0x10FFFF, np.uint32(0xFFFD), codes).view(values.dtype)
    return [_text(value) for value in values.tolist()]


def _arrow_cells(values: Any, zone: str | None) -> list[str]:
    import pyarrow as pa

    present = values.drop_null()
    kinds = pa.types
    if kinds.is_floating(values.type) or kinds.is_temporal(values.type):
        cells = iter(_column_cells(present.to_numpy(zero_copy_only=False), zone))
    else:
        cells = iter([_text(value) for value in present.to_pylist()])
    valid = values.is_valid().to_numpy(zero_copy_only=False).tolist()
    return [next(cells) if flag else _NA for flag in valid]


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        value = value[: MAX_CELL + 1].decode("utf-8", "backslashreplace")
    return _readable(str(value)[: MAX_CELL + 1])


def _float_cells(values: NDArray[Any]) -> list[str]:
    """Return floats at the configured number of decimals, without the zeros that all of them end in."""
    places = config.get_preview_precision()
    with np.errstate(all="ignore"):
        numbers = values.astype(np.float64)
        size = np.abs(numbers)
        plain = (size < _LARGE) & ((size == 0) | (size >= min(_SMALL, 0.5 * 10.0**-places)))
    finite = np.isfinite(numbers)
    cells = []
    needed = min(1, places)
    for number, is_plain, is_finite in zip(numbers.tolist(), plain.tolist(), finite.tolist(), strict=True):
        if is_plain:
            cells.append(f"{number:.{places}f}")
            needed = max(needed, len(cells[-1].partition(".")[2].rstrip("0")))
        elif is_finite:
            mantissa, _, exponent = f"{number:.{places}e}".partition("e")
            cells.append((mantissa.rstrip("0").rstrip(".") if places else mantissa) + f"e{exponent}")
        else:
            cells.append(str(number))
    spare = places - needed
    if spare:
        cells = [
            cell[:-spare] if is_plain else cell for cell, is_plain in zip(cells, plain.tolist(), strict=True)
        ]
    return cells


def _datetime_cells(values: NDArray[Any], zone: str | None) -> list[str]:
    """Return times as ``2020-01-01 09:30:00``; the date alone where every time is midnight."""
    suffixes = [""] * len(values)
    if zone is not None:
        values, suffixes = _local(values, zone)
    texts = np.datetime_as_string(values).tolist()
    parts = [("NaT", "", "") if text == "NaT" else text.partition("T") for text in texts]
    times = [f"{time}:00" if len(time) == 2 else time for _, _, time in parts]  # a resolution of hours
    fractions = [time.partition(".")[2].rstrip("0") for time in times]
    digits = max(map(len, fractions), default=0)
    if zone is None and not any(time.strip("0:.") for time in times):
        return [date for date, _, _ in parts]
    cells = []
    for (date, _, _), time, suffix in zip(parts, times, suffixes, strict=True):
        clock, _, fraction = time.partition(".")
        if digits and fraction:
            clock += f".{fraction[:digits]}"
        cells.append(f"{date} {clock}{suffix}" if clock else date)
    return cells


def _local(values: NDArray[Any], zone: str) -> tuple[NDArray[Any], list[str]]:
    """Return UTC times as local ones and the offset of each; UTC and ``Z`` where the zone is not known here."""
    import pyarrow as pa
    import pyarrow.compute as pc

    unit, count = np.datetime_data(values.dtype)
    try:
        if unit not in ("s", "ms", "us", "ns") or count != 1:
            raise pa.ArrowInvalid(f"no Arrow timestamp has the unit {unit}")
        instants = pa.array(values, type=pa.timestamp(unit, zone))
        local = pc.local_timestamp(instants).to_numpy(zero_copy_only=False)
    except pa.ArrowException:
        return values, ["" if missing else "Z" for missing in np.isnat(values).tolist()]
    minutes = (local - values).astype("m8[m]").tolist()
    return local, ["" if offset is None else _offset(offset.total_seconds()) for offset in minutes]


def _offset(seconds: float) -> str:
    hours, minutes = divmod(round(abs(seconds)) // 60, 60)
    return f"{'-' if seconds < 0 else '+'}{hours:02}:{minutes:02}"


def _timedelta_cells(values: NDArray[Any]) -> list[str]:
    """Return durations as ``1 days 02:03:04.5``; days or time alone where the other is nothing in every row."""
    unit, count = np.datetime_data(values.dtype)
    if unit not in _SECOND_DIGITS and unit not in _UNIT_SECONDS:  # months and years have no fixed length
        return [str(value) for value in values]
    digits = _SECOND_DIGITS.get(unit, 0)
    scale = 10**digits
    missing = np.isnat(values).tolist()
    parts = []
    for ticks in values.astype(np.int64).tolist():
        size = abs(ticks) * count * _UNIT_SECONDS.get(unit, 1)
        seconds, fraction = divmod(size, scale)
        days, seconds = divmod(seconds, 86400)
        parts.append(("-" if ticks < 0 else "", days, seconds, f"{fraction:0{digits}}" if digits else ""))
    known = [part for part, is_missing in zip(parts, missing, strict=True) if not is_missing]
    digits = max((len(fraction.rstrip("0")) for _, _, _, fraction in known), default=0)
    with_days = any(days for _, days, _, _ in known)
    with_time = digits or any(seconds for _, _, seconds, _ in known) or not with_days
    cells = []
    for (sign, days, seconds, fraction), is_missing in zip(parts, missing, strict=True):
        minutes, second = divmod(seconds, 60)
        clock = f"{minutes // 60:02}:{minutes % 60:02}:{second:02}" + (
            f".{fraction[:digits]}" if digits else ""
        )
        text = [f"{days} days"] if with_days else []
        cells.append("NaT" if is_missing else sign + " ".join([*text, clock] if with_time else text))
    return cells
