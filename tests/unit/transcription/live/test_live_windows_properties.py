"""Live windows: every word becomes final once, whatever is marked and written."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.common.models.scripted import END, NUM_TEXT, TIME
from experiments.common.models.speech import NUM_WORDS, SPOKEN
from specwhisper.live import LiveOptions, LivePosition
from specwhisper.transcription.live.windows import MAX_TOKENS
from specwhisper.types import HOP_SAMPLES, SAMPLE_RATE, WINDOW_FRAMES, Outcome
from tests.live import BEGIN, ENDED, ScriptedWindows, Speaker, letters, mark, token_ids
from tests.nightly import examples

noises = st.none() | st.tuples(st.sampled_from(["insert", "leave out", "replace"]), st.integers(0, 80))


@settings(max_examples=examples(by_day=25, at_night=200))
@given(
    start_frame=st.integers(0, 40).map(lambda i: 2 * i),
    num_words=st.integers(1, 40),
    step_ms=st.sampled_from([400, 500, 1_000, 3_000]),
    trim_ms=st.sampled_from([2_000, 6_000, 15_000]),
    late=st.lists(st.integers(1, 4), min_size=1, max_size=10),
    noise=st.lists(noises, min_size=1, max_size=7),
    piece_ms=st.sampled_from([100, 230, 1_000]),
)
def test_every_word_becomes_final_once_whatever_words_are_written_wrongly(
    start_frame, num_words, step_ms, trim_ms, late, noise, piece_ms
):
    speaker = Speaker(start_frame, num_words)
    end_s = (start_frame + num_words * Speaker.WORD_FRAMES) / 100
    scripted = ScriptedWindows(LiveOptions(step_ms=step_ms, trim_ms=trim_ms))
    at_s, number, final_text = 0.0, 0, ""
    while at_s < end_s:
        at_s = min(end_s, at_s + piece_ms / 1000 * late[number % len(late)])
        marks = [mark(BEGIN, start_frame / 100)] if at_s >= start_frame / 100 else []
        scripted.append(at_s, *marks, is_last=at_s == end_s)
        while scripted.ready:
            window = scripted.open()
            # Never two in a row, which might agree, nor the last one, which no step corrects.
            wrong = noise[number % len(noise)] if number % 2 and at_s < end_s else None
            scripted.close(speaker.write(window.start_frame, window.num_frames, number, wrong))
            assert scripted.text().startswith(final_text)
            final_text, number = scripted.text(), number + 1
    assert scripted.final[1] == speaker.right_words()
    if trim_ms == 2_000 and num_words > 30 and step_ms < 1_000 and not any(noise):
        assert window.start_frame > start_frame, "it was cut"


hypotheses = st.lists(
    st.one_of(
        st.integers(0, NUM_TEXT - 1),
        st.integers(0, 5),
        st.integers(TIME, TIME + 1_500),
        st.integers(TIME, TIME + 100),
    ),
    max_size=12,
)


@st.composite
def rewordings(draw, before: list[int]):
    """A text that may begin as the last one did, or not."""
    before = [token for token in before if token != END]
    kept = before[: draw(st.integers(0, len(before)))] if draw(st.booleans()) else before
    return [*kept, *draw(hypotheses), *([END] if draw(st.booleans()) else [])]


@settings(max_examples=examples(by_day=25, at_night=150))
@given(
    data=st.data(),
    step_ms=st.sampled_from([100, 500, 3_333]),
    trim_ms=st.sampled_from([1_000, 15_000, 28_000]),
    reuses_candidates=st.booleans(),
    temperatures=st.sampled_from([(0.0,), (0.0, 0.3, 0.4)]),
    position=st.tuples(st.integers(0, 400), st.lists(st.integers(0, NUM_TEXT - 1), max_size=5)),
)
def test_final_text_only_grows_whatever_is_marked_and_written(
    data, step_ms, trim_ms, reuses_candidates, temperatures, position
):
    """Returned final text equals what the windows keep; windows lie in the audio."""
    live = LiveOptions(
        step_ms=step_ms,
        trim_ms=trim_ms,
        reuses_candidates=reuses_candidates,
        position=LivePosition(position[0] * HOP_SAMPLES, final_tokens=tuple(position[1])),
    )
    scripted = ScriptedWindows(
        live,
        temperatures=temperatures,
        condition_on_previous_text=True,
        compression_ratio_threshold=1.5,
        no_speech_threshold=0.8,
        logprob_threshold=-1.0,
    )
    final_text: list[int] = list(position[1])  # all final text
    at, last_frame, tokens, window_ids = live.position.start_sample, 0, [], []
    attempt, num_done = 0, 0
    for _ in range(data.draw(st.integers(1, 12))):
        at += data.draw(st.sampled_from([0, 1, 159, 160, 4_000, 8_000, 40_000, 480_000, 480_160]))
        places = st.sampled_from([at, at - 1_000, at - 4_000, 0, at + 1_000, at // HOP_SAMPLES * HOP_SAMPLES])
        events = st.builds(
            lambda event, sample: mark(event, sample / SAMPLE_RATE),
            st.sampled_from([BEGIN, BEGIN, ENDED, ENDED]),
            places,
        )
        scripted.append(at / SAMPLE_RATE, *data.draw(st.lists(events, max_size=3)), is_last=False)
        for _ in range(data.draw(st.integers(0, 3))):
            if not scripted.ready:
                break
            num_done += _check_step(scripted, data, final_text, tokens, attempt)
            attempt = scripted.opened.attempt + 1 if scripted.windows._retry else 0
            assert scripted.opened.start_frame >= last_frame - 1
            last_frame = scripted.opened.start_frame
            window_ids.append(scripted.opened.id)
    scripted.append(at / SAMPLE_RATE, is_last=True)
    while scripted.ready:
        num_done += _check_step(scripted, data, final_text, tokens, attempt)
        attempt = scripted.opened.attempt + 1 if scripted.windows._retry else 0
        window_ids.append(scripted.opened.id)
    assert scripted.ready == 0
    assert window_ids == list(range(len(window_ids)))
    if num_done:
        assert scripted.windows.num_final == 0


def _check_step(
    scripted: ScriptedWindows, data, final_text: list[int], tokens: list[int], attempt: int
) -> bool:
    start, num_frames = scripted.windows.next_frame, scripted.ready
    assert num_frames == scripted.ready, "asking changes nothing"
    assert 1 <= num_frames <= WINDOW_FRAMES
    assert (start + num_frames - 1) * HOP_SAMPLES < scripted.received_samples
    assert num_frames == 1 or (start + num_frames) * HOP_SAMPLES <= scripted.received_samples
    num_final, before = scripted.windows.num_final, scripted.windows.previous
    window = scripted.open()
    assert (window.start_frame, window.num_frames, window.attempt) == (start, num_frames, attempt)
    assert 1 <= window.max_new_tokens <= MAX_TOKENS + num_frames // 4
    tokens[:] = data.draw(rewordings(tokens))[: window.max_new_tokens] or [END]
    closed = scripted.close(
        list(tokens),
        log_probs=data.draw(st.sampled_from([[-0.1], [-2.0]])),
        no_speech_prob=data.draw(st.sampled_from([0.1, 0.9])),
    )
    step = closed.step
    if step is None:
        assert closed.outcome is Outcome.RETRIED
        return False
    final = [i for i in tokens[step.final_start : step.final_end] if i < END]
    if step.final_end:
        assert tokens[step.final_start] < END and tokens[step.final_end - 1] < END
    final_text += final
    windows = scripted.windows
    # The text before the next window and the final text in it are the end of all final text.
    remembered = [*windows.previous, *windows._progress.final]
    known = SPOKEN.max_length // 2 - 1
    assert final_text[-len(remembered) :] == remembered or not remembered
    assert len(remembered) >= min(known, len(before) + num_final + len(final))
    for token in closed.opening:
        assert token < END or token >= TIME
    assert not closed.opening or closed.opening[-1] < END
    assert not step.is_last or windows.num_final == 0
    return step.is_last


def test_the_vocabulary_has_words_and_parts_of_words():
    assert SPOKEN.decode(token_ids("ABsC")) == " a bs c"
    assert letters(token_ids("ABsC")) == "ABsC"
    assert [SPOKEN.may_begin_word(token) for token in (0, NUM_WORDS - 1, NUM_WORDS, NUM_TEXT - 1)] == [
        True,
        True,
        False,
        False,
    ]
