"""Fields of /v1/audio/transcriptions become decoding options; transcripts are written as OpenAI's types."""

import json
from dataclasses import fields
from math import inf
from types import SimpleNamespace

import pytest
from openai.types.audio import TranscriptionVerbose

from specwhisper.errors import InvalidRequest
from specwhisper.options import DecodingOptions, Padding
from specwhisper.selection import VadOptions
from specwhisper.transcription.formats import to_verbose_json
from specwhisper.types import Segment, Word
from specwhisper.validated import option_of
from specwhisper_gateway.audio.fields import TranscriptionFields, TranslationFields
from specwhisper_gateway.audio.replies import reply
from specwhisper_gateway.errors import InvalidField, body_of


def read(*fields: tuple[str, str]) -> TranscriptionFields:
    return TranscriptionFields.read([("model", "whisper-1"), *fields])


@pytest.mark.parametrize(
    ("name", "members", "expected"),
    [
        (
            "chunking_strategy",
            {"type": "server_vad", "threshold": 0.7, "silence_duration_ms": 400},
            VadOptions(threshold=0.7, min_silence_duration_ms=400, speech_pad_ms=300),
        ),
        ("vad_parameters", {"threshold": 0.7, "max_speech_duration_s": inf}, VadOptions(threshold=0.7)),
    ],
)
def test_an_object_is_json_or_fields(name, members, expected):
    more = {"vad_filter": "true"} if name == "vad_parameters" else {}
    in_fields = {f"{name}[{member}]": str(value) for member, value in members.items()}
    for form in ({name: json.dumps(members)}, in_fields):
        options = read(*(more | form).items()).options()
        assert (options.vad_filter, options.vad_parameters) == (True, expected)


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("temperature", "hot", "temperature is 'hot': it must be a number."),
        ("vad_parameters", "abc", "vad_parameters is 'abc': it must be a JSON object."),
        (
            "timestamp_granularities[]",
            "syllable",
            "timestamp_granularities[] is 'syllable': choose from word, segment.",
        ),
    ],
)
def test_an_error_names_the_field_its_value_and_what_is_valid(name, value, sentence):
    with pytest.raises(InvalidRequest) as refused:
        read((name, value))
    assert str(refused.value) == sentence
    assert refused.value.param == name.removesuffix("[]")


VAD = "chunking_strategy"
JSON = "response_format"


@pytest.mark.parametrize(
    ("fields", "param", "code"),
    [
        ({"include[]": "logprobs"}, "include", "unsupported_value"),
        ({"include[]": "speakers"}, "include", "invalid_value"),
        ({"timestamp_granularities[]": "word"}, "timestamp_granularities", "unsupported_value"),
        ({"stream": "true", JSON: "srt"}, JSON, "unsupported_value"),
        ({f"{VAD}[type]": "server_vad", f"{VAD}[threshold]": "1.5"}, VAD, "unsupported_value"),
        ({f"{VAD}[type]": "server_vad", f"{VAD}[eagerness]": "low"}, VAD, "unsupported_value"),
        ({VAD: '{"a":' * 10_000}, VAD, "unsupported_value"),
        ({VAD: "auto", "vad_filter": "true"}, "vad_filter", "unsupported_value"),
        ({"vad_parameters[threshold]": "0.2"}, "vad_parameters", None),
        ({"known_speaker_names[]": "Ann"}, "known_speaker_names", "unsupported_value"),
        ({"languages[]": "de", "language": "en"}, "languages", None),
        ({"language": "en", "multilingual": "true"}, "multilingual", None),
        ({"keywords[]": "a", "hotwords": "b"}, "keywords", None),
        ({"interim_results": "true"}, "interim_results", "unsupported_value"),
        ({"clip_timestamps": "0"}, "clip_timestamps", "unknown_parameter"),
    ],
)
def test_a_field_that_is_not_supported(fields, param, code):
    with pytest.raises(InvalidRequest) as refused:
        read(*fields.items()).options()
    answer = body_of(refused.value)["error"]
    assert (answer["param"], answer["code"]) == (param, code or "invalid_value")
    assert answer["message"].endswith(".")


@pytest.mark.parametrize("name", ["language", "stream"])
def test_a_translation_has_no_language_and_no_stream(name):
    with pytest.raises(InvalidField) as refused:
        TranslationFields.read([("model", "whisper-1"), (name, "1")])
    assert (refused.value.param, refused.value.code) == (name, "unknown_parameter")


def test_an_unknown_member_is_refused_with_the_known_ones():
    with pytest.raises(InvalidField, match=r"vad_parameters.padding is not known.* speech_pad_ms") as refused:
        read(("vad_parameters[padding]", "400"))
    assert (refused.value.param, refused.value.code) == ("vad_parameters", "unknown_parameter")


def test_the_forms_schema_has_what_the_options_declare():
    properties = TranscriptionFields.form_schema()["properties"]
    [track] = [option_of(each) for each in fields(DecodingOptions) if each.name == "audio_track"]
    assert (properties["audio_track"]["minimum"], properties["audio_track"]["maximum"]) == track.bounds
    assert properties["audio_track"]["description"].endswith(track.help[1:])
    assert properties["padding"]["enum"] == list(Padding)
    assert properties["timestamp_granularities[]"]["items"]["enum"] == ["word", "segment"]


SEGMENTS = (
    Segment(0.0, 1.5, (1, 2), ' "so', words=(Word(0.0, 0.5, ' "so', 0.9),), no_speech_prob=None),
    Segment(1.5, 2.0, (3,), " it is"),
)
WORDS = [("timestamp_granularities[]", "word")]
BOTH = [*WORDS, ("timestamp_granularities[]", "segment")]


def verbose(segments: tuple[Segment, ...], *fields: tuple[str, str]):
    transcript = SimpleNamespace(
        segments=segments, language_name="english", duration_s=2.0, options=DecodingOptions.greedy()
    )
    form = [("model", "m"), ("response_format", "verbose_json"), *fields]
    return json.loads(reply(TranscriptionFields.read(form), transcript).body)


def test_verbose_json_is_as_requested_and_as_openai_describes_it():
    whole = verbose(SEGMENTS, *BOTH)
    TranscriptionVerbose.model_validate(whole)
    expected = to_verbose_json(SEGMENTS, language="english", duration_s=2.0)
    expected["segments"][0]["no_speech_prob"] = expected["segments"][1]["no_speech_prob"] = 0.0
    assert whole == expected | {"usage": {"type": "duration", "seconds": 2.0}}
    assert verbose(SEGMENTS, *WORDS) == {name: value for name, value in whole.items() if name != "segments"}
    assert verbose(SEGMENTS) == {name: value for name, value in whole.items() if name != "words"}
    empty = verbose((), *BOTH)
    assert (empty["segments"], empty["words"], empty["text"]) == ([], [], "")


def test_a_field_may_come_once():
    with pytest.raises(InvalidField, match="temperature is sent more than once"):
        read(("temperature[]", "0.1"), ("temperature[]", "0.2"))
