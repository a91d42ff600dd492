"""Comparisons of arrays: the six operators on numbers, text and times."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .literals import Operator
from .times import linear_step
from .values import BoolArray

__all__ = ["UFUNCS", "compare_constant", "compare_times", "encode_text", "set_where"]

UFUNCS: dict[Operator, np.ufunc] = {
    "less": np.less,
    "less_equal": np.less_equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
    "equal": np.equal,
    "not_equal": np.not_equal,
}
_NAT = np.int64(-(2**63))


def set_where(truth: BoolArray, where: BoolArray, value: bool) -> None:
    """``truth[where] = value`` as one vectorised pass (10 M rows: 30 ms, a mask assignment takes 200 ms)."""
    if value:
        np.logical_or(truth, where, out=truth)
    else:
        np.greater(truth, where, out=truth)


def compare_constant(op: Operator, values: Any, value: np.generic, out: BoolArray | None = None) -> Any:
    """Compare with a constant of the same dtype; times as integers, in half the time."""
    if not isinstance(values, np.ndarray) or values.dtype.kind not in "mM":
        return UFUNCS[op](values, value, out=out)
    steps = values.view(np.int64)
    truth = UFUNCS[op](steps, value.view(np.int64), out=out)
    if op in ("less", "less_equal"):  # NaT is the least integer, so only these two would let it pass
        truth &= steps != _NAT
    return truth


def encode_text(values: NDArray[Any]) -> NDArray[Any]:
    """Return unicode text as UTF-8 bytes, whose order is that of the code points; bytes as they are."""
    if values.dtype.kind == "S":
        return values
    return np.strings.encode(values, "utf-8", "surrogatepass")


def compare_times(op: Operator, a: NDArray[Any], b: NDArray[Any]) -> BoolArray:
    """Compare times of different units exactly; NumPy's cast to the finer unit wraps beyond int64 without a word."""
    present = ~(np.isnat(a) | np.isnat(b))
    a_step, b_step = linear_step(a.dtype), linear_step(b.dtype)
    if a.dtype.kind == "M":  # months become the days they start on; both are then linear
        if a_step is None:
            a = a.astype("M8[D]")
            a_step = linear_step(a.dtype)
        if b_step is None:
            b = b.astype("M8[D]")
            b_step = linear_step(b.dtype)
    if a_step is None or b_step is None:  # timedeltas in months, or without a unit: NumPy's own rules
        inexact: BoolArray = UFUNCS[op](a, b)
        return inexact
    ratio = Fraction(a_step) / b_step
    # a * numerator OP b * denominator, by quotient and remainder so that nothing overflows: with x = b * d / n,
    # a < x  <=>  a < floor(x) or (a == floor(x) and x is not whole).
    n, d = ratio.numerator, ratio.denominator
    left, right = a.astype(np.int64), b.astype(np.int64)
    if n < d:  # b is the coarser one: swap the sides
        flipped: dict[Operator, Operator] = {
            "less": "greater", "less_equal": "greater_equal", "greater": "less", "greater_equal": "less_equal",
            "equal": "equal", "not_equal": "not_equal",
        }  # fmt: skip
        left, right, n, d, op = right, left, d, n, flipped[op]
    if d == 1 and n < 1 << 63:
        floor, remainder = np.divmod(right, n)
    else:  # uncommon: 25 s against 10 s, weeks against attoseconds
        exact = [divmod(int(value) * d, n) for value in right]
        floor = np.array([q for q, _ in exact], dtype=object)
        remainder = np.array([r for _, r in exact], dtype=object)
    same, whole = left == floor, remainder == 0
    equal = same & whole
    less = (left < floor) | (same & ~whole)
    results: dict[Operator, Any] = {
        "equal": equal,
        "not_equal": ~equal,
        "less": less,
        "less_equal": less | equal,
        "greater": ~(less | equal),
        "greater_equal": ~less,
    }
    truth = results[op].astype(np.bool_)
    result: BoolArray = (truth | ~present) if op == "not_equal" else (truth & present)
    return result
