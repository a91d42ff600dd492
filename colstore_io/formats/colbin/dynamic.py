"""Which record types does a message with dynamic values need? The open section (colbin.md 11).

While a message is written with its section and its root type has a dynamic field, a record inside a dynamic value goes
out behind the number of its type, and a type that the section does not have yet is appended: in pre-order, when the
first record of it is met. So the section is complete only after the body.
"""

from __future__ import annotations

import dataclasses
from functools import lru_cache

from ...kernels import colbin as kernel
from .annotations import Definitions, definitions, record_kind
from .plan import typed_plans
from .schema import Section, StructDef

__all__ = ["OpenSection", "PlanTable"]


@lru_cache(maxsize=512)
def _plans_of(cls: type) -> tuple[Definitions, tuple[kernel.Plan, ...]]:
    defs = definitions(cls)
    return defs, typed_plans(defs)


class PlanTable:
    """Plans of the record classes that dynamic values may hold; called by the kernel with a class.

    Parameters
    ----------
    defs : Definitions or None
        Of the codec's own type, whose classes are known without looking at the class's module: they may have been
        defined inside a function.
    plans : sequence of Plan
        One per definition of `defs`.
    """

    def __init__(self, defs: Definitions | None, plans: tuple[kernel.Plan, ...]) -> None:
        self._known: dict[type, kernel.Plan | None] = {}
        self._definitions: dict[kernel.Plan, tuple[Definitions, int]] = {}
        for index, source in enumerate(defs.records if defs is not None else ()):
            if source is not None and defs is not None:
                self._known[source.cls] = plans[index]
                self._definitions[plans[index]] = (defs, index)

    def __call__(self, cls: type) -> kernel.Plan | None:
        """Return the plan of a record class, None for all other types."""
        try:
            return self._known[cls]
        except KeyError:
            pass
        plan: kernel.Plan | None = None
        if record_kind(cls) is not None:
            defs, plans = _plans_of(cls)
            plan = plans[0]
            self._definitions[plan] = (defs, 0)
        self._known[cls] = plan
        return plan

    def definition_of(self, plan: kernel.Plan) -> tuple[Definitions, int]:
        """Return the definitions that a plan was made from, and its number there."""
        return self._definitions[plan]


class OpenSection:
    """The section of one message while its body is written; called by the kernel with the plan of a record type."""

    def __init__(self, defs: Definitions | None, section: Section, table: PlanTable) -> None:
        self._structs: list[StructDef] = list(section.structs)
        self._numbers: dict[type, int] = {}
        for index, source in enumerate(defs.records if defs is not None else ()):
            if source is not None:
                self._numbers[source.cls] = index
        self._table = table

    def __call__(self, plan: kernel.Plan) -> int:
        """Return the number of a record type; its first use appends it and its nested types, in pre-order."""
        return self._append(*self._table.definition_of(plan))

    def _append(self, defs: Definitions, index: int) -> int:
        source, struct = defs.records[index], defs.section.structs[index]
        assert source is not None
        known = self._numbers.get(source.cls)
        if known is not None:
            return known
        number = self._numbers[source.cls] = len(self._structs)
        self._structs.append(struct)
        fields = []
        for item in struct.fields:
            if item.type.index >= 0:
                kind = dataclasses.replace(item.type, index=self._append(defs, item.type.index))
                item = dataclasses.replace(item, type=kind)
            fields.append(item)
        self._structs[number] = StructDef(struct.name, tuple(fields), struct.k8)
        return number

    def section(self) -> Section:
        """Return the section as it is now."""
        return Section(tuple(self._structs))
