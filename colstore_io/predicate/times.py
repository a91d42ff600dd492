"""Times as exact fractions of seconds.

NumPy casts between datetime units wrap silently beyond int64, and so does its parser of long fractions. Literals are
therefore placed with Python integers, on the proleptic Gregorian calendar that NumPy uses.
"""

from __future__ import annotations

import datetime
import math
import re
from fractions import Fraction
from typing import Any

import numpy as np

from .literals import IncompatibleTypesError

__all__ = [
    "SECONDS",
    "datetime64_seconds",
    "days_from_civil",
    "iso_seconds",
    "linear_step",
    "month_start",
    "months_floor",
    "unit_of",
]

SECONDS: dict[str, Fraction] = {
    "W": Fraction(604800),
    "D": Fraction(86400),
    "h": Fraction(3600),
    "m": Fraction(60),
    "s": Fraction(1),
    "ms": Fraction(1, 10**3),
    "us": Fraction(1, 10**6),
    "ns": Fraction(1, 10**9),
    "ps": Fraction(1, 10**12),
    "fs": Fraction(1, 10**15),
    "as": Fraction(1, 10**18),
}
"""Length of NumPy's linear time units. Python fractions, because NumPy's own casts between units wrap silently."""

_ISO = re.compile(
    r"(?P<year>\d{4}|[+-]\d{4,6})(-(?P<month>\d\d)(-(?P<day>\d\d)"
    r"([T ](?P<hour>\d\d)(:(?P<minute>\d\d)(:(?P<second>\d\d)([.,](?P<fraction>\d{1,18}))?)?)?"
    r"\s?(?P<zone>Z|[+-]\d\d(:?\d\d)?)?)?)?)?",
    re.ASCII,
)


def unit_of(dtype: np.dtype[Any]) -> tuple[str, int]:
    """Return unit and multiple of a datetime64 or timedelta64 dtype; months for years."""
    unit, count = np.datetime_data(dtype)
    return ("M", 12 * count) if unit == "Y" else (unit, count)


def linear_step(dtype: np.dtype[Any]) -> Fraction | None:
    """Return the seconds of one step of a time dtype, or None for months, years and unit-less times."""
    unit, count = unit_of(dtype)
    return SECONDS[unit] * count if unit in SECONDS else None


def days_from_civil(year: int, month: int, day: int) -> int:
    """Return days since 1970-01-01 of a date of the proleptic Gregorian calendar, any year."""
    year -= month <= 2
    era, year_of_era = divmod(year, 400)
    day_of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return era * 146097 + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year - 719468


def months_floor(days: int) -> int:
    """Return whole months since 1970-01 of a day number."""
    era, day_of_era = divmod(days + 719468, 146097)
    year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36524 - day_of_era // 146096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    month_index = (5 * day_of_year + 2) // 153  # 0 = March
    return (year_of_era + era * 400 - 1970) * 12 + month_index + 2


def month_start(months: int) -> int:
    year, month = divmod(months, 12)
    return days_from_civil(1970 + year, month + 1, 1)


def datetime64_seconds(value: np.datetime64) -> Fraction:
    unit, count = unit_of(value.dtype)
    steps = int(value.astype(np.int64)) * count
    if unit == "M":
        return Fraction(month_start(steps) * 86400)
    if unit not in SECONDS:
        raise IncompatibleTypesError("a datetime64 without a unit cannot be compared; give it a unit")
    return steps * SECONDS[unit]


def iso_seconds(text: str, tz: str | None) -> Fraction:
    """Return seconds since the epoch, in UTC for an aware column, of an ISO 8601 date or date and time."""
    match = _ISO.fullmatch(text.strip())
    if match is None:
        raise IncompatibleTypesError(
            f"datetime cannot be compared with {text!r}, which is no ISO date; write e.g. '2020-01-31' or "
            "'2020-01-31T12:30:00'"
        )
    year, month, day, hour, minute, second = (
        int(match[name] or default)
        for name, default in (
            ("year", 0), ("month", 1), ("day", 1), ("hour", 0), ("minute", 0), ("second", 0)
        )
    )  # fmt: skip
    if not (1 <= month <= 12 and hour < 24 and minute < 60 and second < 60):
        raise IncompatibleTypesError(f"{text!r} is not a valid date and time")
    days = days_from_civil(year, month, day)
    if not 1 <= day <= month_start((year - 1970) * 12 + month) - month_start((year - 1970) * 12 + month - 1):
        raise IncompatibleTypesError(f"{text!r} is not a valid date and time")
    seconds = Fraction(days * 86400 + hour * 3600 + minute * 60 + second)
    if match["fraction"]:
        seconds += Fraction(int(match["fraction"]), 10 ** len(match["fraction"]))
    if match["zone"]:
        if tz is None:
            raise IncompatibleTypesError(f"{text!r} has a time zone, the column has none; leave the zone out")
        return seconds - _offset_seconds(match["zone"])
    return seconds if tz is None else _to_utc(seconds, tz, text)


def _offset_seconds(zone: str) -> int:
    if zone == "Z":
        return 0
    digits = zone[1:].replace(":", "")
    seconds = int(digits[:2]) * 3600 + int(digits[2:] or "0") * 60
    return -seconds if zone[0] == "-" else seconds


def _to_utc(seconds: Fraction, tz: str, text: str) -> Fraction:
    """Take wall-clock `seconds` as a time in zone `tz`, as pandas does with text that names no zone."""
    if tz.upper() in ("UTC", "Z", "GMT"):
        return seconds
    if re.fullmatch(r"[+-]\d\d(:?\d\d)?", tz):
        return seconds - _offset_seconds(tz)
    import zoneinfo

    try:
        zone = zoneinfo.ZoneInfo(tz)
        whole = math.floor(seconds)
        wall = datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=whole)
        offset = wall.replace(tzinfo=zone).utcoffset()
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OverflowError, OSError):
        offset = None
    if offset is None:
        raise IncompatibleTypesError(
            f"cannot tell the UTC offset of {text!r} in the column's zone {tz!r}; write the offset, e.g. {text}Z"
        )
    return seconds - Fraction(int(offset.total_seconds()))
