"""Speakers of words and segments, and the formats that name them."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.audio.transcription_diarized import TranscriptionDiarized

from specwhisper.transcription.formats import Layout
from specwhisper.transcription.speakers import Turn, by_speaker, label, number_of, with_speakers
from specwhisper.transcription.transcription import Transcription
from specwhisper.types import Segment, Word

TURNS = (Turn(0.0, 2.0, "A"), Turn(2.5, 5.0, "B"), Turn(4.0, 9.0, "A"))


def segment(*words: tuple[float, float, str]) -> Segment:
    made = tuple(Word(*word) for word in words)
    return Segment(made[0].start_s, made[-1].end_s, (1, 2), "".join(w.text for w in made), words=made)


BOTH = segment(
    (0.5, 1.0, " Who"), (1.0, 1.5, " is"), (1.6, 2.1, " there?"), (2.6, 3.0, " I"), (3.0, 3.4, " am.")
)
TRANSCRIPT = Transcription((BOTH, Segment(6.0, 8.0, (3,), " A <cat>.")), duration_s=9.0).with_speakers(TURNS)


@pytest.mark.parametrize(
    ("start_s", "end_s", "speaker"),
    [
        (0.2, 1.0, "A"),
        (1.9, 2.7, "B"),  # 0.1 s of A, 0.2 s of B
        (2.1, 2.2, "A"),  # in a pause: the nearer turn
        (2.35, 2.4, "B"),
        (4.2, 4.4, "A"),  # both speak: the one who begins to
        (9.5, 9.9, "A"),
        (10.5, 11.0, ""),  # no turn near
        (1.0, 1.0, "A"),  # without a length
    ],
)
def test_a_word_has_the_speaker_of_its_time(start_s, end_s, speaker):
    (found,) = with_speakers([segment((start_s, end_s, " word"))], TURNS)
    assert (found.speaker, found.words[0].speaker) == (speaker, speaker)


def test_a_segment_has_the_speaker_of_most_of_it():
    assert [segment.speaker for segment in TRANSCRIPT.segments] == ["A", "A"]  # the second has no words
    assert [word.speaker for word in TRANSCRIPT.words] == ["A", "A", "A", "B", "B"]
    assert with_speakers([BOTH], ()) == (BOTH,)


times = st.floats(0, 100)
turns = st.lists(st.tuples(times, st.floats(0, 30), st.sampled_from("ABC"))).map(
    lambda rows: [Turn(start_s, start_s + length_s, speaker) for start_s, length_s, speaker in rows]
)
segments = st.lists(
    st.lists(st.tuples(times, st.floats(0, 2), st.sampled_from([" a", " b.", ""])), min_size=1).map(
        lambda words: segment(*((start_s, start_s + length_s, text) for start_s, length_s, text in words))
    )
)


@given(segments, turns)
def test_the_text_stays_and_each_part_has_one_speaker(given_segments, given_turns):
    found = with_speakers(given_segments, given_turns)
    parts = list(by_speaker(found))
    assert "".join(part.text for part in parts) == "".join(each.text for each in given_segments)
    assert [word.text for part in parts for word in part.words] == [
        word.text for each in given_segments for word in each.words
    ]
    assert all({word.speaker for word in part.words} == {part.speaker} for part in parts)


def test_every_format_names_the_speaker():
    assert TRANSCRIPT.to_txt() == "A: Who is there?\nB: I am.\nA: A <cat>.\n"
    assert TRANSCRIPT.to_tsv().splitlines()[2] == "2600\t3400\tB: I am."
    assert str(TRANSCRIPT) == "Who is there? I am. A <cat>."
    assert TRANSCRIPT.to_srt().split("\n\n")[1] == "2\n00:00:02,600 --> 00:00:03,400\nB: I am."
    vtt = (
        "WEBVTT\n\n00:00:00.500 --> 00:00:02.100\n<v A>Who is there?\n\n"
        "00:00:02.600 --> 00:00:03.400\n<v B>I am.\n"
    )
    assert TRANSCRIPT.to_vtt() == f"{vtt}\n00:00:06.000 --> 00:00:08.000\n<v A>A &lt;cat>.\n"
    words = Transcription(TRANSCRIPT.segments[:1])
    assert words.to_vtt(Layout(max_line_width=40, max_line_count=2)) == vtt, "a cue has one speaker"


def test_a_name_cannot_break_a_subtitle():
    renamed = Transcription((BOTH,)).with_speakers([Turn(0.0, 9.0, "Ann\n-->& <co>")])
    assert "\n<v Ann --&gt;&amp; &lt;co&gt;>Who is there? I am.\n" in renamed.to_vtt()
    assert "\nAnn ->& <co>: Who is there? I am.\n" in renamed.to_srt()


def test_diarized_json_is_openais():
    document = json.loads(TRANSCRIPT.to_diarized_json())
    reply = TranscriptionDiarized.model_validate(document)
    assert (reply.duration, reply.text) == (9.0, TRANSCRIPT.text)
    assert [(each.speaker, each.text, each.start, each.end) for each in reply.segments] == [
        ("A", " Who is there?", 0.5, 2.1),
        ("B", " I am.", 2.6, 3.4),
        ("A", " A <cat>.", 6.0, 8.0),
    ]
    assert len({each.id for each in reply.segments}) == 3


def test_speakers_are_members_only_where_they_were_looked_for():
    for transcript, has_speakers in ((TRANSCRIPT, True), (Transcription((BOTH,)), False)):
        whole = json.loads(transcript.to_json())["segments"][0]
        verbose = json.loads(transcript.to_verbose_json())
        result = transcript["segments"][0]
        for spoken in (whole, whole["words"][0], verbose["segments"][0], verbose["words"][0], result):
            assert ("speaker" in spoken) is has_speakers


@pytest.mark.parametrize(
    ("number", "name"), [(0, "A"), (25, "Z"), (26, "AA"), (51, "AZ"), (52, "BA"), (701, "ZZ"), (702, "AAA")]
)
def test_a_label_has_its_number(number, name):
    assert label(number) == name
    assert number_of(name) == number + 1
    assert number_of("") == 0
