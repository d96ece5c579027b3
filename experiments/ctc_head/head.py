"""A CTC head: word pieces and a blank for every position of the encoder."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from itertools import groupby

import torch
import torch.nn.functional as F
from torch import Tensor, nn

KERNEL = 9  # positions of 20 ms
STRIDE = 2
HEAD_WIDTH = 64  # of an attention head


class Block(StrEnum):
    """Layers between the encoder and the linear layer."""

    NONE = "none"
    CONV = "conv"  # a convolution, which halves the rate to 25 positions per second
    TRANSFORMER = "transformer"  # a transformer layer after that convolution


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
        if block is not Block.NONE:
            self._conv = nn.Conv1d(width, width, KERNEL, stride=STRIDE, padding=KERNEL // 2)
            self._norm = nn.LayerNorm(width)
        if block is Block.TRANSFORMER:
            self._attention = nn.TransformerEncoderLayer(
                width,
                max(1, width // HEAD_WIDTH),
                2 * width,
                activation="gelu",
                batch_first=True,
                norm_first=True,
            )
        self._linear = nn.Linear(width, num_tokens + 1)

    def lengths(self, lengths: Tensor) -> Tensor:
        """Return the positions of each row's logits, for those of what was encoded."""
        return lengths if self._conv is None else -(-lengths // STRIDE)

    def forward(self, encoded: Tensor, lengths: Tensor) -> Tensor:
        """Return the logits, batch x positions x (word pieces + 1).

        Parameters
        ----------
        encoded : batch x positions x width, padded with zeros at the end.
        lengths : positions of each row.
        """
        if self._conv is not None:
            encoded = self._norm(F.gelu(self._conv(encoded.transpose(1, 2))).transpose(1, 2))
        if self._attention is not None:
            is_padding = torch.arange(encoded.shape[1]) >= self.lengths(lengths)[:, None]
            encoded = self._attention(encoded, src_key_padding_mask=is_padding)
        logits: Tensor = self._linear(encoded)
        return logits

    @torch.inference_mode()
    def tokens(self, encoded: Tensor) -> list[int]:
        """Return the likeliest tokens of a window, positions x width."""
        logits = self(encoded[None].float(), torch.tensor([len(encoded)]))
        return collapse(logits[0].argmax(-1).tolist(), self.blank)
