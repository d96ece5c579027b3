"""A Whisper model with slots: encode windows, choose tokens for many sessions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from itertools import compress
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor, nn

from specwhisper.audio.recording import Recording
from specwhisper.errors import InvalidRequest, UnsupportedOption
from specwhisper.model.checkpoint import Checkpoint
from specwhisper.model.choosing import ProbeResult, Row, Scores, choose
from specwhisper.model.decoder import CachedDecoder, load_decoder_weights
from specwhisper.model.kernels.graphs import CAPTURING
from specwhisper.model.kernels.layer_cache import CROSS_CACHE_DTYPES
from specwhisper.model.micro_batcher import MicroBatcher
from specwhisper.model.pytorch.checkpoint import DecoderWeights, load_encoder
from specwhisper.model.pytorch.placement import place
from specwhisper.model.pytorch.sharing import SharedEncoder
from specwhisper.model.pytorch.word_times import align_words, begin_alignment, most_attended_ms
from specwhisper.model.rules import DecodingRules
from specwhisper.transcription.vocabulary import Vocabulary
from specwhisper.types import FRAMES_PER_TIMESTAMP, Window, WordAlignment

MAX_WINDOWS = 8  # that a GPU encodes at once; more would not be faster


class Model(Protocol):
    """The interface of a model for both engines.

    Attributes
    ----------
    max_windows : most windows that are encoded faster together, each by a thread.
    has_word_times : whether :meth:`align` can find words.
    """

    vocabulary: Vocabulary
    num_slots: int
    num_mel_bins: int
    max_positions: int
    max_windows: int
    has_word_times: bool

    def encode(self, slot: int, recording: Recording, start_frame: int) -> None:
        """Empty a slot and encode the window that starts at a mel frame into it."""

    def score(self, rows: Sequence[Row]) -> list[Scores]:
        """Append each row's tokens to its slot and choose after each candidate."""

    def rollback(self, slot: int, length: int) -> None:
        """Remove all but the first ``length`` tokens of a slot."""

    def length(self, slot: int) -> int:
        """Return the number of tokens in a slot."""

    def tokenize(self, text: str) -> tuple[int, ...]:
        """Return the tokens of a prompt's text."""

    def align(
        self, slot: int, window: Window, tokens: Sequence[int], num_frames: int
    ) -> Callable[[], tuple[WordAlignment, ...]]:
        """Begin to find the words of the window in a slot, and empty the slot.

        Parameters
        ----------
        num_frames : mel frames of the window that hold audio.

        Returns
        -------
        A function for any thread that ends it. It uses neither slot nor model, so the slot may serve another
        session by then.
        """

    def attended_ms(
        self, slot: int, window: Window, tokens: Sequence[int], num_frames: int
    ) -> Callable[[], tuple[float, ...]]:
        """Begin to find the most attended time of each text token, as :meth:`align`."""


class WhisperModel:
    """A checkpoint with ``num_slots`` slots, in its own or its target's vocabulary."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        num_slots: int,
        *,
        device: str | torch.device = "cpu",
        encoder: nn.Module | None = None,
        vocabulary: Vocabulary | None = None,
        ids: Sequence[int | None] | None = None,
        device_map: dict[str, int | str] | None = None,
        offload_folder: Path | None = None,
        is_draft: bool = False,
        cross_cache_dtype: str | None = None,
        has_static_shapes: bool | None = None,
    ) -> None:
        """Place a checkpoint's decoder and allocate its slots.

        Parameters
        ----------
        device : of the whole model, unless there is a device map.
        encoder : the checkpoint's, loaded before; by default it is loaded onto ``device``.
        vocabulary, ids : the target's vocabulary and this model's id of each of its tokens
            (:func:`specwhisper.api.pairing.draft_ids`). The embedding is reordered once, so no id is
            translated later.
        device_map : accelerate's map from decoder module (``layers.0``, ...) to device, "cpu" or "disk".
        is_draft : whether it only drafts: then a token's result may depend on its batch, in the last bits.
        cross_cache_dtype : "int8" or "float8" rounds the cross-attention cache, which halves the memory of a
            slot; only with static shapes.
        has_static_shapes : whether batches are padded to a few shapes; by default on a GPU without device
            map.
        """
        self.vocabulary = vocabulary or checkpoint.vocabulary
        self.num_slots = num_slots
        self.num_mel_bins = checkpoint.num_mel_bins
        self.max_positions = checkpoint.sizes.max_target_positions
        self._encoder = load_encoder(checkpoint, device) if encoder is None else encoder
        parameter = next(self._encoder.parameters())
        self._device, self._dtype = parameter.device, parameter.dtype
        self._tokenizer = checkpoint.tokenizer
        self._alignment_heads = checkpoint.alignment_heads
        self.has_word_times = bool(self._alignment_heads)
        self._median_width = checkpoint.sizes.median_filter_width
        is_gpu = self._device.type == "cuda"
        if has_static_shapes is None:
            has_static_shapes = is_gpu and device_map is None
        check_static_shapes(checkpoint, device_map, has_static_shapes=has_static_shapes)
        check_cross_cache(cross_cache_dtype, has_static_shapes=has_static_shapes)
        # A shared encoder keeps single windows, for another thread's stream.
        is_concurrent = is_gpu and has_static_shapes and not isinstance(self._encoder, SharedEncoder)
        self._stream = torch.cuda.Stream(self._device) if is_concurrent else None
        self.max_windows = MAX_WINDOWS if is_concurrent else 1
        self._encoder_batcher = MicroBatcher[tuple[int, Tensor]](self._encode, self.max_windows)
        language_ids = list(self.vocabulary.languages.values())
        self._language_ids = torch.tensor(language_ids, dtype=torch.long, device=self._device)
        sizes = checkpoint.sizes if ids is None else replace(checkpoint.sizes, vocab_size=len(ids))
        absent = [target_id for target_id, own_id in enumerate(ids or ()) if own_id is None]
        self._rules = DecodingRules(self.vocabulary, self._device, absent=absent)
        with torch.device("meta"):
            self._decoder = CachedDecoder(sizes, num_slots)
        weights = DecoderWeights(checkpoint, ids)
        load_decoder_weights(self._decoder, weights)
        self._decoder.eval().requires_grad_(False)
        if device_map is not None:
            place(self._decoder, device_map, offload_folder=offload_folder, main_device=self._device)
        else:
            if weights.is_tied:
                self._decoder.tie()
            self._decoder.to(self._device)
            if self._device.type == "cpu" and not has_static_shapes:
                self._decoder.pack(is_int8=checkpoint.dtype == "int8", is_draft=is_draft)
        self._decoder.allocate(has_static_shapes=has_static_shapes, cross_cache_dtype=cross_cache_dtype)

    def warm_up(self, max_width: int) -> None:
        """Capture the shapes of up to ``max_width`` candidates, on a GPU."""
        self._decoder.warm_up(max_width + 1)

    def weights(self) -> Iterator[Tensor]:
        """Yield every weight, in its packed form if it has one."""
        for module in (self._encoder, self._decoder):
            yield from module.parameters()
            yield from module.buffers()

    @property
    def bytes_per_slot(self) -> int:
        """Memory of one slot."""
        return self._decoder.bytes_per_slot

    def encode(self, slot: int, recording: Recording, start_frame: int) -> None:
        """Empty a slot and encode the window that starts at a mel frame into it.

        On a GPU, concurrent calls are batched and run beside the decoder's forward passes. With an encoder
        that draft and target share, they run one by one, on the decoder's stream.
        """
        features = torch.from_numpy(recording.window_features(start_frame, self.num_mel_bins))
        self._encoder_batcher.run((slot, features))

    @torch.inference_mode()
    def _encode(self, windows: Sequence[tuple[int, Tensor]]) -> None:
        """Encode windows, each into its slot; features are mel bins x frames."""
        if self._stream is not None:  # earlier forward passes read these slots
            self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with nullcontext() if self._stream is None else CAPTURING, torch.cuda.stream(self._stream):
            features = torch.stack([features for _, features in windows]).to(self._device, self._dtype)
            for (slot, _), encoded in zip(windows, self._encoder(features).last_hidden_state, strict=True):
                self._decoder.prefill_audio(slot, encoded)
        if self._stream is not None:
            self._stream.synchronize()  # forward passes may read the slots from now on

    @torch.inference_mode()
    def score(self, rows: Sequence[Row]) -> list[Scores]:
        """Append each row's tokens to its slot and choose after each candidate."""
        counts = [row.num_candidates + 1 for row in rows]
        probes = [(i, row.probe) for i, row in enumerate(rows) if row.probe is not None]
        logits = self._decoder.append(
            [row.slot for row in rows], [row.tokens for row in rows], counts, probes
        ).to(self._device)
        logits, probed = logits.split([sum(counts), len(probes)])
        probs = self._probe(probed) if probes else None  # read below, while a GPU computes
        allowed = [
            state
            for row in rows
            for state in self._rules.allowed(
                row.generated,
                row.candidates,
                timestamps=row.timestamps,
                max_initial_timestamp=row.max_initial_timestamp,
            )
        ]
        self._rules.apply(logits, allowed)
        scores = choose(rows, logits)
        if probs is not None:
            for (i, _), values in zip(probes, probs.tolist(), strict=True):
                scores[i] = replace(scores[i], probe_result=self._probe_result(values))
        return scores

    def _probe(self, logits: Tensor) -> Tensor:
        """Return each probe's probabilities: of every language, then of silence."""
        vocabulary = self.vocabulary
        probs = [logits[:, self._language_ids].softmax(dim=-1)]
        if vocabulary.no_speech is not None:
            probs.append(logits.softmax(dim=-1)[:, vocabulary.no_speech, None])
        return torch.cat(probs, dim=1)

    def _probe_result(self, probs: Sequence[float]) -> ProbeResult:
        vocabulary = self.vocabulary
        no_speech_prob = None if vocabulary.no_speech is None else probs[-1]
        return ProbeResult(no_speech_prob, dict(zip(vocabulary.languages, probs, strict=False)))

    def tokenize(self, text: str) -> tuple[int, ...]:
        """Return the tokens of a prompt's text; refuse special tokens."""
        if not text.strip():
            return ()
        if self._tokenizer is None:
            raise UnsupportedOption("This model has no tokenizer: leave the prompt out.")
        ids = tuple(self._tokenizer.encode(" " + text.strip()))
        if specials := [i for i in ids if i >= self.vocabulary.end_of_text]:
            raise UnsupportedOption(
                f"A prompt may not hold special tokens such as {self.vocabulary.tokens[specials[0]]}."
            )
        return ids

    @torch.inference_mode()
    def align(
        self, slot: int, window: Window, tokens: Sequence[int], num_frames: int
    ) -> Callable[[], tuple[WordAlignment, ...]]:
        """Begin to find the words of the window in a slot; see :class:`Model`."""
        vocabulary, tokens = self.vocabulary, tuple(tokens)
        if not self.has_word_times:
            raise UnsupportedOption("This model names no alignment heads: leave word_timestamps out.")
        weights = self._attention(slot, window, tokens)
        finish = begin_alignment(weights, num_frames=num_frames, median_width=self._median_width)
        return lambda: align_words(finish(), window, tokens, vocabulary)

    @torch.inference_mode()
    def attended_ms(
        self, slot: int, window: Window, tokens: Sequence[int], num_frames: int
    ) -> Callable[[], tuple[float, ...]]:
        """Begin to find the most attended time of each text token; see :class:`Model`.

        Times are milliseconds of the window.
        """
        if not self.has_word_times:
            raise UnsupportedOption("This model names no alignment heads: choose another policy.")
        weights = self._attention(slot, window, tokens, from_prompt=True)
        num_frames = max(num_frames, FRAMES_PER_TIMESTAMP)  # one position at least
        finish = begin_alignment(weights, num_frames=num_frames, median_width=self._median_width)
        is_text = [token < self.vocabulary.end_of_text for token in tokens]
        return lambda: tuple(compress(most_attended_ms(finish()), is_text))

    def _attention(
        self, slot: int, window: Window, tokens: Sequence[int], *, from_prompt: bool = False
    ) -> Tensor:
        """Return the cross-attention of the alignment heads.

        Parameters
        ----------
        from_prompt : return the row before each token, which chooses it, instead of the row after it.

        Returns
        -------
        heads x tokens x positions; without ``from_prompt`` the last token has no row.
        """
        fed = [*window.prompt, *tokens[:-1]]
        weights = self._decoder.cross_attention(slot, fed, self._alignment_heads)
        return weights[:, len(window.prompt) - from_prompt :]

    def rollback(self, slot: int, length: int) -> None:
        """Remove all but the first ``length`` tokens of a slot."""
        self._decoder.rollback(slot, length)

    def length(self, slot: int) -> int:
        """Return the number of tokens in a slot."""
        return self._decoder.lengths[slot]


def check_static_shapes(
    checkpoint: Checkpoint, device_map: dict[str, int | str] | None, *, has_static_shapes: bool
) -> None:
    """Refuse static shapes with a device map, and int8 weights with either."""
    if has_static_shapes and device_map is not None:
        raise UnsupportedOption("Static shapes are for a model on one device: leave the device map out.")
    if checkpoint.dtype == "int8" and (has_static_shapes or device_map is not None):
        raise UnsupportedOption("int8 weights are for a CPU without a device map: choose another dtype.")


def check_cross_cache(dtype: str | None, *, has_static_shapes: bool) -> None:
    """Refuse an unknown cross-attention cache, or one without static shapes."""
    if dtype is None:
        return
    if dtype not in CROSS_CACHE_DTYPES:
        raise InvalidRequest(
            f"There is no cross-attention cache of '{dtype}': choose one of {', '.join(CROSS_CACHE_DTYPES)}."
        )
    if not has_static_shapes:
        raise UnsupportedOption(
            f"A cross-attention cache of '{dtype}' is for models on one GPU: leave it out elsewhere."
        )
