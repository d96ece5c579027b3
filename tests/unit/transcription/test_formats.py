"""Transcripts in all formats, with the lines of openai/whisper's own writer."""

import re
from dataclasses import replace
from io import StringIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specwhisper.errors import InvalidRequest
from specwhisper.options import Task
from specwhisper.printable import CONTROL, DIRECTION
from specwhisper.transcription.formats import (
    Cue,
    Layout,
    clock,
    cues,
    to_srt,
    to_tsv,
    to_txt,
    to_unsure,
    to_verbose_json,
    to_vtt,
)
from specwhisper.transcription.transcription import Transcription
from specwhisper.types import Segment, Word
from tests.whisper_utils import whispers_utils

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
    openais = "id seek start end text tokens temperature avg_logprob compression_ratio no_speech_prob"
    assert set(document["segments"][0]) == set(openais.split())
    assert document["words"] == [{"word": "A", "start": 3600.0, "end": 7261.25, "probability": 0.9}]
    assert "words" not in to_verbose_json(SEGMENTS[:1], language="de", duration_s=1.0)
    several = to_verbose_json(SEGMENTS[:1], language="de", duration_s=1.0, multilingual=True)
    assert several["segments"][0]["language"] == SEGMENTS[0].language
    assert "language" not in document["segments"][0]
    asked = to_verbose_json(SEGMENTS[:1], language="de", duration_s=1.0, word_timestamps=True)
    assert asked["words"] == []


@st.composite
def transcripts(draw) -> tuple[Segment, ...]:
    """Draw words with and without pauses, in segments of all lengths."""
    segments, time_s = [], 0.0
    for lengths in draw(st.lists(st.lists(st.integers(1, 12), min_size=1, max_size=9), max_size=5)):
        words = []
        for at, length in enumerate(lengths):
            start_s = round(time_s + draw(st.sampled_from([0.0, 0.0, 0.25, 2.9, 4.5])), 2)
            time_s = round(start_s + draw(st.sampled_from([0.1, 0.5])), 2)
            # Only what begins a segment may lack its space: elsewhere it would be the end of a word.
            text = "abcdefghijkl"[:length]
            words.append(Word(start_s, time_s, text if at == 0 and draw(st.booleans()) else f" {text}"))
        segments.append(
            Segment(words[0].start_s, time_s, (), "".join(word.text for word in words), words=tuple(words))
        )
    return tuple(segments)


layouts = st.one_of(
    st.builds(Layout, max_line_width=st.integers(1, 30), highlight_words=st.booleans()),
    st.builds(
        Layout,
        max_line_width=st.integers(1, 30),
        max_line_count=st.integers(1, 3),
        highlight_words=st.booleans(),
    ),
    st.builds(Layout, max_words_per_line=st.integers(1, 6), highlight_words=st.booleans()),
    st.builds(Layout, highlight_words=st.booleans()),
)


@given(segments=transcripts(), layout=layouts)
def test_files_equal_those_of_openais_own_writers(segments, layout):
    options = {
        name: getattr(layout, name)
        for name in ("max_line_width", "max_line_count", "max_words_per_line", "highlight_words")
    }
    ours = {"SRT": to_srt(segments, layout), "VTT": to_vtt(segments, layout)}
    ours |= {"TXT": to_txt(segments), "TSV": to_tsv(segments)}
    for name, text in ours.items():
        written = StringIO()
        writer = getattr(whispers_utils(), f"Write{name}")("")
        writer.write_result(Transcription(segments), written, options)
        # Its VTT leaves hours out.
        theirs = re.sub(r"(?m)^(\d\d:\d\d\.\d{3}) --> ", r"00:\1 --> 00:", written.getvalue())
        assert text.rstrip("\n") == theirs.rstrip("\n")


WORDS = (Word(0.0, 0.5, " Hi"), Word(0.5, 0.9, " <you>"), Word(1.0, 1.5, " & all"))
SEGMENT = Segment(0.0, 2.0, (), " Hi <you> & all", words=WORDS)


def test_without_a_layout_a_cue_is_a_segment_from_its_first_word_to_its_last():
    assert list(cues([replace(SEGMENT, words=())])) == [Cue(0.0, 2.0, "Hi <you> & all")]
    assert list(cues([SEGMENT])) == [Cue(0.0, 1.5, "Hi <you> & all")]
    assert list(cues([SEGMENT], Layout())) == [Cue(0.0, 1.5, "Hi <you> & all")]


def test_text_of_a_transcript_is_never_markup():
    words = (Word(0.0, 0.5, " <u>"), Word(0.5, 0.9, " x"))
    written = to_vtt([Segment(0.0, 1.0, (), " <u> x", words=words)], Layout(highlight_words=True))
    assert "<u>&lt;u></u> x" in written


@pytest.mark.parametrize(
    ("layout", "message"),
    [
        ({"max_line_width": 0}, "max_line_width is 0"),
        ({"max_line_width": "5"}, "max_line_width is '5'"),
        ({"max_line_count": 2}, "no effect without max_line_width"),
        ({"max_words_per_line": 2, "max_line_width": 9}, "contradict each other"),
    ],
)
def test_options_without_effect_are_refused(layout, message):
    with pytest.raises(InvalidRequest, match=message):
        Layout(**layout)
