"""Slots of a text model hold their own tokens, and free their memory."""

from functools import partial

import pytest
import torch

from experiments.common.inline_pair import InlinePair
from specwhisper.model.choosing import Row
from specwhisper_text.model import BLOCK, TextModel
from specwhisper_text.speculative import SILENCE, TextOptions, _plan
from tests.llamas import llama, llama_tokenizer

TOKEN_BYTES = 2 * 2 * 2 * 16 * 4  # layers, keys and values, heads, size, float32
LENGTHS = [150, 20, 12]


@pytest.fixture
def model() -> TextModel:
    """Return three slots, each with a prompt of its own length in it."""
    model = TextModel(llama(2, 1, positions=300), llama_tokenizer(), len(LENGTHS), 300)
    for slot, length in enumerate(LENGTHS):
        model.score([row(slot, *range(2, 2 + length), num_candidates=0)])
    return model


def row(slot: int, *tokens: int, num_candidates: int = 2) -> Row:
    return Row(slot, tokens, num_candidates, (), timestamps=False)


def held_bytes(model: TextModel) -> int:
    tensors = [tensor for cache in model._caches for layer in cache for tensor in layer]
    storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage() for tensor in tensors}
    return sum(storage.nbytes() for storage in storages.values())


def test_after_a_shared_forward_pass_each_slot_holds_only_its_tokens(model):
    assert held_bytes(model) == sum(LENGTHS) * TOKEN_BYTES
    for _ in range(3):
        model.score([row(slot, 7, 8, 9) for slot in range(3)])
    rooms = [-(-model.length(slot) // BLOCK) * BLOCK for slot in range(3)]
    assert held_bytes(model) == sum(rooms) * TOKEN_BYTES
    model.rollback(0, 0)  # the longest slot ends
    assert held_bytes(model) == sum(rooms[1:]) * TOKEN_BYTES
    model.rollback(1, 0)
    model.encode(2, None, 0)
    assert held_bytes(model) == 0


def test_a_slot_holds_its_tokens_after_append_and_rollback(model):
    """One slot and batches, across the end of a block and over rejected tokens."""
    fed = [list(range(2, 2 + length)) for length in LENGTHS]
    for step in range(40):
        slots = [1] if step % 7 == 3 else [0, 2] if step % 5 == 4 else [0, 1, 2]
        model.score([row(slot, step + 3, step + 5, step + 7) for slot in slots])
        for slot in slots:
            kept = 1 + (step + slot) % 3
            fed[slot] += [step + 3, step + 5, step + 7][:kept]
            model.rollback(slot, len(fed[slot]))
    for slot, tokens in enumerate(fed):
        with torch.inference_mode():
            layers = model._model(torch.tensor([tokens]), use_cache=True).past_key_values.layers
        assert model.length(slot) == len(tokens)
        for (keys, values), layer in zip(model._caches[slot], layers, strict=True):
            torch.testing.assert_close(keys[:, :, : len(tokens)], layer.keys, atol=1e-4, rtol=1e-4)
            torch.testing.assert_close(values[:, :, : len(tokens)], layer.values, atol=1e-4, rtol=1e-4)


def test_a_draft_does_not_begin_before_the_target_names_the_prompt():
    """The engines predict a first window with Whisper's prompt, of which no text model has the ids."""
    target, draft = (TextModel(llama(2, seed), llama_tokenizer(), 1, 300) for seed in (1, 2))
    pair = InlinePair(target, draft, plan=partial(_plan, target))
    options = TextOptions.greedy(prompt=tuple(range(2, 12)), max_new_tokens=8, timestamps=False)
    (written,) = pair.transcribe([SILENCE], options)
    (alone,) = InlinePair(target, plan=partial(_plan, target)).transcribe([SILENCE], options)
    assert written.window_tokens == alone.window_tokens
    assert written.stats.num_drafted > 0
