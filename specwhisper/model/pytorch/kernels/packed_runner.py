"""Run a GPU's forward passes, each size captured once in a CUDA graph.

A pass' inputs are copied into tensors with a fixed address (:class:`PackedInputs`), so one captured graph
serves any rows of its bucket. Padding changes nothing: no block of attention has its tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from specwhisper.model.pytorch.kernels.buckets import Bucket, bucket_for, buckets_up_to, divide
from specwhisper.model.pytorch.kernels.graphs import Run
from specwhisper.model.pytorch.kernels.layer_cache import BatchRow
from specwhisper.model.pytorch.kernels.packed_inputs import Following, PackedInputs


class StepResult(NamedTuple):
    """Logits and choices after each token of a bucket.

    Attributes
    ----------
    logits : float32, tokens x vocabulary, before the rules.
    choices : float32, tokens x 4 (:func:`specwhisper.model.pytorch.kernels.choice.choose_tokens`).
    """

    logits: Tensor
    choices: Tensor


class PackedRunner:
    """Runs rows through a decoder's step, padded to a bucket.

    Parameters
    ----------
    step : a forward pass from token ids to choices. The kernels that it launches depend on the bucket alone.
    spare_slot : the slot of padding; no session has it.
    capture : returns a function that does the same as another one with fewer launches.
    """

    def __init__(
        self,
        step: Callable[[PackedInputs], StepResult],
        *,
        spare_slot: int,
        device: torch.device,
        capture: Callable[[Run[StepResult]], Run[StepResult]],
    ) -> None:
        self._step = step
        self._spare_slot = spare_slot
        self._device = device
        self._capture = capture
        self._captured: dict[Bucket, tuple[PackedInputs, Run[StepResult]]] = {}

    def run(
        self, rows: Sequence[BatchRow], following: Sequence[Following]
    ) -> Iterator[tuple[range, StepResult]]:
        """Append tokens to slots, in as few passes as take them all.

        Yields
        ------
        The rows of a pass, whose tokens follow each other, and its result. The next pass overwrites the
        result: queue its copy or use on the device before.
        """
        for part in divide([len(row.tokens) for row in rows]):
            of_part = rows[part.start : part.stop]
            inputs, run = self._bucket(bucket_for([len(row.tokens) for row in of_part]))
            inputs.fill(of_part, following[part.start : part.stop])
            yield part, run()

    def inputs(self, row: BatchRow) -> PackedInputs:
        """Return the inputs of one row alone, for a pass that is not captured."""
        inputs = self._inputs(bucket_for([len(row.tokens)]))
        inputs.fill([row], [Following()])
        return inputs

    def warm_up(self, num_rows: int, width: int) -> None:
        """Capture every bucket that rows of up to ``width`` tokens can need."""
        for bucket in buckets_up_to(num_rows, width):
            self._bucket(bucket)

    def _bucket(self, bucket: Bucket) -> tuple[PackedInputs, Run[StepResult]]:
        """Return a bucket's inputs and what runs them; capture it on first use."""
        if bucket not in self._captured:
            inputs = self._inputs(bucket)
            self._captured[bucket] = inputs, self._capture(partial(self._step, inputs))
        return self._captured[bucket]

    def _inputs(self, bucket: Bucket) -> PackedInputs:
        return PackedInputs(bucket, self._device, spare_slot=self._spare_slot)
