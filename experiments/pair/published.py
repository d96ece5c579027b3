"""Published figures of real pairs, each with its source; the data are in ``published.toml``."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from rich.console import Console
from rich.table import Table

FILE = Path(__file__).with_name("published.toml")
ABSENT = "none found"


@dataclass(frozen=True, slots=True)
class Source:
    """Where a figure was read."""

    title: str
    url: str


@dataclass(frozen=True, slots=True)
class Rates:
    """Word error rates of both models on the same audio, in percent."""

    audio: str
    target: float
    draft: float
    source: str

    @property
    def disagreement(self) -> tuple[float, float]:
        """Bounds of the words in which the two texts differ: difference and sum of the rates.

        The distance of two texts obeys the triangle inequality, and each rate is a distance from what is
        said.
        """
        return abs(self.draft - self.target), self.draft + self.target


@dataclass(frozen=True, slots=True)
class Quantity:
    """A published number."""

    value: float
    source: str


@dataclass(frozen=True, slots=True)
class PublishedPair:
    """Published figures of a pair; ``None`` where no source was found."""

    target: str
    draft: str
    rates: tuple[Rates, ...]
    faster: Quantity | None = None
    accepted: Quantity | None = None
    realigns: Quantity | None = None


@dataclass(frozen=True, slots=True)
class Remark:
    """A published statement that is not about one pair's errors."""

    text: str
    source: str


@dataclass(frozen=True, slots=True)
class Published:
    """All of ``published.toml``."""

    sources: dict[str, Source]
    pairs: tuple[PublishedPair, ...]
    remarks: tuple[Remark, ...]

    def cited(self) -> Iterator[str]:
        """Yield the source of every figure and remark."""
        for pair in self.pairs:
            yield from (rates.source for rates in pair.rates)
            quantities = (pair.faster, pair.accepted, pair.realigns)
            yield from (quantity.source for quantity in quantities if quantity is not None)
        yield from (remark.source for remark in self.remarks)


@cache
def load_published() -> Published:
    """Read ``published.toml``."""
    content = tomllib.loads(FILE.read_text(encoding="utf-8"))
    pairs = []
    for fields in content["pairs"]:
        rates = tuple(Rates(**each) for each in fields.pop("rates"))
        names = {name: value for name, value in fields.items() if isinstance(value, str)}
        quantities = {name: Quantity(**value) for name, value in fields.items() if name not in names}
        pairs.append(PublishedPair(**names, rates=rates, **quantities))
    return Published(
        {name: Source(**fields) for name, fields in content["sources"].items()},
        tuple(pairs),
        tuple(Remark(**fields) for fields in content["remarks"]),
    )


def print_published(published: Published, console: Console) -> None:
    """Print the published pairs, then remarks, then sources by number."""
    numbers = {name: f"[{number}]" for number, name in enumerate(published.sources, start=1)}

    def shown(quantity: Quantity | None, digits: int) -> str:
        return f"{quantity.value:.{digits}f} {numbers[quantity.source]}" if quantity else ABSENT

    titles = ("pair", "audio", "target WER", "draft WER", "words unlike the target's", "accepted", "realigns")
    table = Table(*titles, "times faster", title="Real pairs, published")
    for pair in published.pairs:
        rest = (shown(pair.accepted, 2), shown(pair.realigns, 2), shown(pair.faster, 1))
        name = f"{pair.draft}, {pair.target}"
        for index, rates in enumerate(pair.rates):
            low, high = rates.disagreement
            cells = (f"{rates.target:g} %", f"{rates.draft:g} % {numbers[rates.source]}")
            bounds = f"{low:.1f} to {high:.1f} %"
            table.add_row(
                "" if index else name, rates.audio, *cells, bounds, *("" if index else r for r in rest)
            )
        if not pair.rates:
            table.add_row(name, "", ABSENT, ABSENT, ABSENT, *rest)
    table.caption = (
        "The words unlike the target's lie between difference and sum of the two rates. Times faster are of "
        "the whole models. None found: no figure in the sources below."
    )
    console.print(table, markup=False)
    for remark in published.remarks:
        console.print(f"{remark.text} {numbers[remark.source]}", markup=False, highlight=False)
    for name, source in published.sources.items():
        console.print(f"{numbers[name]} {source.title}: {source.url}", markup=False, highlight=False)
