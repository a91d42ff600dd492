"""A corpus of records in the shapes of the golden one, of any size: the same rows on every machine and Python."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Annotated

from colstore_io.formats.colbin.annotations import record
from colstore_io.formats.colbin.markers import i64, u8, u16, u32, u64

__all__ = ["Event", "Metric", "Product", "Sale", "SaleLine", "Store", "User", "corpus"]


@record
class User:
    ID: Annotated[u32, 1]
    Name: Annotated[str, 2]
    Email: Annotated[str, 3]
    Country: Annotated[str, 4]
    Age: Annotated[u8, 5]
    Active: Annotated[bool, 6]
    CreatedAt: Annotated[i64, 7]


@record
class Product:
    ID: Annotated[u32, 1]
    SKU: Annotated[str, 2]
    Name: Annotated[str, 3]
    PriceCents: Annotated[i64, 4]
    Stock: Annotated[u32, 5]
    CategoryID: Annotated[u16, 6]
    Tags: Annotated[list[str], 7]


@record
class Store:
    ID: Annotated[u16, 1]
    Code: Annotated[str, 2]
    City: Annotated[str, 3]
    Lat: Annotated[float, 4]
    Lon: Annotated[float, 5]


@record
class SaleLine:
    ProductID: Annotated[u32, 1]
    Quantity: Annotated[u32, 2]
    UnitCents: Annotated[i64, 3]
    DiscountBP: Annotated[u16, 4]
    TaxBP: Annotated[u16, 5]
    TotalCents: Annotated[i64, 6]


@record
class Sale:
    ID: Annotated[u64, 1]
    UserID: Annotated[u32, 2]
    StoreID: Annotated[u16, 3]
    CreatedAt: Annotated[i64, 4]
    SubtotalCents: Annotated[i64, 5]
    TaxCents: Annotated[i64, 6]
    TotalCents: Annotated[i64, 7]
    PaidCents: Annotated[i64, 8]
    Detail: Annotated[list[SaleLine], 9]


@record
class Event:
    At: Annotated[i64, 1]
    Level: Annotated[str, 2]
    Actor: Annotated[str, 3]
    Message: Annotated[str, 4]
    Frames: Annotated[list[str], 5]
    Fields: Annotated[dict[str, str], 6]


@record
class Metric:
    SeriesID: Annotated[u32, 1]
    At: Annotated[i64, 2]
    Value: Annotated[i64, 3]


_FIRST = ("Ana", "Bruno", "Carla", "Diego", "Elena", "Irene", "Marta", "Olivia", "Pablo", "Valeria")
_LAST = ("Dominguez", "Escobar", "Gomez", "Ortiz", "Quiroga", "Ramirez", "Salazar", "Torres")
_COUNTRIES = ("AR", "CR", "EC", "ES", "MX", "PA", "PE", "PT", "PY", "UY")
_MAKERS = ("ACME", "ATLAS", "MERIDIAN", "NORTEC", "ORION", "VULCAN")
_NOUNS = ("Bolt Set", "Clamp", "Hinge", "Ladder", "Padlock", "Socket Wrench", "Tarpaulin")
_ADJECTIVES = ("Adjustable", "Compact", "Heavy Duty", "Insulated", "Premium", "Reinforced", "Stainless")
_TAGS = ("BULK", "CERTIFIED", "CLEARANCE", "FRAGILE", "HEAVY", "IMPORTED", "NEW", "RETURNABLE", "WARRANTY")
_CITIES = ("Lima", "Mexico", "Montevideo", "Quito", "Santiago")
_START = 1767225600


class _Chance:
    """A linear congruential generator: Python's own may change between versions."""

    def __init__(self, seed: int) -> None:
        self.state = seed

    def below(self, n: int) -> int:
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (self.state >> 33) % n

    def of(self, choices: tuple[str, ...]) -> str:
        return choices[self.below(len(choices))]


def corpus(scale: int = 1, seed: int = 7) -> dict[str, list[object]]:
    """Return tables of records: 100 users, 200 products, 5 stores, 300 sales, 100 events and 2000 metrics, each times
    `scale`."""
    chance = _Chance(seed)
    makers = {
        "users": (_users, 100),
        "products": (_products, 200),
        "stores": (_stores, 5),
        "sales": (_sales, 300),
        "events": (_events, 100),
        "metrics": (_metrics, 2000),
    }
    return {name: list(make(chance, scale * rows)) for name, (make, rows) in makers.items()}


def _users(chance: _Chance, rows: int) -> Iterator[object]:
    for n in range(rows):
        first, last = chance.of(_FIRST), chance.of(_LAST)
        mail = f"{first}.{last}{n}@example.org".lower()
        yield User(
            n + 1, f"{first} {last}", mail, chance.of(_COUNTRIES), 18 + chance.below(60), chance.below(8) > 0,
            _START + chance.below(10**7),
        )  # fmt: skip


def _products(chance: _Chance, rows: int) -> Iterator[object]:
    for n in range(rows):
        name = f"{chance.of(_ADJECTIVES)} {chance.of(_NOUNS)}"
        tags = sorted({chance.of(_TAGS) for _ in range(chance.below(4))})
        price = 99 + 100 * chance.below(1000)
        yield Product(
            n + 1, f"{chance.of(_MAKERS)}-{n:04}", name, price, chance.below(500), 1 + chance.below(12), tags
        )


def _stores(chance: _Chance, rows: int) -> Iterator[object]:
    for n in range(rows):
        city = _CITIES[n % len(_CITIES)]
        place = (chance.below(18_000_000) / 100_000 - 90, chance.below(36_000_000) / 100_000 - 180)
        yield Store(n + 1, f"{city[:3].upper()}{n + 1:03}", city, *place)


def _sales(chance: _Chance, rows: int) -> Iterator[object]:
    at = _START
    for n in range(rows):
        at += chance.below(4000)
        lines = []
        for _ in range(1 + chance.below(12) * chance.below(2)):
            quantity, unit, discount = (
                1 + chance.below(60),
                99 + 100 * chance.below(1000),
                500 * chance.below(5),
            )
            lines.append(
                SaleLine(
                    1 + chance.below(200),
                    quantity,
                    unit,
                    discount,
                    1000,
                    quantity * unit * (10000 - discount) // 10000,
                )
            )
        subtotal = sum(line.TotalCents for line in lines)
        tax = subtotal // 10
        yield Sale(
            n + 1,
            1 + chance.below(100),
            1 + chance.below(5),
            at,
            subtotal,
            tax,
            subtotal + tax,
            subtotal + tax,
            lines,
        )


def _events(chance: _Chance, rows: int) -> Iterator[object]:
    for _ in range(rows):
        fields = {
            "request_id": f"{chance.of(_MAKERS)}-{chance.below(10**6)}",
            "tenant": chance.of(_COUNTRIES),
        }
        frames = [f"handler.go:{chance.below(600)}" for _ in range(chance.below(3))]
        level = chance.of(("INFO", "WARN", "ERROR"))
        yield Event(_START + chance.below(10**7), level, "billing", "request completed", frames, fields)


def _metrics(chance: _Chance, rows: int) -> Iterator[object]:
    series, at, value = 0, _START, 1000
    for n in range(rows):
        if n % 500 == 0:
            series, at, value = 1 + chance.below(60), _START, 1000
        at += 10 + chance.below(4)
        value += chance.below(21) - 10
        yield Metric(series, at, value)


def digest(tables: dict[str, list[object]]) -> str:
    """Return the SHA-256 of all rows as text."""
    import hashlib

    total = hashlib.sha256()
    for name, rows in tables.items():
        total.update(name.encode())
        for row in rows:
            total.update(repr(dataclasses.astuple(row)).encode())  # type: ignore[call-overload]
    return total.hexdigest()
