"""AcceptAllTarget accepts every candidate, and every session ends."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from specwhisper_draft_server.sessions.draft_only import AcceptAllTarget

from experiments.common.models.scripted import END
from experiments.common.models.speech import SPOKEN, SpeechModel, samples_of, speech, words_of
from specwhisper.engine.drafter import Drafter
from specwhisper.engine.inline_pair import InlineExecutor
from specwhisper.live import LiveOptions
from specwhisper.options import DecodingOptions
from specwhisper.speculation.draft_length import DraftLength
from specwhisper.transcription.live.transcript import LiveTranscript
from specwhisper.types import (
    SAMPLE_RATE,
    AudioChunk,
    Candidates,
    Commit,
    Failed,
    Finished,
    Limits,
    Mode,
    Segment,
    VoiceEvent,
    VoiceMark,
    WindowOpened,
)
from tests.live import BEGIN, ENDED, mark, token_ids
from tests.live_engines import texts_of
from tests.nightly import examples

LIMITS = Limits(max_ahead_tokens=16)
MAX_NEW_TOKENS = SPOKEN.max_length
MAX_EVENTS = 20_000  # of a session; more would mean that it does not end


def new_target(**live) -> AcceptAllTarget:
    options = DecodingOptions.greedy(live=LiveOptions(**live))
    return AcceptAllTarget(SPOKEN, options, LIMITS, max_new_tokens=MAX_NEW_TOKENS)


def append(target: AcceptAllTarget, seconds: float = 1.0, *marks: VoiceMark, is_last: bool = False) -> list:
    return target.append_audio(AudioChunk(0, bytes(round(seconds * SAMPLE_RATE) * 2), is_last, marks))


def test_silence_opens_no_window_and_ends_at_once():
    target = new_target()
    assert append(target, 3.0) == []
    assert append(target, 4.0, is_last=True) == [Finished()]
    assert append(target, 5.0, is_last=True) == [], "it ends once"


def test_a_block_is_committed_unchanged():
    target = new_target()
    (opened,) = append(target, 1.0, mark(BEGIN, 0.0))
    assert (opened.window.start_frame, opened.window.num_frames, opened.opening) == (0, 100, ())
    (commit,) = target.propose(Candidates(opened.window.id, 0, 0, token_ids("ab"), 1))
    assert (commit.base, commit.tokens, commit.is_final) == (0, token_ids("ab"), False)
    assert commit.candidates_received == 1
    assert (commit.held, commit.credit) == (2, 2 + LIMITS.max_ahead_tokens)
    (commit,) = target.propose(Candidates(opened.window.id, 2, 2, token_ids("c.d"), 2))
    assert (commit.tokens, commit.is_final) == (token_ids("c."), True), "nothing follows the end of the text"
    assert commit.step is not None and not commit.step.is_last


def test_text_of_two_equal_steps_and_of_an_ended_utterance_is_final():
    target = new_target()
    (first,) = append(target, 1.0, mark(BEGIN, 0.0))
    target.propose(Candidates(first.window.id, 0, 0, token_ids("ab."), 1))
    (second,) = append(target, 1.6)
    (commit,) = target.propose(Candidates(second.window.id, 0, 0, token_ids("abc."), 1))
    assert (commit.step.final_start, commit.step.final_end) == (0, 2)
    (third,) = append(target, 2.0, mark(ENDED, 1.8))
    assert third.num_final == 2
    (commit,) = target.propose(Candidates(third.window.id, 0, 0, token_ids("abc."), 1))
    assert commit.step.is_last and (commit.step.final_start, commit.step.final_end) == (2, 3)


@pytest.mark.parametrize(
    ("block", "committed"),
    [
        ((0, token_ids("abcd")), token_ids("cd")),  # the beginning is known
        ((1, token_ids("xcd")), token_ids("cd")),  # tokens before the end are ignored
        ((0, token_ids("ab")), ()),  # a repetition
        ((3, token_ids("d")), ()),  # a gap
        ((2, ()), ()),
        ((0, ()), ()),
    ],
)
def test_only_tokens_that_follow_the_committed_ones_are_committed(block, committed):
    target = new_target()
    (opened,) = append(target, 1.0, mark(BEGIN, 0.0))
    target.propose(Candidates(opened.window.id, 0, 0, token_ids("ab"), 1))
    base, tokens = block
    (commit,) = target.propose(Candidates(opened.window.id, base, base, tokens, 2))
    assert (commit.base, commit.tokens, commit.is_final) == (2, committed, False)
    assert commit.candidates_received == 2


def test_a_block_of_another_window_is_ignored_unless_it_is_early():
    target = new_target()
    assert target.propose(Candidates(0, 0, 0, token_ids("a"), 1)) == [], "no window is open"
    (opened,) = append(target, 1.0, mark(BEGIN, 0.0))
    number = opened.window.id
    assert target.propose(Candidates(number + 1, 0, 0, token_ids("xyz"), 1)) == [], "no start frame"
    assert target.propose(Candidates(number + 1, 0, 0, token_ids("abc."), 1, start_frame=0)) == []
    assert target.propose(Candidates(number + 1, 0, 0, token_ids("z"), 1, start_frame=9)) == [], (
        "another start"
    )
    target.propose(Candidates(number, 0, 0, token_ids("ab."), 1))
    opened, commit = append(target, 1.6)
    assert opened.window.id == commit.window_id == number + 1
    assert (commit.tokens, commit.is_final) == (token_ids("abc."), True)


def test_the_number_of_early_blocks_is_bounded():
    target = new_target()
    for number in range(10_000):
        assert target.propose(Candidates(7, 0, 0, token_ids("a"), number, start_frame=0)) == []
    assert len(target._early) == LIMITS.max_ahead_tokens


def test_a_text_without_an_end_is_cut_at_the_token_limit_of_its_window():
    target = new_target()
    (opened,) = append(target, 1.0, mark(BEGIN, 0.0))
    most = opened.window.max_new_tokens
    (commit,) = target.propose(Candidates(opened.window.id, 0, 0, token_ids("a") * (most + 50), 1))
    assert (len(commit.tokens), commit.is_final) == (most, True)


class DraftOnly:
    """A draft with an AcceptAllTarget; both run until they wait for audio."""

    def __init__(
        self,
        model: SpeechModel,
        options: DecodingOptions,
    ) -> None:
        self._target = AcceptAllTarget(model.vocabulary, options, LIMITS, max_new_tokens=MAX_NEW_TOKENS)
        self._drafter = Drafter(model, executor=InlineExecutor(), drafts_next_window=True)
        length = DraftLength(Mode.FULL, 3, min_confidence=0.0)
        self._drafter.open("session", length, options, max_ahead_tokens=LIMITS.max_ahead_tokens)
        self._transcript = LiveTranscript(model.vocabulary, options.live.position)
        self._num_events = 0
        self.segments: list[Segment] = []
        self.is_finished = False

    def append(self, pcm: bytes, *marks: VoiceMark, is_last: bool = False) -> None:
        chunk = AudioChunk(self._transcript.num_samples, pcm, is_last, marks)
        self._transcript.num_samples += len(pcm) // 2
        self._drafter.submit("session", chunk)
        self._apply(self._target.append_audio(chunk))
        while self._drafter.has_work:
            for _, drafted in self._drafter.step():
                if isinstance(drafted, Failed):
                    raise drafted.error
                if drafted.candidates is not None:
                    self._apply(self._target.propose(drafted.candidates))

    def _apply(self, events: Sequence[WindowOpened | Commit | Finished]) -> None:
        self._num_events += len(events)
        assert self._num_events < MAX_EVENTS
        for event in events:
            assert not self.is_finished, "nothing follows the end"
            if isinstance(event, Finished):
                self.is_finished = True
                continue
            self.segments += self._transcript.observe(event)
            self._drafter.submit("session", event)

    @property
    def texts(self) -> dict[int, list[int]]:
        return texts_of(self.segments)


@pytest.mark.parametrize("piece_s", [0.032, 0.1, 0.5, 4.0])
def test_a_draft_without_a_target_transcribes_the_audio(piece_s):
    pcm = speech(6.0)
    draft_only = DraftOnly(SpeechModel(2), DecodingOptions.greedy(live=LiveOptions(reuses_candidates=False)))
    piece = round(piece_s * SAMPLE_RATE) * 2
    for start in range(0, len(pcm), piece):
        draft_only.append(pcm[start : start + piece], *([mark(BEGIN, 0.0)] if not start else []))
    draft_only.append(b"", is_last=True)
    assert draft_only.is_finished
    assert draft_only.texts == {1: [token for token in words_of(samples_of(pcm)) if token < END]}


EVENTS = st.sampled_from([BEGIN, ENDED])
PIECES = st.lists(
    st.tuples(st.integers(0, 24_000), st.lists(st.tuples(EVENTS, st.integers(-8_000, 8_000)), max_size=2)),
    max_size=16,
)
LIVE_OPTIONS = st.fixed_dictionaries(
    {
        "step_ms": st.sampled_from([100, 300, 500, 2_000]),
        "trim_ms": st.sampled_from([1_000, 3_000, 15_000]),
    }
)
THRESHOLDS = st.sampled_from(
    [
        {},
        {"compression_ratio_threshold": 0.5, "temperatures": (0.0, 0.4)},
        {"logprob_threshold": -0.1, "temperatures": (0.0, 0.2, 0.4)},
        {"no_speech_threshold": 0.6, "logprob_threshold": -1.0},
        {"condition_on_previous_text": True},
    ]
)


def marks_at(sample: int, marks: Sequence[tuple[VoiceEvent, int]]) -> list[VoiceMark]:
    return [VoiceMark(event, max(0, sample + offset)) for event, offset in marks]


@settings(max_examples=examples(20, 60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    pieces=PIECES,
    live_options=LIVE_OPTIONS,
    thresholds=THRESHOLDS,
    error_rate=st.sampled_from([0.0, 0.3, 1.0]),
)
def test_a_session_ends_after_any_audio(pieces, live_options, thresholds, error_rate):
    options = DecodingOptions.greedy(live=LiveOptions(reuses_candidates=False, **live_options), **thresholds)
    draft_only = DraftOnly(SpeechModel(2, error_rate=error_rate), options)
    audio, at = speech(16 * 1.5 + 1), 160
    draft_only.append(audio[: at * 2])
    for length, marks in pieces:
        draft_only.append(audio[at * 2 : (at + length) * 2], *marks_at(at + length, marks))
        at += length
    draft_only.append(b"", is_last=True)
    assert draft_only.is_finished
    numbers = [segment.utterance for segment in draft_only.segments if segment.is_utterance_end]
    assert numbers == list(range(1, len(numbers) + 1))
    assert {segment.utterance for segment in draft_only.segments} == set(numbers)


TOKENS = st.lists(st.integers(0, len(SPOKEN.tokens) - 1), max_size=40).map(tuple)
HOSTILE_BLOCKS = st.lists(
    st.builds(
        Candidates,
        window_id=st.integers(0, 6),
        base=st.integers(0, 500),
        known_committed=st.integers(0, 500),
        tokens=TOKENS,
        number=st.integers(0, 2**31),
        start_frame=st.none() | st.integers(0, 3_000),
    ),
    max_size=30,
)


@settings(max_examples=examples(30, 100), deadline=None)
@given(blocks=HOSTILE_BLOCKS, seconds=st.lists(st.floats(0.0, 40.0), max_size=6).map(sorted))
def test_commits_stay_valid_for_hostile_blocks(blocks, seconds):
    target = new_target()
    events = append(target, 1.0, mark(BEGIN, 0.0))
    for second in seconds:
        events += append(target, 1.0 + second)
    for block in blocks:
        events += target.propose(block)
    window, committed, most = None, 0, 0
    for event in events:
        match event:
            case WindowOpened():
                assert window is None, "one window at a time"
                window, committed, most = event.window, 0, event.window.max_new_tokens
            case Commit():
                assert window is not None and event.window_id == window.id
                assert event.base == committed
                committed += len(event.tokens)
                assert committed <= most
                assert event.held == committed
                if event.is_final:
                    assert event.step is not None
                    window = None
