"""The fields of OpenAI's audio API: what each takes, and what it means as a decoding option."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, ClassVar, Literal, Self, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from specwhisper.options import OPENAI_THRESHOLDS, DecodingOptions, Task, fallback_temperatures
from specwhisper_gateway.audio.uploads import FILE
from specwhisper_gateway.errors import InvalidField

TEMPERATURE_INCREMENT = 0.2  # openai/whisper's, as the thresholds are: OpenAI's API names no numbers


class AudioFields(BaseModel):
    """What transcriptions and translations take beside the file."""

    model_config = ConfigDict(extra="forbid")
    task: ClassVar[Task]

    model: Annotated[str, Field(description="`whisper-1`, or the target's own name as /v1/models tells it.")]
    prompt: Annotated[
        str, Field(description="Text every window is prompted with: names, spelling, style.")
    ] = ""
    response_format: str = "json"
    temperature: Annotated[
        float,
        Field(
            ge=0,
            le=1,
            description="0 is greedy, and a window that fails openai/whisper's thresholds is tried again at "
            "0.2, 0.4 ... 1; any other value is the only one that is tried.",
        ),
    ] = 0.0
    hotwords: Annotated[
        str, Field(description="Not OpenAI's: words that stay in front of every window's prompt.")
    ] = ""

    @classmethod
    def read(cls, form: Iterable[tuple[str, str]]) -> Self:
        """Read a form's fields; the first that cannot be honoured is refused by name."""
        try:
            fields = cls.model_validate(_gathered(form, cls._lists()))
        except ValidationError as error:
            raise _refused(error) from None
        fields._check()
        return fields

    @classmethod
    def form_schema(cls) -> dict[str, Any]:
        """Describe the form for the page of the API."""
        schema = cls.model_json_schema()
        file = {
            "type": "string",
            "format": "binary",
            "description": "The recording: any format that libsndfile or FFmpeg knows, also video.",
        }
        return {
            "type": "object",
            "required": [FILE, *schema["required"]],
            "properties": {FILE: file}
            | {name + "[]" * (name in cls._lists()): field for name, field in schema["properties"].items()},
        }

    def options(self) -> DecodingOptions:
        """Say it in our own terms."""
        increment = TEMPERATURE_INCREMENT if self.temperature == 0 else None
        return DecodingOptions(
            task=self.task,
            initial_prompt=self.prompt,
            hotwords=self.hotwords,
            temperatures=fallback_temperatures(self.temperature, increment),
            **OPENAI_THRESHOLDS,
        )

    @classmethod
    def _lists(cls) -> set[str]:
        return {name for name, field in cls.model_fields.items() if get_origin(field.annotation) is list}

    def _check(self) -> None:
        """Refuse what is well formed and cannot be honoured."""


class TranslationFields(AudioFields):
    """What /v1/audio/translations takes beside the file."""

    task: ClassVar[Task] = Task.TRANSLATE

    response_format: Annotated[
        Literal["json", "text", "srt", "verbose_json", "vtt"],
        Field(description="How the translation is written."),
    ] = "json"


def _gathered(form: Iterable[tuple[str, str]], lists: set[str]) -> dict[str, Any]:
    """Bring together what belongs together: parts named ``list[]``, and members named ``object[member]``."""
    values: dict[str, Any] = {}
    for key, value in form:
        name, _, member = key.partition("[")
        member = member.removesuffix("]")
        if name in lists:
            values.setdefault(name, []).append(value)
        elif member:
            members = values.setdefault(name, {})
            if not isinstance(members, dict):
                raise InvalidField(f"{name} is given both as a text and as an object.", name)
            members[member] = value
        elif name in values:
            raise InvalidField(f"{name} is given more than once.", name)
        else:
            values[name] = value
    return values


def _refused(error: ValidationError) -> InvalidField:
    """Tell the first thing that is wrong, in one sentence."""
    first = error.errors(include_url=False)[0]
    name = str(first["loc"][0])
    if first["type"] == "extra_forbidden":
        return InvalidField(
            f"Unknown parameter: '{name}'; what has no effect here is refused, not ignored.",
            name,
            "unknown_parameter",
        )
    if first["type"] == "missing":
        return InvalidField(f"{name} is missing.", name, "missing_required_parameter")
    message = first["msg"][:1].lower() + first["msg"][1:]
    return InvalidField(f"{name} is {str(first['input'])[:100]!r}: {message}.", name)
