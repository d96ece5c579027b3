"""With options that transformers lacks, every mode writes what the target alone writes.

With ``multilingual``, that is what transformers writes of each window, in the language it detects.
"""

from dataclasses import replace
from functools import cache

import pytest
import torch
from transformers import LogitsProcessorList, WhisperForConditionalGeneration

from experiments.common.inline_pair import InlinePair
from experiments.common.models.checkpoints import Shape
from experiments.exactness.cases import Case
from experiments.exactness.oracle import Watch, features_of
from experiments.exactness.prepared import Prepared
from specwhisper.options import DecodingOptions
from specwhisper.transcription.transcription import Transcription
from specwhisper.types import WINDOW_FRAMES
from tests.identity.test_options import RUNS, split
from tests.nightly import NIGHTLY, mostly_nightly

MAX_TOKENS = 20
WORDS = DecodingOptions.greedy(
    language="en", max_new_tokens=40, word_timestamps=True, hallucination_silence_threshold=0.5
)
CONDITIONED = replace(WORDS, condition_on_previous_text=True, temperatures=(0.0, 0.4), logprob_threshold=-1.6)
MULTILINGUAL = DecodingOptions.greedy(max_new_tokens=MAX_TOKENS, multilingual=True)
CASES = {
    "hallucinations": (Shape(seed=31, decoder_layers=3), WORDS),
    "multilingual": (Shape(seed=34, decoder_layers=2), MULTILINGUAL),
    "hallucinations with previous text and fallback": (Shape(seed=31, decoder_layers=3), CONDITIONED),
    "multilingual, another model": (Shape(seed=32, decoder_layers=2), MULTILINGUAL),
}


@cache
def made(name: str) -> Prepared:
    shape, options = CASES[name]
    plain = replace(options, hallucination_silence_threshold=None, multilingual=False)
    return Prepared(Case(name, shape, (95.0 if NIGHTLY else 40.0, 12.0), plain))


def options_of(name: str, **changes: object) -> list[DecodingOptions]:
    _, options = CASES[name]
    return [replace(options, log_mel_max=o.log_mel_max, **changes) for o in made(name).recording_options]


@cache
def alone(name: str) -> list[Transcription]:
    return InlinePair(made(name).target(2)).transcribe(made(name).pcms, options_of(name))


@pytest.mark.parametrize("name", mostly_nightly(CASES, by_day=2))
@pytest.mark.parametrize(("mode", "gamma", "draft", "kind"), mostly_nightly(RUNS, by_day=2))
def test_every_mode_writes_the_same(name, mode, gamma, draft, kind):
    engine = split(made(name), mode, gamma, draft, kind, made(name).target(2))
    texts = engine.transcribe(made(name).pcms, options_of(name))
    for text, expected in zip(texts, alone(name), strict=True):
        assert text.window_tokens == expected.window_tokens
        assert [(s.start_s, s.tokens, s.words, s.language) for s in text.segments] == [
            (s.start_s, s.tokens, s.words, s.language) for s in expected.segments
        ]


def test_a_hallucination_is_left_out_and_no_word_without_its_segment():
    name = "hallucinations"
    without = options_of(name, hallucination_silence_threshold=None)
    with_all = InlinePair(made(name).target(2)).transcribe(made(name).pcms, without)
    assert [len(text.segments) for text in with_all] != [len(text.segments) for text in alone(name)]
    written = sum(len(tokens) for text in alone(name) for tokens in text.window_tokens)
    kept = sum(len(segment.tokens) for text in alone(name) for segment in text.segments)
    assert kept < written / 2, "nearly all that random weights write is an anomaly"
    for text in alone(name):
        assert all(segment.words for segment in text.segments if segment.text.strip())


def transcribe_window(
    model: WhisperForConditionalGeneration, pcm: bytes, start_frame: int
) -> tuple[str, tuple[int, ...]]:
    """Return the language of one window of a recording, and its tokens in that language."""
    features, _ = features_of(pcm, model.config.num_mel_bins)
    window = features[:, :, start_frame : start_frame + WINDOW_FRAMES]
    window = torch.nn.functional.pad(window, (0, WINDOW_FRAMES - window.shape[-1])).to(model.dtype)
    watch = Watch(max_windows=40)
    with torch.inference_mode(), watch.noting(model):
        token = int(model.detect_language(input_features=window)[0])
        code = next(name for name, i in model.generation_config.lang_to_id.items() if i == token).strip("<|>")
        model.generate(
            window,
            num_beams=1,
            temperature=0.0,
            return_timestamps=True,
            max_new_tokens=MAX_TOKENS,
            language=code,
            task="transcribe",
            logits_processor=LogitsProcessorList([watch]),
        )
    return code, watch.windows[0].tokens


@pytest.mark.parametrize(
    "name", mostly_nightly(name for name, (_, options) in CASES.items() if options.multilingual)
)
def test_each_window_has_the_language_and_text_that_transformers_finds_in_it(name):
    text = alone(name)[0]
    languages = {segment.seek: segment.language for segment in text.segments}
    assert len(set(languages.values())) > 1
    windows = [transcribe_window(made(name).model, made(name).pcms[0], start) for start in languages]
    assert list(languages.values()) == [language for language, _ in windows]
    assert list(text.window_tokens) == [tokens for _, tokens in windows]
