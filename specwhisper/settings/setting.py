"""Classes of options that programs offer: a server's settings, or the options of a command.

A field of such a class declares an option (:mod:`specwhisper.validated`), or stands for options of another
class: :func:`part` and :func:`offered`. Flags, environment variables, --help and pages of the docs follow.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from functools import cache
from typing import Any, TypeVar, get_type_hints

from specwhisper.errors import InvalidRequest
from specwhisper.extras import offers
from specwhisper.observe.logs import LogFormat, LogLevel
from specwhisper.validated import Option, checked, choice, default_of, is_number, option_of, spelled, validate

MODEL = "Model"
DRAFTING = "Drafting"
SERVING = "Serving"
SECURITY = "Security"
OBSERVABILITY = "Observability"
PANELS = (MODEL, DRAFTING, SERVING, SECURITY, OBSERVABILITY)  # in the order of --help

Config = TypeVar("Config", bound="Settings")


@dataclass(frozen=True, slots=True)
class Flag:
    """An option as a program offers it.

    Attributes
    ----------
    name : as a parameter of Python.
    field : name of the option.
    default : ``MISSING`` if it must be given.
    """

    name: str
    field: str
    annotation: Any
    default: Any
    option: Option

    @property
    def flag(self) -> str:
        return self.option.metavar if self.option.is_argument else f"--{self.name.replace('_', '-')}"

    @property
    def variable(self) -> str:
        """The environment variable that servers read where the flag is absent."""
        return f"SPECWHISPER_{self.name.upper()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Options of a class, and the value that a program makes of them.

    Attributes
    ----------
    then : called with an instance, makes the value; without it, that is the instance.
    only_written : the value is a mapping of the options that were written, by name.
    only, but : the options that the program offers, or does not offer; all by default.
    panel : heading in --help.
    renamed : names of flags by those of the options.
    prefix : put before the names of the flags.
    words : replace ``{word}`` in their help.
    needs, not_with : those of each option, as in :class:`Option`.
    """

    kind: Any
    then: Callable[..., Any] | None = None
    only_written: bool = False
    only: Collection[str] = ()
    but: Collection[str] = ()
    panel: str = ""
    renamed: Mapping[str, str] = field(default_factory=dict)
    prefix: str = ""
    words: Mapping[str, str] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    not_with: tuple[str, ...] = ()

    def flags(self) -> Iterator[Flag]:
        for each in self._fields():
            for inner in _parts(each).values():
                yield from inner.flags()
            if (flag := self._flag(each)) is not None:
                yield flag

    def value(self, values: Mapping[str, Any], written: Mapping[str, str]) -> Any:
        """Return the value.

        Parameters
        ----------
        values : the values of all flags, by their names.
        written : how each flag was written that was: as it is, or as its variable.
        """
        arguments: dict[str, Any] = {}
        flags: dict[str, Flag] = {}
        for each in self._fields():
            flag, parts = self._flag(each), _parts(each)
            if flag is not None:
                flags[each.name] = flag
                if flag.name in written or not self.only_written:
                    arguments[each.name] = values[flag.name]
            elif "part" in each.metadata:
                arguments[each.name] = each.metadata["part"].value(values, written)
            elif "group" in each.metadata:
                found = {name: part.value(values, written) for name, part in parts.items()}
                is_one = each.metadata["offer"] is not None
                arguments[each.name] = next(iter(found.values()), None) if is_one else found
        with spelled({name: written.get(flag.name, flag.flag) for name, flag in flags.items()}):
            arguments = checked(self.kind, arguments)
            for flag in flags.values():
                _check_others(flag, {name: flag.name for name, flag in flags.items()}, values, written)
            if self.only_written:
                return arguments
            made = self.kind(**arguments)
            return made if self.then is None else self.then(made)

    def _fields(self) -> list[Field[Any]]:
        return [
            each
            for each in fields(self.kind)
            if each.name not in self.but and (not self.only or each.name in self.only)
        ]

    def _flag(self, declared: Field[Any]) -> Flag | None:
        about = option_of(declared)
        if about is None or not about.help:
            return None
        name = about.flags[0].replace("-", "_") if about.flags else declared.name
        name = self.renamed.get(name, name)
        if self.prefix and not name.startswith(f"{self.prefix}_"):
            name = f"{self.prefix}_{name}"
        help = about.help.format(**self.words) if self.words else about.help
        about = replace(
            about,
            help=help,
            panel=self.panel or about.panel,
            needs=self.needs or about.needs,
            not_with=self.not_with or about.not_with,
        )
        return Flag(name, declared.name, _types(self.kind)[declared.name], default_of(declared), about)


def part(kind: type[Any], default: Any = MISSING, **about: Any) -> Any:
    """Declare a field that stands for the options of a class.

    ``about`` has other attributes of :class:`Part`. ``default``, or what it returns, is the field's value for
    those who make the class without flags.
    """
    metadata = {"part": Part(kind=kind, **about)}
    if callable(default):
        return field(default_factory=default, metadata=metadata)
    return field(default=default, metadata=metadata)


def offered(group: str, name: str | None = None) -> Any:
    """Declare a field for the options that extras add.

    Parameters
    ----------
    group : entry points that name a :class:`Part` each; see :func:`offers`.
    name : the entry point whose value is the field's, ``None`` without it; by default the field is a mapping
        of all values by name.
    """
    metadata = {"group": group, "offer": name}
    return field(default=None, metadata=metadata) if name else field(default_factory=dict, metadata=metadata)


def _parts(declared: Field[Any]) -> Mapping[str, Part]:
    """Return the parts that a field stands for, by name."""
    if "part" in declared.metadata:
        return {declared.name: declared.metadata["part"]}
    if "group" not in declared.metadata:
        return {}
    wanted = declared.metadata["offer"]
    return {
        name: entry.load()
        for name, entry in offers(declared.metadata["group"]).items()
        if wanted in (None, name)
    }


def _check_others(
    flag: Flag, names: Mapping[str, str], values: Mapping[str, Any], written: Mapping[str, str]
) -> None:
    """Refuse a flag that has no effect because of others; ``names`` has those of its part by option."""
    about, value, spelling = flag.option, values[flag.name], written.get(flag.name)
    if spelling is None or not _is_set(value):
        return

    def offered(*options: str) -> list[tuple[Any, str]]:
        found = [name for each in options if (name := names.get(each, each)) in values]
        return [(values[name], written.get(name, f"--{name.replace('_', '-')}")) for name in found]

    needed = offered(*about.needs)
    if needed and not any(_is_set(other) for other, _ in needed):
        others = " or ".join(name for _, name in needed)
        raise InvalidRequest(f"{spelling} has no effect without {others}: set both.")
    for other, name in offered(*about.not_with):
        if _is_set(other):
            raise InvalidRequest(f"{spelling} has no effect with {name}: leave one of them out.")
    for other, name in offered(about.at_most):
        if is_number(value) and is_number(other) and value > other:
            raise InvalidRequest(f"{spelling} is {value}: it must be at most {name}, which is {other}.")


def _is_set(value: Any) -> bool:
    return value is not None and value is not False and value != ""


@cache
def _types(kind: Callable[..., Any]) -> dict[str, Any]:
    return get_type_hints(kind)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Base of servers' settings."""

    log_format: LogFormat = choice(
        LogFormat.AUTO,
        "Format of log lines: text, json, or auto (text on a terminal, else json).",
        "FORMAT",
        panel=OBSERVABILITY,
    )
    log_level: LogLevel = choice(
        LogLevel.INFO,
        "Least severe messages to log: debug, info, warning or error.",
        "LEVEL",
        panel=OBSERVABILITY,
    )

    def __post_init__(self) -> None:
        validate(self)


def flags_of(settings: type[Settings]) -> list[Flag]:
    """Return the flags of a server, by panel."""
    return sorted(Part(kind=settings).flags(), key=lambda flag: PANELS.index(flag.option.panel))
