"""Pieces follow any marks: each utterance is whole, and none of them is long."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specwhisper.live import PIECE_SAMPLES, LivePosition
from specwhisper.transcription.live_windows import MAX_PIECE_SAMPLES, LivePieces, Piece
from specwhisper.types import SAMPLE_RATE, VoiceEvent, VoiceMark
from tests.live import BEGIN, CUT, END, mark

LATE_SAMPLES = SAMPLE_RATE  # by which the marks of the tests are known after their sample


def followed(*chunks: tuple[float, list[VoiceMark]], position: LivePosition | None = None) -> LivePieces:
    """Return the pieces after chunks of audio: where each ends, in seconds, and its marks."""
    pieces = LivePieces(position or LivePosition())
    for end_s, marks in chunks:
        pieces.append_audio(round(end_s * SAMPLE_RATE), marks)
    return pieces


def spans(pieces: LivePieces) -> list[tuple[int, float, float, str]]:
    """Return utterance, start and end in seconds, and what ends each piece."""
    return [
        (
            piece.utterance,
            piece.start_sample / SAMPLE_RATE,
            piece.end_sample / SAMPLE_RATE,
            "end" if piece.is_last else "cut" if piece.is_complete else "grows",
        )
        for piece in pieces.all
    ]


TABLE = {
    "nothing": ([(3, [])], []),
    "grows": ([(1, [mark(BEGIN, 0.5)])], [(1, 0.5, 1, "grows")]),
    "in steps of 20 ms": ([(1.015, [mark(BEGIN, 0.51)])], [(1, 0.5, 1, "grows")]),
    "one after the other": (
        [(1, [mark(BEGIN, 0.5)]), (3, [mark(END, 2)]), (5, [mark(BEGIN, 4.5)])],
        [(1, 0.5, 2, "end"), (2, 4.5, 5, "grows")],
    ),
    "cut": (
        [(13, [mark(BEGIN, 0), mark(CUT, 9)]), (15, [mark(END, 14)])],
        [(1, 0, 9, "cut"), (1, 9, 14, "end")],
    ),
    "a mark twice": ([(4, [mark(BEGIN, 0), mark(BEGIN, 1), mark(END, 2), mark(END, 3)])], [(1, 0, 2, "end")]),
    "an end alone": ([(4, [mark(END, 1), mark(CUT, 3)])], []),
    "an end before the beginning": ([(4, [mark(BEGIN, 3), mark(END, 1)])], [(1, 3, 3.02, "end")]),
    "a cut before the beginning": ([(4, [mark(BEGIN, 3), mark(CUT, 1)])], [(1, 3, 4, "grows")]),
    "an end at a cut": (
        [(13, [mark(BEGIN, 0), mark(CUT, 9), mark(END, 9)])],
        [(1, 0, 9, "cut"), (1, 9, 9.02, "end")],
    ),
    "an end beyond the audio": ([(5, [mark(BEGIN, 3), mark(END, 100)])], [(1, 3, 5, "end")]),
    "a cut beyond the audio": ([(5, [mark(BEGIN, 3), mark(CUT, 100)])], [(1, 3, 5, "grows")]),
    "a beginning before the last end": (
        [(4, [mark(BEGIN, 0), mark(END, 3), mark(BEGIN, 1)])],
        [(1, 0, 3, "end"), (2, 3, 4, "grows")],
    ),
    "a beginning long ago": ([(100, []), (101, [mark(BEGIN, 3)])], [(1, 95, 101, "grows")]),
    "all in one chunk": ([(25, [mark(BEGIN, 1), mark(END, 20)])], [(1, 1, 20, "end")]),
    "without audio": ([(5, [mark(BEGIN, 5), mark(END, 5)]), (9, [mark(BEGIN, 8)])], [(1, 8, 9, "grows")]),
    "no mark in time": (
        [(70, [mark(BEGIN, 1)]), (71, [mark(END, 70)])],
        [(1, 1, 30, "cut"), (1, 30, 59, "cut"), (1, 59, 70, "end")],
    ),
    "a late mark": ([(70, [mark(BEGIN, 1), mark(END, 40)])], [(1, 1, 30, "cut"), (1, 30, 40, "end")]),
}


@pytest.mark.parametrize("case", TABLE)
def test_marks_lead_to_pieces(case):
    chunks, expected = TABLE[case]
    assert spans(followed(*chunks)) == expected


@pytest.mark.parametrize(("end_s", "expected"), [(5, (1, 1, 5, "end")), (1.005, (1, 1, 1.005, "end"))])
def test_the_end_of_the_audio_ends_what_grows(end_s, expected):
    pieces = followed((1, [mark(BEGIN, 1)]))
    pieces.append_audio(round(end_s * SAMPLE_RATE), [], is_last=True)
    assert spans(pieces) == [expected] and pieces.has_ended


def test_a_continued_session_has_the_rest_of_its_utterance():
    position = LivePosition(10 * SAMPLE_RATE, 3, is_speech=True)
    pieces = followed((10, [mark(END, 10)]), (12, [mark(END, 11), mark(BEGIN, 11.5)]), position=position)
    assert spans(pieces) == [(3, 10, 11, "end"), (4, 11.5, 12, "grows")]


@st.composite
def chunks(draw: st.DrawFn) -> list[tuple[int, list[VoiceMark]]]:
    """Draw the ends of chunks, each with marks at any place."""
    found, end = [], 0
    for _ in range(draw(st.integers(1, 12))):
        end += draw(st.sampled_from([0, 1, 319, 320, 8_000, 16_001, 480_000]))
        places = st.sampled_from([0, end - 1, end, end + 777, end - 320, end - 9_000, end - 200_000])
        marks = st.builds(VoiceMark, st.sampled_from(VoiceEvent), places.map(lambda at: max(0, at)))
        found.append((end, draw(st.lists(marks, max_size=4))))
    return found


@given(chunks=chunks(), finishes=st.booleans())
def test_any_marks_lead_to_whole_utterances_in_order(chunks, finishes):
    pieces = LivePieces(LivePosition())
    done: list[Piece] = []
    for end, marks in chunks:
        before, needed_from = pieces._growing, pieces.needed_from
        pieces.append_audio(end, marks)
        assert all(piece.start_sample >= needed_from for piece in pieces.all)
        if before is not None:  # what was growing is all there
            same = next(each for each in pieces.all if each.start_sample == before.start_sample)
            assert same.is_complete or same.end_sample >= before.end_sample
        if finishes:
            while pieces.current is not None and pieces.current.is_complete:
                done.append(pieces.finish_current())
    pieces.append_audio(pieces.received_samples, [], is_last=True)
    done += pieces.all
    end, was_last = 0, True
    for piece in done:
        assert piece.is_complete
        assert piece.start_sample % PIECE_SAMPLES == 0
        assert 0 < piece.end_sample - piece.start_sample <= MAX_PIECE_SAMPLES
        assert end <= piece.start_sample and piece.end_sample <= pieces.received_samples
        assert was_last or piece.start_sample == end
        end, was_last = -(-piece.end_sample // PIECE_SAMPLES) * PIECE_SAMPLES, piece.is_last
    assert was_last
    ended = [piece.utterance for piece in done if piece.is_last]
    assert ended == list(range(1, len(ended) + 1))
    assert sorted({piece.utterance for piece in done}) == ended


@st.composite
def marked_audio(draw: st.DrawFn) -> list[tuple[int, VoiceMark]]:
    """Draw the marks of an endpointer, each with the sample at which it is known."""
    steps = st.integers(10, 20 * SAMPLE_RATE // PIECE_SAMPLES)
    found, at, is_speech = [], 0, False
    for event in draw(st.lists(st.sampled_from([CUT, END]), max_size=6)):
        if not is_speech:
            at += draw(steps) * PIECE_SAMPLES
            found.append((at + LATE_SAMPLES, VoiceMark(BEGIN, at)))
        at += SAMPLE_RATE + draw(steps) * PIECE_SAMPLES
        found.append((at + LATE_SAMPLES, VoiceMark(event, at)))
        is_speech = event is CUT
    return found


@given(known=marked_audio(), sizes=st.lists(st.integers(99, 200_000), min_size=1, max_size=5))
def test_pieces_do_not_depend_on_chunks(known, sizes):
    length = max((at for at, _ in known), default=0) + 100
    whole, parts = LivePieces(LivePosition()), LivePieces(LivePosition())
    whole.append_audio(length, [made for _, made in known], is_last=True)
    end = number = 0
    while end < length:
        start, end = end, min(length, end + sizes[number % len(sizes)])
        number += 1
        parts.append_audio(end, [made for at, made in known if start < at <= end], is_last=end == length)
    assert parts.all == whole.all
