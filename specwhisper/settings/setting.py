"""Settings classes, whose fields are flags and environment variables.

Each field is also a row of docs/configuration.md.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache, cached_property
from typing import Annotated, Any, TypeVar, get_type_hints

from specwhisper.errors import InvalidRequest
from specwhisper.extras import offers
from specwhisper.observe.logs import LogFormat, LogLevel

MODEL = "Model"
DRAFTING = "Drafting"
SERVING = "Serving"
SECURITY = "Security"
OBSERVABILITY = "Observability"
PANELS = (MODEL, DRAFTING, SERVING, SECURITY, OBSERVABILITY)  # in the order of --help
UNITS = {"_s": " s", "_ms": " ms"}  # of field names; flags leave them out

Config = TypeVar("Config", bound="Settings")
Kind = TypeVar("Kind")


@dataclass(frozen=True, slots=True)
class Setting:
    """Annotation of a field: its meaning, its form in --help, its valid values.

    Attributes
    ----------
    panel : of :data:`PANELS`.
    help : a noun phrase: what the value is, its unit, its default where that is not in the code.
    metavar : placeholder for the value in --help.
    min, max : inclusive bounds.
    above : exclusive lower bound.
    choices : valid values; any where there are none.
    is_folder : whether a path must not be a file.
    """

    panel: str
    help: str
    metavar: str | None = None
    min: float | None = None
    max: float | None = None
    above: float | None = None
    choices: tuple[str, ...] = ()
    is_folder: bool = False

    def check(self, flag: str, value: Any, unit: str = "") -> None:
        """Raise :class:`InvalidRequest` if the value is not valid."""
        if value is None:
            return
        if self.choices and value not in self.choices:
            raise InvalidRequest(f"{flag} is '{value}': choose one of {', '.join(self.choices)}.")
        for is_valid, bound in (
            (self.min is None or value >= self.min, f"at least {self.min}"),
            (self.max is None or value <= self.max, f"at most {self.max}"),
            (self.above is None or value > self.above, f"more than {self.above}"),
        ):
            if not is_valid:
                raise InvalidRequest(f"{flag} is {value}{unit}: it must be {bound}.")


@dataclass(frozen=True)
class Made:
    """Annotation of a field that a function makes from flags.

    The flags are the function's annotated parameters.

    Attributes
    ----------
    make : called with the flags' values; a function without parameters reads the environment.
    prefix : put before the names of the flags.
    words : replace ``{word}`` in their help.
    after : name of the flag that they follow in --help; by default they stand where the field does.
    """

    make: Callable[..., Any]
    prefix: str = ""
    words: Mapping[str, str] = field(default_factory=dict)
    after: str = ""

    @cached_property
    def options(self) -> dict[str, Option]:
        """The flags, by the name of the function's parameter."""
        options = {}
        for parameter in inspect.signature(self.make, eval_str=True).parameters.values():
            if (setting := _metadata(parameter.annotation, Setting)) is not None:
                name = parameter.name
                if self.prefix and not name.startswith(f"{self.prefix}_"):
                    name = f"{self.prefix}_{name}"
                setting = replace(setting, help=setting.help.format(**self.words))
                options[parameter.name] = Option(
                    name, parameter.annotation, setting, parameter.default, self.after
                )
        return options

    def value(self, values: Mapping[str, Any]) -> Any:
        """Return the field's value for the flags' values, by the flags' names."""
        for option in self.options.values():
            option.setting.check(option.flag, values[option.name])
        return self.make(**{key: values[option.name] for key, option in self.options.items()})


@dataclass(frozen=True)
class Offered:
    """Annotation of a field that packages beside the core make: a mapping, by the names of entry points.

    Attributes
    ----------
    group : of entry points that name a :class:`Made` each; see :func:`offers`.
    """

    group: str

    @cached_property
    def parts(self) -> dict[str, Made]:
        """The offers, by name."""
        return {name: entry.load() for name, entry in offers(self.group).items()}

    @property
    def options(self) -> dict[str, Option]:
        """The flags, by name."""
        return {option.name: option for part in self.parts.values() for option in part.options.values()}

    def value(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the field's value for the flags' values, by the flags' names."""
        return {name: part.value(values) for name, part in self.parts.items()}


@dataclass(frozen=True, slots=True)
class Option:
    """A flag and environment variable of a program.

    Attributes
    ----------
    name : as a parameter of Python, without a unit.
    annotation : its type.
    after : the one that it follows in --help; empty where it stands in its own place.
    """

    name: str
    annotation: Any
    setting: Setting
    default: Any
    after: str = ""

    @property
    def flag(self) -> str:
        """The flag on the command line."""
        return f"--{self.name.replace('_', '-')}"

    @property
    def variable(self) -> str:
        """The environment variable that is read where the flag is absent."""
        return f"SPECWHISPER_{self.name.upper()}"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Base of the settings classes: validates each field by its annotation."""

    log_format: Annotated[
        LogFormat,
        Setting(
            OBSERVABILITY,
            "Format of log lines: text, json, or auto (text on a terminal, else json).",
            "FORMAT",
        ),
    ] = LogFormat.AUTO
    log_level: Annotated[
        LogLevel,
        Setting(
            OBSERVABILITY, "Least severe messages to log: debug, info, warning or error.", metavar="LEVEL"
        ),
    ] = LogLevel.INFO

    def __post_init__(self) -> None:
        for name, (option, _) in _fields(type(self)).items():
            if option is not None:
                unit = next((text for suffix, text in UNITS.items() if name.endswith(suffix)), "")
                option.setting.check(option.flag, getattr(self, name), unit)


def options_of(settings: type[Settings]) -> list[Option]:
    """Return the flags of a settings class, by panel."""
    options: list[Option] = []
    for option, made in _fields(settings).values():
        options += [option] if option is not None else []
        options += made.options.values() if made is not None else []
    places = {option.name: place for place, option in enumerate(options)}
    return sorted(
        options,
        key=lambda option: (PANELS.index(option.setting.panel), places[option.after or option.name]),
    )


def make_settings(settings: type[Config], values: Mapping[str, Any]) -> Config:
    """Return the settings for the flags' values, by the flags' names."""
    arguments = {}
    for name, (option, made) in _fields(settings).items():
        if option is not None:
            arguments[name] = values[option.name]
        if made is not None:
            arguments[name] = made.value(values)
    return settings(**arguments)


def _fields(settings: type[Settings]) -> dict[str, tuple[Option | None, Made | Offered | None]]:
    """Return each field's flag, or what makes its value from flags."""
    return _read_fields(settings)  # type: ignore[arg-type]  # mypy mistakes the hash of a dataclass's class


@cache
def _read_fields(settings: type[Settings]) -> dict[str, tuple[Option | None, Made | Offered | None]]:
    hints = get_type_hints(settings, include_extras=True)
    found: dict[str, tuple[Option | None, Made | Offered | None]] = {}
    for each in fields(settings):
        annotation, option = hints[each.name], None
        if (setting := _metadata(annotation, Setting)) is not None:
            suffix = next((suffix for suffix in UNITS if each.name.endswith(suffix)), "")
            option = Option(each.name.removesuffix(suffix), annotation, setting, each.default)
        found[each.name] = (option, _metadata(annotation, Made) or _metadata(annotation, Offered))
    return found


def _metadata(annotation: Any, kind: type[Kind]) -> Kind | None:
    """Return what a type is annotated with, of one kind."""
    metadata = getattr(annotation, "__metadata__", ())
    return next((each for each in metadata if isinstance(each, kind)), None)
