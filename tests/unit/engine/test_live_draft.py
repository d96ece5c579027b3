"""The draft of live audio shows hypotheses, and sends the last one when its window is opened."""

from collections.abc import Sequence

import pytest

from experiments.common.models.scripted import END as END_OF_TEXT
from experiments.common.models.scripted import TIME
from experiments.common.models.speech import (
    SPOKEN,
    SPOKEN_MULTILINGUAL,
    SpeechModel,
    samples_of,
    speech,
    words_of,
)
from specwhisper.engine.draft_session import Drafted
from specwhisper.engine.drafter import Drafter
from specwhisper.live import LiveOptions
from specwhisper.options import DecodingOptions
from specwhisper.speculation.draft_length import DraftLength
from specwhisper.types import (
    SAMPLE_RATE,
    AudioChunk,
    Candidates,
    Commit,
    CompletePiece,
    Failed,
    Hypothesis,
    Mode,
    VoiceMark,
    Window,
    WindowOpened,
)
from tests.live import BEGIN, END, mark, token_ids

SPEECH = speech(40.0)
PROMPT = (SPOKEN.start_of_transcript,)
OWN_PROMPT = (SPOKEN.start_of_transcript, SPOKEN.no_timestamps)


def tokens_at(begin_s: float, end_s: float) -> list[int]:
    """Return the draft's own tokens of a part of the speech, which have no times."""
    clip = SPEECH[round(begin_s * SAMPLE_RATE) * 2 : round(end_s * SAMPLE_RATE) * 2]
    return [token for token in words_of(samples_of(clip)) if token < TIME]


class Draft:
    """One session's draft, which a test drives."""

    def __init__(self, model: SpeechModel | None = None, live: LiveOptions | None = None, **options) -> None:
        self.model = model or SpeechModel()
        self.drafter = Drafter(self.model)
        decoding = DecodingOptions.greedy(live=live or LiveOptions(), **options)
        self.drafter.open("one", DraftLength(Mode.FULL, 4), decoding, max_ahead_tokens=256)
        self.at = 0

    def append(self, to_s: float, *marks: VoiceMark, is_last: bool = False) -> None:
        end = round(to_s * SAMPLE_RATE)
        self.drafter.submit("one", AudioChunk(self.at, SPEECH[self.at * 2 : end * 2], is_last, marks))
        self.at = end

    def run(self) -> list[Drafted | Failed]:
        """Run until there is nothing to do; return what was drafted."""
        drafted = []
        while self.drafter.has_work:
            drafted += [each for _, each in self.drafter.step()]
        return drafted

    def hypotheses(self) -> list[Hypothesis]:
        return [each.hypothesis for each in self.run() if each.hypothesis is not None]

    def candidates(self) -> list[Candidates]:
        return [each.candidates for each in self.run() if each.candidates is not None]

    def open(self, start_s: float, end_s: float, prefix: Sequence[int] = (), **more) -> Window:
        start, end = round(start_s * 100), round(end_s * 100)
        window = Window(7, start, end - start, more.pop("prompt", PROMPT), 400, prefix=tuple(prefix), **more)
        self.drafter.submit("one", WindowOpened(window))
        return window

    def finish(self, window: Window, *tokens: int) -> None:
        step, base = CompletePiece(1, window.start_sample, True), len(window.prefix)
        self.drafter.submit("one", Commit(window.id, base, tokens, is_final=True, piece=step))


def test_a_growing_piece_is_drafted_anew_for_each_step_of_audio():
    draft = Draft(live=LiveOptions(step_ms=400))
    draft.append(1.9, mark(BEGIN, 1.0))
    assert draft.hypotheses() == []  # the first of a second
    for end_s in (2.0, 2.3, 2.41, 3.0):
        draft.append(end_s)
        grown_s = 2.4 if end_s == 2.41 else end_s
        text = SPOKEN.decode(tokens_at(1, grown_s))
        expected = Hypothesis(1, SAMPLE_RATE, round(grown_s * SAMPLE_RATE), text)
        assert draft.hypotheses() == ([] if end_s == 2.3 else [expected])
    draft.append(4.0, mark(END, 3.2))
    (whole,) = draft.hypotheses()
    assert whole.is_complete and whole.text == SPOKEN.decode(tokens_at(1, 3.2))


def test_the_last_hypothesis_is_a_hint():
    draft = Draft()
    draft.append(8, mark(BEGIN, 0))
    draft.run()
    num_forwards = draft.model.num_forwards
    assert num_forwards == len(tokens_at(0, 8))
    draft.append(10)
    draft.run()
    assert draft.model.num_forwards - num_forwards < 0.6 * num_forwards


PREFIX = token_ids(0.0, "AB", 3.0, 6.0)


class TestCandidates:
    def test_they_are_sent_once_the_window_is_opened(self):
        draft = Draft()
        draft.append(16, mark(BEGIN, 1), mark(END, 15))
        assert draft.candidates() == []
        own = tokens_at(1, 15)
        draft.open(1, 15)
        blocks = draft.candidates()
        assert [token for block in blocks for token in block.tokens] == [TIME, *own]
        assert [
            (block.window_id, block.base, block.known_committed, block.block_number) for block in blocks
        ] == [
            (7, 0, 0, 1),
            (7, 64, 0, 2),
        ]
        assert draft.candidates() == []  # once

    def test_a_late_hypothesis_is_sent_once_it_is_whole(self):
        draft = Draft()
        draft.append(2, mark(BEGIN, 0))
        draft.drafter.step()
        draft.append(3, mark(END, 3))
        draft.open(0, 3)
        assert [block.tokens for block in draft.candidates()] == [(TIME, *tokens_at(0, 3))]

    def test_a_piece_whose_text_is_final_is_drafted_no_longer(self):
        draft = Draft()
        draft.append(6, mark(BEGIN, 0), mark(END, 2), mark(BEGIN, 4))
        draft.drafter.step()
        draft.finish(draft.open(0, 2), 0, END_OF_TEXT)
        assert [each.start_sample for each in draft.hypotheses()] == [4 * SAMPLE_RATE]

    @pytest.mark.parametrize(
        ("spoken", "opened", "more", "expected"),
        [
            ((10, 12), (4, 12), {"prefix": PREFIX}, [(5, 5, tuple(tokens_at(10, 12)))]),
            ((0, None), (0, 2.5), {}, [(0, 0, (TIME, *tokens_at(0, 2)[:-1]))]),  # it grows: no ending
            ((0, 2), (0, 2), {"attempt": 1, "temperature": 0.4}, []),  # a retry
        ],
    )
    def test_they_fit_the_window(self, spoken, opened, more, expected):
        draft, (begin_s, end_s) = Draft(), spoken
        draft.append(end_s or 2, mark(BEGIN, begin_s), *([mark(END, end_s)] if end_s else []))
        draft.run()
        draft.open(*opened, **more)
        blocks = draft.candidates()
        assert [(block.base, block.known_committed, block.tokens) for block in blocks] == expected


def test_a_draft_waits_until_the_target_has_found_the_language():
    german = SPOKEN_MULTILINGUAL.prompt(DecodingOptions(), "de")
    draft = Draft(SpeechModel(vocabulary=SPOKEN_MULTILINGUAL))
    draft.append(2, mark(BEGIN, 0), mark(END, 2))
    assert [each.knows_language for each in draft.run()] == [False]
    window = draft.open(0, 2, prompt=german)
    assert [each.knows_language for each in draft.run() if each.candidates is None] == [True, None]
    draft.finish(window, 0, END_OF_TEXT)
    draft.append(6, mark(BEGIN, 4))
    assert [each.start_sample for each in draft.hypotheses()] == [4 * SAMPLE_RATE]


def test_a_draft_that_lacks_the_language_writes_nothing():
    class EnglishModel(SpeechModel):
        def can_continue(self, prompt):
            return False

    draft = Draft(EnglishModel(), language="en")
    draft.append(2, mark(BEGIN, 0), mark(END, 2))
    draft.open(0, 2)
    assert [each.knows_language for each in draft.run()] == [False]
    assert draft.model.num_forwards == 0


@pytest.mark.parametrize("phrase", [(3,), (3, 4), (3, 4, 5)])
def test_a_text_that_repeats_itself_is_cut(phrase):
    class LostModel(SpeechModel):
        def next_token(self, audio, prefix, sampling=None):
            place = len(prefix) - len(OWN_PROMPT)
            return phrase[place % len(phrase)]

    draft = Draft(LostModel())
    draft.append(20, mark(BEGIN, 0), mark(END, 20))
    (hypothesis,) = draft.hypotheses()
    assert hypothesis.text == SPOKEN.decode(phrase)
    assert draft.model.num_forwards <= 4 * len(phrase) + 1
    draft.open(0, 20)
    assert [block.tokens for block in draft.candidates()] == [(TIME, *phrase)]


def test_its_text_is_shorter_than_any_speech():
    class TalkingModel(SpeechModel):
        def next_token(self, audio, prefix, sampling=None):
            return self._hash(prefix) % 20

    draft = Draft(TalkingModel())
    draft.append(2, mark(BEGIN, 0), mark(END, 2))
    draft.run()
    draft.open(0, 2)
    assert sum(len(block.tokens) for block in draft.candidates()) == 1 + 32 + 25 * 2
