"""Batches packed into a few sizes equal batches without padding."""

from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from specwhisper.model.pytorch import decoder as decoders
from specwhisper.model.pytorch.backend import TorchEncoder
from specwhisper.model.pytorch.decoder import CachedDecoder
from specwhisper.model.pytorch.operations import BatchRow
from specwhisper.model.pytorch.packed import (
    BLOCKS,
    TOKENS,
    CudaGraphs,
    PackedInputs,
    PackedRunner,
    bucket_for,
    buckets_up_to,
    divide,
    num_blocks,
)
from tests.unit.model.pytorch.test_pytorch_decoder import (
    CHECKPOINT,
    CLOSE,
    NUM_SLOTS,
    POSITIONS,
    new_decoder,
    text,
)


@pytest.mark.parametrize(
    ("widths", "expected"), [([3], (4, 1)), ([5, 5, 5], (16, 4)), ([5] * 31 + [227], (384, 64))]
)
def test_rows_are_padded_to_the_smallest_bucket(widths, expected):
    assert bucket_for(widths) == expected
    with pytest.raises(ValueError, match="129 tokens in 129 blocks"):
        bucket_for([1] * 129)


@given(st.lists(st.integers(1, 448), min_size=1, max_size=300))
def test_rows_are_divided_into_runs_that_fit(widths):
    parts = divide(widths)
    assert [row for part in parts for row in part] == [*range(len(widths))]
    buckets = [bucket_for(widths[part.start : part.stop]) for part in parts]
    for part, bucket in zip(parts[:-1], buckets, strict=False):  # one row more would not fit
        more = widths[part.start : part.stop + 1]
        assert sum(more) > TOKENS[-1] or sum(map(num_blocks, more)) > BLOCKS[-1]
        assert bucket.num_tokens <= TOKENS[-1]


@given(st.integers(1, 200), st.integers(1, 300), st.data())
def test_every_bucket_that_a_batch_needs_is_captured_by_warm_up(num_rows, width, data):
    widths = data.draw(st.lists(st.integers(1, width), min_size=1, max_size=num_rows))
    captured = set(buckets_up_to(num_rows, width))
    for part in divide(widths):
        assert bucket_for(widths[part.start : part.stop]) in captured


def test_few_buckets_are_captured():
    made = new_decoder("static")
    made.warm_up()
    assert {*made._runner._captured} == {*buckets_up_to(NUM_SLOTS, POSITIONS)}
    assert len(set(buckets_up_to(128, 448))) == len(list(buckets_up_to(128, 448))) == 58
    assert list(buckets_up_to(1, 5)) == [(1, 1), (2, 1), (4, 1), (8, 1)]


def test_windows_are_encoded_at_once():
    encoder = TorchEncoder(CHECKPOINT)
    windows = list(np.random.default_rng(3).standard_normal((3, 80, 3000), dtype=np.float32))
    for ours, window in zip(encoder(windows), windows, strict=True):
        torch.testing.assert_close(ours, encoder([window])[0], **CLOSE)


def test_inputs_keep_their_addresses_and_no_old_values():
    inputs = PackedInputs(bucket_for([2, 1, 21]), torch.device("cpu"), spare_slot=5)
    tensors = [inputs.ids, *inputs.places]
    addresses = [each.data_ptr() for each in tensors]
    assert all(address % 16 == addresses[0] % 16 for address in addresses)
    inputs.fill([BatchRow(3, 9, [5, 6]), BatchRow(1, 0, [7]), BatchRow(2, 4, [*range(40, 61)])])
    assert inputs.ids.tolist() == [5, 6, 7, *range(40, 61), *[0] * 8]
    slots, positions, *blocks = (each.tolist() for each in inputs.places)
    assert slots == [3, 3, 1, *[2] * 21, *[5] * 8]
    assert positions == [9, 10, 0, *range(4, 25), *[0] * 8]
    assert blocks == [[0, 2, 3, 19], [2, 1, 16, 5], [0, 2, 3, 3]]
    inputs.fill([BatchRow(0, 2, [1])])
    assert [each.data_ptr() for each in tensors] == addresses
    assert inputs.places.slots.tolist() == [0, *[5] * 31]
    assert inputs.places.counts.tolist() == [1, 0, 0, 0]


class Graphs(CudaGraphs):
    """In place of CUDA graphs: replays by running again, and counts."""

    def __init__(self, error: Exception | None = None, *, is_wrong: bool = False) -> None:
        super().__init__(torch.device("cpu"))
        self.num_captured = self.num_replayed = 0
        self._error, self._is_wrong = error, is_wrong

    def capture(self, run):
        if self._error is not None:
            raise self._error
        self.num_captured += 1
        output = run()  # a graph's memory: every replay overwrites it

        def replay():
            self.num_replayed += 1
            return output.copy_(run() + 0.1 * self._is_wrong * output.abs().max())

        return replay


def captured_by(monkeypatch, graphs: Graphs) -> CachedDecoder:
    monkeypatch.setattr(decoders, "PackedRunner", partial(PackedRunner, capture=graphs))
    with torch.inference_mode():
        return new_decoder("static")


def check_steps(made: CachedDecoder, steps: list[tuple[int, int]]) -> None:
    """Append rows of (seed, width) to a slot and to one without padding; compare."""
    plain = new_decoder()
    for seed, width in steps:
        for each in (made, plain):
            each.rollback(2, 5)
        logits = made.append([2], [text(seed, width)], [1])
        torch.testing.assert_close(logits, plain.append([2], [text(seed, width)], [1]), **CLOSE)


def test_each_bucket_is_captured_once(monkeypatch):
    graphs = Graphs()
    check_steps(captured_by(monkeypatch, graphs), list(enumerate([3, 4, 40, 1, 4, 41])))
    assert graphs.num_captured == 3  # of 4 tokens, 48 and 1
    assert graphs.num_replayed == 6 + 3  # each is compared once with the pass that it captured


@pytest.mark.parametrize(
    ("graphs", "reason"),
    [
        (Graphs(RuntimeError("operation not permitted when stream is capturing")), "not permitted"),
        (Graphs(is_wrong=True), "a replay differs by 0.1 of the largest logit"),
    ],
)
def test_where_graphs_fail_a_warning_says_so_and_passes_run_without(monkeypatch, caplog, graphs, reason):
    check_steps(captured_by(monkeypatch, graphs), [(1, 3), (2, 40), (3, 3)])
    assert graphs.num_captured == graphs.num_replayed <= 1
    (record,) = caplog.records
    assert record.levelname == "WARNING" and "each kernel by itself serves" in record.message
    assert reason in record.error


def test_memory_that_is_short_for_a_graph_is_an_error(monkeypatch):
    made = captured_by(monkeypatch, Graphs(torch.OutOfMemoryError("CUDA out of memory")))
    with pytest.raises(torch.OutOfMemoryError):
        made.append([2], [text(1, 3)], [1])


def test_more_rows_than_a_pass_takes_are_divided(monkeypatch):
    monkeypatch.setattr("specwhisper.model.pytorch.packed.TOKENS", (4, 8))
    made, plain = new_decoder("static"), new_decoder()
    tokens = [text(seed, 3) for seed in range(NUM_SLOTS)]
    order = [4, 1, 0, 2, 3]
    packed, ragged = (each.append(order, tokens, [3, 1, 2, 3, 1], [(0, 0), (4, 1)]) for each in (made, plain))
    torch.testing.assert_close(packed, ragged, **CLOSE)
    assert made.lengths == plain.lengths
