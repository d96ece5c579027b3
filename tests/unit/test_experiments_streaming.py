"""Measures of live text, and the same steps once more."""

from __future__ import annotations

import asyncio
import math
from dataclasses import replace

import pytest

from experiments.streaming.again import TargetAlone
from experiments.streaming.arms import FULL, NO_RECALL
from experiments.streaming.listening import DECODING, TAIL_S, Heard, Shown, pieces
from experiments.streaming.measures import (
    FinalWord,
    drift_s_per_minute,
    final_words,
    first_texts_s,
    word_errors,
    words_changed,
)
from experiments.streaming.summary import (
    FULL_LONG,
    MAX_DRIFT_S,
    Row,
    Taken,
    bars,
    differences,
    quantile,
    row_of,
    rows_of,
)
from experiments.streaming.takes import SpokenWord, Take
from specwhisper.audio.decode import decode_file
from specwhisper.live import EndpointingOptions, LiveOptions
from specwhisper.model.checkpoint import DEMO_FOLDER, load_checkpoint
from specwhisper.model.model import WhisperModel
from specwhisper.types import SAMPLE_RATE
from specwhisper_draft_server.voice_activity import VoiceActivity
from tests.live_engines import LivePair


def take(*words: tuple[str, float], length_s: float = 10.0) -> Take:
    return Take(
        "a take", bytes(round(length_s * SAMPLE_RATE) * 2), tuple(SpokenWord(*word) for word in words)
    )


def heard(*shown: Shown, **more) -> Heard:
    return Heard(list(shown), **more)


GREETING = take((" Hello", 1.0), (" there,", 1.5), (" Bob.", 2.0))


def test_a_final_word_is_known_by_its_text_whatever_case_and_punctuation():
    told = heard(Shown(1.8, " hello, There", "", ""), Shown(3.0, " Bob", "", ""))
    assert final_words(GREETING, told) == [FinalWord(1.0, 1.8), FinalWord(1.5, 1.8), FinalWord(2.0, 3.0)]
    assert [word.latency_s for word in final_words(GREETING, told)] == pytest.approx([0.8, 0.3, 1.0])


def test_words_that_were_not_spoken_so_have_no_moment():
    told = heard(Shown(1.8, " hello their", "", ""), Shown(3.0, " Bob Bob", "", ""))
    assert final_words(GREETING, told) == [FinalWord(1.0, 1.8), FinalWord(2.0, 3.0)]
    assert final_words(GREETING, heard(Shown(1.0, "", " Hello", " there"))) == []


def test_the_first_text_of_an_utterance_counts_from_the_end_of_its_first_word():
    words = take((" Hello", 1.0), (" Bob", 5.0), (" there", 5.5))
    told = heard(
        Shown(0.7, "", "", "", begins_s=0.3),
        Shown(1.2, "", "", " He"),
        Shown(1.4, "", " Hello", ""),
        Shown(4.6, "", " Hello", "", begins_s=4.2),
        Shown(4.8, "", " Hello", ""),  # still the text of the utterance before
        Shown(4.9, " Hello", "", " "),
        Shown(5.3, "", "", " Bob"),
    )
    assert first_texts_s(words, told) == pytest.approx([0.2, 0.3])


def test_an_utterance_whose_text_was_never_shown_took_for_ever():
    silent = heard(Shown(0.7, "", "", "", begins_s=0.3), Shown(2.0, "", "", ""))
    assert first_texts_s(GREETING, silent) == [math.inf]


def test_a_noise_that_was_taken_for_speech_does_not_count():
    late = heard(Shown(9.0, "", "", "", begins_s=8.7), Shown(9.5, "", " x", ""))
    assert first_texts_s(GREETING, late) == []
    early = heard(Shown(0.2, "", "", "", begins_s=0.0), Shown(0.7, "", "", "", begins_s=0.3))
    assert first_texts_s(GREETING, early) == [math.inf]


@pytest.mark.parametrize(
    ("shown", "with_draft", "without"),
    [
        ([("", "", " hello their"), ("", "", " hello there")], 1, 0),  # another word
        ([("", " hel", ""), ("", " hello", "")], 0, 0),  # it only grew
        ([("", " hello there bob", ""), ("", " hallo there bob", "")], 3, 3),  # all from there on
        ([("", " hello", " there"), (" Hello", " there", "")], 0, 0),  # it became final
        ([("", " hello", " their"), (" hello there", "", "")], 1, 0),
        ([("", " hello", " there"), ("", " hello", "")], 1, 0),  # it was taken back
        ([("", " hello", ""), ("", "", ""), ("", " hello", "")], 1, 1),
    ],
)
def test_words_that_were_shown_and_became_others_are_counted(shown, with_draft, without):
    seen = [Shown(float(i), *texts) for i, texts in enumerate(shown)]
    assert words_changed(seen, with_draft=True) == with_draft
    assert words_changed(seen, with_draft=False) == without


def test_growth_is_told_of_long_sessions_only():
    growing = [FinalWord(spoken, spoken + 0.5 + 0.1 * spoken / 60) for spoken in range(0, 120, 5)]
    assert drift_s_per_minute(growing) == pytest.approx(0.1)
    assert drift_s_per_minute([FinalWord(s, s + 0.5) for s in range(0, 120, 5)]) == pytest.approx(0.0)
    assert math.isnan(drift_s_per_minute(growing[:9]))
    assert math.isnan(drift_s_per_minute([growing[0], growing[-1]]))


def test_errors_are_those_of_the_final_text():
    told = heard(Shown(1.8, " hello their", " x", " y"), Shown(3.0, " Bob", "", ""))
    assert word_errors(GREETING.words, told) == pytest.approx(1 / 3)
    assert word_errors((), told) == 0.0


ROW = Row(
    first_s=(0.2, 0.3),
    final_s=(0.9, 1.0),
    changed=0.1,
    changed_verified=0.0,
    passes_per_step=2.0,
    steps_per_s=2.0,
    target_cpu=0.5,
    drift_s_per_minute=math.nan,
    word_errors=0.0,
)
WITHOUT = replace(ROW, passes_per_step=10.0)


def holding(rows, **more) -> list[bool]:
    return [bar.holds for bar in bars(rows, **({"step_s": 0.5, "sessions": 1} | more))]


def test_bars_hold_what_was_promised_against_what_was_measured():
    assert holding({(FULL, 1): ROW, (NO_RECALL, 1): WITHOUT}) == [True] * 4
    bad = replace(ROW, first_s=(0.2, 5.0), final_s=(0.1, 9.0), passes_per_step=5.0, num_unfinished=1)
    assert holding({(FULL, 1): bad, (NO_RECALL, 1): WITHOUT}) == [False] * 4
    nothing = replace(ROW, first_s=(), final_s=())
    assert holding({(FULL, 1): nothing, (NO_RECALL, 1): WITHOUT}) == [False, False, True, True]
    assert holding({}) == []


@pytest.mark.parametrize(("drift", "holds"), [(MAX_DRIFT_S / 2, True), (MAX_DRIFT_S * 2, False)])
def test_bars_of_long_sessions_and_of_many_at_once(drift, holds):
    row = replace(ROW, drift_s_per_minute=drift)
    rows = {(FULL, 1): ROW, (NO_RECALL, 1): WITHOUT, (FULL_LONG, 1): row}
    assert holding(rows) == [*[True] * 4, holds]
    rows[FULL, 8] = replace(row, final_s=(2.0,))
    assert holding(rows, sessions=8) == [*[True] * 4, holds, True, False, True, holds]


def test_a_row_is_of_sums():
    told = heard(Shown(1.8, " hello there", "", ""), Shown(3.0, " Bob", "", ""), num_steps=4, num_forwards=8)
    told.target_cpu_s = 5.0
    one = Taken(1, FULL, GREETING, told)
    other = replace(one, take=take(), heard=heard(num_steps=4, num_forwards=24))
    row = row_of([one, other])
    assert (row.passes_per_step, row.steps_per_s, row.target_cpu) == (4.0, 0.4, 0.25)
    assert row.final_s == pytest.approx((0.8, 0.3, 1.0))
    assert (row.changed, row.word_errors) == (0.0, 0.0)
    assert math.isnan(row.drift_s_per_minute)


def test_what_was_heard_for_minutes_stands_apart():
    short, long = Taken(0, FULL, GREETING, heard()), Taken(0, FULL, take(length_s=130.0), heard())
    assert set(rows_of([short, long, replace(long, sessions=8)])) == {(FULL, 1), (FULL_LONG, 1), (FULL, 8)}


def test_text_that_might_still_have_changed_is_told():
    done, open_ = Shown(3.0, " Bob", "", ""), Shown(1.8, " hello", " there", "")
    all_heard = [heard(), heard(open_, done), heard(open_), heard(Shown(1.8, "", "", " x"))]
    assert [each.all_is_final for each in all_heard] == [True, True, False, False]
    assert row_of([Taken(0, FULL, GREETING, each) for each in all_heard]).num_unfinished == 2


def test_differences_name_what_was_written_otherwise():
    told = heard(Shown(1.8, " hello", "", ""))
    same = Taken(1, FULL, GREETING, told, text_alone=" hello")
    (line,) = differences([same, replace(same, text_alone=None), replace(same, text_alone=" hallo")])
    assert line == "full, a take: ' hello', but alone ' hallo'"


def test_a_quantile_of_nothing_is_infinite():
    assert quantile((), 0.5) == math.inf
    assert quantile((1.0, 3.0), 0.5) == 2.0


def test_pieces_are_the_take_and_the_silence_behind_it():
    cut = pieces(b"\x01\x02" * 4_000)
    pcm = b"".join(piece for _, piece in cut)
    assert pcm == b"\x01\x02" * 4_000 + bytes(round(TAIL_S * SAMPLE_RATE) * 2)
    assert [end_s for end_s, _ in cut] == pytest.approx([0.1 * (i + 1) for i in range(len(cut))])


@pytest.mark.nightly
def test_the_same_steps_give_the_same_text():
    """A session whose target leaves steps out, as under load, and the target alone in the same ones."""
    pcm = b"".join(decode_file(DEMO_FOLDER / "samples" / "01_phone_call.flac"))[: 4 * SAMPLE_RATE * 2]
    live = LiveOptions(trim_ms=1_500)
    pair = LivePair(WhisperModel(load_checkpoint("demo-target"), 1))
    session = pair.open("one", replace(DECODING, live=live))
    voice, cut = VoiceActivity(EndpointingOptions()), pieces(pcm)
    for number, (_, piece) in enumerate(cut, start=1):
        marks = asyncio.run(voice.detect(piece))
        pair.hear("one", piece, *marks, is_last=number == len(cut))
        if number % 6 == 0:
            pair.settle()
    pair.settle()
    text, steps = "".join(segment.text for segment in session.segments), session.transcript.steps
    assert len(text.split()) > 4 and len(steps) > 2
    told = heard(Shown(1.0, text, "", ""), steps=list(steps))
    assert TargetAlone("demo-target").text(Take("a call", pcm, ()), live, told) == text
