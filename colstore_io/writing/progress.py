"""How far is a long write? Byte-size texts, progress steps and bars (cstore-behaviour.md sections 6 and 10).

Nothing here changes a byte of a file.
"""

from __future__ import annotations

import contextlib
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .output import AlignedOutput

__all__ = ["check_batch_size", "parse_byte_size", "progress_bar", "report_writes"]

_UNKNOWN_UNIT = re.compile(r"\s*\d+(?:\.\d*)?\s*([A-Za-z]+)\s*")
_BYTE_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([kmgtp]i?)?(b?)\s*", re.ASCII | re.IGNORECASE)
_SINGLE_STEP_BYTES = 16 << 20
_LEAST_STEP_BYTES = 1 << 20
_TARGET_SECONDS = 0.5


def parse_byte_size(text: str) -> int:
    """Return the number of bytes that a text such as ``"256 MiB"``, ``"1.5kB"`` or ``"4096"`` names.

    A number with optional decimals and an optional unit, case-insensitive, spaces allowed. ``kB MB GB TB PB`` and
    the bare letters are powers of 1000, ``KiB ...`` and ``Ki ...`` powers of 1024.

    Raises
    ------
    ValueError
        If the text is anything else, or names less than one byte.
    """
    match = _BYTE_SIZE.fullmatch(text)
    if match is None:
        unit = _UNKNOWN_UNIT.fullmatch(text)
        what = f"Unknown unit {unit.group(1)!r} in" if unit else "Cannot parse byte size"
        raise ValueError(f"{what} {text!r}; write a number and a unit, such as '256 MiB' or '1.5 GB'")
    number, prefix, _ = match.groups()
    factor = 1
    if prefix:
        base = 1024 if len(prefix) == 2 else 1000
        factor = base ** ("kmgtp".index(prefix[0].lower()) + 1)
    size = int(Fraction(number) * factor)
    if size < 1:
        raise ValueError(f"{text!r} is less than one byte")
    return size


def check_batch_size(value: int | str | None) -> int | str | None:
    """Return `value` if it is a step size: ``None``, rows, ``"auto"``, or a byte-size text (as text of its bytes).

    Raises
    ------
    TypeError
        For booleans and other types.
    ValueError
        For a text that is no size.
    """
    if value is None or value == "auto":
        return value
    if isinstance(value, str):
        return f"{parse_byte_size(value)}B"
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(
            f"batch_size must be an integer, a size such as '16 MiB', 'auto' or None, got {value!r}"
        )
    return value


def _wants_bar(show: bool | None) -> bool:
    if show is None:  # only where somebody can see it
        try:
            return sys.stderr.isatty()
        except (AttributeError, ValueError):
            return False
    return show


@contextlib.contextmanager
def progress_bar(
    show: bool | None, *, total: int | None, description: str, unit: str = "B"
) -> Iterator[Callable[[int], None] | None]:
    """Show a tqdm bar for the length of a ``with`` block; yields what advances it, or None without a bar.

    Parameters
    ----------
    show : bool or None
        None shows it on a terminal, if tqdm is installed. True warns (`RuntimeWarning`) when tqdm is missing.
    """
    if not _wants_bar(show):
        yield None
        return
    try:
        from tqdm.auto import tqdm
    except ImportError:
        if show:
            warnings.warn(
                "show_progress=True needs tqdm, which is not installed", RuntimeWarning, stacklevel=4
            )
        yield None
        return
    scaled = unit == "B"
    with tqdm(
        total=total, desc=description, unit=unit, unit_scale=scaled, unit_divisor=1024 if scaled else 1000
    ) as bar:
        yield bar.update


@contextlib.contextmanager
def report_writes(
    output: AlignedOutput,
    show: bool | None,
    *,
    total: int | None,
    row_bytes: int,
    n_columns: int,
    batch_size: int | str | None,
    description: str,
) -> Iterator[None]:
    """Show the writes to `output` on a bar for the length of a ``with`` block.

    `batch_size` (checked by `check_batch_size`) sets the bytes per step; steps are rounded up to the pieces that
    the output writes in.
    """
    from .output import PIECE_BYTES

    with progress_bar(show, total=total, description=description) as advance:
        if advance is None:
            yield
            return
        unlimited = output.limit
        step = unlimited
        adaptive = False
        if batch_size is None:
            step = -(-(total or unlimited) // max(1, n_columns))
        elif isinstance(batch_size, int):
            step = batch_size * row_bytes if batch_size > 0 else unlimited
        elif batch_size != "auto":
            step = parse_byte_size(batch_size)
        elif total is None or total >= _SINGLE_STEP_BYTES:
            step, adaptive = _LEAST_STEP_BYTES, True

        def rounded(size: float) -> int:
            return min(unlimited, max(1, -(-int(size) // PIECE_BYTES)) * PIECE_BYTES)

        speed = 0.0
        last = time.perf_counter()

        def on_write(written: int) -> None:
            nonlocal speed, last, step
            advance(written)
            if not adaptive:
                return
            now = time.perf_counter()
            current = written / max(now - last, 1e-9)
            speed = current if not speed else (speed + current) / 2
            last = now
            step = int(min(2 * step, max(_LEAST_STEP_BYTES, speed * _TARGET_SECONDS)))
            output.limit = rounded(step)

        output.limit = rounded(step)
        output.progress = on_write
        try:
            yield
        finally:
            output.limit = unlimited
            output.progress = None
