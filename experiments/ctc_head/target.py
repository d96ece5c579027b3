"""The target without a draft: its text of pieces with and without a hint, and what its encoder returns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from specwhisper.audio.recording import Recording
from specwhisper.engine.inline_pair import InlineExecutor
from specwhisper.engine.pair_engine import Feed
from specwhisper.engine.verifier import Verifier
from specwhisper.model.backends import load_encoder
from specwhisper.model.checkpoints.checkpoint import load_checkpoint
from specwhisper.model.model import WhisperModel
from specwhisper.options import DecodingOptions
from specwhisper.types import AudioChunk, Commit, Failed, Finished, Mode, WindowOpened

NUM_SLOTS = 8
FRAMES_PER_POSITION = 2  # the encoder halves the rate of the mel frames


@dataclass(slots=True)
class Decoding:
    """The target's text of a piece, and what it cost.

    Attributes
    ----------
    windows : tokens of each window, timestamps and end-of-text included. A sentence that the end of the
        first one cuts is decoded again in a second one.
    num_candidates : tokens of a hint that forward passes verified.
    """

    windows: list[list[int]] = field(default_factory=list)
    num_forwards: int = 0
    num_candidates: int = 0
    forward_ns: int = 0
    encode_ns: int = 0

    @property
    def num_tokens(self) -> int:
        """Tokens of all windows."""
        return sum(map(len, self.windows))

    def observe(self, event: WindowOpened | Commit) -> None:
        """Add an event of the target."""
        if isinstance(event, WindowOpened):
            self.windows.append([])
        elif event.tokens:
            self.windows[-1] += event.tokens
            self.num_forwards += 1
            self.num_candidates += event.num_verified
            self.forward_ns += event.timing.forward_ns
            self.encode_ns += event.timing.encode_ns


class Target:
    """A Whisper checkpoint that transcribes without a draft."""

    def __init__(self, name: str, language: str) -> None:
        self.checkpoint = load_checkpoint(name)
        self.vocabulary = self.checkpoint.vocabulary
        self._encoder = load_encoder(self.checkpoint)
        self.model = WhisperModel(self.checkpoint, NUM_SLOTS, encoder=self._encoder)
        self._language = language

    def decode(
        self,
        recordings: Sequence[bytes],
        mode: Mode,
        hints: Sequence[str] = (),
        *,
        only_first_window: bool = False,
    ) -> list[Decoding]:
        """Transcribe at most :data:`NUM_SLOTS` recordings side by side.

        Parameters
        ----------
        mode : ``target-only``, which uses no hint, or ``full``, in which no draft sends anything here.
        hints : a text for each recording.
        """
        verifier = Verifier(
            self.model, executor=InlineExecutor(), max_new_tokens=self.checkpoint.max_new_tokens
        )
        feeds, results = {}, {}
        for index, pcm in enumerate(recordings):
            options = DecodingOptions(language=self._language, hint=hints[index] if hints else "")
            verifier.open(str(index), mode, options)
            feeds[str(index)], results[str(index)] = Feed(pcm), Decoding()
        starts = dict.fromkeys(feeds, 0)
        while feeds:
            for name, feed in feeds.items():
                while feed.wants_audio(starts[name], verifier.limits.max_ahead_samples):
                    verifier.submit(name, feed.next_chunk())
            for name, event in verifier.step():
                match event:
                    case Failed(error=error):
                        raise error
                    case WindowOpened() | Commit():
                        results[name].observe(event)
                        if isinstance(event, WindowOpened):
                            starts[name] = event.window.start_sample
                is_done = isinstance(event, Commit) and event.is_final and only_first_window
                if is_done or isinstance(event, Finished):
                    verifier.close(name)
                    del feeds[name]
        return list(results.values())

    def text_of(self, tokens: Sequence[int]) -> str:
        """Return the text without timestamps."""
        return self.vocabulary.decode(tokens).strip()

    def encode(self, pcm: bytes) -> Tensor:
        """Encode the first window of a recording.

        Returns
        -------
        positions x width, without those of the silence that pads the window.
        """
        recording = Recording()
        recording.append(AudioChunk(0, pcm, is_last=True))
        (encoded,) = self._encoder([recording.window_features(0, self.model.num_mel_bins)])
        return torch.from_numpy(np.asarray(encoded))[: -(-recording.audio_frames // FRAMES_PER_POSITION)]
