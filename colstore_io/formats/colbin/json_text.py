"""How one value is spelled in rendered JSON: strings, bytes, floats (colbin.md 12)."""

from __future__ import annotations

import math
import re
from base64 import b64encode

import numpy as np

__all__ = ["quote_bytes", "quote_text", "spell_base64", "spell_f32", "spell_f64"]

_ESCAPES: dict[int, str] = {
    **{code: f"\\u{code:04x}" for code in (*range(32), ord("<"), ord(">"), ord("&"), 0x2028, 0x2029)},
    # bytes that are no UTF-8 come as lone surrogates, one each
    **dict.fromkeys(range(56448, 56576), "\\ufffd"),
    ord('"'): '\\"',
    ord("\\"): "\\\\",
    ord("\n"): "\\n",
    ord("\r"): "\\r",
    ord("\t"): "\\t",
}
_SPECIAL = re.compile('[\x00-\x1f"\\\\<>&\u2028\u2029\udc80-\udcff]')
_PLAIN_BELOW = 1e16
_PLAIN_FROM = 1e-4


def quote_text(text: str) -> str:
    """Return `text` as a JSON string; lone surrogates U+DC80..U+DCFF stand for bytes that were no UTF-8."""
    return f'"{text.translate(_ESCAPES)}"' if _SPECIAL.search(text) else f'"{text}"'


def quote_bytes(data: bytes | memoryview) -> str:
    """Return the bytes of a string as a JSON string, each byte of invalid UTF-8 as ``\\ufffd``."""
    return quote_text(str(data, "utf-8", "surrogateescape"))


def spell_base64(data: bytes | memoryview) -> str:
    """Return a byte string as JSON: base64, standard alphabet, padded."""
    return f'"{b64encode(data).decode("ascii")}"'


def spell_f64(value: float) -> str:
    """Return the shortest digits that read back as this f64; `ValueError` for NaN and infinities.

    Positional from 1e-6 up to 1e21, else with an exponent, whose sign is always there and which has two digits at
    least, negative ones below 10 excepted.
    """
    if not math.isfinite(value):
        raise ValueError(f"JSON has no {value}")
    text = repr(value)
    if text.endswith(".0"):
        return text[:-2] if abs(value) < _PLAIN_BELOW else _spell(text, abs(value) >= 1e21)
    if _PLAIN_FROM <= abs(value) < _PLAIN_BELOW:
        return text
    return _spell(text, abs(value) < 1e-6 or abs(value) >= 1e21)


_SMALL_F32 = float(np.uint32(0x358637BD).view(np.float32))
"""1e-6 as f32, a little below 1e-6: from here on f32 values are written positionally."""


def spell_f32(value: np.float32) -> str:
    """Return the shortest digits that read back as this f32; see `spell_f64`."""
    wide = float(value)
    if not math.isfinite(wide):
        raise ValueError(f"JSON has no {wide}")
    if wide == 0:
        return "-0" if math.copysign(1, wide) < 0 else "0"
    text = np.format_float_scientific(value, unique=True, trim="-")
    return _spell(text, abs(wide) < _SMALL_F32 or abs(wide) >= 1e21)


def _spell(text: str, scientific: bool) -> str:
    """Write the number that `text` spells (as ``repr`` or in scientific notation) in the wanted notation."""
    sign = "-" if text.startswith("-") else ""
    mantissa, _, exponent_text = text.lstrip("-").partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    # value = 0.digits * 10 ** point
    point = len(whole) + int(exponent_text or 0) - (len(whole + fraction) - len(digits))
    digits = digits.rstrip("0")
    if scientific:
        exponent = point - 1
        size = f"{abs(exponent)}" if exponent < 0 else f"{exponent:02d}"
        rest = f".{digits[1:]}" if len(digits) > 1 else ""
        return f"{sign}{digits[0]}{rest}e{'-' if exponent < 0 else '+'}{size}"
    if point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    if point >= len(digits):
        return f"{sign}{digits}{'0' * (point - len(digits))}"
    return f"{sign}{digits[:point]}.{digits[point:]}"
