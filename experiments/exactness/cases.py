"""Cases of the identity promise: checkpoints under every option that has an effect on them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from experiments.common.models.checkpoints import Shape
from experiments.common.models.published import PUBLISHED
from specwhisper.options import CompressionRatio, DecodingOptions, Padding, Task, WordTimes

PROMPT = "she sells the lazy wood"
EN40 = DecodingOptions.greedy(language="en", max_new_tokens=40, word_times=WordTimes.MODEL)
FALLBACK = replace(EN40, temperatures=(0.0, 0.4, 0.8))


@dataclass(frozen=True, eq=False)  # options hold a mapping, which has no hash
class Case:
    """A checkpoint, options, and the lengths of recordings.

    ``end_logit`` is added to the logit of end-of-text and ``time_logit`` to those of timestamps: random
    weights alone would hardly ever end a window. ``own_language`` is what its generation config names.
    ``drafts`` are of :data:`experiments.exactness.prepared.DRAFTS`, one for each mode. ``assisted``: whether
    there is memory and time for transformers' assisted generation too.
    """

    name: str
    shape: Shape
    lengths_s: tuple[float, ...]
    options: DecodingOptions = EN40
    end_logit: float = 3.0
    time_logit: float = -1.5
    own_language: str | None = None
    drafts: tuple[str, str, str, str] = ("noisy", "older", "shorter", "foreign")
    assisted: bool = True


SHAPES = (
    Case("tiny-like", Shape(seed=11), (0.5, 29.99, 65.0)),
    Case(
        "large-v3-like",
        Shape(
            num_mel_bins=128, cantonese=True, d_model=96, heads=3, encoder_layers=2, decoder_layers=3, seed=13
        ),
        (3.0, 65.0),
    ),
    Case(
        "translate",  # and without a latest first time
        Shape(max_initial_timestamp=None, heads=4, encoder_layers=3, seed=14),
        (3.0, 30.0, 65.0),
        DecodingOptions.greedy(language="de", task=Task.TRANSLATE, max_new_tokens=40),
    ),
    Case(
        "mostly-timestamps",
        Shape(max_initial_timestamp=None, d_model=48, heads=3, seed=20),
        (0.5, 29.99, 65.0),
        time_logit=1.0,
    ),
    Case(
        "english-only",
        Shape(english_only=True, d_model=48, heads=4, decoder_layers=1, seed=15),
        (0.5, 3.0, 31.0, 65.0),
        end_logit=2.0,
    ),
    Case(
        "short-context",
        Shape(max_target_positions=30, seed=17),
        (3.0, 30.0, 65.0),
        DecodingOptions.greedy(language="en"),
        end_logit=0.0,
    ),
    Case(
        "shortest-context",
        Shape(
            num_mel_bins=128, cantonese=True, max_target_positions=12, decoder_layers=4, d_model=32, seed=18
        ),
        (0.5, 31.0, 65.0),
        DecodingOptions.greedy(language="en"),
        end_logit=2.0,
    ),
    Case(
        "two-tokens",
        Shape(seed=21, cantonese=True, encoder_layers=2),
        (3.0, 31.0),
        DecodingOptions.greedy(language="en", max_new_tokens=2),
        end_logit=-5.0,
    ),
    Case(
        "no-timestamps",
        Shape(128, cantonese=True, d_model=128, heads=2, seed=12),
        (0.5, 3.0, 29.99, 30.0),
        replace(EN40, timestamps=False),
        end_logit=2.5,
        time_logit=-6.0,
    ),
    Case(
        "english-only-no-timestamps",
        Shape(english_only=True, d_model=32, heads=1, decoder_layers=3, seed=16),
        (0.5, 3.0, 29.99, 30.0),
        replace(EN40, timestamps=False),
    ),
    Case(
        "stray-timestamps",  # written although none were asked for: transformers cuts the window by them
        Shape(max_target_positions=24, heads=8, seed=19),
        (0.5, 3.0, 30.0),
        DecodingOptions.greedy(language="en", timestamps=False),
        end_logit=1.0,
        time_logit=0.0,
    ),
)
# One option after the other, each where it binds, on one checkpoint.
SHAPE = Shape(seed=31, decoder_layers=3)
OPTIONS = (
    Case("previous-text", SHAPE, (3.0, 95.0), replace(EN40, condition_on_previous_text=True)),
    Case("prompt", SHAPE, (3.0, 95.0), replace(EN40, initial_prompt=PROMPT)),
    Case(
        "prompt-then-previous-text",
        SHAPE,
        (3.0, 95.0),
        replace(EN40, initial_prompt=PROMPT, condition_on_previous_text=True),
    ),
    Case(
        "carried-prompt",
        SHAPE,
        (95.0,),
        replace(EN40, initial_prompt=PROMPT, condition_on_previous_text=True, carry_initial_prompt=True),
    ),
    Case("hotwords", SHAPE, (95.0,), replace(EN40, hotwords="fox dog", condition_on_previous_text=True)),
    Case(
        "previous-text-in-a-short-context",
        Shape(max_target_positions=40, seed=32),
        (95.0,),
        DecodingOptions.greedy(language="en", condition_on_previous_text=True),
        end_logit=1.0,
    ),
    Case("fallback-as-default", SHAPE, (3.0, 65.0), DecodingOptions(language="en", max_new_tokens=40)),
    Case("fallback-by-log-prob", SHAPE, (3.0, 65.0), replace(FALLBACK, logprob_threshold=-1.6)),
    Case(
        "fallback-by-compression",
        SHAPE,
        (3.0, 65.0),
        replace(FALLBACK, compression_ratio_threshold=1.1),
        end_logit=1.0,
    ),
    Case(
        "fallback-by-compression-of-text",
        SHAPE,
        (3.0, 65.0),
        replace(FALLBACK, compression_ratio_threshold=0.9, compression_ratio_of=CompressionRatio.TEXT),
        end_logit=1.0,
    ),
    Case(
        "fallback-with-previous-text",
        SHAPE,
        (95.0,),
        replace(FALLBACK, logprob_threshold=-1.6, condition_on_previous_text=True),
    ),
    Case(
        "no-speech",
        SHAPE,
        (3.0, 95.0),
        replace(FALLBACK, logprob_threshold=-1.6, no_speech_threshold=0.012),
    ),
    Case("language-detection", SHAPE, (3.0, 65.0), replace(EN40, language=None)),
    Case("language-of-a-fine-tune", SHAPE, (3.0, 65.0), replace(EN40, language=None), own_language="german"),
    Case("first-time", SHAPE, (3.0, 65.0), replace(EN40, max_initial_timestamp_s=0.1)),
    *(
        Case(
            f"sampling-seed-{seed}",
            SHAPE,
            (3.0, 65.0),
            replace(EN40, temperatures=(temperature,), seed=seed, top_k=top_k, top_p=top_p),
        )
        for seed, temperature, top_k, top_p in ((1, 1.0, 0, 1.0), (2, 0.7, 20, 1.0), (3, 1.3, 0, 0.9))
    ),
    Case("zeros-after-the-audio", SHAPE, (0.5, 3.0, 12.0, 65.0), replace(EN40, padding=Padding.ZERO)),
    Case(
        "zeros-with-word-times-and-language-detection",
        SHAPE,
        (3.0, 29.99, 31.0),
        replace(EN40, padding=Padding.ZERO, word_timestamps=True, language=None),
    ),
    Case("word-times", SHAPE, (3.0, 12.0, 65.0), replace(EN40, word_timestamps=True)),
    Case(
        "word-times-after-the-audio",  # in a window that begins in the silence that fills up 30 s
        Shape(max_target_positions=24, seed=2),
        (3.0, 14.0),
        DecodingOptions.greedy(language="en", word_timestamps=True, word_times=WordTimes.MODEL),
        end_logit=1.0,
        time_logit=0.3,
    ),
    Case(
        "word-times-with-prompt-and-previous-text",
        SHAPE,
        (65.0,),
        replace(EN40, word_timestamps=True, initial_prompt=PROMPT, condition_on_previous_text=True),
    ),
    Case(
        "word-times-with-fallback",
        SHAPE,
        (3.0, 65.0),
        replace(FALLBACK, word_timestamps=True, logprob_threshold=-1.6),
    ),
    Case(
        "word-times-with-language-detection",
        SHAPE,
        (3.0, 12.0),
        replace(EN40, word_timestamps=True, language=None),
    ),
    Case(
        "word-times-without-timestamps",
        SHAPE,
        (3.0, 30.0),
        replace(EN40, word_timestamps=True, timestamps=False),
        end_logit=0.0,
        time_logit=-6.0,
    ),
)
CASES = (*SHAPES, *OPTIONS)
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
DISTILLED = ("distil",) * 4
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
        assisted=False,
    )
    for name in ("large-v3", "turbo")
)
# Recordings of every length side by side: eight at a time, four, one.
MANY_LENGTHS_S = (0.5, 3.0, 31.0, 12.0, 65.0, 7.0, 29.99, 20.0)
BATCHES = (
    Case(
        "eight-recordings",
        Shape(seed=33, decoder_layers=2),
        MANY_LENGTHS_S,
        drafts=("noisy", "distil", "shorter", "distil"),
    ),
)
