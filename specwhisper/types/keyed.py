"""Parts of a result that answer by key as by attribute."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from functools import cache
from typing import Any


class Keyed(Mapping[str, Any]):
    """A dataclass that is also a mapping of its fields and properties."""

    __slots__ = ()

    def __getitem__(self, key: str) -> Any:
        if key not in _names(type(self)):
            raise KeyError(key)
        return getattr(self, key)

    def __iter__(self) -> Iterator[str]:
        return iter(_names(type(self)))

    def __len__(self) -> int:
        return len(_names(type(self)))


@cache
def _names(kind: Any) -> tuple[str, ...]:
    properties = [name for name, member in vars(kind).items() if isinstance(member, property)]
    return tuple(
        name for name in (*(each.name for each in fields(kind)), *properties) if not name.startswith("_")
    )
