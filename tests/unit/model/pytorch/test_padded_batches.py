"""Batches padded to a few shapes equal batches without padding."""

from __future__ import annotations

from collections import Counter
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.common.models.checkpoints import Shape as ModelShape
from experiments.common.models.checkpoints import build_checkpoint
from specwhisper.model.pytorch import decoder as decoders
from specwhisper.model.pytorch.checkpoint import DecoderWeights
from specwhisper.model.pytorch.decoder import CachedDecoder, load_decoder_weights
from specwhisper.model.pytorch.kernels.layer_cache import BatchRow, LayerCache
from specwhisper.model.pytorch.kernels.padded_batch import PaddedBatch
from specwhisper.model.pytorch.kernels.padded_runner import (
    BATCHES,
    FORWARD_TOKENS,
    WIDTHS,
    Shape,
    StaticInputs,
    divide,
    shape_for,
)
from tests.slot_writing import write_slots_reference

NUM_SLOTS, POSITIONS = 5, 72
_, CHECKPOINT = build_checkpoint(
    ModelShape(decoder_layers=2, heads=4, max_target_positions=POSITIONS, seed=7)
)
SIZE = len(CHECKPOINT.vocabulary)
AUDIO = torch.randn(NUM_SLOTS, 1500, 64, generator=torch.Generator().manual_seed(0))
CLOSE = {"rtol": 1e-4, "atol": 1e-4}


def decoder(device: str = "cpu", **kwargs) -> CachedDecoder:
    """Build a decoder whose slot i holds ``AUDIO[i]``."""
    with torch.device("meta"):
        made = CachedDecoder(CHECKPOINT.sizes, NUM_SLOTS)
    load_decoder_weights(made, DecoderWeights(CHECKPOINT))
    made.eval().requires_grad_(False).to(device).allocate(**kwargs)
    for slot, encoded in enumerate(AUDIO):
        made.prefill_audio(slot, encoded)
    return made


def text(seed: int, length: int) -> list[int]:
    return torch.randint(SIZE, (length,), generator=torch.Generator().manual_seed(seed)).tolist()


@pytest.fixture(scope="module", params=["cpu", "cuda"])
def pair(request) -> tuple[CachedDecoder, CachedDecoder]:
    """Build a decoder without padding, and with it, captured on a GPU."""
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("there is no GPU")
    return decoder(), decoder(request.param, has_static_shapes=True)


@pytest.mark.parametrize(
    ("num_rows", "width", "expected"),
    [
        (1, 1, (1, 1)),
        (1, 3, (1, 4)),
        (3, 5, (4, 6)),
        (64, 32, (64, 32)),
        (33, 17, (64, 24)),
        (1, 33, (1, 33)),  # a long prompt
        (65, 1, (65, 1)),
    ],
)
def test_rows_are_padded_to_a_bucket_where_there_is_one(num_rows, width, expected):
    shape = shape_for(num_rows, width)
    assert shape == expected
    assert shape.is_bucket == (num_rows <= BATCHES[-1] and width <= WIDTHS[-1])


@pytest.mark.parametrize(
    ("widths", "expected"),
    [
        ([8], [[0]]),
        ([224], [[0]]),
        ([1, 9, 1, 5], [[0, 1, 2, 3]]),  # few tokens: padding costs less than another forward pass
        ([224, 5, 5, 4], [[1, 2, 3], [0]]),
        ([1, 1, 17, 1] * 8, [[i for i in range(32) if i % 4 != 2], [i for i in range(32) if i % 4 == 2]]),
    ],
)
def test_wide_rows_run_separately_if_others_would_be_padded_too_much(widths, expected):
    assert divide(widths) == expected


@given(st.lists(st.integers(1, 250), min_size=1, max_size=150))
def test_dividing_keeps_every_row_and_never_costs_more(widths):
    parts = divide(widths)
    assert sorted(row for part in parts for row in part) == [*range(len(widths))]
    assert all(part == sorted(part) and len(part) <= BATCHES[-1] for part in parts)
    if len(widths) > BATCHES[-1]:  # one batch of so many rows would not be captured
        return

    def cost(rows):
        return FORWARD_TOKENS + shape_for(len(rows), max(widths[row] for row in rows)).num_tokens

    assert sum(map(cost, parts)) <= cost(range(len(widths)))


def test_inputs_keep_their_addresses_and_no_old_values():
    inputs = StaticInputs(Shape(4, 2), POSITIONS, torch.device("cpu"))
    inputs.fill(
        [BatchRow(3, 9, [5, 6]), BatchRow(1, 0, [7]), BatchRow(2, 4, [8, 9])],
        [(0, 1), (2, 0), (2, 1)],
        spare_slot=5,
    )
    batch = inputs.batch
    tensors = (batch.ids, batch.slots, batch.starts, batch.lengths)
    addresses = [each.data_ptr() for each in (*tensors, inputs.wanted)]
    assert all(address % 16 == addresses[0] % 16 for address in addresses)
    assert batch.ids.tolist() == [[5, 6], [7, 0], [8, 9], [0, 0]]
    assert batch.positions.tolist() == [[9, 10], [0, 1], [4, 5], [0, 1]]
    assert inputs.wanted.tolist()[:3] == [1, 4, 5]
    inputs.fill([BatchRow(0, 2, [1])], [(0, 0)], spare_slot=5)
    tensors = (batch.ids, batch.slots, batch.starts, batch.lengths)
    assert [each.data_ptr() for each in (*tensors, inputs.wanted)] == addresses
    assert [each.tolist() for each in tensors] == [
        [[1, 0], [0, 0], [0, 0], [0, 0]],
        [0, 5, 5, 5],
        [2, 0, 0, 0],
        [1, 0, 0, 0],
    ]


operation = st.tuples(
    st.sampled_from(["append", "append", "rollback"]),
    st.dictionaries(st.integers(0, NUM_SLOTS - 1), st.sampled_from([1, 2, 3, 5, 9, 40]), min_size=1),
    st.integers(0, 2**16),
)


@settings(max_examples=40)
@given(operations=st.lists(operation, min_size=1, max_size=8))
def test_any_history_equals_batches_without_padding(pair, operations):
    for made in pair:
        for slot in range(NUM_SLOTS):
            made.rollback(slot, 0)
    for kind, sizes, seed in operations:
        if kind == "rollback":
            for made in pair:
                for slot, size in sizes.items():
                    made.rollback(slot, size)
            continue
        rows = {
            slot: text(seed + slot, size)
            for slot, size in sizes.items()
            if pair[0].lengths[slot] + size <= POSITIONS
        }
        if rows:
            slots = sorted(rows, key=lambda slot: (slot * seed) % 7)  # in any order
            scored = [(len(rows[slot]) + seed) // 2 % len(rows[slot]) + 1 for slot in slots]
            probes = [(i, 0) for i in range(seed % 3) if i < len(slots)]
            ragged, padded = (
                made.append(slots, [rows[slot] for slot in slots], scored, probes) for made in pair
            )
            torch.testing.assert_close(padded.cpu(), ragged, **CLOSE)
        assert pair[0].lengths == pair[1].lengths


def test_a_slot_may_be_filled_to_its_last_position_beside_a_wide_row(pair):
    full, wide = text(7, POSITIONS), text(8, 12)
    for made in pair:
        made.rollback(0, 0)
        made.rollback(1, 0)
        made.append([0], [full[:-1]], [1])
    ragged, padded = (made.append([0, 1], [full[-1:], wide], [1, 12]) for made in pair)
    torch.testing.assert_close(padded.cpu(), ragged, **CLOSE)


def test_each_bucket_is_captured_once(monkeypatch):
    calls = Counter()

    def capture(run):
        calls["captured"] += 1
        output = run()  # a graph's memory: every replay overwrites it

        def replay():
            calls["replayed"] += 1
            return output.copy_(run())

        return replay

    monkeypatch.setattr(decoders, "uncaptured", capture)
    with torch.inference_mode():
        made, plain = decoder(has_static_shapes=True), decoder()
    for seed, width in enumerate([3, 4, 40, 1, 4, 41]):
        tokens = [text(seed, width)]
        for each in (made, plain):
            each.rollback(2, 5)
        logits = made.append([2], tokens, [1])
        torch.testing.assert_close(logits, plain.append([2], tokens, [1]), **CLOSE)
    assert calls == {"captured": 2, "replayed": 4}  # widths of 4 and of 1; long prompts are not captured


def test_cross_attention_weights_equal_those_without_padding(pair):
    tokens, heads = text(11, 7), [(0, 1), (1, 3), (1, 0)]
    ragged, padded = (made.cross_attention(3, tokens, heads) for made in pair)
    assert padded.shape == (3, 7, 1500)
    torch.testing.assert_close(padded.cpu(), ragged, **CLOSE)
    rounded = decoder(has_static_shapes=True, cross_cache_dtype="int8").cross_attention(3, tokens, heads)
    torch.testing.assert_close(rounded, ragged, rtol=0.1, atol=1e-3)


@pytest.mark.parametrize(("dtype", "error"), [("int8", 0.01), ("float8", 0.05)])
def test_the_cross_attention_cache_may_have_8_bits(dtype, error):
    plain, rounded = decoder(), decoder(has_static_shapes=True, cross_cache_dtype=dtype)
    tokens = [text(1, 6), text(2, 3)]
    expected, logits = (made.append([4, 0], tokens, [6, 3]) for made in (plain, rounded))
    assert 0 < (logits - expected).norm() < error * expected.norm()
    per_position = 2 * 64 * 4  # keys and values, float32
    cross = 1500 * (per_position // 4 + 2 * 4 * 2)  # a scale of two bytes for each head
    assert plain.bytes_per_slot == 2 * (POSITIONS + 1500) * per_position
    assert rounded.bytes_per_slot == 2 * (POSITIONS * per_position + cross)


@settings(max_examples=40)
@given(
    width=st.integers(1, 6),
    rows=st.lists(st.tuples(st.integers(0, 12), st.integers(0, 6)), min_size=1, max_size=4),
)
def test_padding_is_written_to_the_last_slot_only(width, rows):
    starts, lengths = (torch.tensor(numbers, dtype=torch.int32) for numbers in zip(*rows, strict=True))
    slots = torch.arange(len(rows), dtype=torch.int32).flip(0)
    made = partial(torch.randn, generator=torch.Generator().manual_seed(width))
    key_value, cache = made(len(rows), width, 2, 3, 8), made(2, 5, 3, 14, 8)
    expected = cache.clone()
    ids = torch.zeros(len(rows), width, dtype=torch.int32)
    PaddedBatch(ids, slots, starts, lengths.clamp(max=width), 14).write(key_value, cache)
    write_slots_reference(key_value, expected, slots, starts, lengths)
    assert torch.equal(cache[:, :-1], expected[:, :-1])


def test_padding_past_the_last_position_has_an_embedding():
    starts = torch.tensor([12], dtype=torch.int32)
    batch = PaddedBatch(torch.zeros(1, 4, dtype=torch.int32), starts, starts, starts, 14)
    assert batch.positions.tolist() == [[12, 13, 13, 13]]


def test_a_cache_has_a_device():
    cache = torch.zeros(2, 3, 2, 4, 8)
    assert LayerCache(cache, cache).device == torch.device("cpu")
