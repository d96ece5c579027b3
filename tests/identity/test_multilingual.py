"""With ``multilingual`` each window is what transformers writes of it, in the language it detects."""

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
SEEDS = mostly_nightly([34, 32])


@cache
def made_with(seed: int) -> Prepared:
    shape = Shape(seed=seed, decoder_layers=2)
    options = DecodingOptions.greedy(max_new_tokens=MAX_TOKENS)
    return Prepared(Case("multilingual", shape, (95.0 if NIGHTLY else 40.0, 3.0), options))


def options_of(made: Prepared) -> list[DecodingOptions]:
    return [replace(options, multilingual=True) for options in made.recording_options]


@cache
def alone(seed: int) -> list[Transcription]:
    made = made_with(seed)
    return InlinePair(made.target(2)).transcribe(made.pcms, options_of(made))


def transcribe_window(
    model: WhisperForConditionalGeneration, pcm: bytes, start_frame: int, max_new_tokens: int
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
            max_new_tokens=max_new_tokens,
            language=code,
            task="transcribe",
            logits_processor=LogitsProcessorList([watch]),
        )
    return code, watch.windows[0].tokens


@pytest.mark.parametrize("seed", SEEDS)
def test_each_window_has_the_language_and_text_that_transformers_finds_in_it(seed):
    made, text = made_with(seed), alone(seed)[0]
    languages = {segment.seek: segment.language for segment in text.segments}
    assert len(set(languages.values())) > 1
    windows = [
        transcribe_window(made.model, made.pcms[0], start_frame, MAX_TOKENS) for start_frame in languages
    ]
    assert list(languages.values()) == [language for language, _ in windows]
    assert list(text.window_tokens) == [tokens for _, tokens in windows]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("run", RUNS)
def test_every_mode_writes_the_targets_own_text(seed, run):
    made = made_with(seed)
    texts = split(made, *run, made.target(2)).transcribe(made.pcms, options_of(made))
    for text, expected in zip(texts, alone(seed), strict=True):
        assert text.window_tokens == expected.window_tokens
        assert [s.language for s in text.segments] == [s.language for s in expected.segments]
