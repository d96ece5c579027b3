"""Live transcripts agree with the windows, and resume without losing a word."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.common.models.scripted import END, NUM_TEXT, TIME
from experiments.common.models.speech import SPOKEN
from specwhisper.live import LiveOptions, LivePosition
from specwhisper.types import (
    SAMPLE_RATE,
)
from tests.live import BEGIN, ENDED, Speaker, letters, mark
from tests.live_transcripts import ScriptedTranscript
from tests.nightly import examples

hypotheses = st.lists(
    st.one_of(st.integers(0, NUM_TEXT - 1), st.integers(0, 3), st.integers(TIME, TIME + 150)), max_size=10
)


@settings(max_examples=examples(by_day=25, at_night=150))
@given(
    data=st.data(),
    trim_ms=st.sampled_from([1_000, 15_000]),
    reuses_candidates=st.booleans(),
    pieces=st.lists(st.integers(1, 5), min_size=1, max_size=3),
    temperatures=st.sampled_from([(0.0,), (0.0, 0.3)]),
)
def test_the_transcript_agrees_with_the_windows(data, trim_ms, reuses_candidates, pieces, temperatures):
    scripted = ScriptedTranscript(
        LiveOptions(trim_ms=trim_ms, reuses_candidates=reuses_candidates),
        temperatures=temperatures,
        compression_ratio_threshold=1.5,
        no_speech_threshold=0.8,
        logprob_threshold=-1.0,
    )
    transcript, at_s, text, end_s = scripted.transcript, 0.0, [], 0.0
    for _ in range(data.draw(st.integers(1, 10))):
        at_s += data.draw(st.sampled_from([0.1, 0.5, 1.3, 31.0]))
        events = st.builds(mark, st.sampled_from([BEGIN, BEGIN, ENDED]), st.just(at_s - 0.05))
        scripted.append(at_s, *data.draw(st.lists(events, max_size=2)))
        if not scripted.ready:
            continue
        window = scripted.open()
        assert transcript.position == LivePosition(
            window.start_sample,
            scripted.windows._utterances.current.number - 1,
            scripted.windows._progress.final,
        )
        kept = text[: data.draw(st.integers(0, len(text)))]
        tokens = [*kept, *data.draw(hypotheses), END]
        text = tokens[:-1]
        probs = {
            "log_probs": data.draw(st.sampled_from([[-0.1], [-2.0]])),
            "no_speech_prob": data.draw(st.sampled_from([0.1, 0.9])),
        }
        for segment in scripted.write(tokens, pieces, **probs):
            assert end_s <= segment.start_s <= segment.end_s <= scripted.received_samples / SAMPLE_RATE + 0.01
            end_s = segment.end_s
        found = {segment.utterance: [] for segment in scripted.segments}
        for segment in scripted.segments:
            found[segment.utterance] += [token for token in segment.tokens if token < END]
            assert segment.text == SPOKEN.decode(segment.tokens)
        assert {number: text for number, text in found.items() if text} == {
            number: text for number, text in scripted.final.items() if text
        }
        transcript.update_belief(window, tuple(tokens))
        assert transcript.tentative_text == "", "the window is closed"


@settings(max_examples=examples(30, 100))
@given(
    num_words=st.integers(5, 40),
    step_ms=st.sampled_from([400, 500, 1_000]),
    trim_ms=st.sampled_from([2_000, 15_000]),
    breaks=st.lists(st.integers(1, 100), min_size=1, max_size=4),
    within=st.booleans(),
)
def test_a_session_continues_from_a_position_without_losing_or_repeating_a_word(
    num_words, step_ms, trim_ms, breaks, within
):
    """Wherever the first one breaks, also within a window."""
    speaker = Speaker(0, num_words)
    end_s = num_words * Speaker.WORD_FRAMES / 100
    live = LiveOptions(step_ms=step_ms, trim_ms=trim_ms)
    words: list[int] = []
    for num_steps in [*breaks, 10_000]:
        scripted = ScriptedTranscript(live)
        at_s = live.position.start_sample / SAMPLE_RATE
        scripted.append(at_s, mark(BEGIN, at_s))
        for number in range(num_steps):
            at_s = min(end_s, at_s + 0.3)
            scripted.append(at_s, is_last=at_s == end_s)
            while scripted.ready:
                window = scripted.open()
                tokens = speaker.write(window.start_frame, window.num_frames, number, None)
                scripted.write(tokens, (3,))
            if at_s == end_s:
                break
        if within and at_s < end_s:
            scripted.append(min(end_s, at_s + 2))
            if scripted.ready:
                scripted.open()
        words += [token for segment in scripted.segments for token in segment.tokens if token < END]
        if at_s == end_s:
            break
        assert scripted.transcript.position.num_utterances == 0
        live = replace(live, position=scripted.transcript.position)
    assert letters(words) == letters(speaker.right_words())
