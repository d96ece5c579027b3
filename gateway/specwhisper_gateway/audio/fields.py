"""The fields of OpenAI's audio API, and the decoding options that they set."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, get_origin

from pydantic import Field, ValidationError, create_model

from specwhisper.options import OTHER_NAMES, DecodingOptions, Task, options_from
from specwhisper.validated import spelled
from specwhisper_gateway.audio.uploads import FILE
from specwhisper_gateway.errors import InvalidField
from specwhisper_gateway.option_fields import NOT_OPENAIS, option_fields
from specwhisper_gateway.transport.messages import StrictModel, first_problem

DEFAULTS = {"padding": "zero"}  # as in openai/whisper
OPTIONS = option_fields(
    DecodingOptions,
    *("hotwords", "hint", "vad_filter", "vad_parameters", "padding", "strict"),
    *("channel", "audio_track", "container_times"),
    note=NOT_OPENAIS,
    defaults=DEFAULTS,
)
NAMES = {declared.name for declared in fields(DecodingOptions)}

if TYPE_CHECKING:

    class OptionFields(StrictModel):
        vad_filter: bool

else:
    OptionFields = create_model("OptionFields", __base__=StrictModel, **OPTIONS)


class AudioFields(OptionFields):
    """Fields of transcriptions and translations, without the file."""

    task: ClassVar[Task]

    model: Annotated[
        str,
        Field(description="A name of /v1/models; others stand for the first one, unless names are strict."),
    ]
    prompt: Annotated[str, Field(description="Prompt of every window: names, spelling, style.")] = ""
    response_format: str = "json"
    temperature: Annotated[
        float,
        Field(
            ge=0,
            le=1,
            description="0 is greedy; a window that fails openai/whisper's thresholds is decoded again at "
            "0.2, 0.4 ... 1. Any other value is the only one.",
        ),
    ] = 0.0
    greedy: Annotated[
        bool, Field(description=NOT_OPENAIS + "plain greedy decoding, without fallback and thresholds.")
    ] = False

    @classmethod
    def read(cls, form: Iterable[tuple[str, str]]) -> Self:
        """Read a form's fields.

        Raises :class:`InvalidField` for the first that is not supported.
        """
        try:
            return cls.model_validate(_grouped(form, cls._lists()))
        except ValidationError as error:
            problem = first_problem(error)
            # A form has no fields within fields.
            problem.param = str(problem.param).partition(".")[0].removesuffix("[]")
            raise problem from None

    @classmethod
    def form_schema(cls) -> dict[str, Any]:
        """Return the form's JSON schema, for the API's page."""
        schema = cls.model_json_schema()
        file = {
            "type": "string",
            "format": "binary",
            "description": "The recording, in any format that libsndfile or FFmpeg reads, including video.",
        }
        properties = sorted(schema["properties"].items(), key=lambda each: each[0] in NAMES)  # OpenAI's first
        return {
            "type": "object",
            "required": [FILE, *schema["required"]],
            "properties": {FILE: file}
            | {name + "[]" * (name in cls._lists()): field for name, field in properties},
        }

    def options(self) -> DecodingOptions:
        with spelled({"initial_prompt": "prompt", "temperatures": "temperature"}):
            return options_from(DEFAULTS, self.given())

    def given(self) -> dict[str, Any]:
        """Return the decoding options that a request sets, by the names that :func:`options_from` reads."""
        return self.model_dump(include={*NAMES, *OTHER_NAMES, "greedy"}, exclude_defaults=True) | {
            "task": self.task
        }

    @classmethod
    def _lists(cls) -> set[str]:
        return {name for name, field in cls.model_fields.items() if get_origin(field.annotation) is list}


class TranslationFields(AudioFields):
    """Fields of /v1/audio/translations, without the file."""

    task: ClassVar[Task] = Task.TRANSLATE

    response_format: Annotated[
        Literal["json", "text", "srt", "verbose_json", "vtt"],
        Field(description="Format of the translation."),
    ] = "json"


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
