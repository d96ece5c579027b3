"""A recogniser for ``--draft-recogniser`` that reads captions in place of recognising.

The captions are known before the audio: a film's subtitles, or those of last year's talk. Each caption
becomes a hint when its time comes::

    PYTHONPATH=. specwhisper-draft-server --draft-recogniser examples.captions_recogniser:create \
        --draft-model talk.srt

A real recogniser has the same two classes: see :mod:`specwhisper_recognisers.protocol`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pysubs2

from specwhisper_recognisers.protocol import Recognised

SAMPLES_PER_MS = 16


class Captions:
    """Serves the captions of one file to every session."""

    def __init__(self, path: str) -> None:
        self.name = Path(path).name
        texts: dict[int, str] = {}  # by start, in milliseconds: captions of one time are one text
        for caption in pysubs2.load(path):
            if not caption.is_comment and caption.plaintext.strip():
                texts[caption.start] = f"{texts.get(caption.start, '')} {caption.plaintext}".strip()
        self._captions = sorted(texts.items())

    def open(self, language: str | None, start_s: float, *, is_live: bool) -> CaptionsStream:
        """Begin where the audio begins, which is not always the start of the recording."""
        return CaptionsStream(self._captions, start_s)


class CaptionsStream:
    """Returns each caption once its audio begins."""

    def __init__(self, captions: Sequence[tuple[int, str]], start_s: float) -> None:
        self._start_ms = self._now_ms = 1000 * start_s
        self._captions = captions

    def accept(self, pcm: bytes, *, is_pause: bool, is_last: bool, waiting_s: float) -> Sequence[Recognised]:
        """Return the captions that begin in this audio, by the time since the stream's first sample."""
        before_ms = self._now_ms
        self._now_ms += len(pcm) / 2 / SAMPLES_PER_MS
        return [
            Recognised((caption_ms - self._start_ms) / 1000, text)
            for caption_ms, text in self._captions
            if before_ms <= caption_ms < self._now_ms
        ]


def create(model: str) -> Captions:
    """Return the captions of a file; this is the factory."""
    return Captions(model)
