"""Encode and decode records beside msgspec: ``colbin_records.py [TABLE ...]``.

Tables are those of the corpus of the tests. Rounds are interleaved; printed is the least processor time of a
record in ns, and how many times slower the others are.
"""

from __future__ import annotations

import dataclasses
import sys
import time
import typing
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from colbin_corpus import corpus

from colstore_io.formats.colbin.codec import Codec

ROUNDS, SECONDS = 15, 0.02
Case = tuple[Callable[[Any], object], list[Any]]


def plain(cls: type, make: Callable[[str, list[tuple[str, Any]]], Any]) -> Any:
    """Return the class of another library with the fields of a record class."""

    def hint(annotation: Any) -> Any:
        if typing.get_origin(annotation) is list and dataclasses.is_dataclass(typing.get_args(annotation)[0]):
            return list[plain(typing.get_args(annotation)[0], make)]  # type: ignore[misc]
        return annotation

    hints = typing.get_type_hints(cls)
    return make(cls.__name__, [(name, hint(hints[name])) for name in hints])


def msgspec_cases(rows: list[Any], make: Callable[[str, list[tuple[str, Any]]], Any]) -> tuple[Case, Case]:
    cls = plain(type(rows[0]), make)
    decoder, encoder = msgspec.msgpack.Decoder(cls), msgspec.msgpack.Encoder()
    messages = [encoder.encode(as_list(row) if array_like(cls) else dataclasses.asdict(row)) for row in rows]
    objects = [decoder.decode(message) for message in messages]
    return (encoder.encode, objects), (decoder.decode, messages)


def array_like(cls: Any) -> bool:
    return getattr(getattr(cls, "__struct_config__", None), "array_like", False)


def as_list(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return [as_list(getattr(value, f.name)) for f in dataclasses.fields(value)]
    return [as_list(item) for item in value] if isinstance(value, list) else value


def least(function: Callable[[Any], object], items: Iterable[Any]) -> float:
    count, start = 0, time.process_time()
    while True:
        for item in items:
            function(item)
            count += 1
        spent = time.process_time() - start
        if spent > SECONDS:
            return spent / count * 1e9


def compare(name: str, cases: dict[str, tuple[Case, Case]]) -> None:
    for direction, word in enumerate(("encode", "decode")):
        times: dict[str, list[float]] = {label: [] for label in cases}
        for _ in range(ROUNDS):
            for label, pair in cases.items():
                times[label].append(least(*pair[direction]))
        found = {label: min(values) for label, values in times.items()}
        ours = found["colbin"]
        print(
            f"{name:9} {word}  "
            + "  ".join(f"{label} {value:.0f} ({value / ours:.2f}x)" for label, value in found.items())
        )


def columns(rows: list[Any]) -> None:
    """Many messages to columns, beside msgspec's rows and `numpy.fromiter`."""
    codec = Codec(type(rows[0]))
    names = [f.name for f in dataclasses.fields(rows[0])]
    messages = [codec.encode(row) for row in rows]
    cls = plain(type(rows[0]), lambda name, fields: msgspec.defstruct(name, fields, array_like=True))
    decoder, encoder = msgspec.msgpack.Decoder(cls), msgspec.msgpack.Encoder()
    packed = [encoder.encode(as_list(row)) for row in rows]

    def theirs(_: object) -> object:
        objects = [decoder.decode(message) for message in packed]
        return [np.fromiter((getattr(o, n) for o in objects), np.int64, len(objects)) for n in names]

    times: dict[str, list[float]] = {"colbin": [], "msgspec": []}
    for _ in range(ROUNDS):
        times["colbin"].append(least(codec.decode_columns, [messages]) / len(rows))
        times["msgspec"].append(least(theirs, [None]) / len(rows))
    ours, other = min(times["colbin"]), min(times["msgspec"])
    print(f"metrics   columns  colbin {ours:.0f}  msgspec and fromiter {other:.0f} ({other / ours:.1f}x)")


def main(*tables: str) -> None:
    data = corpus()
    for name in tables or ("users", "products", "sales", "metrics"):
        rows: list[Any] = data[name][:200]
        codec = Codec(type(rows[0]))
        messages = [codec.encode(row) for row in rows]
        compare(
            name,
            {
                "colbin": ((codec.encode, rows), (codec.decode, messages)),
                "array_like Struct": msgspec_cases(
                    rows, lambda name, fields: msgspec.defstruct(name, fields, array_like=True)
                ),
                "dataclass(slots)": msgspec_cases(
                    rows, lambda name, fields: dataclasses.make_dataclass(name, fields, slots=True)
                ),
            },
        )
    columns(data["metrics"])


if __name__ == "__main__":
    main(*sys.argv[1:])
