"""On a scripted model, the text is the target's own, whatever the draft proposes."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.common.inline_pair import InlinePair
from experiments.common.models.scripted import MULTILINGUAL, VOCABULARY, ScriptedModel, recording
from specwhisper.engine.drafter import Drafter
from specwhisper.engine.verifier import Verifier
from specwhisper.model.choosing import Row, Scores
from specwhisper.options import DecodingOptions
from specwhisper.speculation.draft_length import MAX_CHOSEN_GAMMA, DraftLength
from specwhisper.types import AudioChunk, Candidates, Mode
from tests.interference import KINDS, Interference
from tests.nightly import examples

MODES = [Mode.SYNC, Mode.PIPELINED, Mode.FULL, Mode.ONE_PROCESS]


RECORDINGS = {(seed, length): recording(length, seed) for seed in range(3) for length in (0.3, 1.0, 33.0)}


def target_text(pcms: Sequence[bytes], seed: int) -> list[list[tuple[int, ...]]]:
    transcripts = InlinePair(ScriptedModel(len(pcms), seed=seed)).transcribe(pcms)
    return [transcript.window_tokens for transcript in transcripts]


@pytest.mark.parametrize(("mode", "gamma"), [*((mode, 4) for mode in MODES), (Mode.SYNC, 40)])
def test_a_perfect_draft_is_accepted_and_saves_forward_passes(mode, gamma):
    pcm = RECORDINGS[0, 33.0]
    target = ScriptedModel(seed=3)
    transcript = InlinePair(target, ScriptedModel(seed=3), mode=mode, gamma=gamma).transcribe([pcm])[0]
    statistics = transcript.stats
    assert statistics.num_accepted == statistics.num_verified > 0
    assert statistics.num_forwards == target.num_forwards < statistics.num_committed
    assert len(statistics.acceptance_histogram) > gamma // 2  # all of a long block in one forward pass


@pytest.mark.parametrize("mode", [Mode.ONE_PROCESS, Mode.SYNC])
def test_in_lock_step_what_is_accepted_is_judged_right(mode):
    draft = ScriptedModel(seed=3, error_rate=0.3)
    (transcript,) = InlinePair(ScriptedModel(seed=3), draft, mode=mode, gamma=4).transcribe(
        [RECORDINGS[0, 33.0]]
    )
    statistics = transcript.stats
    assert statistics.num_judged - statistics.num_corrections == statistics.num_accepted > 0
    assert statistics.acceptance_rate < statistics.alpha == pytest.approx(0.7, abs=0.1)


options = st.builds(
    DecodingOptions,
    language=st.sampled_from([None, "en", "de"]),
    timestamps=st.booleans(),
    word_timestamps=st.booleans(),
    max_new_tokens=st.sampled_from([None, 5, 30]),
    temperatures=st.sampled_from([(0.0,), (0.7,), (0.0, 0.5, 1.0)]),
    seed=st.integers(0, 5),
    compression_ratio_threshold=st.sampled_from([None, 0.9, 1.2]),
    logprob_threshold=st.sampled_from([None, -0.5, -0.45]),
    no_speech_threshold=st.sampled_from([None, 0.3, 0.7]),
    condition_on_previous_text=st.booleans(),
    initial_prompt=st.sampled_from(["", "abc", "hello"]),
    hotwords=st.sampled_from(["", "fg"]),
    hint=st.text("abcdefgh ", max_size=60),
)


@pytest.mark.timeout(900)  # at night a thousand examples, also on a slow machine
@settings(max_examples=examples(40, 1000), deadline=None)
@given(
    options=st.just(DecodingOptions.greedy()) | options,
    mode=st.sampled_from(MODES),
    kind=st.sampled_from(KINDS),
    gamma=st.none() | st.integers(1, 16),
    error_rate=st.sampled_from([0.0, 0.2, 0.5, 1.0]),
    seed=st.integers(0, 10_000),
    keys=st.lists(st.sampled_from(sorted(RECORDINGS)), min_size=1, max_size=3),
    vocabulary=st.sampled_from([VOCABULARY, MULTILINGUAL]),
    max_positions=st.sampled_from([64, 20]),
    max_num_batched_tokens=st.sampled_from([1, 7, 256]),
)
def test_with_any_draft_and_options_the_text_is_the_targets(
    options, mode, kind, gamma, error_rate, seed, keys, vocabulary, max_positions, max_num_batched_tokens
):
    pcms = [RECORDINGS[key] for key in keys]
    if options.language and not vocabulary.languages:
        options = replace(options, language="en")
    model = partial(ScriptedModel, len(pcms), seed=seed, vocabulary=vocabulary)
    split = InlinePair(
        model(),
        model(error_rate=error_rate, max_positions=max_positions),
        mode=mode,
        gamma=gamma,
        max_num_batched_tokens=max_num_batched_tokens,
        edit_block=Interference(kind, seed, vocabulary_size=len(VOCABULARY)),
    ).transcribe(pcms, options)
    target_only = InlinePair(model()).transcribe(pcms, options)
    for ours, expected in zip(split, target_only, strict=True):
        assert ours.window_tokens == expected.window_tokens
        assert ours.segments == expected.segments
        assert ours.language == expected.language
        assert ours.language_probs == expected.language_probs


class EnglishOnly(ScriptedModel):
    def can_continue(self, prompt: Sequence[int]) -> bool:
        return self.vocabulary.prompt_language(prompt) == "en"


@pytest.mark.parametrize("mode", [Mode.PIPELINED, Mode.FULL])
@pytest.mark.parametrize("initial_prompt", ["", "abc"])
def test_a_draft_of_one_language_drafts_while_the_target_detects_it(mode, initial_prompt):
    options = DecodingOptions.greedy(initial_prompt=initial_prompt)
    detected = set()
    for seed in range(8):
        pcm = recording(3.0, seed)
        early: list[Candidates] = []

        def record_early_blocks(block: Candidates, early: list[Candidates] = early) -> list[Candidates]:
            early.extend([block] if block.start_frame == 0 else [])
            return [block]

        ours, alone = (
            InlinePair(
                ScriptedModel(vocabulary=MULTILINGUAL),
                draft,
                mode=mode,
                edit_block=record_early_blocks,
            ).transcribe([pcm], options)[0]
            for draft in (EnglishOnly(vocabulary=MULTILINGUAL), None)
        )
        assert (ours.window_tokens, ours.language) == (alone.window_tokens, alone.language)
        assert bool(early) == (not initial_prompt)  # only the target knows a prompt's words
        detected.add(ours.language)
    assert len(detected) > 1


class Sure(ScriptedModel):
    """One that gives each of its tokens the probability 1."""

    def score(self, rows: Sequence[Row]) -> list[Scores]:
        return [replace(each, log_probs=[0.0] * len(each.log_probs)) for each in super().score(rows)]


@pytest.mark.parametrize("mode", [Mode.SYNC, Mode.ONE_PROCESS])
def test_in_lock_step_without_a_gamma_a_block_ends_where_the_draft_is_unsure(mode):
    def num_blocks(draft: ScriptedModel, gamma: int | None) -> int:
        pair = InlinePair(ScriptedModel(seed=3), draft, mode=mode, gamma=gamma)
        (transcript,) = pair.transcribe([RECORDINGS[0, 33.0]])
        assert transcript.window_tokens == text
        return transcript.stats.num_blocks

    (text,) = target_text([RECORDINGS[0, 33.0]], 3)
    few = num_blocks(ScriptedModel(seed=3), MAX_CHOSEN_GAMMA)
    assert num_blocks(Sure(seed=3), None) == few
    assert num_blocks(ScriptedModel(seed=3), None) > 1.5 * few


def test_a_failed_text_is_reused_as_candidates():
    options = DecodingOptions.greedy(temperatures=(0.0, 0.5), logprob_threshold=-0.01)
    pcm = RECORDINGS[0, 1.0]
    target, draft = ScriptedModel(seed=3), ScriptedModel(seed=3)
    without_draft = InlinePair(target, draft, mode=Mode.FULL, edit_block=lambda block: ())
    text = without_draft.transcribe([pcm], options)[0]
    assert text.stats.num_hinted > 0
    assert InlinePair(target).transcribe([pcm], options)[0].stats.num_hinted == 0


def test_a_session_without_a_language_detects_it_once():
    pcm = RECORDINGS[0, 33.0]
    model = ScriptedModel(vocabulary=MULTILINGUAL)
    text = InlinePair(model).transcribe([pcm])[0]
    assert set(text.language_probs) == {"en", "de"}
    assert text.stats.num_forwards == model.num_forwards
    assert text.language == max(text.language_probs, key=text.language_probs.get)
    named = InlinePair(model).transcribe([pcm], DecodingOptions.greedy(language=text.language))[0]
    assert named.window_tokens == text.window_tokens
    assert named.stats.num_windows == text.stats.num_windows


@pytest.mark.parametrize("mode", [Mode.FULL, Mode.PIPELINED])
@pytest.mark.parametrize("gamma", [None, 4])
def test_a_draft_that_does_not_wait_drafts_the_whole_window_or_to_its_credit(mode, gamma):
    def drafted(max_ahead_tokens: int) -> list[int]:
        verifier = Verifier(ScriptedModel(seed=12))
        drafter = Drafter(ScriptedModel(seed=12))
        chunk = AudioChunk(0, RECORDINGS[0, 33.0], is_last=True)
        options = DecodingOptions.greedy(language="en")
        verifier.open("one", mode, options)
        drafter.open("one", DraftLength(mode, gamma), options, max_ahead_tokens=max_ahead_tokens)
        verifier.submit("one", chunk)
        drafter.submit("one", chunk)
        drafter.submit("one", verifier.step()[0][1])
        tokens: list[int] = []
        while drafter.has_work:
            for _, made in drafter.step():
                tokens += made.candidates.tokens if made.candidates else ()
        return tokens

    text = drafted(200)
    assert len(text) > 20 and text[-1] == VOCABULARY.end_of_text
    assert drafted(9) == text[:9]
