"""Slots of a text model hold their own tokens, and free their memory."""

from functools import partial

import torch

from experiments.common.inline_pair import InlinePair
from specwhisper.model.choosing import Row
from specwhisper_text.model import TextModel
from specwhisper_text.speculative import SILENCE, TextOptions, _plan
from tests.llamas import llama, llama_tokenizer

LENGTHS = [150, 20, 12]


def row(slot: int, *tokens: int, num_candidates: int = 2) -> Row:
    return Row(slot, tokens, num_candidates, (), timestamps=False)


def test_a_slot_holds_its_tokens_after_append_and_rollback():
    model = TextModel(llama(2, 1, positions=300), llama_tokenizer(), len(LENGTHS), 300)
    fed = [list(range(2, 2 + length)) for length in LENGTHS]
    model.score([row(slot, *tokens, num_candidates=0) for slot, tokens in enumerate(fed)])
    for step in range(40):
        slots = [1] if step % 7 == 3 else [0, 2] if step % 5 == 4 else [0, 1, 2]
        model.score([row(slot, step + 3, step + 5, step + 7) for slot in slots])
        for slot in slots:
            fed[slot] += [step + 3, step + 5, step + 7][: 1 + (step + slot) % 3]
            model.rollback(slot, len(fed[slot]))
    for slot, tokens in enumerate(fed):
        with torch.inference_mode():
            expected = model._model(torch.tensor([tokens]), use_cache=True).past_key_values.layers
        assert model.length(slot) == len(tokens)
        for held, layer in zip(model._caches[slot].layers, expected, strict=True):
            torch.testing.assert_close(held.keys, layer.keys, atol=1e-4, rtol=1e-4)
            torch.testing.assert_close(held.values, layer.values, atol=1e-4, rtol=1e-4)
    for empty in (lambda slot: model.rollback(slot, 0), lambda slot: model.encode(slot, None, 0)):
        empty(0)
        assert model.length(0) == model._caches[0].get_seq_length() == 0


def test_a_draft_does_not_begin_before_the_target_names_the_prompt():
    """The engines predict a first window with Whisper's prompt, of which no text model has the ids."""
    target, draft = (TextModel(llama(2, seed), llama_tokenizer(), 1, 300) for seed in (1, 2))
    pair = InlinePair(target, draft, plan=partial(_plan, target))
    options = TextOptions.greedy(prompt=tuple(range(2, 12)), max_new_tokens=8, timestamps=False)
    (written,) = pair.transcribe([SILENCE], options)
    (alone,) = InlinePair(target, plan=partial(_plan, target)).transcribe([SILENCE], options)
    assert written.window_tokens == alone.window_tokens
    assert written.stats.num_drafted > 0
