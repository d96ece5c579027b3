"""The fields of OpenAI's audio API, and the decoding options that they set."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self

from specwhisper.errors import InvalidRequest
from specwhisper.options import OTHER_NAMES, DecodingOptions, Task, options_from
from specwhisper.validated import REQUIRED, choice, default_of, number, spelled, text
from specwhisper_client.cli.arguments import Temperatures
from specwhisper_gateway.audio.uploads import FILE
from specwhisper_gateway.errors import InvalidField
from specwhisper_gateway.option_fields import NOT_OPENAIS, is_list, schema_of, values_of, with_options

DEFAULTS = {"padding": "zero"}  # as in openai/whisper
NAMES = {declared.name for declared in fields(DecodingOptions)}
FORMATS = ("json", "text", "srt", "verbose_json", "vtt")


@dataclass(frozen=True, kw_only=True)
@with_options(Temperatures, "greedy", note=NOT_OPENAIS)
@with_options(
    DecodingOptions,
    *("hotwords", "hint", "vad_filter", "vad_parameters", "padding", "strict"),
    *("channel", "audio_track", "container_times"),
    note=NOT_OPENAIS,
    defaults=DEFAULTS,
)
class AudioFields:
    """Fields of transcriptions and translations, without the file."""

    task: ClassVar[Task]
    vad_filter: bool

    model: str = text(
        REQUIRED, "A name of /v1/models; others stand for the first one, unless names are strict."
    )
    prompt: str = text("", "Prompt of every window: names, spelling, style.")
    response_format: str = "json"
    temperature: float = number(
        0.0,
        0,
        1,
        "0 is greedy; a window that fails openai/whisper's thresholds is decoded again at 0.2, 0.4 ... 1. "
        "Any other value is the only one.",
    )

    @classmethod
    def read(cls, form: Iterable[tuple[str, str]]) -> Self:
        """Read a form's fields.

        Raises ``InvalidRequest`` for the first that is not supported.
        """
        try:
            return cls(**values_of(cls, _grouped(form, cls._lists())))
        except InvalidRequest as error:
            # A form has no fields within fields.
            error.param = str(error.param).partition(".")[0].removesuffix("[]")
            raise

    @classmethod
    def form_schema(cls) -> dict[str, Any]:
        """Return the form's JSON schema, for the API's page."""
        file = {
            "type": "string",
            "format": "binary",
            "description": "The recording, in any format that libsndfile or FFmpeg reads, including video.",
        }
        lists = cls._lists()
        openais_first = sorted(fields(cls), key=lambda each: each.name in NAMES)
        return {
            "type": "object",
            "required": [FILE, "model"],
            "properties": {FILE: file}
            | {each.name + "[]" * (each.name in lists): schema_of(cls, each) for each in openais_first},
        }

    def options(self) -> DecodingOptions:
        with spelled({"initial_prompt": "prompt", "temperatures": "temperature"}):
            return options_from(DEFAULTS, self.given())

    def given(self) -> dict[str, Any]:
        """Return the decoding options that a request sets, by the names that :func:`options_from` reads."""
        read = {*NAMES, *OTHER_NAMES, "greedy"}
        given = ((each, getattr(self, each.name)) for each in fields(self) if each.name in read)
        changed = {each.name: value for each, value in given if value != default_of(each)}
        return changed | {"task": self.task}

    @classmethod
    def _lists(cls) -> set[str]:
        return {each.name for each in fields(cls) if is_list(cls, each.name)}


@dataclass(frozen=True, kw_only=True)
class TranslationFields(AudioFields):
    """Fields of /v1/audio/translations, without the file."""

    task: ClassVar[Task] = Task.TRANSLATE

    response_format: str = choice("json", "Format of the translation.", choices=FORMATS)


def _grouped(form: Iterable[tuple[str, str]], lists: set[str]) -> dict[str, Any]:
    """Group a form's parts: lists named ``list[]``, objects named ``object[member]``."""
    values: dict[str, Any] = {}
    for key, value in form:
        name, _, member = key.partition("[")
        member = member.removesuffix("]")
        if name in lists:
            values.setdefault(name, []).append(value)
        elif member:
            members = values.setdefault(name, {})
            if not isinstance(members, dict):
                raise InvalidField(f"{name} is sent both as a text and as an object.", name)
            members[member] = value
        elif name in values:
            raise InvalidField(f"{name} is sent more than once.", name)
        else:
            values[name] = value
    return values
