"""Chunked decoding: overlapping chunks in a batch, joined where they agree.

It is transformers' pipeline with ``chunk_length_s``, whose own code joins the texts. It is faster than window
after window if many chunks fit into a batch, and a little worse where chunks meet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import isfinite
from numbers import Real
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np

from specwhisper.errors import InvalidRequest, within_floats
from specwhisper.extras import needs_extra
from specwhisper.speculation.statistics import SpeculationStatistics
from specwhisper.transcription.transcription import Transcription
from specwhisper.transcription.windows import text_compression_ratio
from specwhisper.types import HOP_SAMPLES, SAMPLE_RATE, WINDOW_SAMPLES, Segment

if TYPE_CHECKING:
    from transformers import WhisperTokenizer

TIME_STEP_S = 0.02
WINDOW_S = WINDOW_SAMPLES / SAMPLE_RATE


@dataclass(frozen=True, slots=True)
class Chunk:
    """A part of a recording, in samples.

    Attributes
    ----------
    start, stop : its samples, ``stop`` excluded.
    left, right : how many of its first and last samples its neighbours have too.
    """

    start: int
    stop: int
    left: int
    right: int

    @property
    def stride_s(self) -> tuple[float, float, float]:
        """Length and both overlaps in seconds, as transformers takes them."""
        return (self.stop - self.start) / SAMPLE_RATE, self.left / SAMPLE_RATE, self.right / SAMPLE_RATE


def cut(num_samples: int, chunk_length_s: float, stride_length_s: float | None = None) -> Iterator[Chunk]:
    """Cut a recording into overlapping chunks.

    Parameters
    ----------
    chunk_length_s : at most 30 s.
    stride_length_s : overlap on either side; by default a sixth of the length.
    """
    for name, value in (("chunk_length_s", chunk_length_s), ("stride_length_s", stride_length_s)):
        if value is not None and not (isinstance(value, Real) and isfinite(within_floats(value))):
            raise InvalidRequest(f"{name} is {value!r}: it must be a number of seconds.")
    if stride_length_s is None:
        stride_length_s = chunk_length_s / 6
    length, stride = round(chunk_length_s * SAMPLE_RATE), round(stride_length_s * SAMPLE_RATE)
    if not (0 < length <= WINDOW_SAMPLES and 0 <= 2 * stride < length):
        raise InvalidRequest(
            f"Chunks of {chunk_length_s:g} s cannot overlap by {stride_length_s:g} s on either side: "
            f"they are at most {WINDOW_S:g} s long, and longer than both overlaps."
        )
    if not num_samples:
        yield Chunk(0, 0, 0, 0)
    for start in range(0, num_samples, length - 2 * stride):
        stop = min(start + length, num_samples)
        left, right = stride if start else 0, stride if stop < num_samples else 0
        if stop - start > left:
            yield Chunk(start, stop, left, right)
        if stop == num_samples:
            return


@lru_cache(maxsize=1)
def load_tokenizer(source: str) -> WhisperTokenizer:
    with needs_extra("Chunked decoding", "server"):
        from transformers import WhisperTokenizer

        from specwhisper.model.pytorch.compat import quiet_transformers
    with quiet_transformers():
        tokenizer: WhisperTokenizer = WhisperTokenizer.from_pretrained(source)
    return tokenizer


def join(
    chunks: Sequence[Chunk],
    transcripts: Sequence[Transcription],
    tokenizer: WhisperTokenizer,
    *,
    timestamps: bool,
) -> Transcription:
    """Join the chunks' texts into one transcript.

    Its segments have no tokens; without timestamps there is one segment. Its language is the one of most
    chunks. A segment's confidence and probabilities are means over the segments of the chunk at its middle,
    and its temperature is their highest. Its compression ratio is that of its own text.
    """
    statistics = SpeculationStatistics()
    for transcript in transcripts:
        if transcript.stats is not None:
            statistics.add(transcript.stats)
    language = Counter(transcript.language for transcript in transcripts).most_common(1)[0][0]
    return replace(
        next(transcript for transcript in transcripts if transcript.language == language),
        segments=tuple(_segments(chunks, transcripts, tokenizer, timestamps=timestamps)),
        stats=statistics,
        duration_s=chunks[-1].stop / SAMPLE_RATE,
        window_tokens=tuple(tokens for transcript in transcripts for tokens in transcript.window_tokens),
    )


def _segments(
    chunks: Sequence[Chunk],
    transcripts: Sequence[Transcription],
    tokenizer: WhisperTokenizer,
    *,
    timestamps: bool,
) -> Iterator[Segment]:
    from specwhisper.model.pytorch.compat import quiet_transformers  # loads transformers

    outputs = [
        {
            "tokens": np.array([[token for segment in each.segments for token in segment.tokens]], np.int64),
            "stride": chunk.stride_s,
        }
        for chunk, each in zip(chunks, transcripts, strict=True)
    ]
    with quiet_transformers():  # it warns of a chunk that ends within a segment
        text, found = tokenizer._decode_asr(
            outputs, return_timestamps=timestamps or None, return_language=None, time_precision=TIME_STEP_S
        )
    recording_end_s = chunks[-1].stop / SAMPLE_RATE
    if not timestamps:
        everything = [segment for transcript in transcripts for segment in transcript.segments]
        yield _with_figures(Segment(0.0, recording_end_s, (), text), everything)
        return
    end_s = 0.0
    for part in found["chunks"]:
        start_s, end_s = (
            end_s if part["timestamp"][0] is None else part["timestamp"][0],
            recording_end_s if part["timestamp"][1] is None else part["timestamp"][1],
        )
        middle = (start_s + end_s) / 2 * SAMPLE_RATE
        index = next((i for i, c in enumerate(chunks) if middle < c.stop - c.right), len(chunks) - 1)
        segment = Segment(start_s, end_s, (), part["text"], seek=chunks[index].start // HOP_SAMPLES)
        yield _with_figures(segment, transcripts[index].segments)


def _with_figures(segment: Segment, sources: Sequence[Segment]) -> Segment:
    if not sources:
        return segment
    no_speech_probs = [each.no_speech_prob for each in sources if each.no_speech_prob is not None]
    return replace(
        segment,
        confidence=fmean(each.confidence for each in sources),
        avg_logprob=fmean(each.avg_logprob for each in sources),
        compression_ratio=text_compression_ratio(segment.text),
        temperature=max(each.temperature for each in sources),
        no_speech_prob=fmean(no_speech_probs) if no_speech_probs else None,
    )
