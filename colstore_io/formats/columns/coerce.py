"""Python values into columns of a given type: the boxed entry of the format (columns.md section 11).

By default what would lose something is refused: integers that do not fit, fractions into integers, text into bytes.
``compatible=True`` does what the format's own library does: integers wrap, fractions are cut off, bytes are read from
the printed form of a list. Values are looked at one by one; arrays and Arrow data do not come this way.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeAlias

import numpy as np
from numpy.typing import NDArray

from .tags import NUMPY_TYPES, Type

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["coerce_column", "coerce_value", "float_text", "parse_float"]

Source: TypeAlias = Literal[
    "bool", "int64", "uint64", "integer", "float64", "float32", "string", "bytes", "nil"
]
"""What a Python value counts as: the rows of the table; ``"integer"`` are all other NumPy integers."""

_TRUE = frozenset([b"1", b"t", b"T", b"TRUE", b"true", b"True"])
_FALSE = frozenset([b"0", b"f", b"F", b"FALSE", b"false", b"False"])
_INTEGER = re.compile(rb"[+-]?[0-9]+")
_DIGITS = rb"[0-9]+(?:_[0-9]+)*"
_DECIMAL = re.compile(
    rb"[+-]?(?:"
    + _DIGITS
    + rb"(?:\.(?:"
    + _DIGITS
    + rb")?)?|\."
    + _DIGITS
    + rb")(?:[eE][+-]?"
    + _DIGITS
    + rb")?"
)
_HEX = rb"[0-9a-fA-F]+(?:_[0-9a-fA-F]+)*"
_HEXADECIMAL = re.compile(
    rb"([+-]?)0[xX]_?(?:("
    + _HEX
    + rb")(?:\.("
    + _HEX
    + rb")?)?|\.("
    + _HEX
    + rb"))[pP]([+-]?"
    + _DIGITS
    + rb")"
)
_INFINITY = re.compile(rb"([+-]?)(?:inf|infinity)", re.IGNORECASE)
_LIST = re.compile(rb"\[\s*(?:[0-9]+(?:\s+[0-9]+)*)?\s*\]")
_NAN: float = struct.unpack("<d", struct.pack("<Q", 0x7FF8000000000001))[0]


def source_of(value: Any) -> Source:
    """Return what `value` counts as.

    Raises
    ------
    TypeError
        For values of no such kind.
    ValueError
        For a Python int outside -2**63 .. 2**64 - 1.
    """
    if value is None:
        return "nil"
    if isinstance(value, (bool, np.bool_)):
        return "bool"
    if isinstance(value, np.integer):
        return "int64" if value.dtype == np.int64 else "uint64" if value.dtype == np.uint64 else "integer"
    if isinstance(value, int):
        if -(2**63) <= value < 2**63:
            return "int64"
        if 0 <= value < 2**64:
            return "uint64"
        raise ValueError(f"the integer {value if abs(value) < 10**40 else '...'} does not fit 64 bits")
    if isinstance(value, float):
        return "float64"
    if isinstance(value, np.float32):
        return "float32"
    if isinstance(value, str):
        return "string"
    if isinstance(value, (bytes, bytearray, memoryview)):
        return "bytes"
    raise TypeError(f"a value of type {type(value).__name__} has no counterpart in the format")


def coerce_value(value: Any, kind: Type, *, compatible: bool = False) -> bool | int | float | bytes:
    """Convert one value, not None, to the type of its column.

    Returns
    -------
    bool, int, float or bytes
        Text is returned as its bytes, a float32 as the float64 of the same value (NaN without its payload).

    Raises
    ------
    TypeError
        If the kinds do not go together.
    ValueError
        If the value does not fit.
    """
    source = source_of(value)
    if source == "nil":
        raise TypeError("None in a column that is not nullable")
    if kind is Type.BOOL:
        return _to_bool(value, source)
    if kind <= Type.UINT64:
        return _to_integer(value, source, kind, compatible)
    if kind.fixed:
        return _to_float(value, source, kind)
    return _to_text(value, source) if kind is Type.STRING else _to_bytes(value, source, compatible)


def coerce_column(
    name: str, values: Sequence[Any], kind: Type, *, nullable: bool, compatible: bool = False
) -> NDArray[Any] | pa.Array:
    """Convert a column of Python values.

    Parameters
    ----------
    name : str
        For messages.
    values : sequence
        None is a null.
    kind : Type
    nullable : bool
    compatible : bool, optional
        Do as the format's own library does instead of refusing what loses something.

    Returns
    -------
    ndarray or pyarrow.Array
        As `ColumnsEncoder.segment` takes it. Text may hold bytes that are not UTF-8.

    Raises
    ------
    TypeError, ValueError
        Naming column and row.
    """
    converted: list[Any] = []
    missing = np.zeros(len(values), np.bool_)
    for row, value in enumerate(values):
        if value is None and nullable:
            missing[row] = True
            converted.append(None)
            continue
        try:
            converted.append(coerce_value(value, kind, compatible=compatible))
        except (TypeError, ValueError) as error:
            raise type(error)(f"column {name!r}, row {row}: {error}") from None
    if not kind.fixed:
        return _variable(converted, kind)
    dtype = NUMPY_TYPES[kind]
    filled = [0 if value is None else value for value in converted]
    if kind is Type.FLOAT32:
        with np.errstate(over="ignore", invalid="ignore"):
            array = np.array(filled, np.float64).astype(dtype)
        _restore_nans(array, values)
    else:
        array = np.array(filled, dtype)
    if not nullable:
        return array
    import pyarrow as pa

    return pa.array(array, mask=missing)


def _restore_nans(array: NDArray[Any], values: Sequence[Any]) -> None:
    """Give float32 NaNs their payload again, quiet: a way through a Python float may lose it."""
    bits = array.view(np.uint32)
    for row in np.flatnonzero(np.isnan(array)).tolist():
        if isinstance(values[row], np.float32):
            bits[row] = np.float32(values[row]).view(np.uint32) | np.uint32(0x00400000)


def _variable(converted: list[Any], kind: Type) -> pa.Array:
    import pyarrow as pa

    binary = pa.array(converted, pa.large_binary())
    if kind is Type.BYTES:
        return binary
    return pa.Array.from_buffers(pa.large_string(), len(binary), binary.buffers(), binary.null_count)


# ------------------------------------------------------------------------------------------------ the targets


def _refuse(source: Source, target: str) -> NoReturn:
    raise TypeError(f"a value of kind {source} cannot go into a column of type {target}")


def _text_of(value: Any) -> bytes:
    return value.encode("utf-8", "surrogateescape") if isinstance(value, str) else bytes(value)


def _to_bool(value: Any, source: Source) -> bool:
    if source in ("bool", "int64"):
        return bool(value)
    if source in ("string", "bytes"):
        text = _text_of(value)
        if text in _TRUE:
            return True
        if text in _FALSE:
            return False
        raise ValueError(f"{text[:40]!r} is no bool: only 1 t T TRUE true True 0 f F FALSE false False are")
    _refuse(source, "bool")


def _to_integer(value: Any, source: Source, kind: Type, compatible: bool) -> int:
    width = 8 * NUMPY_TYPES[kind].itemsize
    signed = kind <= Type.INT64
    low, high = (-(1 << width - 1), (1 << width - 1) - 1) if signed else (0, (1 << width) - 1)
    if source in ("string", "bytes"):
        return _parsed_integer(_text_of(value), signed, low, high, kind)
    if source in ("float64", "float32"):
        number = float(value)
        if not compatible:
            if not number.is_integer():
                raise ValueError(f"{number!r} is no integer; round it first")
            whole = int(number)
        elif kind is Type.UINT64:
            whole = int(number) if -(2.0**63) <= number < 2.0**64 else 1 << 63
        else:
            whole = int(number) if -(2.0**63) <= number < 2.0**63 else -(1 << 63)
    else:
        whole = int(value)
    if low <= whole <= high:
        return whole
    if not compatible:
        raise ValueError(f"{whole} does not fit {kind.name.lower()} ({low} to {high})")
    whole &= (1 << width) - 1
    return whole - (1 << width) if signed and whole >> width - 1 else whole


def _parsed_integer(text: bytes, signed: bool, low: int, high: int, kind: Type) -> int:
    if _INTEGER.fullmatch(text) is None or (not signed and text[:1] in (b"+", b"-")):
        raise ValueError(f"{text[:40]!r} is no integer text for {kind.name.lower()}")
    sign = -1 if text[:1] == b"-" else 1
    digits = text.lstrip(b"+-").lstrip(b"0") or b"0"
    if len(digits) > 20 or not low <= (number := sign * int(digits)) <= high:
        raise ValueError(f"{text[:40]!r} does not fit {kind.name.lower()} ({low} to {high})")
    return number


def _to_float(value: Any, source: Source, kind: Type) -> float:
    if source in ("string", "bytes"):
        return parse_float(_text_of(value), single=kind is Type.FLOAT32)
    if isinstance(value, np.floating):
        return float(value)
    return value if isinstance(value, float) else float(int(value))


def _to_text(value: Any, source: Source) -> bytes:
    if source in ("string", "bytes"):
        return _text_of(value)
    if source == "bool":
        return b"true" if value else b"false"
    if source in ("int64", "uint64"):
        return b"%d" % int(value)
    if source == "float64":
        return float_text(float(value)).encode()
    _refuse(source, "string")


def _to_bytes(value: Any, source: Source, compatible: bool) -> bytes:
    if source == "bytes":
        return bytes(value)
    if source != "string":
        _refuse(source, "bytes")
    if not compatible:
        raise TypeError("text does not go into a column of bytes; encode it first")
    text = _text_of(value)
    if _LIST.fullmatch(text) is None:
        raise ValueError(f"{text[:40]!r} is not the printed form of a list of bytes, such as '[1 2 255]'")
    numbers = [part.lstrip(b"0") or b"0" for part in text[1:-1].split()]
    if any(len(part) > 3 or int(part) > 255 for part in numbers):
        raise ValueError(f"{text[:40]!r} holds a number above 255")
    return bytes(map(int, numbers))


# ------------------------------------------------------------------------------------------- floats and text


def float_text(value: float) -> str:
    """Return the shortest text that reads back as `value`, as the format writes it.

    Exponents, of two digits at least, are used below -4 and from 6 on.
    """
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    if value == 0:
        return "-0" if math.copysign(1, value) < 0 else "0"
    sign, digits, exponent = Decimal(repr(value)).as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, digits)).rstrip("0")
    point = len(digits) + exponent  # the value is 0.text * 10**point
    head = "-" if sign else ""
    if point - 1 < -4 or point - 1 >= 6:
        rest = f".{text[1:]}" if len(text) > 1 else ""
        return f"{head}{text[0]}{rest}e{'-' if point < 1 else '+'}{abs(point - 1):02d}"
    if point <= 0:
        return f"{head}0.{'0' * -point}{text}"
    if len(text) <= point:
        return f"{head}{text}{'0' * (point - len(text))}"
    return f"{head}{text[:point]}.{text[point:]}"


def parse_float(text: bytes, *, single: bool = False) -> float:
    """Read a float as the format's library does.

    Parameters
    ----------
    text : bytes
        Decimal, or hexadecimal with a ``p`` exponent; ``inf``, ``infinity`` and ``nan`` in any case; single underscores
        between digits. No spaces.
    single : bool, optional
        Round once, to binary32, instead of to binary64.

    Raises
    ------
    ValueError
        For another syntax, and for numbers out of range.
    """
    found = _INFINITY.fullmatch(text)
    if found is not None:
        return -math.inf if found[1] == b"-" else math.inf
    if text.lower() == b"nan":
        return _NAN
    exact: Callable[[], Fraction]
    hexadecimal = _HEXADECIMAL.fullmatch(text)
    if hexadecimal is not None:
        number, exact = _hexadecimal(hexadecimal)
    elif _DECIMAL.fullmatch(text) is not None:
        plain = text.replace(b"_", b"").decode()
        number = float(plain)
        exact = lambda: Fraction(Decimal(plain))  # noqa: E731
    else:
        raise ValueError(f"{text[:40]!r} is no float text")
    if single and math.isfinite(number) and number != 0:
        number = _nearest_single(number, exact)
    if math.isinf(number):
        raise ValueError(f"{text[:40]!r} is out of range")
    return number


def _hexadecimal(found: re.Match[bytes]) -> tuple[float, Callable[[], Fraction]]:
    sign = -1 if found[1] == b"-" else 1
    whole = (found[2] or b"").replace(b"_", b"")
    part = (found[3] or found[4] or b"").replace(b"_", b"")
    mantissa = int(whole + part, 16)
    exponent_text = found[5].replace(b"_", b"")
    digits = exponent_text.lstrip(b"+-").lstrip(b"0") or b"0"
    exponent = int(digits) if len(digits) < 10 else 10**9
    exponent = (-exponent if exponent_text[:1] == b"-" else exponent) - 4 * len(part)
    if mantissa == 0:
        return math.copysign(0.0, sign), lambda: Fraction(0)
    if exponent + mantissa.bit_length() > 1100:
        return sign * math.inf, lambda: Fraction(0)
    if exponent + mantissa.bit_length() < -1200:
        return math.copysign(0.0, sign), lambda: Fraction(0)
    exact = sign * (Fraction(mantissa) * Fraction(2) ** exponent)
    try:
        number: float = float(exact)
        return number, lambda: exact
    except OverflowError:
        return sign * math.inf, lambda: exact


def _nearest_single(number: float, exact: Callable[[], Fraction]) -> float:
    """Return the binary32 nearest to an exact value of which `number` is the nearest binary64."""
    with np.errstate(over="ignore"):
        rounded = np.float32(number)
        again = float(rounded)
    if again == number or not _half_way(number, rounded):
        return again
    # The binary64 lies half way between two binary32: which is nearer is for the exact value to say.
    value, middle = exact(), Fraction(number)
    if value == middle:
        return again
    with np.errstate(over="ignore"):
        return float(np.float32(math.nextafter(number, math.inf if value > middle else -math.inf)))


def _half_way(number: float, rounded: np.float32) -> bool:
    if np.isinf(rounded):
        return abs(number) == float(2**128 - 2**103)
    with np.errstate(over="ignore"):
        other = np.nextafter(rounded, np.float32(math.inf if number > float(rounded) else -math.inf))
    bound = float(2**128) if np.isinf(other) else abs(float(other))
    return abs(abs(number) - abs(float(rounded))) == abs(bound - abs(number))
