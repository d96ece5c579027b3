"""A Whisper model in slots: encode a window into a slot, then score ragged rows of tokens by the rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from specwhisper.audio.recording import Recording
from specwhisper.transcription.vocabulary import Vocabulary
from specwhisper.whisper.checkpoint import Checkpoint
from specwhisper.whisper.decoder import CachedDecoder, load_decoder_weights
from specwhisper.whisper.placement import place
from specwhisper.whisper.rules import DecodingRules

EMBEDDING = "model.decoder.embed_tokens.weight"


@dataclass(frozen=True, slots=True)
class Row:
    """One session's part of a forward pass.

    Attributes
    ----------
    slot : where its keys and values lie.
    tokens : what to append to the slot; the last ``num_candidates`` of them are candidates.
    generated : tokens of the window before the candidates; the rules depend on them.
    timestamps : whether the timestamp rules apply.
    """

    slot: int
    tokens: Sequence[int]
    num_candidates: int
    generated: Sequence[int]
    timestamps: bool


@dataclass(frozen=True, slots=True)
class Scores:
    """The model's choice behind each prefix of a row's candidates: ``num_candidates + 1`` of each.

    ``log_probs`` are natural, after the rules; ``margins`` are logit distances to the second best.
    """

    tokens: list[int]
    log_probs: list[float]
    margins: list[float]


class Model(Protocol):
    """What both engines need of a model; Whisper is one, tests script another."""

    vocabulary: Vocabulary
    num_slots: int
    num_mel_bins: int
    max_positions: int

    def encode(self, slot: int, recording: Recording, start_frame: int) -> None:
        """Empty a slot and give it the window of ``recording`` that starts at a mel frame."""

    def score(self, rows: Sequence[Row]) -> list[Scores]:
        """Append each row's tokens to its slot and choose behind each candidate."""

    def rollback(self, slot: int, length: int) -> None:
        """Forget all but the first ``length`` tokens of a slot."""

    def length(self, slot: int) -> int:
        """Tell how many tokens a slot holds."""


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
                self._decoder.unembed.weight = self._decoder.embed_tokens.weight  # one copy on the device
            self._decoder.to(self._device)
        self._decoder.allocate()

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
        logits = self._decoder.append([row.slot for row in rows], [row.tokens for row in rows], counts)
        allowed = [
            state
            for row in rows
            for state in self._rules.allowed(
                row.generated, row.tokens[len(row.tokens) - row.num_candidates :], timestamps=row.timestamps
            )
        ]
        logits = logits.to(self._device)
        self._rules.apply(logits, allowed)
        best = logits.max(dim=-1, keepdim=True)  # the lowest id wins a tie
        log_probs = best.values - logits.logsumexp(dim=-1, keepdim=True)
        margins = best.values - logits.scatter_(1, best.indices, -torch.inf).amax(dim=-1, keepdim=True)
        columns = [column.flatten().tolist() for column in (best.indices, log_probs, margins)]
        scores, at = [], 0
        for count in counts:
            scores.append(Scores(*(column[at : at + count] for column in columns)))
            at += count
        return scores

    def rollback(self, slot: int, length: int) -> None:
        """Forget all but the first ``length`` tokens of a slot."""
        self._decoder.rollback(slot, length)

    def length(self, slot: int) -> int:
        """Tell how many tokens a slot holds."""
        return self._decoder.lengths[slot]
