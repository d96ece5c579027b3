"""Transcripts in the formats of subtitles, tables and OpenAI's API."""

import pytest

from specwhisper.options import Task
from specwhisper.printable import CONTROL, DIRECTION
from specwhisper.transcription.formats import (
    Layout,
    clock,
    to_srt,
    to_tsv,
    to_txt,
    to_unsure,
    to_verbose_json,
    to_vtt,
)
from specwhisper.transcription.transcription import Transcription
from specwhisper.types import Segment, Word

SEGMENTS = (
    Segment(0.0, 1.5, (1, 2), " Hello,\n <world> & all."),
    Segment(1.5, 1.6, (), "  "),
    Segment(3599.9996, 7261.25, (3,), " A --> B", words=(Word(3600.0, 7261.25, " A", 0.9),)),
)


@pytest.mark.parametrize(
    ("time_s", "expected"),
    [(0, "00:00:00,000"), (59.9999, "00:01:00,000"), (3661.0014, "01:01:01,001"), (360_000, "100:00:00,000")],
)
def test_clock_formats_times(time_s: float, expected: str):
    assert clock(time_s, ",") == expected


@pytest.mark.parametrize(
    ("write", "expected"),
    [
        (to_txt, "Hello, <world> & all.\nA --> B\n"),
        (
            to_srt,
            "1\n00:00:00,000 --> 00:00:01,500\nHello, <world> & all.\n\n"
            "2\n01:00:00,000 --> 02:01:01,250\nA -> B\n",
        ),
        (
            to_vtt,
            "WEBVTT\n\n00:00:00.000 --> 00:00:01.500\nHello, &lt;world> &amp; all.\n\n"
            "01:00:00.000 --> 02:01:01.250\nA -> B\n",
        ),
        (to_tsv, "start\tend\ttext\n0\t1500\tHello, <world> & all.\n3600000\t7261250\tA --> B\n"),
    ],
)
def test_a_segment_is_one_line_and_a_cue_holds_no_arrow_or_markup(write, expected):
    assert write(SEGMENTS) == expected


def test_control_characters_reach_no_format():
    bad = "\x1b[31mred\x00 \u202egnikcart\u202c\x9b2J\x07"
    words = tuple(Word(0.0, 1.0, word, 0.5, speaker=bad) for word in (f" {bad}", f"\r{bad}\x0e"))
    segments = (Segment(0.0, 1.0, (1,), bad, words=words, speaker=bad),)
    layout = Layout(max_line_width=40, highlight_words=True)
    result = Transcription(segments, duration_s=1.0)
    texts = (
        *(to_txt(segments), to_srt(segments), to_vtt(segments), to_tsv(segments), to_unsure(words)),
        *(to_srt(segments, layout), to_vtt(segments, layout), result.to_json("a.wav")),
        *(result.to_verbose_json(), result.to_diarized_json()),
    )
    for text in texts:
        lines = text.replace("\t", "\n").split("\n")
        assert [line for line in lines if CONTROL.search(line) or DIRECTION.search(line)] == []
        assert "gnikcart" in text


def test_unsure_words_have_times_in_milliseconds_and_their_probability():
    words = [Word(1.5, 2.25, " Grüße,", 0.25), Word(3.0, 3.1, "a\tb", 1 / 3)]
    table = "start\tend\tprobability\tword\n1500\t2250\t0.250\tGrüße,\n3000\t3100\t0.333\ta b\n"
    assert to_unsure(words) == table


def test_verbose_json_has_the_fields_of_openais():
    document = to_verbose_json(SEGMENTS, language="de", duration_s=9.5, task=Task.TRANSLATE)
    assert (document["task"], document["language"], document["duration"]) == ("translate", "de", 9.5)
    assert set(document["segments"][0]) == {
        "id",
        "seek",
        "start",
        "end",
        "text",
        "tokens",
        "temperature",
        "avg_logprob",
        "compression_ratio",
        "no_speech_prob",
    }
    assert document["words"] == [{"word": "A", "start": 3600.0, "end": 7261.25, "probability": 0.9}]
    assert "words" not in to_verbose_json(SEGMENTS[:1], language="de", duration_s=1.0)
    several = to_verbose_json(SEGMENTS[:1], language="de", duration_s=1.0, multilingual=True)
    assert several["segments"][0]["language"] == SEGMENTS[0].language
    assert "language" not in document["segments"][0]
    asked = to_verbose_json(SEGMENTS[:1], language="de", duration_s=1.0, word_timestamps=True)
    assert asked["words"] == []
