"""Train a head on the target's own transcripts; a training that was cut continues."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from experiments.ctc_head.head import CtcHead
from experiments.ctc_head.store import Example

BATCH = 4
WEIGHT_DECAY = 0.01
DROPOUT = 0.1  # of the encoder's features


def train(
    head: CtcHead,
    examples: Sequence[Example],
    path: Path,
    *,
    epochs: int,
    peak: float,
    seed: int,
    report: Callable[[int, float], None],
) -> None:
    """Train for some epochs; the state after each one is kept in a file.

    Parameters
    ----------
    peak : learning rate of the first epochs; it falls along a cosine.
    report : called with the epoch and its mean loss, in nats per token.
    """
    optimizer = torch.optim.AdamW(head.parameters(), lr=peak, weight_decay=WEIGHT_DECAY)
    num_steps = epochs * -(-len(examples) // BATCH)
    rate = torch.optim.lr_scheduler.OneCycleLR(optimizer, peak, total_steps=num_steps, pct_start=0.1)
    begin = 0
    if path.exists():
        state = torch.load(path, weights_only=True)
        head.load_state_dict(state["head"])
        optimizer.load_state_dict(state["optimizer"])
        rate.load_state_dict(state["rate"])
        begin = state["epoch"]
    head.train()
    for epoch in range(begin, epochs):
        generator = torch.Generator().manual_seed(1000 * seed + epoch)
        torch.manual_seed(1000 * seed + epoch)  # of dropout
        order = torch.randperm(len(examples), generator=generator).tolist()
        total, num_tokens = 0.0, 0
        for start in range(0, len(order), BATCH):
            batch = [examples[i] for i in order[start : start + BATCH]]
            loss, count = ctc_loss(head, batch)
            optimizer.zero_grad()
            (loss / count).backward()
            torch.nn.utils.clip_grad_norm_(head.parameters(), 1.0)
            optimizer.step()
            rate.step()
            total, num_tokens = total + loss.item(), num_tokens + count
        state = {
            "head": head.state_dict(),
            "optimizer": optimizer.state_dict(),
            "rate": rate.state_dict(),
            "epoch": epoch + 1,
        }
        unfinished = path.with_suffix(".tmp")
        torch.save(state, unfinished)
        unfinished.rename(path)
        report(epoch + 1, total / num_tokens)
    head.eval()


def ctc_loss(head: CtcHead, batch: Sequence[Example]) -> tuple[Tensor, int]:
    """Return the loss of a batch, summed over its tokens, and their number."""
    encoded = pad_sequence([example.encoded.float() for example in batch], batch_first=True)
    encoded = F.dropout(encoded, DROPOUT, training=head.training)
    lengths = torch.tensor([len(example.encoded) for example in batch])
    labels = [text_tokens(example.tokens, head.blank) for example in batch]
    num_tokens = torch.tensor([len(label) for label in labels])
    log_probs = head(encoded, lengths).log_softmax(-1).transpose(0, 1)
    loss = F.ctc_loss(
        log_probs,
        torch.tensor([token for label in labels for token in label]),
        head.lengths(lengths),
        num_tokens,
        blank=head.blank,
        reduction="sum",
        zero_infinity=True,
    )
    return loss, max(1, int(num_tokens.sum()))


def text_tokens(tokens: Sequence[int], end_of_text: int) -> list[int]:
    """Return the word pieces among tokens."""
    return [token for token in tokens if token < end_of_text]
