"""A Whisper model in slots: encode a window into a slot, then score ragged rows of tokens by the rules."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Protocol

import torch
from torch import Tensor

from specwhisper.audio.recording import Recording
from specwhisper.errors import UnsupportedOption
from specwhisper.transcription.vocabulary import Vocabulary
from specwhisper.types import Window, WordAlignment
from specwhisper.whisper.checkpoint import Checkpoint
from specwhisper.whisper.choosing import Heard, Row, Scores, choose
from specwhisper.whisper.decoder import CachedDecoder, load_decoder_weights
from specwhisper.whisper.placement import place
from specwhisper.whisper.rules import DecodingRules
from specwhisper.whisper.sharing import SharedEncoder
from specwhisper.whisper.words import align_words

EMBEDDING = "model.decoder.embed_tokens.weight"


class Model(Protocol):
    """What both engines need of a model; Whisper is one, tests script another.

    ``has_word_times`` tells whether :meth:`align` can find words.
    """

    vocabulary: Vocabulary
    num_slots: int
    num_mel_bins: int
    max_positions: int
    has_word_times: bool

    def encode(self, slot: int, recording: Recording, start_frame: int) -> None:
        """Empty a slot and give it the window of ``recording`` that starts at a mel frame."""

    def score(self, rows: Sequence[Row]) -> list[Scores]:
        """Append each row's tokens to its slot and choose behind each candidate."""

    def rollback(self, slot: int, length: int) -> None:
        """Forget all but the first ``length`` tokens of a slot."""

    def length(self, slot: int) -> int:
        """Tell how many tokens a slot holds."""

    def tokenize(self, text: str) -> tuple[int, ...]:
        """Turn a prompt's text into tokens."""

    def align(
        self, slot: int, window: Window, tokens: Sequence[int], num_frames: int
    ) -> tuple[WordAlignment, ...]:
        """Find the words of the window in a slot; ``num_frames`` of its mel frames hold audio."""


class WhisperModel:
    """A checkpoint with ``num_slots`` slots, speaking its own vocabulary or, as a draft, its target's."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        num_slots: int,
        *,
        vocabulary: Vocabulary | None = None,
        ids: Sequence[int | None] | None = None,
        device_map: dict[str, int | str] | None = None,
        offload_folder: str | None = None,
    ) -> None:
        """Place a checkpoint.

        Parameters
        ----------
        vocabulary, ids : the target's vocabulary and this model's id of each of its tokens
            (:func:`specwhisper.whisper.pairing.draft_ids`); the embedding is reordered once, so nothing is
            translated later.
        device_map : accelerate's map from decoder module (``layers.0``, ...) to device, "cpu" or "disk".
        """
        self.vocabulary = vocabulary or checkpoint.vocabulary
        self.num_slots = num_slots
        self.num_mel_bins = checkpoint.num_mel_bins
        self.max_positions = checkpoint.config.max_target_positions
        self._encoder = checkpoint.encoder
        parameter = next(checkpoint.encoder.parameters())
        self._device, self._dtype = parameter.device, parameter.dtype
        self._tokenizer = checkpoint.tokenizer
        self._alignment_heads = checkpoint.alignment_heads
        self.has_word_times = bool(self._alignment_heads) and self._tokenizer is not None
        self._median_width = checkpoint.config.median_filter_width
        config, state = checkpoint.config, checkpoint.state
        if ids is not None:
            rows = torch.tensor([0 if i is None else i for i in ids])
            state = state | {key: state[key][rows] for key in (EMBEDDING, "proj_out.weight")}
            config = type(config)(**{**config.to_dict(), "vocab_size": len(ids)})
        absent = [target_id for target_id, own_id in enumerate(ids or ()) if own_id is None]
        self._rules = DecodingRules(self.vocabulary, self._device, absent=absent)
        with torch.device("meta"):
            self._decoder = CachedDecoder(config, num_slots)
        load_decoder_weights(self._decoder, state)
        self._decoder.eval().requires_grad_(False)
        if device_map is not None:
            place(self._decoder, device_map, offload_folder=offload_folder, main_device=self._device)
        else:
            if torch.equal(state[EMBEDDING], state["proj_out.weight"]):
                self._decoder.tie()
            self._decoder.to(self._device)
            if self._device.type == "cpu":
                self._decoder.pack(is_int8=checkpoint.dtype == "int8")
        self._decoder.allocate()

    def unshared(self) -> WhisperModel:
        """Give the same model, slots included, with an encoder that keeps nothing for another."""
        if not isinstance(self._encoder, SharedEncoder):
            return self
        alone = copy.copy(self)
        alone._encoder = self._encoder.encoder
        return alone

    def weights(self) -> Iterator[Tensor]:
        """Give every weight, in the form in which it is held."""
        for module in (self._encoder, self._decoder):
            yield from module.parameters()
            yield from module.buffers()

    @property
    def bytes_per_slot(self) -> int:
        """Memory one slot takes."""
        return self._decoder.bytes_per_slot

    @torch.inference_mode()
    def encode(self, slot: int, recording: Recording, start_frame: int) -> None:
        """Empty a slot and give it the window of ``recording`` that starts at a mel frame."""
        features = recording.window_features(start_frame, self.num_mel_bins)
        batch = torch.from_numpy(features)[None].to(self._device, self._dtype)
        encoded = self._encoder(batch).last_hidden_state[0]
        self._decoder.prefill_audio(slot, encoded)

    @torch.inference_mode()
    def score(self, rows: Sequence[Row]) -> list[Scores]:
        """Append each row's tokens to its slot and choose, by the rules, behind each candidate."""
        counts = [row.num_candidates + 1 for row in rows]
        probes = [(i, row.probe) for i, row in enumerate(rows) if row.probe is not None]
        logits = self._decoder.append(
            [row.slot for row in rows], [row.tokens for row in rows], counts, probes
        ).to(self._device)
        logits, probed = logits.split([sum(counts), len(probes)])
        heard = dict(zip((i for i, _ in probes), self._hear(probed), strict=True))
        allowed = [
            state
            for row in rows
            for state in self._rules.allowed(
                row.generated,
                row.tokens[len(row.tokens) - row.num_candidates :],
                timestamps=row.timestamps,
                max_initial_timestamp=row.max_initial_timestamp,
            )
        ]
        self._rules.apply(logits, allowed)
        return [replace(score, heard=heard.get(i)) for i, score in enumerate(choose(rows, logits))]

    def _hear(self, logits: Tensor) -> list[Heard]:
        """Read what probes tell from their raw logits."""
        vocabulary = self.vocabulary
        codes, ids = list(vocabulary.languages), list(vocabulary.languages.values())
        languages = logits[:, ids].softmax(dim=-1).tolist()
        silences: list[float | None] = [None] * len(logits)
        if vocabulary.no_speech is not None:
            silences = logits.softmax(dim=-1)[:, vocabulary.no_speech].tolist()
        return [
            Heard(silence, dict(zip(codes, probs, strict=True)))
            for silence, probs in zip(silences, languages, strict=True)
        ]

    def tokenize(self, text: str) -> tuple[int, ...]:
        """Turn a prompt's text into tokens; text that names special tokens is refused."""
        if not text.strip():
            return ()
        if self._tokenizer is None:
            raise UnsupportedOption("This model came without its tokenizer: it takes no prompt.")
        ids = tuple(self._tokenizer(" " + text.strip(), add_special_tokens=False).input_ids)
        if specials := [i for i in ids if i >= self.vocabulary.end_of_text]:
            raise UnsupportedOption(
                f"A prompt may not hold special tokens such as {self.vocabulary.tokens[specials[0]]}."
            )
        return ids

    @torch.inference_mode()
    def align(
        self, slot: int, window: Window, tokens: Sequence[int], num_frames: int
    ) -> tuple[WordAlignment, ...]:
        """Find the words of the window in a slot; ``num_frames`` of its mel frames hold audio."""
        if not self.has_word_times or self._tokenizer is None:
            raise UnsupportedOption("This model names no alignment heads: it has no word times.")
        fed = [*window.prompt, *tokens[:-1]]
        weights = self._decoder.cross_attention(slot, fed, self._alignment_heads)
        return align_words(
            weights[:, len(window.prompt) :],
            window,
            tokens,
            self._tokenizer,
            self.vocabulary,
            num_frames=num_frames,
            median_width=self._median_width,
        )

    def rollback(self, slot: int, length: int) -> None:
        """Forget all but the first ``length`` tokens of a slot."""
        self._decoder.rollback(slot, length)

    def length(self, slot: int) -> int:
        """Tell how many tokens a slot holds."""
        return self._decoder.lengths[slot]
