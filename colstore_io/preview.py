"""The first or last rows of a selection, as text or HTML."""

from __future__ import annotations

import html
import shutil
from typing import Any

import numpy as np

__all__ = ["Preview"]

MAX_CELL = 24
"""Characters of one cell in the text form; longer values end in an ellipsis."""


class Preview:
    """A window of rows that prints as a table.

    Attributes
    ----------
    values : ndarray or dict of str to array
        The data of the window: one array for a column, arrays by name for a table. Attributes of arrays
        (``dtype``, ``shape``, ...) are passed on to it.
    """

    def __init__(self, view: Any, *, first: int, total: int) -> None:
        self._first = first
        self._total = total
        self._is_column = hasattr(view, "column")
        if self._is_column:
            data = view.array()
            self.values: Any = data
            self._columns = {view.column: data}
        else:
            self.values = view.dict()
            self._columns = self.values
        self._rows = len(next(iter(self._columns.values()))) if self._columns else view.count()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.values, name)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.asarray(self.values, dtype=dtype)

    def __len__(self) -> int:
        return self._rows

    def __getitem__(self, key: Any) -> Any:
        return self.values[key]

    def __iter__(self) -> Any:
        return iter(self.values)

    def _cells(self) -> tuple[list[str], list[list[str]]]:
        header = [str(name) for name in self._columns]
        rows = [[_text(column[i]) for column in self._columns.values()] for i in range(self._rows)]
        return header, rows

    def _footer(self) -> str:
        return f"[rows {self._first} to {self._first + self._rows} of {self._total:,}; {len(self._columns)} columns]"

    def __repr__(self) -> str:
        header, rows = self._cells()
        numbers = [str(self._first + i) for i in range(self._rows)]
        table = [["", *header]] + [[number, *row] for number, row in zip(numbers, rows, strict=True)]
        widths = [max(len(line[c]) for line in table) for c in range(len(table[0]))]
        room = shutil.get_terminal_size().columns
        shown = 1
        used = widths[0]
        while shown < len(widths) and used + 2 + widths[shown] <= room - 5:
            used += 2 + widths[shown]
            shown += 1
        more = shown < len(widths)
        lines = [
            "  ".join(cell.rjust(width) for cell, width in zip(line[:shown], widths, strict=False))
            + ("  ..." if more else "")
            for line in table
        ]
        return "\n".join([*lines, self._footer()])

    def _repr_html_(self) -> str:
        header, rows = self._cells()
        head = "".join(f"<th>{html.escape(name)}</th>" for name in ["", *header])
        body = "".join(
            f"<tr><th>{self._first + i}</th>"
            + "".join(f"<td>{html.escape(cell)}</td>" for cell in row)
            + "</tr>"
            for i, row in enumerate(rows)
        )
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table><p>{html.escape(self._footer())}</p>"


def _text(value: Any) -> str:
    value = value.as_py() if hasattr(value, "as_py") else value
    if value is None:
        text = "<NA>"
    elif isinstance(value, (float, np.floating)):
        text = f"{value:.6g}"
    elif isinstance(value, bytes):
        text = repr(value)
    else:
        text = str(value)
    text = text.replace("\n", "\\n").replace("\t", "\\t")
    return text if len(text) <= MAX_CELL else text[: MAX_CELL - 1] + "…"
