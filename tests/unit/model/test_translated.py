"""A draft's words become the target's tokens: by their strings in one tokenizer, else by their letters."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.common.models.checkpoints import Shape, build_checkpoint
from specwhisper.audio.recording import Recording
from specwhisper.model.choosing import Row, Scores
from specwhisper.model.translated import END, FIRST_TIME, Spelling, TranslatedModel, draft_ids
from specwhisper.transcription.vocabulary import Vocabulary
from tests.unit.transcription.test_spelling import merges, vocabulary_of

TEXT = " He was not an ill-disposed man, naïve 你好, it's 1984."
LETTERS = [FIRST_TIME, *TEXT.encode(), FIRST_TIME + 120, FIRST_TIME + 120, *b" And so", FIRST_TIME + 200, END]


class Typist:
    """A model that writes given letters in its own tokens, and continues them after whatever it is fed."""

    num_slots, num_mel_bins, max_windows, max_positions = 2, 80, 1, 448

    def __init__(self, vocabulary: Vocabulary, letters: list[int]) -> None:
        self.vocabulary = vocabulary
        self.num_rows = 0
        self._letters = letters
        self._spelling = Spelling(vocabulary)
        self._lengths = [0] * self.num_slots

    def encode(self, slot: int, recording: Recording, start_frame: int) -> None:
        self._lengths[slot] = 0

    def rollback(self, slot: int, length: int) -> None:
        assert length <= self._lengths[slot]
        self._lengths[slot] = length

    def length(self, slot: int) -> int:
        return self._lengths[slot]

    def score(self, rows: list[Row]) -> list[Scores]:
        self.num_rows += len(rows)
        return [self._scores(row) for row in rows]

    def _scores(self, row: Row) -> Scores:
        self._lengths[row.slot] += len(row.tokens)
        assert self._lengths[row.slot] - row.num_candidates >= len(row.generated)
        chosen = []
        for number in range(row.num_candidates + 1):
            written = [*row.generated, *row.candidates[:number]]
            position = sum(len(self._spelling.letters(token)) for token in written)
            chosen.append(self._spelling.tokens([*self._letters[position:], END])[0])
        return Scores(chosen, [-0.5] * len(chosen), [1.0] * len(chosen))


def multilingual(vocabulary: Vocabulary) -> Vocabulary:
    """Return a vocabulary whose prompts name a language, here by made-up ids at its end."""
    size = len(vocabulary)
    names = ("<|en|>", "<|fr|>", "<|transcribe|>", "<|translate|>", "<|startofprev|>")
    return Vocabulary(
        tokens=(*vocabulary.tokens[: vocabulary.timestamp_begin], *names, *vocabulary.tokens[-1_501:]),
        end_of_text=vocabulary.end_of_text,
        start_of_transcript=vocabulary.start_of_transcript,
        no_timestamps=vocabulary.no_timestamps,
        timestamp_begin=vocabulary.timestamp_begin + len(names),
        languages={"en": size - 1_501, "fr": size - 1_500},
        tasks={"transcribe": size - 1_499, "translate": size - 1_498},
        start_of_prev=size - 1_497,
    )


def row(tokens: list[int], generated: list[int], *candidates: int, **options: object) -> Row:
    return Row(0, [*tokens, *candidates], len(candidates), generated, timestamps=True, **options)


def written(model: TranslatedModel, prompt: list[int], num_tokens: int = 400) -> list[int]:
    """Return what a model writes token by token, up to the end."""
    model.encode(0, Recording(), 0)
    tokens, new = [], prompt
    while len(tokens) < num_tokens and model.vocabulary.end_of_text not in tokens:
        (token,) = model.score([row(new, list(tokens))])[0].tokens
        tokens.append(token)
        new = [token]
    return tokens


@given(own=merges, theirs=merges)
def test_a_text_is_written_as_the_target_would_write_it(own, theirs):
    draft, target = vocabulary_of(own), vocabulary_of(theirs)
    model = TranslatedModel(Typist(draft, LETTERS), target)
    assert written(model, [target.start_of_transcript]) == Spelling(target).tokens(LETTERS)


@given(own=merges, theirs=merges, data=st.data())
def test_whatever_the_target_commits_the_draft_follows(own, theirs, data):
    """The target corrects some tokens and cuts others; slots hold what they were fed, no more."""
    draft, target = vocabulary_of(own), vocabulary_of(theirs)
    model = TranslatedModel(Typist(draft, LETTERS), target)
    model.encode(0, Recording(), 0)
    prompt, tokens = [target.start_of_transcript], []
    for _ in range(data.draw(st.integers(1, 12))):
        fed = [*prompt, *tokens][model.length(0) :]
        candidates = data.draw(st.lists(st.integers(0, len(target) - 1), max_size=3)) if fed else []
        if not fed:
            model.rollback(0, len(prompt) + len(tokens) - 1)
            fed = [*prompt, *tokens][-1:]
        scores = model.score([row(fed, list(tokens), *candidates)])[0]
        assert len(scores.tokens) == len(scores.log_probs) == len(candidates) + 1
        assert all(0 <= token < len(target) for token in scores.tokens)
        assert model.length(0) == len(prompt) + len(tokens) + len(candidates)
        model.rollback(0, len(prompt) + len(tokens))
        tokens.append(data.draw(st.sampled_from(scores.tokens) | st.integers(0, len(target) - 1)))
        if data.draw(st.booleans()):
            del tokens[data.draw(st.integers(0, len(tokens))) :]
            model.rollback(0, min(model.length(0), len(prompt) + len(tokens)))


def test_candidates_of_the_target_are_verified_in_few_steps():
    draft, target = vocabulary_of([b"he", b"an"]), vocabulary_of([b"no", b"ot"])
    typist = Typist(draft, LETTERS)
    model = TranslatedModel(typist, target)
    expected = Spelling(target).tokens(LETTERS)
    model.encode(0, Recording(), 0)
    scores = model.score([row([target.start_of_transcript], [], *expected[:20])])[0]
    assert scores.tokens == expected[:21]
    assert typist.num_rows <= 10  # the last word alone has no candidates


@pytest.mark.parametrize(
    ("language", "task", "is_known"), [("en", "transcribe", True), ("fr", "transcribe", False)]
)
def test_an_english_draft_continues_no_other_language(language, task, is_known):
    target = multilingual(vocabulary_of([]))
    model = TranslatedModel(Typist(vocabulary_of([b"He"]), LETTERS), target)
    prompt = [target.start_of_transcript, target.languages[language], target.tasks[task]]
    assert model.can_continue(prompt) is is_known
    if not is_known:
        model.encode(0, Recording(), 0)
        assert model.score([row(prompt, [])])[0].tokens == [target.end_of_text]


def test_earlier_text_of_a_prompt_is_spelled_anew():
    draft = multilingual(vocabulary_of([b" So"]))
    target = multilingual(vocabulary_of([b"nd"]))
    model = TranslatedModel(Typist(draft, LETTERS), target)
    previous = Spelling(target).tokens(list(b" And So"))
    start = [target.start_of_transcript, target.languages["fr"], target.tasks["translate"]]
    assert model._prompt([target.start_of_prev, *previous, *start]) == [
        draft.start_of_prev,
        *Spelling(draft).tokens(list(b" And So")),
        *(draft.start_of_transcript, draft.languages["fr"], draft.tasks["translate"]),
    ]
    assert all(a != b for a, b in pairwise(model._prompt(start)))


OLD = build_checkpoint(Shape(d_model=16, heads=1))[1].vocabulary
NEW = build_checkpoint(Shape(d_model=16, heads=1, cantonese=True))[1].vocabulary
ENGLISH = build_checkpoint(Shape(d_model=16, heads=1, english_only=True))[1].vocabulary


FOREIGN = tuple(f"word {i}" for i in range(OLD.end_of_text // 9))
PADDING = tuple(f"<|unused{len(OLD) + i}|>" for i in range(6))


@pytest.mark.parametrize(
    ("draft", "target", "lacking"),
    [
        pytest.param(OLD, OLD, [], id="equal"),
        pytest.param(ENGLISH, ENGLISH, [], id="English-only"),
        pytest.param(NEW, OLD, [], id="newer draft"),
        pytest.param(replace(OLD, tokens=("x" * 99, *OLD.tokens[1:])), OLD, [0], id="a few unknown words"),
        pytest.param(OLD, replace(OLD, tokens=OLD.tokens + PADDING), PADDING, id="padding of the table"),
    ],
)
def test_tokens_are_matched_by_their_strings(draft, target, lacking):
    ids = draft_ids(draft, target)
    assert ids.count(None) == len(lacking)
    assert all(draft.tokens[i] == token for i, token in zip(ids, target.tokens, strict=True) if i is not None)


@pytest.mark.parametrize(
    ("draft", "target"),
    [
        pytest.param(ENGLISH, OLD, id="English-only draft"),
        pytest.param(OLD, ENGLISH, id="English-only target"),
        pytest.param(
            replace(OLD, tokens=FOREIGN + OLD.tokens[len(FOREIGN) :]), OLD, id="a tenth of other words"
        ),
        pytest.param(
            replace(OLD, tokens=OLD.tokens[: OLD.timestamp_begin], no_timestamps=None),
            OLD,
            id="no timestamps",
        ),
    ],
)
def test_another_tokenizer_is_translated(draft, target):
    assert draft_ids(draft, target) is None
