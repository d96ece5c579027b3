"""A transcription prints as its text, and has openai/whisper's keys and formats."""

import json
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path

import pytest

from specwhisper.options import DecodingOptions, Task
from specwhisper.speculation.statistics import SpeculationStatistics
from specwhisper.transcription.transcription import ModelInfo, Transcription, losses
from specwhisper.types import Mode, Segment, Word
from specwhisper_client.cli.recordings import OutputFormat, render

WORDS = (Word(0.0, 0.5, " Hello", 0.9), Word(0.5, 1.0, " there.", 0.8))
SEGMENTS = (
    Segment(0.0, 1.0, (7, 8), " Hello there.", no_speech_prob=0.1, words=WORDS),
    Segment(1.5, 2.0, (9,), " Bye.", words=(Word(1.5, 2.0, " Bye.", 0.7),)),
)
RESULT = Transcription(
    SEGMENTS,
    language="en",
    language_name="english",
    duration_s=4.0,
    stats=SpeculationStatistics(num_verified=8, num_accepted=6, num_committed=10, num_forwards=4),
    model=ModelInfo("large", "tiny", "abc", Mode.FULL),
    options=DecodingOptions.greedy(word_timestamps=True),
    elapsed_s=2.0,
)


@pytest.mark.parametrize(("duration_s", "num_parts"), [(12.0, 0), (30.0, 0), (30.5, 2), (132.0, 5)])
def test_a_long_recording_without_timestamps_is_warned_of(duration_s, num_parts):
    found = losses(DecodingOptions.greedy(timestamps=False), duration_s)
    assert len(found) == (num_parts > 0)
    for sentence in found:
        assert f"in {num_parts} parts of 30 s" in sentence
        assert "up to 30 s of each may be missing" in sentence
    assert losses(DecodingOptions.greedy(), duration_s) == ()


def test_a_repr_is_one_line():
    assert repr(RESULT) == "Transcription('Hello there. Bye.', language='en', duration_s=4.0, 2 segments)"
    long = replace(RESULT, segments=(replace(SEGMENTS[0], text="字" * 500),))
    assert "字…'" in repr(long)
    assert len(repr(long)) < 150


def test_a_transcription_has_the_keys_of_openai_whisper():
    assert RESULT["text"] == "Hello there. Bye."
    assert RESULT["language"] == "en"
    assert RESULT["segments"][0]["start"] == 0.0
    openais = {
        "id": 1,
        "seek": 0,
        "start": 1.5,
        "end": 2.0,
        "text": " Bye.",
        "tokens": [9],
        "temperature": 0.0,
        "avg_logprob": 0.0,
        "compression_ratio": 0.0,
        "no_speech_prob": None,
    }
    openais_word = {"word": " Bye.", "start": 1.5, "end": 2.0, "probability": 0.7}
    for segment in (RESULT["segments"][1], json.loads(RESULT.to_json())["segments"][1]):
        assert {key: segment[key] for key in openais} == openais
        assert {key: segment["words"][0][key] for key in openais_word} == openais_word
    assert json.loads(json.dumps(RESULT["segments"])) == RESULT["segments"]
    assert RESULT["stats"].overall_acceptance_rate == RESULT.stats.acceptance_rate == 0.75
    assert RESULT["stats"].avg_tokens_per_iteration == RESULT.stats.tokens_per_forward == 2.5


def attributes(part):
    """Return the names of the fields and properties of a part of a result."""
    names = [each.name for each in fields(part)] + [
        name for name, member in vars(type(part)).items() if isinstance(member, property)
    ]
    return {name for name in names if not name.startswith("_")}


@pytest.mark.parametrize(
    "part",
    [RESULT, RESULT.segments[1], RESULT.words[0], RESULT.stats, RESULT.model],
    ids=lambda part: type(part),
)
def test_every_part_is_a_mapping_of_its_attributes(part):
    assert isinstance(part, Mapping)
    assert part.keys() == set(part) == dict(part).keys() == attributes(part)
    assert len(part) == len(list(part.items())) == len(attributes(part))
    for key in part.keys() - {"segments"}:
        assert key in part
        assert part[key] == part.get(key) == getattr(part, key)
    assert "keys" not in part and part.get("keys", 5) == 5
    with pytest.raises(KeyError, match="nothing"):
        part["nothing"]
    assert part == replace(part), "compared as the dataclass that it is"


def test_the_parts_of_json_have_the_same_keys():
    document = json.loads(RESULT.to_json())
    absent = {"options", "words", "window_tokens", "duration_after_vad_s", "duration_after_vad"}
    assert RESULT.keys() - document.keys() == absent
    assert document["stats"].keys() - RESULT.stats.keys() == {"elapsed_s", "real_time_factor"}
    assert (
        document["stats"].items()
        >= {"overall_acceptance_rate": 0.75, "avg_tokens_per_iteration": 2.5}.items()
    )
    assert document["model"] == dict(RESULT.model)
    for read, part in zip(document["segments"], RESULT.segments, strict=True):
        (*_, word), (*_, same) = read.pop("words"), part["words"]
        assert read == {**{key: part[key] for key in read}, "tokens": list(part["tokens"])}
        assert word == {key: same[key] for key in word}


def test_a_transcription_unpacks_as_faster_whispers():
    segments, info = replace(RESULT, language_probs={"en": 0.75}).segments_and_info()
    assert [(each.start, each.end, each.text) for each in segments][1] == (1.5, 2.0, " Bye.")
    assert (segments[1].words[0].word, segments[1].words[0].probability) == (" Bye.", 0.7)
    assert (info.language, info.language_probability, info.duration) == ("en", 0.75, 4.0)
    assert replace(RESULT, duration_after_vad_s=3.5).duration_after_vad == 3.5
    assert RESULT.language_probability == 1, "it was not detected"


def test_a_change_of_a_segment_is_kept():
    """Programs add a speaker to each segment, as they do to openai/whisper's."""
    result = replace(RESULT)
    result["segments"][0]["speaker"] = "Ada"
    assert result["segments"][0]["speaker"] == "Ada"
    assert "speaker" not in replace(result)["segments"][0]


def test_segments_have_words_only_if_requested():
    without = tuple(replace(segment, words=()) for segment in SEGMENTS)
    result = replace(RESULT, segments=without, options=DecodingOptions.greedy())
    assert "words" not in result["segments"][0]
    assert replace(result, options=DecodingOptions.greedy(word_timestamps=True))["segments"][0]["words"] == []


@pytest.mark.parametrize("output_format", OutputFormat)
def test_every_format_of_the_command_line_is_a_method(output_format):
    written = render(RESULT, Path("a.wav"), output_format)
    arguments = ("a.wav",) if output_format is OutputFormat.JSON else ()
    assert written == getattr(RESULT, f"to_{output_format}")(*arguments)


def test_json_without_a_name_or_statistics_still_has_its_times():
    document = json.loads(RESULT.to_json())
    assert document == json.loads(json.dumps(RESULT.to_dict()))
    assert "audio" not in document
    document = json.loads(replace(RESULT, stats=None).to_json())
    assert document["stats"] == {"elapsed_s": 2.0, "real_time_factor": 0.5}


def test_verbose_json_follows_the_options():
    options = DecodingOptions.greedy(task=Task.TRANSLATE, word_timestamps=True)
    document = json.loads(replace(RESULT, options=options, segments=()).to_verbose_json())
    assert (document["task"], document["language"], document["words"]) == ("translate", "english", [])


def test_equality_ignores_the_time_taken():
    assert replace(RESULT, elapsed_s=9.0) == RESULT != replace(RESULT, language="de")
