"""Measures of live text, and the target's own text of the same steps."""

from __future__ import annotations

import asyncio
import math
from dataclasses import replace

import pytest

from experiments.streaming.arms import FULL, NO_REUSE
from experiments.streaming.live_client import DECODING, TAIL_S, LiveResult, Shown, pieces
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
    Measured,
    Row,
    bars,
    differences,
    quantile,
    row_of,
    rows_of,
)
from experiments.streaming.takes import SpokenWord, Take
from experiments.streaming.target_only import TargetOnly
from specwhisper.audio.decode import decode_file
from specwhisper.live import EndpointingOptions, LiveOptions
from specwhisper.model.checkpoints.checkpoint import load_checkpoint
from specwhisper.model.checkpoints.names import DEMO_FOLDER
from specwhisper.model.model import WhisperModel
from specwhisper.types import SAMPLE_RATE
from specwhisper_draft_server.voice_activity import VoiceActivity
from tests.live_engines import LivePair


def take(*words: tuple[str, float], length_s: float = 10.0) -> Take:
    return Take(
        "a take", bytes(round(length_s * SAMPLE_RATE) * 2), tuple(SpokenWord(*word) for word in words)
    )


def result_of(*shown: Shown, **more) -> LiveResult:
    return LiveResult(list(shown), **more)


GREETING = take((" Hello", 1.0), (" there,", 1.5), (" Bob.", 2.0))


def test_final_words_are_matched_without_case_and_punctuation():
    result = result_of(Shown(1.8, " hello, There", "", ""), Shown(3.0, " Bob", "", ""))
    assert final_words(GREETING, result) == [FinalWord(1.0, 1.8), FinalWord(1.5, 1.8), FinalWord(2.0, 3.0)]
    assert [word.latency_s for word in final_words(GREETING, result)] == pytest.approx([0.8, 0.3, 1.0])


def test_unmatched_final_words_are_left_out():
    result = result_of(Shown(1.8, " hello their", "", ""), Shown(3.0, " Bob Bob", "", ""))
    assert final_words(GREETING, result) == [FinalWord(1.0, 1.8), FinalWord(2.0, 3.0)]
    assert final_words(GREETING, result_of(Shown(1.0, "", " Hello", " there"))) == []


def test_the_first_text_of_an_utterance_counts_from_the_end_of_its_first_word():
    words = take((" Hello", 1.0), (" Bob", 5.0), (" there", 5.5))
    result = result_of(
        Shown(0.7, "", "", "", speech_start_s=0.3),
        Shown(1.2, "", "", " He"),
        Shown(1.4, "", " Hello", ""),
        Shown(4.6, "", " Hello", "", speech_start_s=4.2),
        Shown(4.8, "", " Hello", ""),  # text of the previous utterance
        Shown(4.9, " Hello", "", " "),
        Shown(5.3, "", "", " Bob"),
    )
    assert first_texts_s(words, result) == pytest.approx([0.2, 0.3])


def test_an_utterance_without_text_has_an_infinite_latency():
    silent = result_of(Shown(0.7, "", "", "", speech_start_s=0.3), Shown(2.0, "", "", ""))
    assert first_texts_s(GREETING, silent) == [math.inf]


def test_noise_detected_as_speech_does_not_count():
    late = result_of(Shown(9.0, "", "", "", speech_start_s=8.7), Shown(9.5, "", " x", ""))
    assert first_texts_s(GREETING, late) == []
    early = result_of(Shown(0.2, "", "", "", speech_start_s=0.0), Shown(0.7, "", "", "", speech_start_s=0.3))
    assert first_texts_s(GREETING, early) == [math.inf]


@pytest.mark.parametrize(
    ("shown", "with_draft", "without"),
    [
        ([("", "", " hello their"), ("", "", " hello there")], 1, 0),  # another word
        ([("", " hel", ""), ("", " hello", "")], 0, 0),  # it only grew
        ([("", " hello there bob", ""), ("", " hallo there bob", "")], 3, 3),  # and all later words
        ([("", " hello", " there"), (" Hello", " there", "")], 0, 0),  # it became final
        ([("", " hello", " their"), (" hello there", "", "")], 1, 0),
        ([("", " hello", " there"), ("", " hello", "")], 1, 0),  # it was measured back
        ([("", " hello", ""), ("", "", ""), ("", " hello", "")], 1, 1),
    ],
)
def test_shown_words_that_changed_are_counted(shown, with_draft, without):
    seen = [Shown(float(i), *texts) for i, texts in enumerate(shown)]
    assert words_changed(seen, with_draft=True) == with_draft
    assert words_changed(seen, with_draft=False) == without


def test_drift_is_measured_in_long_sessions_only():
    growing = [FinalWord(spoken, spoken + 0.5 + 0.1 * spoken / 60) for spoken in range(0, 120, 5)]
    assert drift_s_per_minute(growing) == pytest.approx(0.1)
    assert drift_s_per_minute([FinalWord(s, s + 0.5) for s in range(0, 120, 5)]) == pytest.approx(0.0)
    assert math.isnan(drift_s_per_minute(growing[:9]))
    assert math.isnan(drift_s_per_minute([growing[0], growing[-1]]))


def test_word_errors_count_final_text_only():
    result = result_of(Shown(1.8, " hello their", " x", " y"), Shown(3.0, " Bob", "", ""))
    assert word_errors(GREETING.words, result) == pytest.approx(1 / 3)
    assert word_errors((), result) == 0.0


ROW = Row(
    first_s=(0.2, 0.3),
    final_s=(0.9, 1.0),
    changed=0.1,
    changed_verified=0.0,
    forwards_per_step=2.0,
    steps_per_s=2.0,
    target_cpu=0.5,
    drift_s_per_minute=math.nan,
    word_errors=0.0,
)
WITHOUT = replace(ROW, forwards_per_step=10.0)


def holding(rows, **more) -> list[bool]:
    return [bar.holds for bar in bars(rows, **({"step_s": 0.5, "sessions": 1} | more))]


def test_bars_compare_figures_with_their_bounds():
    assert holding({(FULL, 1): ROW, (NO_REUSE, 1): WITHOUT}) == [True] * 4
    bad = replace(ROW, first_s=(0.2, 5.0), final_s=(0.1, 9.0), forwards_per_step=5.0, num_unfinished=1)
    assert holding({(FULL, 1): bad, (NO_REUSE, 1): WITHOUT}) == [False] * 4
    nothing = replace(ROW, first_s=(), final_s=())
    assert holding({(FULL, 1): nothing, (NO_REUSE, 1): WITHOUT}) == [False, False, True, True]
    assert holding({}) == []


@pytest.mark.parametrize(("drift", "holds"), [(MAX_DRIFT_S / 2, True), (MAX_DRIFT_S * 2, False)])
def test_long_and_concurrent_sessions_have_bars(drift, holds):
    row = replace(ROW, drift_s_per_minute=drift)
    rows = {(FULL, 1): ROW, (NO_REUSE, 1): WITHOUT, (FULL_LONG, 1): row}
    assert holding(rows) == [*[True] * 4, holds]
    rows[FULL, 8] = replace(row, final_s=(2.0,))
    assert holding(rows, sessions=8) == [*[True] * 4, holds, True, False, True, holds]


def test_a_row_has_ratios_of_sums():
    result = result_of(
        Shown(1.8, " hello there", "", ""), Shown(3.0, " Bob", "", ""), num_steps=4, num_forwards=8
    )
    result.target_cpu_s = 5.0
    one = Measured(1, FULL, GREETING, result)
    other = replace(one, take=take(), result=result_of(num_steps=4, num_forwards=24))
    row = row_of([one, other])
    assert (row.forwards_per_step, row.steps_per_s, row.target_cpu) == (4.0, 0.4, 0.25)
    assert row.final_s == pytest.approx((0.8, 0.3, 1.0))
    assert (row.changed, row.word_errors) == (0.0, 0.0)
    assert math.isnan(row.drift_s_per_minute)


def test_long_takes_have_their_own_row():
    short, long = (
        Measured(0, FULL, GREETING, result_of()),
        Measured(0, FULL, take(length_s=130.0), result_of()),
    )
    assert set(rows_of([short, long, replace(long, sessions=8)])) == {(FULL, 1), (FULL_LONG, 1), (FULL, 8)}


def test_takes_with_unfinished_text_are_counted():
    done, open_ = Shown(3.0, " Bob", "", ""), Shown(1.8, " hello", " there", "")
    results = [result_of(), result_of(open_, done), result_of(open_), result_of(Shown(1.8, "", "", " x"))]
    assert [each.all_is_final for each in results] == [True, True, False, False]
    assert row_of([Measured(0, FULL, GREETING, each) for each in results]).num_unfinished == 2


def test_differences_show_both_texts():
    result = result_of(Shown(1.8, " hello", "", ""))
    same = Measured(1, FULL, GREETING, result, target_only_text=" hello")
    (line,) = differences(
        [same, replace(same, target_only_text=None), replace(same, target_only_text=" hallo")]
    )
    assert line == "full, a take: ' hello', but target-only ' hallo'"


def test_a_quantile_of_no_values_is_infinite():
    assert quantile((), 0.5) == math.inf
    assert quantile((1.0, 3.0), 0.5) == 2.0


def test_pieces_are_the_take_and_silence_after_it():
    cut = pieces(b"\x01\x02" * 4_000)
    pcm = b"".join(piece for _, piece in cut)
    assert pcm == b"\x01\x02" * 4_000 + bytes(round(TAIL_S * SAMPLE_RATE) * 2)
    assert [end_s for end_s, _ in cut] == pytest.approx([0.1 * (i + 1) for i in range(len(cut))])


@pytest.mark.nightly
def test_the_same_steps_give_the_same_text():
    """A session whose target skips steps, as under load, and the target alone in the same steps."""
    pcm = b"".join(decode_file(DEMO_FOLDER / "samples" / "01_phone_call.flac"))[: 4 * SAMPLE_RATE * 2]
    live = LiveOptions(trim_ms=1_500)
    pair = LivePair(WhisperModel(load_checkpoint("demo-target"), 1))
    session = pair.open("one", replace(DECODING, live=live))
    voice, cut = VoiceActivity(EndpointingOptions()), pieces(pcm)
    for number, (_, piece) in enumerate(cut, start=1):
        marks = asyncio.run(voice.detect(piece))
        pair.append_audio("one", piece, *marks, is_last=number == len(cut))
        if number % 6 == 0:
            pair.settle()
    pair.settle()
    text, steps = "".join(segment.text for segment in session.segments), session.transcript.steps
    assert len(text.split()) > 4 and len(steps) > 2
    result = result_of(Shown(1.0, text, "", ""), steps=list(steps))
    assert TargetOnly("demo-target").text(Take("a call", pcm, ()), live, result) == text
