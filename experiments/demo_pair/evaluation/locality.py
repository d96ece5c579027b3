"""How local a draft's errors are: whether the text that it writes after one still holds."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from transformers import WhisperForConditionalGeneration

from experiments.pair.realignment import realigned_run

AHEAD = 24  # tokens that a draft writes after its error
PER_WINDOW = 12  # errors that are looked at


@torch.inference_mode()
def go_on(
    whisper: WhisperForConditionalGeneration, encoded: torch.Tensor, prefixes: list[list[int]], end: int
) -> list[list[int]]:
    """Continue prefixes of different lengths of one window greedily, by at most ``AHEAD`` tokens each."""
    rows = [list(prefix) for prefix in prefixes]
    encoded = encoded.expand(len(rows), -1, -1)
    for _ in range(AHEAD):
        length = max(map(len, rows))
        tokens = torch.tensor([row + [end] * (length - len(row)) for row in rows])
        hidden = whisper.model.decoder(
            input_ids=tokens, encoder_hidden_states=encoded, use_cache=False
        ).last_hidden_state
        last = hidden[torch.arange(len(rows)), [len(row) - 1 for row in rows]]
        for row, token in zip(rows, whisper.proj_out(last).argmax(-1).tolist(), strict=True):
            row.append(token)
    return [row[len(prefix) :] for row, prefix in zip(rows, prefixes, strict=True)]


@dataclass
class Locality:
    """Counts a draft's errors and the runs that hold after them."""

    num_errors: int = 0
    runs: list[int] = field(default_factory=list)

    def add(
        self,
        whisper: WhisperForConditionalGeneration,
        encoded: torch.Tensor,
        head: list[int],
        right: list[int],
        chosen: list[int],
    ) -> None:
        """Look at errors of one window: ``chosen`` is the draft's choice at each place of the right text."""
        wrong = [i for i, (a, b) in enumerate(zip(right, chosen, strict=True)) if a != b and right[i + 1 :]]
        wrong = wrong[:: 1 + (len(wrong) - 1) // PER_WINDOW] if wrong else []
        if not wrong:
            return
        prefixes = [[*head, *right[:i], chosen[i]] for i in wrong]
        for i, text in zip(wrong, go_on(whisper, encoded, prefixes, head[0]), strict=True):
            run = realigned_run([chosen[i], *text], right[i + 1 :])
            self.num_errors += 1
            self.runs += [] if run is None else [run]

    def summary(self) -> dict[str, float | int]:
        """Return the share of errors after which the draft realigns, and how long it then holds."""
        found = len(self.runs)
        return {
            "errors": self.num_errors,
            "realigned": round(found / max(1, self.num_errors), 4),
            "mean_run": round(sum(self.runs) / max(1, found), 2),
        }
