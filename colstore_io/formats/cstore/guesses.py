"""Where may the next record headers be? Guesses of a walk to which every look is a round trip.

Sizes of records repeat: sessions of appends leave the same pattern again and again, batches grow by a step or are
halved, one record among equal ones is different. Each rule below continues what was seen; the headers to which the
rules lead are fetched in the same round as the one whose place is known. A rule that was right is asked for eight times
as much, so a pattern of n records takes about log n / log 8 rounds.

A guess that is wrong costs a request of 32 bytes, and their number is bounded (`Guesses.places`). It never gives a
wrong record: what was fetched is looked at when the walk, header by header, arrives at that very offset.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

__all__ = ["Guesses", "period_of"]

FREE_GUESSES = 64
GUESSES_PER_RECORD = 2
GUESSES_PER_RIGHT_ONE = 8
"""How many guesses may be wrong: so many, for each record that the counters promise, for each guess that was right."""

_FIRST = 8
"""How far a rule of which nothing is known, or that was wrong, is followed."""

_LEAST = 8
"""Guesses that every round has: a pattern may begin after many records without one."""

_HISTORY = 1024
"""Records that a pattern is looked for in."""

_SETS = {2: (8, 16), 3: (4, 6)}
"""How far all orders of so many sizes are followed, at first and when that was right: 2 sizes have 45 places within 8
records and 153 within 16, 3 have 35 within 4 and 84 within 6."""

_MOST_AT_ONCE = 1 << 16
"""Places that one round may have at most: counters may promise anything."""

_MOST_RATIO = 64
_MOST_ROWS = 1 << 63


def period_of(rows: Sequence[int]) -> tuple[int, int]:
    """Return the period that the longest end of `rows` repeats, and the length of that end; (0, 0) without one."""
    n = len(rows)
    best, period = 0, 0
    for candidate in range(1, n):
        if n - candidate <= best:
            break
        if rows[n - 1 - best] != rows[n - 1 - best - candidate]:  # no longer than the best one
            continue
        length = 0
        while length < n - candidate and rows[n - 1 - length] == rows[n - 1 - length - candidate]:
            length += 1
        if length > best:
            best, period = length, candidate
    return period, best


def _repeat(rows: Sequence[int], count: int) -> list[int]:
    """Continue `rows` with the period of its end; with its last one when there is none."""
    period = period_of(rows)[0] or 1
    end = rows[-period:]
    return [end[i % period] for i in range(count)]


def _grow(rows: Sequence[int], count: int) -> list[int]:
    """Continue with the last difference."""
    step = rows[-1] - rows[-2] if len(rows) > 1 else 0
    return [rows[-1] + step * i for i in range(1, count + 1)] if step else []


def _multiply(rows: Sequence[int], count: int) -> list[int]:
    """Continue with the last ratio, if it or its reciprocal is a whole number, up to rounding."""
    if len(rows) < 2 or min(rows[-2:]) < 1:
        return []
    before, last = rows[-2:]
    found: list[int] = []
    if last > before:
        factor, rest = divmod(last, before)
        while not rest and factor <= _MOST_RATIO and len(found) < count and last < _MOST_ROWS:
            last *= factor
            found.append(last)
        return found
    factor = round(before / last)
    if not 2 <= factor <= _MOST_RATIO or last not in (before // factor, -(-before // factor)):
        return []
    up = last != before // factor
    while last and len(found) < count:
        last = -(-last // factor) if up else last // factor
        found.append(last)
    return found


_RULES: dict[str, Callable[[Sequence[int], int], list[int]]] = {
    "the same": lambda rows, count: [rows[-1]] * count,
    "again": _repeat,
    "again, but for the last": lambda rows, count: _repeat(rows[:-1], count) if len(rows) > 1 else [],
    "most of them": lambda rows, count: [Counter(rows).most_common(1)[0][0]] * count,
    "a step": _grow,
    "a ratio": _multiply,
}


@dataclass(slots=True)
class Guesses:
    """What one walk guesses, and how well.

    Attributes
    ----------
    n_records : int
        That the counters promise.
    stored : callable (rows) -> int
        Bytes from the header of a record of so many rows to the next one.
    """

    n_records: int
    stored: Callable[[int], int]
    _ahead: dict[str, int] = field(default_factory=dict)
    _followed: dict[str, list[int]] = field(default_factory=dict)
    _asked: set[int] = field(default_factory=set)
    _spent: int = 0
    _right: int = 0
    _surprised: bool = False
    _for_one: int = FREE_GUESSES
    _depth: int = 0
    _last_found: int = 0

    def places(self, rows: Sequence[int], here: int, end: int, left_rows: int) -> list[int]:
        """Return offsets in ascending order, behind `here`, at which headers may be.

        Parameters
        ----------
        rows : sequence of int
            Rows of the records before the one at `here`.
        here : int
            Where the next header is.
        end : int
            No header ends behind this.
        left_rows : int
            Rows of the records from there on.

        Notes
        -----
        Of all that a walk is given, at most ``64 + 2 n_records + 8 right + 8 calls`` places are wrong.
        """
        left = min(self.n_records - len(rows), _MOST_AT_ONCE)
        self._asked.clear()
        self._followed.clear()
        if left < 2:
            return []
        known = list(rows[-_HISTORY:]) or [left_rows // left]
        for chain in sorted(self._chains(known, left, left_rows), key=len, reverse=True):
            self._follow(chain[: left - 1], here, end, left_rows)
        if self._surprised:
            self._follow_all_orders(known, here, end, left)
        self._spent += len(self._asked)
        return sorted(self._asked)

    def _chains(self, known: Sequence[int], left: int, left_rows: int) -> list[list[int]]:
        """Return rows of the next records, as several rules have it."""
        common, times = Counter(known).most_common(1)[0]
        # Where the rows that are left allow it, all the others may be like one.
        alike = [
            [size] * left
            for size in {known[-1]: 0, common: 0}
            if size * (left - 1) <= left_rows <= size * left
        ]
        if alike and not self._surprised:
            self._followed["the same"] = alike[0]
            return alike[:1]
        for name, rule in _RULES.items():
            self._followed[name] = rule(known, min(left, self._ahead.get(name, _FIRST)))
        chains = [*alike, *self._followed.values()]
        if not alike and 2 * times >= len(known) and 2 * left <= self._for_one:  # or all but one
            self._for_one -= 2 * left
            chains += [[left_rows - common * (left - 1), *[common] * left], [common] * left]
        return chains

    @property
    def _budget(self) -> int:
        """How many places may be given in this round."""
        wrong = self._spent - self._right
        allowed = FREE_GUESSES + GUESSES_PER_RECORD * self.n_records + GUESSES_PER_RIGHT_ONE * self._right
        return max(allowed - wrong, _LEAST)

    def _follow(self, chain: Sequence[int], here: int, end: int, left_rows: int) -> None:
        place, total = here, 0
        budget = self._budget
        for size in chain:
            total += size
            place += self.stored(size)
            if size < 0 or total > left_rows or place > end:
                break
            if place not in self._asked:
                if len(self._asked) >= budget:
                    break
                self._asked.add(place)

    def _follow_all_orders(self, known: Sequence[int], here: int, end: int, left: int) -> None:
        """Of few different sizes that come in any order, all places within some records."""
        sizes = [size for size, _ in Counter(known[-32:]).most_common(4)]
        level = {here}
        first, later = _SETS.get(len(sizes), (0, 0))
        self._depth = later if self._depth and self._depth < self._last_found else first
        for _ in range(min(left - 1, self._depth)):
            level = {place + self.stored(size) for place in level for size in sizes}
            level = {place for place in level if place <= end}
            if len(self._asked | level) > self._budget:
                break
            self._asked |= level

    def learn(self, found: Sequence[int], places: Sequence[int]) -> None:
        """Take what the round found.

        Parameters
        ----------
        found : sequence of int
            Rows of the records that it told.
        places : sequence of int
            Where their headers are.
        """
        self._right += sum(place in self._asked for place in places)
        self._surprised = True
        self._last_found = len(found)
        for name, chain in self._followed.items():
            same = 0
            for guess, true in zip(chain, found, strict=False):
                if guess != true:
                    break
                same += 1
            whole = 0 < len(chain) == same
            self._ahead[name] = 8 * same if whole else max(_FIRST, 2 * same)
            self._surprised = self._surprised and not whole
