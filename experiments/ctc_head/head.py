"""A CTC head: word pieces and a blank for every position of the encoder."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from itertools import groupby

import torch
from torch import Tensor, nn

KERNEL = 9  # positions of 20 ms
HEAD_WIDTH = 64  # of an attention head


class Block(StrEnum):
    """What is between the encoder and the linear layer."""

    NONE = "none"
    CONV = "conv"
    TRANSFORMER = "transformer"


def collapse(choices: Iterable[int], blank: int) -> list[int]:
    """Return the tokens of a CTC path: repeated ones once, without blanks."""
    return [choice for choice, _ in groupby(choices) if choice != blank]


class CtcHead(nn.Module):
    """A linear layer over word pieces and a blank, which is the last class.

    Parameters
    ----------
    width : of the encoder.
    num_tokens : word pieces of the target.
    """

    def __init__(self, width: int, num_tokens: int, block: Block) -> None:
        super().__init__()
        self.blank = num_tokens
        self._conv = self._attention = None
        if block is Block.CONV:
            self._conv = nn.Conv1d(width, width, KERNEL, padding=KERNEL // 2)
            self._norm = nn.LayerNorm(width)
        elif block is Block.TRANSFORMER:
            self._attention = nn.TransformerEncoderLayer(
                width,
                max(1, width // HEAD_WIDTH),
                2 * width,
                activation="gelu",
                batch_first=True,
                norm_first=True,
            )
        self._linear = nn.Linear(width, num_tokens + 1)

    def forward(self, encoded: Tensor, lengths: Tensor) -> Tensor:
        """Return the logits, batch x positions x (word pieces + 1).

        Parameters
        ----------
        encoded : batch x positions x width, padded at the end.
        lengths : positions of each row.
        """
        if self._conv is not None:
            mixed = nn.functional.gelu(self._conv(encoded.transpose(1, 2))).transpose(1, 2)
            encoded = self._norm(encoded + mixed)
        if self._attention is not None:
            is_padding = torch.arange(encoded.shape[1]) >= lengths[:, None]
            encoded = self._attention(encoded, src_key_padding_mask=is_padding)
        logits: Tensor = self._linear(encoded)
        return logits

    @torch.inference_mode()
    def tokens(self, encoded: Tensor) -> list[int]:
        """Return the likeliest tokens of a window, positions x width."""
        logits = self(encoded[None].float(), torch.tensor([len(encoded)]))
        return collapse(logits[0].argmax(-1).tolist(), self.blank)
