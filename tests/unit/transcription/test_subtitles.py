"""Subtitles have the lines of openai/whisper's own writer."""

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specwhisper.errors import InvalidRequest
from specwhisper.transcription.formats import Cue, Layout, cues, to_srt, to_vtt
from specwhisper.types import Segment, Word
from tests.whisper_utils import whispers_utils


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
def test_lines_equal_openais(segments, layout):
    result = {
        "segments": [
            {
                "start": s.start_s,
                "end": s.end_s,
                "text": s.text,
                "words": [{"start": w.start_s, "end": w.end_s, "word": w.text} for w in s.words],
            }
            for s in segments
        ]
    }
    writer = whispers_utils().WriteSRT("")
    asked = {
        name: getattr(layout, name)
        for name in ("max_line_width", "max_line_count", "max_words_per_line", "highlight_words")
    }
    expected = [
        f"{start} --> {end}\n{text}" for start, end, text in writer.iterate_result(result, {}, **asked)
    ]
    ours = re.sub(r"^\d+\n", "", to_srt(segments, layout), flags=re.MULTILINE).rstrip("\n")
    assert ours.split("\n\n") == (expected or [""])


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
