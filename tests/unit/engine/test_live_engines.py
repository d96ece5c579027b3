"""Each step of live audio has the target's own text, whatever the draft proposes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.common.models.scripted import END
from experiments.common.models.speech import SPOKEN, SPOKEN_MULTILINGUAL, SpeechModel, speech, words_of
from specwhisper.live import LiveOptions
from specwhisper.options import DecodingOptions
from specwhisper.types import SAMPLE_RATE, Mode, Segment, VoiceMark
from tests.interference import KINDS, LOSSY, Interference
from tests.live import BEGIN, ENDED, mark
from tests.live_engines import LivePair, LiveSession, plain_text
from tests.nightly import examples

MODES = [Mode.SYNC, Mode.PIPELINED, Mode.FULL]
PIECE_S = 0.1
Schedule = list[tuple[bytes, list[VoiceMark]]]


def schedule(spans: list[tuple[float, float]], length_s: float, piece_s: float = PIECE_S) -> Schedule:
    """Return pieces of audio with speech in the spans, and an endpointer's marks."""
    audio = bytearray(round(length_s * SAMPLE_RATE) * 2)
    marks = []
    for seed, (begin_s, end_s) in enumerate(spans):
        first, last = round(begin_s * SAMPLE_RATE), round(end_s * SAMPLE_RATE)
        audio[first * 2 : last * 2] = speech(end_s - begin_s, seed)[: (last - first) * 2]
        marks += [(begin_s + 0.2, mark(BEGIN, begin_s)), (end_s + 0.5, mark(ENDED, end_s))]
    pieces: Schedule = []
    at_s = 0.0
    while at_s < length_s:
        to_s = min(length_s, round(at_s + piece_s, 6))
        pcm = bytes(audio[round(at_s * SAMPLE_RATE) * 2 : round(to_s * SAMPLE_RATE) * 2])
        pieces.append((pcm, [voice_mark for known_s, voice_mark in marks if at_s < known_s <= to_s]))
        at_s = to_s
    return pieces


def joined(pieces: Schedule) -> bytes:
    return b"".join(pcm for pcm, _ in pieces)


def transcribe(pair: LivePair, pieces: Schedule, options: DecodingOptions, pace=()) -> LiveSession:
    """Transcribe pieces; each waits for an idle pair, or for ``pace`` rounds."""
    session = pair.open("one", options)
    for number, (pcm, marks) in enumerate(pieces):
        pair.append_audio("one", pcm, *marks)
        if not pace:
            pair.settle()
        for _ in range(pace[number % len(pace)] if pace else 0):
            pair.advance()
    pair.append_audio("one", b"", is_last=True)
    pair.settle()
    assert session.is_finished
    assert pair.verifier.num_free_slots == pair.verifier._model.num_slots
    return session


def final_segments(session: LiveSession) -> list[tuple]:
    """Return the final text that a client receives."""
    return [
        (s.start_s, s.end_s, s.tokens, s.text, s.utterance, s.is_utterance_end, s.words)
        for s in session.segments
    ]


TALK = schedule([(0.3, 3.1), (3.8, 4.1), (4.7, 8.0)], 8.8)
options = st.builds(
    lambda live, **kwargs: DecodingOptions.greedy(live=live, language="en", **kwargs),
    st.builds(
        LiveOptions,
        step_ms=st.sampled_from([300, 500, 1_000]),
        trim_ms=st.sampled_from([2_000, 15_000]),
        reuses_candidates=st.booleans(),
    ),
    temperatures=st.sampled_from([(0.0,), (0.0, 0.5)]),
    logprob_threshold=st.sampled_from([None, -0.5]),
    no_speech_threshold=st.sampled_from([None, 0.7]),
    condition_on_previous_text=st.booleans(),
    word_timestamps=st.booleans(),
    hint=st.text("abcdefgh ", max_size=60),
)


@pytest.mark.timeout(600)
@settings(max_examples=examples(10, 100))
@given(
    options=options,
    mode=st.sampled_from(MODES),
    kind=st.sampled_from([*KINDS, LOSSY]),
    gamma=st.integers(1, 8),
    error_rate=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    max_positions=st.sampled_from([448, 30]),
    drafts_next_window=st.booleans(),
    seed=st.integers(0, 1_000),
)
def test_any_draft_leads_to_the_targets_text(
    options, mode, kind, gamma, error_rate, max_positions, drafts_next_window, seed
):
    """Each piece waits for an idle pair, so that the target makes the same steps."""
    pair = LivePair(
        SpeechModel(seed=seed),
        SpeechModel(2, seed=seed, error_rate=error_rate, max_positions=max_positions),
        mode=mode,
        gamma=gamma,
        drafts_next_window=drafts_next_window,
        edit_block=Interference(kind, seed, vocabulary_size=len(SPOKEN)),
    )
    ours = transcribe(pair, TALK, options)
    target_only = transcribe(LivePair(SpeechModel(seed=seed)), TALK, options)
    assert ours.windows == target_only.windows
    assert final_segments(ours) == final_segments(target_only)
    assert ours.positions == target_only.positions
    assert ours.transcript.verified_text == ours.transcript.tentative_text == ""


@pytest.mark.timeout(600)
@settings(max_examples=examples(10, 100))
@given(
    mode=st.sampled_from(MODES),
    kind=st.sampled_from(KINDS),
    error_rate=st.sampled_from([0.0, 0.2, 1.0]),
    pace=st.lists(st.integers(0, 12), min_size=1, max_size=5),
    step_ms=st.sampled_from([100, 500]),
    trim_ms=st.sampled_from([2_000, 15_000]),
    seed=st.integers(0, 1_000),
)
def test_at_any_pace_each_step_has_the_text_of_its_clip(mode, kind, error_rate, pace, step_ms, trim_ms, seed):
    options = DecodingOptions.greedy(live=LiveOptions(step_ms=step_ms, trim_ms=trim_ms), language="en")
    pair = LivePair(
        SpeechModel(seed=seed),
        SpeechModel(2, seed=seed, error_rate=error_rate),
        mode=mode,
        edit_block=Interference(kind, seed, vocabulary_size=len(SPOKEN)),
    )
    ours = transcribe(pair, TALK, options, pace)
    model = SpeechModel(seed=seed)
    for window, tokens in ours.windows:
        assert tokens == plain_text(model, joined(TALK), window)
    starts = [start for start, _ in ours.spans]
    assert starts == sorted(starts)
    assert set(ours.texts) == {1, 2, 3}
    assert [s.utterance for s in ours.segments if s.is_utterance_end] == [1, 2, 3]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("reuses_candidates", [True, False])
def test_reused_candidates_save_forward_passes_and_change_no_text(mode, reuses_candidates):
    options = DecodingOptions.greedy(live=LiveOptions(reuses_candidates=reuses_candidates), language="en")
    ours = transcribe(LivePair(SpeechModel(), SpeechModel(2), mode=mode), TALK, options)
    target_only = transcribe(LivePair(SpeechModel()), TALK, options)
    assert final_segments(ours) == final_segments(target_only)
    statistics = ours.transcript.statistics
    assert statistics.num_forwards < target_only.transcript.statistics.num_forwards
    assert (statistics.num_hinted > 0) is reuses_candidates
    assert statistics.num_windows == len(ours.windows) == len(ours.transcript.steps)
    assert sum(step.num_forwards for step in ours.transcript.steps) == statistics.num_forwards


@pytest.mark.parametrize("trim_ms", [2_000, 15_000, 28_000])
def test_a_long_utterance_is_cut_and_loses_no_word(trim_ms):
    spoken = schedule([(0.0, 33.0)], 34.0)
    options = DecodingOptions.greedy(live=LiveOptions(trim_ms=trim_ms), language="en")
    session = transcribe(LivePair(SpeechModel(), SpeechModel(2)), spoken, options)
    samples = np.frombuffer(joined(spoken), "<i2").astype(np.float32) / 32768
    assert session.texts == {1: [token for token in words_of(samples) if token < END]}
    assert all(window.num_frames <= 3_000 for window, _ in session.windows)
    assert len({window.start_frame for window, _ in session.windows}) > 1


@pytest.mark.parametrize("length_s", [0.005, 0.3, 3.0, 30.0, 60.0])
def test_audio_that_is_all_speech_may_end_anywhere(length_s):
    """As without endpointing: all the audio is one utterance."""
    pieces: Schedule = [(speech(length_s), [VoiceMark(BEGIN, 0)])]
    options = DecodingOptions.greedy(live=LiveOptions(), language="en")
    session = transcribe(LivePair(SpeechModel(), SpeechModel(2)), pieces, options)
    ends = [segment.is_utterance_end for segment in session.segments]
    assert ends == ([] if length_s < 0.01 else [*[False] * (len(ends) - 1), True])


@pytest.mark.parametrize("mode", [Mode.TARGET_ONLY, *MODES])
def test_silence_takes_no_forward_pass_and_no_memory(mode):
    target, draft = SpeechModel(), SpeechModel(2)
    pair = LivePair(target, draft if mode.drafts else None, mode=mode)
    session = pair.open("one", DecodingOptions.greedy(live=LiveOptions(), language="en"))
    silence = bytes(SAMPLE_RATE * 2)
    for _ in range(600):
        pair.append_audio("one", silence)
        pair.settle()
        held = pair.verifier._sessions["one"].recording
        assert held.received_samples - held.first_sample < 6 * SAMPLE_RATE
        if mode.drafts:
            held = pair.drafter._sessions["one"].recording
            assert held.received_samples - held.first_sample < 6 * SAMPLE_RATE
    assert session.windows == [] and target.num_forwards == draft.num_forwards == 0
    pair.append_audio("one", b"", is_last=True)
    pair.settle()
    assert session.is_finished


def test_concurrent_sessions_do_not_mix():
    options = DecodingOptions.greedy(live=LiveOptions(), language="en")
    target_only = {
        name: transcribe(LivePair(SpeechModel()), pieces, options)
        for name, pieces in (("one", TALK), ("two", TALK[10:] + TALK[:10]))
    }
    pair = LivePair(SpeechModel(2), SpeechModel(3))
    for name in target_only:
        pair.open(name, options)
    for number in range(len(TALK)):
        for name, pieces in (("one", TALK), ("two", TALK[10:] + TALK[:10])):
            pcm, marks = pieces[number]
            pair.append_audio(name, pcm, *marks)
        pair.settle()
    for name in target_only:
        pair.append_audio(name, b"", is_last=True)
    pair.settle()
    for name, expected in target_only.items():
        assert pair.sessions[name].windows == expected.windows
        assert final_segments(pair.sessions[name]) == final_segments(expected)


@pytest.mark.parametrize("mode", [Mode.TARGET_ONLY, *MODES])
@pytest.mark.parametrize(
    "step_ms",
    [
        500,
        1_000,
    ],
)
def test_a_session_without_a_language_detects_it_in_each_utterance(mode, step_ms):
    """If the first step is the pause, the utterance ends with its slot in use."""
    options = DecodingOptions.greedy(live=LiveOptions(step_ms=step_ms))
    pieces = schedule([(0.0, 0.4), (1.2, 4.0)], 5.0)

    def model(num_slots: int) -> SpeechModel:
        return SpeechModel(num_slots, vocabulary=SPOKEN_MULTILINGUAL)

    pair = LivePair(model(1), model(2) if mode.drafts else None, mode=mode)
    session = transcribe(pair, pieces, options)
    plain = model(1)
    for window, tokens in session.windows:
        assert tokens == plain_text(plain, joined(pieces), window)
    assert set(session.transcript.language_probs) == {"en", "de"}
    assert [s.utterance for s in session.segments if s.is_utterance_end] == [1, 2]


@pytest.mark.timeout(600)
@settings(max_examples=examples(10, 100))
@given(
    breaks=st.lists(st.integers(1, len(TALK) - 1), min_size=1, max_size=3, unique=True),
    late_s=st.sampled_from([0.0, 0.1, 0.4]),
    trim_ms=st.sampled_from([1_000, 2_000, 15_000]),
    mode=st.sampled_from([Mode.TARGET_ONLY, *MODES]),
)
def test_a_lost_session_resumes_without_a_lost_or_repeated_word(breaks, late_s, trim_ms, mode):
    """The next session knows the position only, and detects speech with a delay."""
    live = LiveOptions(trim_ms=trim_ms)
    unbroken = transcribe(LivePair(SpeechModel()), TALK, DecodingOptions.greedy(live=live, language="en"))
    segments: list[Segment] = []
    for end in [*sorted(breaks), len(TALK)]:
        pair = LivePair(SpeechModel(), SpeechModel(2) if mode.drafts else None, mode=mode)
        session = pair.open("one", DecodingOptions.greedy(live=live, language="en"))
        for pcm, marks in rest_of_talk(live.position.start_sample, late_s)[: end - len(TALK) or None]:
            pair.append_audio("one", pcm, *marks)
            pair.settle()
        if end == len(TALK):
            pair.append_audio("one", b"", is_last=True)
            pair.settle()
        segments += session.segments
        live = replace(live, position=session.transcript.position)
    session.segments = segments
    assert session.texts == unbroken.texts
    assert [s.utterance for s in segments if s.is_utterance_end] == [1, 2, 3]
    assert [s.start_s for s in segments] == sorted(s.start_s for s in segments)


def rest_of_talk(start_sample: int, late_s: float) -> Schedule:
    """Return the rest of the talk; speech that has begun is detected later."""
    known = [voice_mark.sample for _, marks in TALK for voice_mark in marks]
    is_open = any(begin < start_sample < end for begin, end in zip(known[::3], known[2::3], strict=True))
    detected = VoiceMark(BEGIN, start_sample + round(late_s * SAMPLE_RATE))
    pieces: Schedule = []
    at = 0
    for pcm, marks in TALK:
        end = at + len(pcm) // 2
        if end > start_sample:
            kept = [
                voice_mark
                for voice_mark in marks
                if voice_mark.sample >= start_sample + (voice_mark.event is not BEGIN)
            ]
            if is_open and end >= detected.sample:
                kept, is_open = [detected, *kept], False
            pieces.append((pcm[max(0, start_sample - at) * 2 :], kept))
        at = end
    return pieces
