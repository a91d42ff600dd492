from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

SLOTS: int
ATTRIBUTES: int
TUPLE: int
DICT: int
ENVELOPE: int

def slot_offset(cls: type, descriptor: object) -> int: ...

class Plan:
    """How the records of one type are encoded and decoded. Made empty, then defined once: types may be recursive."""

    def __init__(
        self, mode: int, cls: type | None, *, k8: bool, post: Callable[[Any], object] | None = None
    ) -> None: ...
    @property
    def cls(self) -> type: ...
    @property
    def has_dynamic(self) -> bool: ...
    def define(self, fields: list[tuple[Any, ...]]) -> None: ...

class RecordCodec:
    """Encodes and decodes one record type and those that it reaches."""

    def __init__(
        self,
        root: Plan,
        plan_of: Callable[[type], Plan | None],
        run_type: type,
        structs: tuple[Plan, ...],
    ) -> None: ...
    def encode(
        self,
        value: Any,
        *,
        packed5: bool = False,
        errors: Literal["strict", "surrogateescape"] | None = None,
    ) -> bytes: ...
    def encode_into(
        self,
        buffer: bytearray,
        value: Any,
        *,
        offset: int = 0,
        packed5: bool = False,
        errors: Literal["strict", "surrogateescape"] | None = None,
    ) -> int: ...
    def decode(
        self,
        data: bytes | bytearray | memoryview,
        *,
        max_rows: int | None = None,
        errors: Literal["strict", "surrogateescape"] | None = None,
        max_cells: int | None = None,
    ) -> Any: ...
    def _encode_described(self, value: Any, packed5: bool, errors: str | None, session: object) -> bytes: ...
    def _read_section(self, data: bytes | bytearray | memoryview) -> tuple[int, tuple[Plan, ...] | None]: ...

def join(messages: Sequence[bytes], offsets: NDArray[np.int64]) -> bytes:
    """Return the messages, bytes objects, one behind the other; `offsets`, shape (n + 1,), gets where each begins."""
