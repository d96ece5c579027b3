"""The decoder on ONNX Runtime equals transformers', bit for bit in any company."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from transformers.modeling_outputs import BaseModelOutput

from experiments.common.models.checkpoints import Shape, build_checkpoint
from specwhisper.model.onnx.decoder import MAX_QUERIES, MAX_ROWS, SlotDecoder
from specwhisper.model.onnx.graph import sums_bytes_exactly
from tests.nightly import examples, mostly_nightly
from tests.unit.model.pytorch.test_pytorch_decoder import (
    AUDIO,
    CHECKPOINT,
    CLOSE,
    FILLED,
    NUM_SLOTS,
    POSITIONS,
    SHAPE,
    TRANSFORMERS,
    WIDTH,
    check_history,
    histories,
    text,
)
from tests.unit.model.pytorch.test_pytorch_decoder import expected as expected_of
from tests.unit.model.pytorch.test_pytorch_decoder import new_decoder as new_torch_decoder

LENGTHS = (1500, 1500, 700, 100, 1)  # positions of each slot's window


def new_decoder(*, num_slots: int = NUM_SLOTS, is_int8: bool = False, num_threads: int = 1) -> SlotDecoder:
    """Build a decoder whose slot i holds the first positions of ``AUDIO[i]``."""
    dtype, heads = "int8" if is_int8 else "float32", ((0, 0), (2, 0))
    checkpoint = replace(CHECKPOINT, dtype=dtype, alignment_heads=heads)
    decoder = SlotDecoder(checkpoint, num_slots, num_threads=num_threads)
    for slot in range(num_slots):
        decoder.prefill_audio(slot, audio(slot))
    return decoder


def audio(slot: int) -> np.ndarray:
    return AUDIO[slot % NUM_SLOTS][: LENGTHS[slot % NUM_SLOTS]].numpy()


def expected(slot: int, tokens: list[int]) -> torch.Tensor:
    return expected_of(slot % NUM_SLOTS, tokens, LENGTHS[slot % NUM_SLOTS])


DECODERS = {is_int8: new_decoder(is_int8=is_int8) for is_int8 in (False, True)}


def fresh(*, is_int8: bool = False) -> SlotDecoder:
    """Return a decoder with empty slots; the caches hold what earlier tests wrote."""
    decoder = DECODERS[is_int8]
    for slot in range(NUM_SLOTS):
        decoder.rollback(slot, 0)
    return decoder


@pytest.mark.skipif(not sums_bytes_exactly(), reason="this processor's sums of bytes overflow")
def test_int8_is_near_float32_and_not_equal():
    tokens = text(7, 20)
    exact = fresh().append([0], [tokens], [20])
    rounded = fresh(is_int8=True).append([0], [tokens], [20])
    assert 0 < np.abs(rounded - exact).max() < 0.05 * np.abs(exact).max()


def test_a_full_slot_between_two_others_keeps_its_tokens():
    decoder, full = fresh(), text(9, POSITIONS)
    before = decoder.append([1], [full], [POSITIONS]).copy()
    decoder.append([0, 2], [text(1, 30), text(2, 3)], [1, 1])
    decoder.rollback(1, POSITIONS - 8)
    assert np.array_equal(decoder.append([1], [full[-8:]], [8]), before[-8:])


def test_more_rows_than_one_pass_takes_are_appended_in_order():
    num_slots = MAX_ROWS + 3
    decoder = new_decoder(num_slots=num_slots)
    slots = np.random.default_rng(0).permutation(num_slots).tolist()
    rows = {slot: text(slot, 2 + slot % 4) for slot in slots}
    logits = decoder.append(slots, [rows[slot] for slot in slots], [2] * num_slots, [(0, 0)])
    whole = [expected(slot, rows[slot]) for slot in slots]
    together = torch.cat([*(each[-2:] for each in whole), whole[0][:1]])
    np.testing.assert_allclose(logits, together, **CLOSE)
    assert decoder.lengths == [len(rows[slot]) for slot in range(num_slots)]


@settings(max_examples=examples(10, 200))
@example(FILLED)
@given(histories)
def test_any_history_has_the_logits_of_transformers(operations):
    decoder = fresh()
    check_history(decoder, operations, lambda slot: decoder.prefill_audio(slot, audio(slot)), expected)


TRUE = replace(SHAPE, d_model=384, heads=6, decoder_layers=2, ffn_factor=4, max_target_positions=448)
WIDE = replace(TRUE, d_model=768, heads=12, decoder_layers=1)


class Company:
    """A decoder of a published shape, and each text's logits, one token after the other."""

    def __init__(self, shape: Shape, *, is_int8: bool, num_threads: int) -> None:
        checkpoint = replace(build_checkpoint(shape)[1], dtype="int8" if is_int8 else "float32")
        self.decoder = SlotDecoder(checkpoint, 3, num_threads=num_threads)
        random = np.random.default_rng(1)
        for slot, length in enumerate((1500, 1500, 250)):
            self.decoder.prefill_audio(
                slot, random.standard_normal((length, shape.d_model)).astype(np.float32)
            )
        self.texts = [text(slot, length) for slot, length in enumerate((440, 210, 210))]
        self.alone = [self.feed(slot, [1] * len(text)) for slot, text in enumerate(self.texts)]

    def feed(self, slot: int, lengths: list[int]) -> np.ndarray:
        """Append the text in parts of these lengths."""
        self.decoder.rollback(slot, 0)
        ends = np.cumsum(lengths).tolist()
        rows = [self.texts[slot][end - length : end] for length, end in zip(lengths, ends, strict=True)]
        return np.concatenate([self.decoder.append([slot], [row], [len(row)]).copy() for row in rows])


@pytest.fixture(scope="module", params=mostly_nightly(["float32", "int8", "two threads"], by_day=2))
def tiny(request) -> Company:
    is_int8, num_threads = request.param == "int8", 1 + (request.param == "two threads")
    return Company(TRUE, is_int8=is_int8, num_threads=num_threads)


def check_split(company: Company, lengths: list[int]) -> None:
    assert np.array_equal(company.feed(0, lengths), company.alone[0][: sum(lengths)])


@pytest.mark.parametrize(
    "lengths",
    mostly_nightly(
        [[34, 33, 32, 65], [MAX_QUERIES, MAX_QUERIES + 1, 129, 257], [440], [193, 27], [190, 1, 1, 5]],
        by_day=2,
    ),
)
def test_a_text_has_the_same_bits_however_it_is_split(tiny, lengths):
    check_split(tiny, lengths)


@settings(max_examples=examples(8, 200))
@example(held=[0, 0, 0], lengths=[1, 1, 1])
@example(held=[60, 3, 150], lengths=[1, 40, 2])
@given(
    held=st.lists(st.integers(0, 150), min_size=3, max_size=3),
    lengths=st.lists(st.integers(0, 60), min_size=3, max_size=3),
)
def test_logits_have_the_same_bits_in_any_company(tiny, held, lengths):
    slots = [slot for slot in range(3) if lengths[slot]]
    if not slots:
        return
    for slot in range(3):
        tiny.decoder.rollback(slot, 0)
        if held[slot]:
            tiny.feed(slot, [held[slot]])
    ends = {slot: held[slot] + lengths[slot] for slot in slots}
    rows = [tiny.texts[slot][held[slot] : ends[slot]] for slot in slots]
    together = tiny.decoder.append(slots, rows, [len(row) for row in rows])
    alone = [tiny.alone[slot][held[slot] : ends[slot]] for slot in slots]
    assert np.array_equal(together, np.concatenate(alone))


@pytest.mark.nightly
@pytest.mark.parametrize("is_int8", [False, True])
def test_a_wide_model_has_the_same_bits_however_its_text_is_split(is_int8):
    company = Company(WIDE, is_int8=is_int8, num_threads=1)
    for lengths in ([440], [193, 27], [34, 33, 32, 65], [190, 1, 1, 5]):
        check_split(company, lengths)


@pytest.mark.parametrize("kind", ["onnx", "ragged", "static"])
@torch.inference_mode()
def test_cross_attention_equals_transformers(kind):
    tokens, heads = text(4, 11), [(0, 1), (2, 3), (0, 0)]
    encoded = BaseModelOutput(torch.from_numpy(audio(0))[None])
    eager = type(TRANSFORMERS)(TRANSFORMERS.config)
    eager.load_state_dict(TRANSFORMERS.state_dict())
    eager.set_attn_implementation("eager")
    theirs = eager.eval()(
        encoder_outputs=encoded, decoder_input_ids=torch.tensor([tokens]), output_attentions=True
    ).cross_attentions
    decoder = fresh() if kind == "onnx" else new_torch_decoder(kind)
    decoder.append([0], [[5, 6]], [1])
    decoder.rollback(0, 0)
    ours = decoder.cross_attention(0, tokens, heads)
    np.testing.assert_allclose(ours, [theirs[layer][0, head] for layer, head in heads], rtol=1e-3, atol=1e-6)
    assert decoder.lengths[0] == 0


@pytest.mark.parametrize(("kind", "num_spare"), [("onnx", 2), ("ragged", 0)])
def test_the_memory_of_a_slot_is_that_of_its_keys_and_values(kind, num_spare):
    decoder = fresh() if kind == "onnx" else new_torch_decoder(kind)
    assert decoder.bytes_per_slot == 3 * (1500 + POSITIONS + num_spare) * 2 * WIDTH * 4  # float32
