"""Live transcription: what a reader sees is measured from a sequence of texts."""

from __future__ import annotations

import math

import numpy as np
import pytest

from experiments.common.audio.conditions import by_telephone, pink_noise, with_noise
from experiments.common.audio.samples import Sample
from experiments.streaming.arms import FULL, TARGET_ONLY, Measured
from experiments.streaming.measures import (
    Shown,
    SpokenWord,
    final_after_s,
    first_shown_s,
    num_differing,
    num_erased,
    num_repeating,
    prefix_edits,
    repetitions,
    shown_after_s,
    word_errors,
)
from experiments.streaming.session import PIECE_BYTES, paced
from experiments.streaming.simulated import COSTS_S, EDGE_S, shown, simulate
from experiments.streaming.table import find_bars, other_texts, quantile, row_of, rows_of
from experiments.streaming.takes import Condition, Take, sound_end_s, turns, utterances
from specwhisper.audio.decode import decode_file
from specwhisper.model.checkpoints.names import DEMO_FOLDER
from specwhisper.types import SAMPLE_RATE, Word

WORDS = tuple(
    SpokenWord(text, end_s)
    for text, end_s in ((" Hello", 1.0), (" there,", 1.5), (" Bob.", 3.0), (" Bye.", 6.0))
)
TAKE = Take(Condition.CLEAN, bytes(2 * 8 * SAMPLE_RATE), "Hello there, Bob. Bye.", WORDS, (3.0, 6.0), 4.0)


def open_text(at_s: float, stable: str, tentative: str = "") -> Shown:
    return Shown(at_s, "", stable, tentative)


def final(at_s: float, text: str, rest: str = "") -> Shown:
    return Shown(at_s, text, "", rest)


TALK = [
    open_text(1.2, "", " hello"),
    open_text(1.7, " hello", " their"),
    open_text(3.4, " hello", " there bob bye"),
    final(4.0, " Hello there, Bob."),
    final(7.0, " Bye."),
]


def test_a_word_is_shown_when_it_is_first_seen_at_its_place():
    assert first_shown_s(TALK) == [1.2, 3.4, 3.4, 3.4]
    assert shown_after_s(WORDS, TALK) == pytest.approx([0.2, 1.9, 0.4, -2.6])
    again = [open_text(1.0, " bob"), final(2.0, " Bob", " bob"), final(3.0, " Bob")]
    assert first_shown_s(again) == [1.0, 2.0]


def test_open_text_may_lack_words_before_the_one_that_is_seen():
    assert first_shown_s([open_text(1.0, " there bob"), final(2.0, " Hello there, Bob.")]) == [2.0, 1.0, 1.0]


def test_an_utterance_is_final_once_its_last_word_is():
    assert final_after_s(WORDS, (3.0, 6.0), TALK) == pytest.approx([1.0, 1.0])
    misreceived = [final(4.0, " Hello there"), final(5.0, " bop"), final(7.0, " Bye.")]
    assert final_after_s(WORDS, (3.0, 6.0), misreceived) == pytest.approx([2.0, 1.0]), "a word in its place"
    lost = [final(4.0, " Hello there, Bob.")]
    assert final_after_s(WORDS, (3.0, 6.0), lost) == pytest.approx([1.0, math.inf])
    assert final_after_s(WORDS, (0.5, 3.0, 6.0), TALK) == pytest.approx([1.0, 1.0]), "an end without words"


def test_erased_words_are_those_that_were_seen_and_changed():
    assert num_erased(TALK, stable_only=False) == 1 + 1, "their, and bye, which vanished"
    assert num_erased(TALK, stable_only=True) == 0
    unstable = [open_text(1.0, " a b c"), open_text(2.0, " a", " b c"), final(3.0, " a b c")]
    assert num_erased(unstable, stable_only=True) == 2, "no longer stable"
    assert num_erased(unstable, stable_only=False) == 0
    grown = [open_text(1.0, " am"), open_text(2.0, " amiable wo"), open_text(3.0, " amiable woman")]
    assert num_erased(grown, stable_only=False) == 0, "a last word may grow"
    assert num_erased([open_text(1.0, " a b"), open_text(2.0, " an b")], stable_only=False) == 2


def test_the_last_open_text_is_compared_with_the_final_text():
    assert num_differing(TALK) == 1 + 1, "bye was seen too early, and not at all before it was final"
    cut = [open_text(1.0, " a b c d"), final(2.0, " a x", " c d"), final(3.0, " c d")]
    assert num_differing(cut) == 1, "open text that remains is compared later"
    blinking = [open_text(1.0, " a b"), open_text(2.0, ""), final(3.0, " a b")]
    assert num_differing(blinking) == 0


def test_edits_of_words():
    assert prefix_edits(list("ab"), list("abc")) == [2, 1, 0, 1]
    assert word_errors("Ill-disposed, he was.", "ill disposed he is") == 1
    assert word_errors("", "a b") == 2


def test_a_phrase_four_times_is_a_repetition_unless_it_is_final():
    assert [" ".join(found) for found in repetitions("x a b a b a b a b".split())] == ["a b a b a b a b"]
    assert not [*repetitions("a b a b a b a".split())]
    runaway = open_text(1.0, " no no no no")
    assert num_repeating([runaway, open_text(2.0, " no no no"), final(3.0, " no no")]) == 1
    assert num_repeating([runaway, final(3.0, " No, no, no, no!")]) == 0


@pytest.mark.parametrize(
    ("text", "start_s", "end_s", "sound_end"),
    [
        (" end.", 0.5, 2.1, 1.0),  # over the silence, into the next speech
        (" begin", 0.9, 2.4, 2.4),
        (" begin", 0.5, 1.8, 1.0),
        (" end.", 0.98, 2.4, 2.4),  # after the silence, all but its first moment
        (" unseen", 1.2, 1.8, 1.8),
    ],
)
def test_a_word_ends_with_its_sound(text, start_s, end_s, sound_end):
    assert sound_end_s(Word(start_s, end_s, text), [(0.0, 1.0), (2.0, 3.0)]) == sound_end


def test_an_utterance_ends_before_a_long_silence():
    assert utterances([(0.0, 1.0), (1.2, 2.0), (2.9, 4.0), (6.0, 7.0)]) == ((4.0, 7.0), pytest.approx(4.1))
    assert utterances([]) == ((), 0)


def human(name: str) -> Sample:
    return Sample(name, b"".join(decode_file(DEMO_FOLDER / "human" / name)), {})


def test_speakers_take_turns():
    lengths = [
        len(turn) for turn in turns([human("jfk.flac"), human("austen_0880.flac"), human("austen_0930.flac")])
    ]
    assert len(lengths) > 4 and lengths[1] == round(2.99 * SAMPLE_RATE)
    assert lengths[0] + lengths[2] + sum(lengths[4:]) == 11 * SAMPLE_RATE


def test_noise_is_10_db_below_the_speech_and_a_telephone_has_no_high_tones():
    samples = np.frombuffer(human("austen_0880.flac").pcm, "<i2").astype(np.float64)
    noise = with_noise(samples, pink_noise(len(samples), np.random.default_rng(0))) - samples
    assert 10 <= 20 * np.log10(samples.std() / noise.std()) + 1 < 12, "speech is louder than the whole"
    received = by_telephone(samples)
    high = np.abs(np.fft.rfft(received))[round(4_200 * len(received) / SAMPLE_RATE) :]
    assert len(received) == len(samples)
    assert (high**2).sum() < 1e-4 * (np.abs(np.fft.rfft(samples)) ** 2).sum()


async def test_audio_is_paced_and_whole():
    pcm = b"\1\2" * SAMPLE_RATE
    pieces = [piece async for piece in paced(pcm, 0.0)]  # all of it was spoken long ago
    assert b"".join(pieces) == pcm and len(pieces[0]) == PIECE_BYTES


def measured(
    shown_texts: list[Shown],
    condition: Condition = Condition.CLEAN,
    *,
    arm: str = FULL,
    num_sessions: int = 1,
    speed: float = 1.0,
) -> Measured:
    take = Take(condition, TAKE.pcm, TAKE.text, TAKE.words, TAKE.ends_s, TAKE.speech_s)
    return Measured(arm, take, num_sessions, speed, shown_texts, 1.0, 0.5)


GOOD = [
    open_text(1.2, " Hello"),
    open_text(2.0, " Hello there"),
    open_text(3.3, " Hello there Bob"),
    final(4.0, " Hello there, Bob."),
]
GOOD += [open_text(6.3, " Bye"), final(7.0, " Bye.")]
ALL_GOOD = [measured(GOOD, condition) for condition in Condition]
TOGETHER = [measured(GOOD, num_sessions=count) for count in (2, 2, 4, 4, 4, 4)]
FAST = [measured(GOOD, condition, speed=50.0) for condition in Condition]


def test_a_row_has_ratios_of_sums():
    row = row_of([measured(TALK), measured(GOOD)])
    assert (row.erased, row.differing, row.word_error_rate) == (2 / 8, 2 / 8, 0.0)
    assert (row.target_cpu, row.draft_cpu, len(row.shown_s), len(row.final_s)) == (0.25, 0.125, 8, 4)


def test_rows_are_by_arm_condition_and_sessions():
    rows = rows_of([*ALL_GOOD, *TOGETHER, *FAST, measured(TALK, arm=TARGET_ONLY)])
    assert len(rows) == 1 + 4 + 2 + 1
    assert len(rows[FULL, "all", 1].shown_s) == 16 and len(rows[FULL, Condition.CLEAN, 4].shown_s) == 16


def test_bars_hold_and_fall_short():
    assert all(bar.holds for bar in find_bars([*ALL_GOOD, *TOGETHER, *FAST]))
    late = [open_text(5.0, "", " no no no no"), final(12.0, " Hello Bob")]
    bars = find_bars([measured(late, condition) for condition in Condition] + TOGETHER + FAST)
    assert len(bars) == 13
    assert [bar.name for bar in bars if bar.holds] == [
        "erased words per final word, stable part",
        "target CPU per second of speech, s",
        "4 sessions: final after an utterance's end, p95, s",
    ]


def test_texts_of_full_are_compared_with_one_session_in_real_time():
    other = measured([final(1.0, " Hello there, Rob.")], num_sessions=2)
    lines, num_compared = other_texts([*ALL_GOOD, *FAST, other, measured(TALK, arm=TARGET_ONLY, speed=50.0)])
    assert num_compared == 5
    assert lines == [
        "clean, 2 sessions, 1 times real time: 'Hello there, Rob.'; "
        "alone in real time: 'Hello there, Bob. Bye.'"
    ]


def test_a_quantile_is_one_of_the_values():
    assert quantile((), 0.5) == math.inf
    assert (quantile((1.0, 2.0, 9.0), 0.5), quantile((1.0, math.inf), 0.95)) == (2.0, math.inf)


def test_simulated_text_is_shown_by_the_draft_and_final_by_the_target():
    texts = shown(TAKE, [(4.0, 5.0), (8.0, 8.5)])
    assert [each.final for each in texts if each.final] == [" Hello  there,  Bob.", " Bye."]
    delays_s = shown_after_s(WORDS, texts)
    assert min(delays_s) >= EDGE_S + COSTS_S["draft"] and max(delays_s) < 1.0
    assert final_after_s(WORDS, TAKE.ends_s, texts) == pytest.approx([2.0, 2.5])


def test_more_simulated_sessions_wait_longer_for_their_target():
    pcm = human("austen_0880.flac").pcm + bytes(2 * 2 * SAMPLE_RATE)
    take = Take(Condition.CLEAN, pcm, "a b", (SpokenWord("a", 1.0), SpokenWord("b", 2.8)), (2.85,), 2.6)
    alone, many = (simulate([take], number, 0) for number in (1, 200))
    assert len(many.final_s) == 200 and many.target_use == pytest.approx(200 * alone.target_use)
    assert alone.final_s[0] > 0.3 + 2 * COSTS_S["one_way"]
    assert quantile(many.final_s, 0.95) > quantile(alone.final_s, 0.95)
