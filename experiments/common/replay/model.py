"""Models that run the forward pass of one shape and return the tokens of a trace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from experiments.common.models.scripted import SlotModel
from experiments.common.replay.trace import Decoding, Trace, window_digest
from specwhisper.audio.recording import Recording
from specwhisper.errors import InvalidRequest, UnsupportedOption
from specwhisper.model.choosing import ProbeResult, Row, Scores
from specwhisper.model.model import Model
from specwhisper.transcription.vocabulary import Vocabulary

WRONG = (0,)  # draft of a window that the trace does not have


class ReplayTarget(SlotModel):
    """A target with the cost of ``forward`` that writes the trace's text for any candidates.

    Parameters
    ----------
    vocabulary : vocabulary of the trace's target, the only one that engines see.
    forward : a model of any shape with its own vocabulary. It runs everything in full: encoder, decoder,
        logits, rules, choice. ``None`` costs nothing, to load only another model.
    num_slots : number of slots without ``forward``.
    """

    _may_guess = False  # whether it encodes windows that its trace does not have

    def __init__(
        self,
        trace: Trace,
        vocabulary: Vocabulary,
        forward: Model | None,
        *,
        num_slots: int = 1,
    ) -> None:
        if trace.vocabulary_digest != vocabulary.digest:
            raise InvalidRequest(
                f"The trace was recorded with '{trace.target}' of other token ids: record it again."
            )
        if forward is not None and forward.max_positions < vocabulary.max_length:
            raise InvalidRequest(
                f"A window of '{trace.target}' has up to {vocabulary.max_length} tokens, the replayed shape "
                f"holds {forward.max_positions}: choose another shape."
            )
        num_slots = num_slots if forward is None else forward.num_slots
        super().__init__(vocabulary, num_slots, vocabulary.max_length)
        if forward is not None:
            self.num_mel_bins, self.max_windows = forward.num_mel_bins, forward.max_windows
        self._trace = trace
        self._forward = forward
        self._ids = [] if forward is None else forward_ids(vocabulary, forward.vocabulary)
        self._audio = [""] * self.num_slots

    def encode(self, slot: int, recording: Recording, start_frame: int) -> None:
        digest = window_digest(recording, start_frame)
        if digest not in self._trace.audio and not self._may_guess:
            raise InvalidRequest(
                f"The trace does not have the window at frame {start_frame}: record this recording first."
            )
        if self._forward is not None:
            self._forward.encode(slot, recording, start_frame)
        super().encode(slot, recording, start_frame)
        self._audio[slot] = digest

    def score(self, rows: Sequence[Row]) -> list[Scores]:
        if self._forward is not None:
            self._forward.score([self._translated(row) for row in rows])
        return [self._replayed(row) for row in rows]

    def rollback(self, slot: int, length: int) -> None:
        super().rollback(slot, length)
        if self._forward is not None:
            self._forward.rollback(slot, length)

    def tokenize(self, text: str, *, after_space: bool = True) -> tuple[int, ...]:
        if text.strip():
            raise UnsupportedOption("A replay takes neither prompt nor hint.")
        return ()

    def _choose(self, decoding: Decoding, row: Row) -> tuple[list[int], list[float], list[float]]:
        """Return the choice after each candidate, its log-probability and its margin."""
        return decoding.target_after_each(len(row.generated), row.num_candidates)

    def _replayed(self, row: Row) -> Scores:
        if row.acceptance_threshold is not None:
            raise UnsupportedOption("A replay only accepts equal candidates.")
        fed = self._fed[row.slot]
        fed += row.tokens
        prompt = tuple(fed[: len(fed) - row.num_candidates - len(row.generated)])
        temperature = 0.0 if row.sampling is None else row.sampling.temperature
        audio = self._audio[row.slot]
        decoding = self._trace.by_key.get((audio, prompt, temperature))
        if decoding is None and self._may_guess and audio not in self._trace.audio:
            decoding = Decoding("", 0, audio, prompt, temperature, WRONG, (0.0,), (0.0,))
        if decoding is None:
            names = "".join(self.vocabulary.tokens[i] for i in prompt)
            raise InvalidRequest(
                f"The trace has no decoding of this window after {names} at temperature {temperature:g}: "
                "use the recorded options, with a language.",
            )
        tokens, log_probs, margins = self._choose(decoding, row)
        return Scores(
            tokens=tokens,
            log_probs=log_probs,
            margins=margins,
            probe_result=ProbeResult(decoding.no_speech_prob, {}) if row.probe is not None else None,
        )

    def _translated(self, row: Row) -> Row:
        """Translate a row to ids of the forward model: as many tokens, timestamps to timestamps."""
        ids = self._ids
        return replace(row, tokens=[ids[i] for i in row.tokens], generated=[ids[i] for i in row.generated])


class ReplayDraft(ReplayTarget):
    """A draft that proposes what the trace's draft would have, after any prefix.

    For a predicted window that the target will not open, its candidates are wrong.
    """

    _may_guess = True

    def _choose(self, decoding: Decoding, row: Row) -> tuple[list[int], list[float], list[float]]:
        tokens, log_probs = decoding.draft_after_each(row.generated, row.candidates)
        return tokens, log_probs, [0.0] * len(tokens)


def forward_ids(vocabulary: Vocabulary, of_forward: Vocabulary) -> list[int]:
    """Return an id of the forward model for every token: that of the same string, or any text token.

    Special tokens and timestamps keep their meaning, so that the rules have the same work.
    """
    known = {token: i for i, token in enumerate(of_forward.tokens)}
    return [known.get(token, i % of_forward.end_of_text) for i, token in enumerate(vocabulary.tokens)]
