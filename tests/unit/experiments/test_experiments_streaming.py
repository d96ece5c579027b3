"""Live transcription: what a reader sees is measured from a sequence of texts."""

import math

import pytest

from experiments.streaming.arms import FULL, TARGET_ONLY, Measured
from experiments.streaming.measures import (
    Shown,
    SpokenWord,
    final_after_s,
    first_shown_s,
    num_differing,
    num_erased,
    num_repeating,
    shown_after_s,
    word_errors,
)
from experiments.streaming.simulated import COSTS_S, EDGE_S, shown
from experiments.streaming.table import find_bars, other_texts, row_of
from experiments.streaming.takes import Condition, Take, sound_end_s, utterances
from specwhisper.types import SAMPLE_RATE, Word

WORDS = tuple(
    SpokenWord(text, end_s)
    for text, end_s in ((" Hello", 1.0), (" there,", 1.5), (" Bob.", 3.0), (" Bye.", 6.0))
)


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
    assert shown_after_s(WORDS, TALK) == pytest.approx([0.2, 1.9, 0.4, -2.6])
    again = [open_text(1.0, " bob"), final(2.0, " Bob", " bob"), final(3.0, " Bob")]
    assert first_shown_s(again) == [1.0, 2.0]
    assert first_shown_s([open_text(1.0, " there bob"), final(2.0, " Hello there, Bob.")]) == [2.0, 1.0, 1.0]


def test_an_utterance_is_final_once_its_last_word_is():
    assert final_after_s(WORDS, (3.0, 6.0), TALK) == pytest.approx([1.0, 1.0])
    misreceived = [final(4.0, " Hello there"), final(5.0, " bop"), final(7.0, " Bye.")]
    assert final_after_s(WORDS, (3.0, 6.0), misreceived) == pytest.approx([2.0, 1.0]), "a word in its place"
    assert final_after_s(WORDS, (3.0, 6.0), TALK[:-1]) == pytest.approx([1.0, math.inf]), "a lost word"


def test_erased_words_are_those_that_were_seen_and_changed():
    assert num_erased(TALK, stable_only=False) == 1 + 1, "their, and bye, which vanished"
    unstable = [open_text(1.0, " a b c"), open_text(2.0, " a", " b c"), final(3.0, " a b c")]
    assert [num_erased(unstable, stable_only=stable) for stable in (True, False)] == [2, 0]
    grown = [open_text(1.0, " am"), open_text(2.0, " amiable wo"), open_text(3.0, " amiable woman")]
    assert num_erased(grown, stable_only=False) == 0, "a last word may grow"


def test_the_last_open_text_is_compared_with_the_final_text_and_that_with_the_offline_text():
    assert num_differing(TALK) == 1 + 1, "bye was seen too early, and not at all before it was final"
    cut = [open_text(1.0, " a b c d"), final(2.0, " a x", " c d"), final(3.0, " c d")]
    assert num_differing(cut) == 1, "open text that remains is compared later"
    assert word_errors("Ill-disposed, he was.", "ill disposed he is") == 1


def test_a_phrase_four_times_is_a_repetition_unless_it_is_final():
    runaway = open_text(1.0, " no no no no")
    assert num_repeating([runaway, open_text(2.0, " no no no"), final(3.0, " no no")]) == 1
    assert num_repeating([runaway, final(3.0, " No, no, no, no!")]) == 0


def test_words_and_utterances_end_with_their_sound():
    spans_s = [(0.0, 1.0), (2.0, 3.0)]
    assert sound_end_s(Word(0.5, 2.1, " end."), spans_s) == 1.0, "over the silence, into the next speech"
    assert sound_end_s(Word(0.9, 2.4, " begin"), spans_s) == 2.4
    assert utterances([(0.0, 1.0), (1.2, 2.0), (2.9, 4.0), (6.0, 7.0)]) == ((4.0, 7.0), pytest.approx(4.1))


def measured(texts: list[Shown], condition=Condition.CLEAN, *, arm=FULL, num_sessions=1, speed=1.0):
    pcm = bytes(2 * 8 * SAMPLE_RATE)
    take = Take(condition, pcm, "Hello there, Bob. Bye.", WORDS, (3.0, 6.0), 4.0)
    return Measured(arm, take, num_sessions, speed, texts, 1.0, 0.5)


GOOD = [
    *(open_text(1.2, " Hello"), open_text(2.0, " Hello there"), open_text(3.3, " Hello there Bob")),
    *(final(4.0, " Hello there, Bob."), open_text(6.3, " Bye"), final(7.0, " Bye.")),
]
TOGETHER = [measured(GOOD, num_sessions=4)] * 4


def test_bars_hold_and_fall_short():
    row = row_of([measured(TALK), measured(GOOD)])
    assert (row.erased, row.differing, row.word_error_rate, row.target_cpu) == (2 / 8, 2 / 8, 0.0, 0.25)
    assert all(bar.holds for bar in find_bars([measured(GOOD, each) for each in Condition] + TOGETHER))
    late = [open_text(5.0, "", " no no no no"), final(12.0, " Hello Bob")]
    bars = find_bars([measured(late, each) for each in Condition] + TOGETHER)
    assert len(bars) == 13 and [bar.name.partition(",")[0] for bar in bars if bar.holds] == [
        "erased words per final word",
        "target CPU per second of speech",
        "4 sessions: final after an utterance's end",
    ]


def test_texts_of_full_are_compared_with_one_session_in_real_time():
    other = measured([final(1.0, " Hello there, Rob.")], speed=50.0)
    lines, num_compared = other_texts([measured(GOOD), *TOGETHER, other, measured(TALK, arm=TARGET_ONLY)])
    assert num_compared == 5 and len(lines) == 1 and "'Hello there, Rob.'" in lines[0]


def test_simulated_text_is_shown_by_the_draft_and_final_by_the_target():
    texts = shown(measured([]).take, [(4.0, 5.0), (8.0, 8.5)])
    delays_s = shown_after_s(WORDS, texts)
    assert min(delays_s) >= EDGE_S + COSTS_S["draft"] and max(delays_s) < 1.0
    assert final_after_s(WORDS, (3.0, 6.0), texts) == pytest.approx([2.0, 2.5])
