"""Utterances follow any marks, and name the sample up to which to decode."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from specwhisper.transcription.utterances import MAX_LOOK_BACK_SAMPLES, Utterance, Utterances

from specwhisper.types import HOP_SAMPLES, SAMPLE_RATE, VoiceEvent, VoiceMark

STEP = SAMPLE_RATE // 2
BEGIN, END = VoiceEvent.BEGIN, VoiceEvent.END


def at(event: VoiceEvent, seconds: float) -> VoiceMark:
    return VoiceMark(event, round(seconds * SAMPLE_RATE))


def followed(*pieces: tuple[float, list[VoiceMark]], **kwargs) -> Utterances:
    """Return utterances after pieces of audio (end in seconds, marks)."""
    utterances = Utterances(**kwargs)
    for end_s, marks in pieces:
        utterances.append_audio(round(end_s * SAMPLE_RATE), marks)
    return utterances


def spans(utterances: Utterances) -> list[tuple]:
    """All open utterances, in seconds; ends with the queue empty."""
    found = []
    while (open_ := utterances.current) is not None:
        end_s = None if open_.end_sample is None else open_.end_sample / SAMPLE_RATE
        found.append((open_.number, open_.start_sample / SAMPLE_RATE, end_s))
        utterances.finish_current()
    return found


class TestStepEnd:
    @pytest.mark.parametrize(
        ("received", "expected"),
        [(0, 0), (999, 0), (1_000, 0), (8_999, 0), (9_000, 8_960), (17_000, 16_960), (99_999, 96_960)],
    )
    def test_during_speech_it_is_a_multiple_of_a_step_after_the_start(self, received, expected):
        end = Utterance(1, 1_000).step_end(received, STEP)
        assert end == max(expected, 1_000 // HOP_SAMPLES * HOP_SAMPLES)

    def test_it_is_the_end_of_the_utterance(self):
        assert Utterance(1, 0, end_sample=20_200).step_end(30_000, STEP) == 20_160

    @given(
        start=st.integers(0, 10**6).map(lambda frame: frame * HOP_SAMPLES),
        received=st.integers(0, 10**9),
        step_ms=st.integers(100, 10_000),
    )
    def test_it_lies_at_most_a_step_and_a_frame_before_the_newest_sample(self, start, received, step_ms):
        step = step_ms * SAMPLE_RATE // 1000
        end = Utterance(1, start).step_end(received, step)
        assert end % HOP_SAMPLES == 0
        if received < start:
            assert end == start
        else:
            assert start <= end <= received < end + step + HOP_SAMPLES


class TestMarks:
    def test_utterances_follow_each_other(self):
        utterances = followed((1, [at(BEGIN, 0.5)]), (3, [at(END, 2)]), (5, [at(BEGIN, 4.5)]))
        assert spans(utterances) == [(1, 0.5, 2.0), (2, 4.5, None)]

    def test_several_wait_while_the_first_is_not_complete(self):
        marks = [mark for i in range(5) for mark in (at(BEGIN, i), at(END, i + 0.5))]
        assert spans(followed((5, marks))) == [(i + 1, float(i), i + 0.5) for i in range(5)]

    def test_repeated_marks_change_nothing(self):
        marks = [at(BEGIN, 0), at(BEGIN, 0), at(BEGIN, 1), at(END, 2), at(END, 3)]
        assert spans(followed((4, marks))) == [(1, 0.0, 2.0)]

    def test_ends_without_an_utterance_are_ignored(self):
        utterances = followed((4, [at(END, 1), at(END, 3)]))
        assert utterances.current is None
        utterances.append_audio(6 * SAMPLE_RATE, [at(BEGIN, 5), at(END, 6), at(END, 6)])
        assert spans(utterances) == [(1, 5.0, 6.0)]

    def test_an_end_before_the_start_ends_it_a_frame_after_the_start(self):
        assert spans(followed((4, [at(BEGIN, 3), at(END, 1)]))) == [(1, 3.0, 3.01)]

    def test_marks_beyond_the_audio_are_taken_for_its_end(self):
        assert spans(followed((5, [at(BEGIN, 3), at(END, 100)]))) == [(1, 3.0, 5.0)]

    def test_an_utterance_begins_no_earlier_than_the_last_one_ended(self):
        assert spans(followed((4, [at(BEGIN, 0), at(END, 3), at(BEGIN, 1)]))) == [
            (1, 0.0, 3.0),
            (2, 3.0, None),
        ]
        utterances = followed((4, [at(BEGIN, 0), at(END, 3)]))
        utterances.finish_current()
        utterances.append_audio(5 * SAMPLE_RATE, [at(BEGIN, 1)])
        assert spans(utterances) == [(2, 3.0, None)]

    def test_an_utterance_begins_no_earlier_than_what_is_kept(self):
        assert spans(followed((100, [at(BEGIN, 0)]))) == [(1, 95.0, None)]

    def test_the_end_of_the_audio_ends_what_is_open(self):
        utterances = followed((4, [at(BEGIN, 1)]))
        utterances.append_audio(5 * SAMPLE_RATE, [], is_last=True)
        assert utterances.is_complete
        assert spans(utterances) == [(1, 1.0, 5.0)]

    def test_the_end_of_the_audio_keeps_an_end_that_is_known(self):
        utterances = followed((4, [at(BEGIN, 1), at(END, 3)]))
        utterances.append_audio(5 * SAMPLE_RATE, [], is_last=True)
        assert spans(utterances) == [(1, 1.0, 3.0)]

    @pytest.mark.parametrize("start_sample", [0, 160_000])
    def test_without_audio_there_is_no_utterance(self, start_sample):
        """As for a session that continues after the last word, when no audio follows."""
        utterances = Utterances(start_sample, 3)
        utterances.append_audio(start_sample, [VoiceMark(BEGIN, start_sample)], is_last=True)
        assert utterances.current is None and utterances.is_complete

    def test_an_utterance_without_audio_is_not_counted(self):
        utterances = followed((1, [at(BEGIN, 1), at(END, 1), at(BEGIN, 1), at(END, 0)]), (3, [at(BEGIN, 2)]))
        assert spans(utterances) == [(1, 2.0, None)]

    def test_a_session_continues_after_the_complete_utterances(self):
        utterances = followed((11, [at(BEGIN, 9)]), start_sample=10 * SAMPLE_RATE, num_complete=7)
        assert spans(utterances) == [(8, 10.0, None)]


class TestNeededFrom:
    def test_hours_of_silence_leave_five_seconds_needed(self):
        utterances = followed((1, [at(BEGIN, 0), at(END, 1)]))
        utterances.finish_current()
        for second in range(2, 7_200, 10):
            utterances.append_audio(second * SAMPLE_RATE, [])
            assert second * SAMPLE_RATE - utterances.needed_from <= MAX_LOOK_BACK_SAMPLES
            assert utterances.has_fallen_silent == (second > 6)

    def test_an_open_utterance_is_needed_from_its_begin(self):
        utterances = followed((1, [at(BEGIN, 0.5), at(END, 1)]), (60, [at(BEGIN, 59.0)]))
        assert utterances.needed_from == SAMPLE_RATE // 2
        assert not utterances.has_fallen_silent
        utterances.finish_current()
        assert utterances.needed_from == 59 * SAMPLE_RATE
        utterances.finish_current()
        assert utterances.needed_from == 60 * SAMPLE_RATE  # it was given up where it was

    def test_decoded_audio_is_not_needed_again(self):
        utterances = followed((4, [at(BEGIN, 0), at(END, 3)]))
        utterances.finish_current()
        assert utterances.needed_from == 3 * SAMPLE_RATE


marks = st.builds(VoiceMark, st.sampled_from(VoiceEvent), st.integers(-(10**5), 10**7))
pieces = st.lists(
    st.tuples(st.integers(0, 20 * SAMPLE_RATE), st.lists(marks, max_size=6), st.booleans()), max_size=20
)


def test_skipped_audio_is_not_needed_after_an_ignored_utterance():
    utterances = Utterances(start_sample=24)
    utterances.append_audio(320, [VoiceMark(BEGIN, 320)])
    assert utterances.needed_from == 320
    utterances.append_audio(320, [VoiceMark(END, 0)])
    assert (utterances.current, utterances.needed_from) == (None, 320)


@given(pieces=pieces, start_sample=st.integers(0, 10**6), num_complete=st.integers(0, 9), data=st.data())
def test_utterances_are_in_order_and_within_the_audio_for_any_marks(pieces, start_sample, num_complete, data):
    utterances = Utterances(start_sample, num_complete)
    received, needed, last_number, last_end = start_sample, 0, num_complete, 0
    for length, marked, finishes in pieces:
        received += length
        # Chunks may repeat what was sent: they end earlier.
        utterances.append_audio(received - data.draw(st.sampled_from([0, 0, 100])), marked)
        assert utterances.needed_from >= needed - HOP_SAMPLES  # begins are on whole frames
        needed = utterances.needed_from
        assert needed <= utterances.received_samples <= received
        open_ = utterances.current
        if open_ is None:
            assert utterances.received_samples - needed <= MAX_LOOK_BACK_SAMPLES
            continue
        assert open_.number == last_number + 1
        assert open_.start_sample % HOP_SAMPLES == 0
        assert last_end // HOP_SAMPLES * HOP_SAMPLES <= open_.start_sample <= utterances.received_samples
        step_end = open_.step_end(utterances.received_samples, STEP)
        assert open_.start_sample <= step_end <= utterances.received_samples
        if finishes:
            last_number = open_.number
            last_end = utterances.received_samples if open_.end_sample is None else open_.end_sample
            assert open_.start_sample <= last_end <= utterances.received_samples
            assert open_.end_sample is None or last_end - open_.start_sample >= HOP_SAMPLES
            utterances.finish_current()
    utterances.append_audio(received, [], is_last=True)
    for number, _, end_s in spans(utterances):
        assert number > num_complete and end_s is not None


@given(pieces=pieces)
def test_as_many_utterances_wait_as_there_are_frames(pieces):
    """Marks without audio take no memory."""
    utterances = Utterances()
    received = 0
    for length, marked, _ in pieces:
        received += length // 1_000
        for _ in range(10):
            utterances.append_audio(received, marked)
    assert len(spans(utterances)) <= 1 + received // HOP_SAMPLES
