"""Cases of the identity promise: checkpoints under every option that has an effect on them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from experiments.common.models.checkpoints import PUBLISHED, Shape
from specwhisper.options import CompressionRatio, DecodingOptions, Padding, Task, WordTimes

PROMPT = "she sells the lazy wood"
EN40 = DecodingOptions.greedy(language="en", max_new_tokens=40, word_times=WordTimes.MODEL)
FALLBACK = replace(EN40, temperatures=(0.0, 0.4, 0.8))
DISTILLED = ("distil",) * 4


@dataclass(frozen=True, eq=False)  # options hold a mapping, which has no hash
class Case:
    """A checkpoint, options, and the lengths of recordings.

    ``end_logit`` is added to the logit of end-of-text and ``time_logit`` to those of timestamps: random
    weights alone would hardly ever end a window. ``own_language`` is what its generation config names.
    ``drafts`` are of :data:`experiments.exactness.prepared.DRAFTS`, one for each mode.
    """

    name: str
    shape: Shape
    lengths_s: tuple[float, ...]
    options: DecodingOptions = EN40
    end_logit: float = 3.0
    time_logit: float = -1.5
    own_language: str | None = None
    drafts: tuple[str, str, str, str] = ("noisy", "older", "shorter", "foreign")


def greedy(**options: Any) -> DecodingOptions:
    return DecodingOptions.greedy(language="en", **options)


LARGE = Shape(
    num_mel_bins=128, cantonese=True, d_model=96, heads=3, encoder_layers=2, decoder_layers=3, seed=13
)
SHORTEST = Shape(
    num_mel_bins=128, cantonese=True, max_target_positions=12, decoder_layers=4, d_model=32, seed=18
)
ENGLISH = Shape(english_only=True, d_model=48, heads=4, decoder_layers=1, seed=15)
ENGLISH_UNTIMED = Shape(english_only=True, d_model=32, heads=1, decoder_layers=3, seed=16)
ANY_FIRST_TIME = Shape(max_initial_timestamp=None, heads=4, encoder_layers=3, seed=14)
UNTIMED = replace(EN40, timestamps=False)
UNTIMED_LENGTHS_S = (0.5, 3.0, 29.99, 30.0)
SHAPES = (
    Case("tiny-like", Shape(seed=11), (0.5, 29.99, 65.0)),
    Case("large-v3-like", LARGE, (3.0, 65.0)),
    Case(
        "translate",
        ANY_FIRST_TIME,
        (3.0, 30.0, 65.0),
        DecodingOptions.greedy(language="de", task=Task.TRANSLATE, max_new_tokens=40),
    ),
    Case(
        "mostly-timestamps",
        Shape(max_initial_timestamp=None, d_model=48, heads=3, seed=20),
        (0.5, 29.99, 65.0),
        time_logit=1.0,
    ),
    Case("english-only", ENGLISH, (0.5, 3.0, 31.0, 65.0), end_logit=2.0),
    Case(
        "short-context", Shape(max_target_positions=30, seed=17), (3.0, 30.0, 65.0), greedy(), end_logit=0.0
    ),
    Case("shortest-context", SHORTEST, (0.5, 31.0, 65.0), greedy(), end_logit=2.0),
    Case(
        "two-tokens",
        Shape(seed=21, cantonese=True, encoder_layers=2),
        (3.0, 31.0),
        greedy(max_new_tokens=2),
        end_logit=-5.0,
    ),
    Case(
        "no-timestamps",
        Shape(128, cantonese=True, d_model=128, heads=2, seed=12),
        UNTIMED_LENGTHS_S,
        UNTIMED,
        end_logit=2.5,
        time_logit=-6.0,
    ),
    Case("english-only-no-timestamps", ENGLISH_UNTIMED, UNTIMED_LENGTHS_S, UNTIMED),
    Case(
        "stray-timestamps",  # written although none were asked for: transformers cuts the window by them
        Shape(max_target_positions=24, heads=8, seed=19),
        (0.5, 3.0, 30.0),
        greedy(timestamps=False),
        end_logit=1.0,
        time_logit=0.0,
    ),
)
ONE = Shape(seed=31, decoder_layers=3)


def option(name: str, lengths_s: tuple[float, ...], base: DecodingOptions = EN40, **options: Any) -> Case:
    """Return a case of the checkpoint on which one option after the other is tried, each where it binds."""
    return Case(name, ONE, lengths_s, replace(base, **options))


SHORT_AND_LONG = (3.0, 65.0)
ON_TEXT = replace(EN40, condition_on_previous_text=True)
UNSURE = replace(FALLBACK, logprob_threshold=-1.6)
WORDS = replace(EN40, word_timestamps=True)
OPTIONS = (
    option("previous-text", (3.0, 95.0), ON_TEXT),
    option("prompt", (3.0, 95.0), initial_prompt=PROMPT),
    option("prompt-then-previous-text", (3.0, 95.0), ON_TEXT, initial_prompt=PROMPT),
    option("carried-prompt", (95.0,), ON_TEXT, initial_prompt=PROMPT, carry_initial_prompt=True),
    option("hotwords", (95.0,), ON_TEXT, hotwords="fox dog"),
    Case(
        "previous-text-in-a-short-context",
        Shape(max_target_positions=40, seed=32),
        (95.0,),
        greedy(condition_on_previous_text=True),
        end_logit=1.0,
    ),
    Case("fallback-as-default", ONE, SHORT_AND_LONG, DecodingOptions(language="en", max_new_tokens=40)),
    option("fallback-by-log-prob", SHORT_AND_LONG, UNSURE),
    Case(
        "fallback-by-compression",
        ONE,
        SHORT_AND_LONG,
        replace(FALLBACK, compression_ratio_threshold=1.1),
        end_logit=1.0,
    ),
    Case(
        "fallback-by-compression-of-text",
        ONE,
        SHORT_AND_LONG,
        replace(FALLBACK, compression_ratio_threshold=0.9, compression_ratio_of=CompressionRatio.TEXT),
        end_logit=1.0,
    ),
    option("fallback-with-previous-text", (95.0,), UNSURE, condition_on_previous_text=True),
    option("no-speech", (3.0, 95.0), UNSURE, no_speech_threshold=0.012),
    option("language-detection", SHORT_AND_LONG, language=None),
    replace(option("language-of-a-fine-tune", SHORT_AND_LONG, language=None), own_language="german"),
    option("first-time", SHORT_AND_LONG, max_initial_timestamp_s=0.1),
    option("sampling-seed-1", SHORT_AND_LONG, temperatures=(1.0,), seed=1),
    option("sampling-seed-2", SHORT_AND_LONG, temperatures=(0.7,), seed=2, top_k=20),
    option("sampling-seed-3", SHORT_AND_LONG, temperatures=(1.3,), seed=3, top_p=0.9),
    option("zeros-after-the-audio", (0.5, 3.0, 12.0, 65.0), padding=Padding.ZERO),
    option(
        "zeros-with-word-times-and-language-detection",
        (3.0, 29.99, 31.0),
        WORDS,
        padding=Padding.ZERO,
        language=None,
    ),
    option("word-times", (3.0, 12.0, 65.0), WORDS),
    Case(
        "word-times-after-the-audio",  # in a window that begins in the silence that fills up 30 s
        Shape(max_target_positions=24, seed=2),
        (3.0, 14.0),
        greedy(word_timestamps=True, word_times=WordTimes.MODEL),
        end_logit=1.0,
        time_logit=0.3,
    ),
    option(
        "word-times-with-prompt-and-previous-text",
        (65.0,),
        ON_TEXT,
        word_timestamps=True,
        initial_prompt=PROMPT,
    ),
    option("word-times-with-fallback", SHORT_AND_LONG, UNSURE, word_timestamps=True),
    option("word-times-with-language-detection", (3.0, 12.0), WORDS, language=None),
    Case(
        "word-times-without-timestamps",
        ONE,
        (3.0, 30.0),
        replace(WORDS, timestamps=False),
        end_logit=0.0,
        time_logit=-6.0,
    ),
)
MANY = (
    Case(
        "short",
        Shape(seed=36),
        tuple(round(1.0 + 0.3 * i, 1) for i in range(48)),
        replace(EN40, max_new_tokens=16),
        end_logit=0.5,
    ),
    Case("long-form", Shape(seed=37), (240.0,)),
)
# Whisper's own tokens, in the vocabularies of published checkpoints; the "older" draft has another of them.
WHISPERS = (
    Case(
        "tokens of large-v3",
        Shape(num_mel_bins=128, cantonese=True, words="multilingual", seed=51),
        (3.0, 35.0),
        replace(EN40, initial_prompt="Ray Serve, naïve café: 東京", condition_on_previous_text=True),
    ),
    Case(
        "tokens of tiny to large-v2",
        Shape(words="multilingual", seed=52),
        (65.0,),
        replace(EN40, language="de", task=Task.TRANSLATE, word_timestamps=True),
    ),
    Case(
        "tokens of tiny.en to medium.en",
        Shape(words="gpt2", english_only=True, seed=53),
        (3.0, 35.0),
        replace(EN40, hotwords="gamma"),
    ),
)
DISTIL = (
    Case("distil, shared encoder", Shape(seed=41, decoder_layers=4), (3.0, 65.0), drafts=DISTILLED),
    Case(
        "distil, shared encoder, fallback",
        Shape(seed=42, decoder_layers=4),
        (3.0, 65.0),
        replace(FALLBACK, logprob_threshold=-1.6, word_timestamps=True),
        drafts=DISTILLED,
    ),
)
# As large as they are published: 1.5 billion weights and 0.8, drafts of 39 million and more.
TRUE_SHAPES = tuple(
    Case(
        f"{name}, true shapes: tiny, base, small, distil",
        replace(PUBLISHED[name], seed=61),
        (3.0,),
        replace(EN40, max_new_tokens=16),
        drafts=("tiny", "base", "small", "distil"),
    )
    for name in ("large-v3", "turbo")
)
SIDE_BY_SIDE = Case(  # recordings of every length: eight at a time, four, one
    "eight-recordings",
    Shape(seed=33, decoder_layers=2),
    (0.5, 3.0, 31.0, 12.0, 65.0, 7.0, 29.99, 20.0),
    drafts=("noisy", "distil", "shorter", "distil"),
)
