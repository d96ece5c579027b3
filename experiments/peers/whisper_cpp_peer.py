"""whisper.cpp, greedy, on one thread; only for shapes with Whisper's own vocabulary: it knows no other."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from experiments.peers.arms import Piece, Run


class WhisperCppPeer:
    """A converted model."""

    def __init__(self, path: Path) -> None:
        import _pywhispercpp as library
        from pywhispercpp.utils import redirect_stderr

        self._library = library
        parameters = library.whisper_context_default_params()
        parameters.use_gpu = False
        with redirect_stderr(None):  # its log is dozens of lines
            self._model = library.whisper_init_from_file_with_params(str(path), parameters)

    def decode(self, pieces: Sequence[Piece]) -> Run:
        """Write a given number of tokens for each window."""
        library, written = self._library, []
        started_s = time.perf_counter()
        for piece in pieces:
            options = library.whisper_full_default_params(
                library.whisper_sampling_strategy.WHISPER_SAMPLING_GREEDY
            )
            options.n_threads = 1
            options.language = "en"
            options.no_context = options.no_timestamps = options.single_segment = True
            options.print_progress = False
            options.max_tokens = piece.num_tokens - 1  # it writes one more
            options.temperature_inc = 0.0  # no fallback
            samples = np.frombuffer(piece.pcm, "<i2").astype(np.float32) / 32768
            library.whisper_full(self._model, options, samples, len(samples))
            written.append(
                tuple(
                    library.whisper_full_get_token_id(self._model, segment, token)
                    for segment in range(library.whisper_full_n_segments(self._model))
                    for token in range(library.whisper_full_n_tokens(self._model, segment))
                )
            )
        return Run(time.perf_counter() - started_s, tuple(written))
