"""Finished transcripts are written as OpenAI's types describe them."""

import json
from types import SimpleNamespace

from openai.types.audio import TranscriptionVerbose

from specwhisper.options import DecodingOptions
from specwhisper.transcription.formats import to_verbose_json
from specwhisper.types import Segment, Word
from specwhisper_gateway.audio.replies import reply
from specwhisper_gateway.audio.transcription_fields import TranscriptionFields

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
