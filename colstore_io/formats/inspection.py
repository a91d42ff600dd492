"""What a file is made of, as a small table that people and programs can read."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Inspection"]

_SHOWN_ROWS = 40
_SHOWN_CHARACTERS = 24


class Inspection:
    """Rows of equal columns that describe the parts of a file. Iterating gives a dictionary for each.

    Parameters
    ----------
    title : str
        One line about the whole file.
    columns : mapping of str to sequence
        Values by column name, all of one length. Plain Python objects; None where there is nothing to say.
    """

    __slots__ = ("_columns", "_length", "title")

    def __init__(self, title: str, columns: Mapping[str, Sequence[Any]]) -> None:
        self.title = title
        self._columns = dict(columns)
        lengths = {len(values) for values in self._columns.values()}
        if len(lengths) > 1:
            raise ValueError("the columns of an inspection must have one length")
        self._length = lengths.pop() if lengths else 0

    @property
    def names(self) -> list[str]:
        """Names of the columns."""
        return list(self._columns)

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for row in range(self._length):
            yield self[row]

    def __getitem__(self, row: int) -> dict[str, Any]:
        if not -self._length <= row < self._length:
            raise IndexError(f"row {row} of {self._length}")
        return {name: values[row] for name, values in self._columns.items()}

    def column(self, name: str) -> Sequence[Any]:
        """Return the values of one column; `KeyError` if there is none."""
        return self._columns[name]

    def to_arrow(self) -> pa.Table:
        """Return a table. Columns whose values are of several types become text."""
        import pyarrow as pa

        arrays = {}
        for name, values in self._columns.items():
            try:
                arrays[name] = pa.array(values)
            except (pa.ArrowException, OverflowError):  # several types, or integers beyond 64 bits with sign
                arrays[name] = pa.array([v if v is None else _text(v, None) for v in values])
        return pa.table(arrays)

    def __repr__(self) -> str:
        rows = self._shown()
        widths = [max(len(row[c]) for row in rows) for c in range(len(self._columns))]
        numeric = [_is_numeric(values) for values in self._columns.values()]
        lines = [
            "  ".join(
                text.rjust(width) if right else text.ljust(width)
                for text, width, right in zip(row, widths, numeric, strict=True)
            ).rstrip()
            for row in rows
        ]
        return "\n".join([self.title, *lines, *self._more()])

    def _repr_html_(self) -> str:
        head, *body = self._shown()

        def cells(row: Sequence[str], tag: str) -> str:
            return "".join(f"<{tag}>{html.escape(text)}</{tag}>" for text in row)

        rows = "".join(f"<tr>{cells(row, 'td')}</tr>" for row in body)
        more = "".join(f"<p>{html.escape(line)}</p>" for line in self._more())
        return (
            f"<p>{html.escape(self.title)}</p><table><thead><tr>{cells(head, 'th')}</tr></thead>"
            f"<tbody>{rows}</tbody></table>{more}"
        )

    def _shown(self) -> list[list[str]]:
        count = min(self._length, _SHOWN_ROWS)
        rows = [[_text(v, _SHOWN_CHARACTERS) for v in self[row].values()] for row in range(count)]
        return [self.names, *rows]

    def _more(self) -> list[str]:
        return [f"... {self._length - _SHOWN_ROWS} more rows"] if self._length > _SHOWN_ROWS else []


def _is_numeric(values: Sequence[Any]) -> bool:
    return all(v is None or (isinstance(v, (int, float)) and not isinstance(v, bool)) for v in values)


def _text(value: Any, limit: int | None) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        text = value if value.isprintable() else repr(value)
    else:
        text = repr(value)
    return text if limit is None or len(text) <= limit else f"{text[: limit - 3]}..."
