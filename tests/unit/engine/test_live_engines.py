"""Final live text is the target's own, a function of audio and options alone."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.common.models.scripted import END
from experiments.common.models.speech import (
    SPOKEN,
    SPOKEN_MULTILINGUAL,
    SpeechModel,
    samples_of,
    talk,
    words_of,
)
from specwhisper.live import EndpointingOptions, LiveOptions, LivePosition
from specwhisper.model.choosing import ProbeResult
from specwhisper.options import DecodingOptions
from specwhisper.types import SAMPLE_RATE, Segment, VoiceMark
from tests.interference import KINDS, LOSSY, Interference
from tests.live import BEGIN
from tests.live_engines import PIECES, TALK, LivePair, plain_text, texts_of, transcribe, voice_of
from tests.nightly import examples

MANY = (30, 300)
WORDS = talk(((0.5, 3.5), (5.0, 8.5), (10.0, 12.0)), 13.5)


def options_of(live: LiveOptions | None = None, **options) -> DecodingOptions:
    return DecodingOptions.greedy(live=live or LiveOptions(), **{"language": "en"} | options)


class BilingualModel(SpeechModel):
    """Is sure of the language, which the audio decides."""

    def _probe(self, audio: str) -> ProbeResult:
        language = ("en", "de")[self._hash("language", audio) % 2]
        return replace(super()._probe(audio), language_probs={"en": 0.05, "de": 0.05, language: 0.95})


def model_of(options: DecodingOptions, **more) -> SpeechModel:
    if options.language:
        return SpeechModel(**more)
    return BilingualModel(vocabulary=SPOKEN_MULTILINGUAL, **more)


EXPECTED: dict[str, list[Segment]] = {}


def expected(options: DecodingOptions, seed: int) -> list[Segment]:
    """Return the text of a target alone that is never late, after a check of each window."""
    key = f"{options} {seed}"
    if key not in EXPECTED:
        EXPECTED[key] = _expected(options, seed)
    return EXPECTED[key]


def _expected(options: DecodingOptions, seed: int) -> list[Segment]:
    pair = LivePair(model_of(options, seed=seed))
    segments = transcribe(pair, TALK, options)
    model = model_of(options, seed=seed)
    for window, tokens in pair.sessions["one"].windows:
        if window.temperature == 0:
            assert tokens == plain_text(model, TALK, window)
    return segments


decodings = st.builds(
    lambda **more: options_of(**more),
    language=st.sampled_from(["en", None]),
    temperatures=st.sampled_from([(0.0,), (0.0, 0.3), (0.0, 0.6)]),
    logprob_threshold=st.sampled_from([None, -0.5]),
    no_speech_threshold=st.sampled_from([None, 0.7]),
    word_timestamps=st.booleans(),
)


@pytest.mark.timeout(600)
@settings(max_examples=examples(*MANY))
@given(
    options=decodings,
    live=st.builds(
        LiveOptions,
        step_ms=st.sampled_from([100, 500]),
        confirm_every_ms=st.sampled_from([None, 100, 700]),
    ),
    hint=st.sampled_from(["", "a b c d"]),
    sizes=st.lists(st.integers(100, 40_000), min_size=1, max_size=4),
    pace=st.lists(st.tuples(st.integers(0, 40), st.integers(0, 12)), max_size=5),
    losses=st.sets(st.integers(0, 40), max_size=3),
    breaks=st.sets(st.integers(0, 40), max_size=2),
    draft=st.sampled_from([None, 0.0, 0.2, 1.0]),
    kind=st.sampled_from([*KINDS, LOSSY]),
    seed=st.integers(0, 5),
)
def test_final_text_depends_on_audio_and_options_alone(
    options, live, hint, sizes, pace, losses, breaks, draft, kind, seed
):
    """Whatever the chunks, the pace, the losses, the draft, and texts that are not final."""
    pair = LivePair(
        model_of(options, seed=seed),
        None if draft is None else model_of(options, seed=seed, error_rate=draft),
        edit=Interference(kind, seed, vocabulary_size=len(SPOKEN)),
    )
    given_options = replace(options, live=live, hint=hint)
    ours = transcribe(pair, TALK, given_options, sizes=sizes, pace=pace, losses=losses, breaks=breaks)
    assert ours == expected(options, seed)


def test_no_word_is_lost_or_repeated_and_a_draft_saves_forward_passes():
    alone, pair = LivePair(SpeechModel()), LivePair(SpeechModel(), SpeechModel())
    segments = transcribe(alone, WORDS, options_of(), endpointing=EndpointingOptions())
    words = [token for token in words_of(samples_of(WORDS)) if token < END]
    texts = list(texts_of(segments).values())
    assert [*texts[0], *texts[1], *texts[2]] == words
    assert [len(text) for text in texts] == [15, 18, 10]
    assert transcribe(pair, WORDS, options_of(), endpointing=EndpointingOptions()) == segments
    assert pair.target.num_forwards < alone.target.num_forwards / 4
    statistics = pair.sessions["one"].transcript.statistics
    assert statistics.num_accepted + statistics.num_hinted_accepted > 40


def test_texts_of_a_growing_piece_take_windows_of_their_own():
    pair = LivePair(SpeechModel())
    options = options_of(LiveOptions(confirm_every_ms=500))
    assert transcribe(pair, WORDS, options) == transcribe(LivePair(SpeechModel()), WORDS, options_of())
    spans = [(window.start_frame, window.num_frames) for window, _ in pair.sessions["one"].windows]
    assert len(set(spans)) > 12


@pytest.mark.parametrize("length_s", [0.05, 0.3, 3.0, 31.0, 61.0])
def test_audio_that_is_all_speech_may_end_anywhere(length_s):
    pcm = talk(((0, length_s),), length_s)
    pair = LivePair(SpeechModel(), SpeechModel())
    session = pair.open("one", options_of())
    pair.append_audio("one", pcm, VoiceMark(BEGIN, 0))
    pair.append_audio("one", b"", is_last=True)
    pair.settle()
    assert session.is_finished
    ends = [segment.is_utterance_end for segment in session.segments]
    assert ends == [*[False] * (len(ends) - 1), True]
    assert all(window.num_frames <= 2_900 for window, _ in session.windows)


@pytest.mark.parametrize("has_draft", [False, True])
def test_silence_takes_no_forward_pass_and_no_memory(has_draft):
    target, draft = SpeechModel(), SpeechModel()
    pair = LivePair(target, draft if has_draft else None)
    session = pair.open("one", options_of())
    silence = bytes(SAMPLE_RATE * 2)
    for _ in range(600):
        pair.append_audio("one", silence)
        pair.settle()
        for engine in (pair.verifier, pair.drafter) if has_draft else (pair.verifier,):
            held = engine._sessions["one"].recording
            assert held.received_samples - held.first_sample < 6 * SAMPLE_RATE
    assert session.windows == [] and target.num_forwards == draft.num_forwards == 0
    pair.append_audio("one", b"", is_last=True)
    pair.settle()
    assert session.is_finished


def test_concurrent_sessions_do_not_mix():
    options, talks = options_of(), {"one": TALK, "two": WORDS}
    alone = {name: transcribe(LivePair(SpeechModel()), pcm, options) for name, pcm in talks.items()}
    pair = LivePair(SpeechModel(2), SpeechModel(2))
    voices = {name: voice_of(PIECES, LivePosition()) for name in talks}
    sessions = {name: pair.open(name, options) for name in talks}
    for start in range(0, len(WORDS), 6_400):
        for name, pcm in talks.items():
            chunk = pcm[start : start + 6_400]
            pair.append_audio(name, chunk, *voices[name].append(chunk))
        pair.advance_draft()
        pair.advance_target()
    for name in talks:
        pair.append_audio(name, b"", *voices[name].end_utterance(), is_last=True)
    pair.settle()
    assert {name: session.segments for name, session in sessions.items()} == alone


def test_each_utterance_has_its_own_language():
    options = options_of(language=None)
    pair = LivePair(model_of(options))
    segments = transcribe(pair, TALK, options)
    windows = [window for window, _ in pair.sessions["one"].windows]
    assert len(windows) >= 5 and any(window.prefix for window in windows), "utterances have several pieces"
    assert [segment.utterance for segment in segments if segment.is_utterance_end] == [1, 2, 3]
    assert {segment.language for segment in segments} == {"en", "de"}
    by_utterance = {segment.utterance: segment.language for segment in segments}
    assert all(by_utterance[segment.utterance] == segment.language for segment in segments)
    assert set(pair.sessions["one"].transcript.language_probs) == {"en", "de"}


class FailingModel(SpeechModel):
    def encode(self, slot, recording, start_frame) -> None:
        raise ValueError("It cannot.")


def test_a_failing_draft_changes_nothing():
    pair = LivePair(SpeechModel(), FailingModel())
    assert transcribe(pair, TALK, options_of()) == expected(options_of(), 0)
    assert not pair.sessions["one"].has_draft
