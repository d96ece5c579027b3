"""Prompts as token ids, stop tokens, rules of a generation config, and device maps of text pairs."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import LlamaForCausalLM

from specwhisper import SpeculativeLM
from specwhisper.errors import CheckpointError, InvalidRequest
from tests.llamas import llama, llama_tokenizer
from tests.nightly import mostly_nightly

PROMPTS = ["the quick", "over the lazy dog the", "fox"]
COUNT = 24


@pytest.fixture(scope="module")
def target() -> LlamaForCausalLM:
    return llama(3, 1)


def save(model: LlamaForCausalLM, folder: Path, **generation: object) -> str:
    """Save a model with values in its generation config."""
    model = copy.deepcopy(model)
    for name, value in generation.items():
        setattr(model.generation_config, name, value)
    model.save_pretrained(folder)
    llama_tokenizer().save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def folders(tmp_path_factory, target) -> dict[str, str]:
    root = tmp_path_factory.mktemp("text")
    noisy = copy.deepcopy(target)
    torch.manual_seed(2)
    for parameter in noisy.parameters():
        parameter.data += torch.randn_like(parameter) * 0.003
    return {"target": save(target, root / "target"), "noisy": save(noisy, root / "noisy")}


@pytest.fixture(scope="module")
def pair(folders) -> SpeculativeLM:
    return SpeculativeLM(folders["noisy"], folders["target"], "cpu")


def ids_of(prompt: str) -> list[int]:
    return list(llama_tokenizer()(prompt).input_ids)


def expected(target: LlamaForCausalLM, prompt: str, **options: object) -> tuple[int, ...]:
    ids = torch.tensor([ids_of(prompt)])
    with torch.inference_mode():
        written = target.generate(ids, max_new_tokens=COUNT, do_sample=False, pad_token_id=1, **options)
    return tuple(written[0, ids.shape[1] :].tolist())


def test_a_prompt_may_be_token_ids(pair, target):
    wanted = [expected(target, prompt) for prompt in PROMPTS]
    for form in (list, tuple, np.array, torch.tensor):
        ids = form(ids_of(PROMPTS[0]))
        assert pair.generate(ids, max_new_tokens=COUNT).tokens == wanted[0]
    mixed = [PROMPTS[0], ids_of(PROMPTS[1]), torch.tensor(ids_of(PROMPTS[2]))]
    assert [each.tokens for each in pair.generate(mixed, max_new_tokens=COUNT)] == wanted
    assert [each.tokens for each in pair.generate(torch.tensor([ids_of("fox")]), max_new_tokens=COUNT)] == [
        wanted[2]
    ]
    assert pair.generate([]) == []


def test_ids_that_a_model_lacks_are_refused(pair):
    for prompt in ([1, 10**6], [-1], [True, 2]):
        with pytest.raises(InvalidRequest, match=r"^The prompt has .*not a token id here: .* 0 to "):
            pair.generate(prompt)
    with pytest.raises(InvalidRequest, match=r"^Prompt number 2: The prompt has 1000000"):
        pair.generate(["fox", [10**6]])
    with pytest.raises(InvalidRequest, match="type dict cannot be continued: it must be text or token ids"):
        pair.generate(["fox", {}])
    with pytest.raises(InvalidRequest, match="stop_token_ids has 'x'"):
        pair.generate("fox", stop_token_ids=["x"])


@pytest.mark.parametrize("has_draft", [True, False])
def test_stop_tokens_end_a_text_as_in_generate(has_draft: bool, folders, pair, target):
    pair = pair if has_draft else SpeculativeLM(None, folders["target"], "cpu")
    written = expected(target, PROMPTS[0])
    stops = [written[7], written[11]]
    end = int(target.generation_config.eos_token_id)
    wanted = expected(target, PROMPTS[0], eos_token_id=[end, *stops])
    assert len(wanted) < len(written)
    assert pair.generate(PROMPTS[0], max_new_tokens=COUNT, stop_token_ids=stops).tokens == wanted
    # They are those of one call.
    assert pair.generate(PROMPTS[0], max_new_tokens=COUNT).tokens == written


@pytest.mark.parametrize(
    "values",
    mostly_nightly(
        [
            {"repetition_penalty": 0.8, "no_repeat_ngram_size": 3},
            {"repetition_penalty": 1.3},
            {"no_repeat_ngram_size": 2},
        ]
    ),
)
def test_rules_of_the_final_models_generation_config_are_followed(values, folders, target, tmp_path):
    folder = save(target, tmp_path / "with", **values)
    wanted = [expected(target, prompt, **values) for prompt in PROMPTS]
    assert wanted != [expected(target, prompt) for prompt in PROMPTS]
    for draft in (None, folders["noisy"], folder):
        pair = SpeculativeLM(draft, folder, "cpu")
        assert [each.tokens for each in pair.generate(PROMPTS, max_new_tokens=COUNT)] == wanted
    assert pair.generate(PROMPTS[1], max_new_tokens=COUNT).stats.overall_acceptance_rate == 1


def test_other_rules_are_refused_and_a_drafts_do_not_count(folders, target, tmp_path):
    folder = save(target, tmp_path / "with", suppress_tokens=[5], min_length=20)
    with pytest.raises(CheckpointError, match=r"^The generation_config\.json .* sets min_length=20, sup"):
        SpeculativeLM(None, folder, "cpu")
    pair = SpeculativeLM(folder, folders["target"], "cpu")
    assert pair.generate("fox", max_new_tokens=COUNT).tokens == expected(target, "fox")


@pytest.mark.parametrize(
    "device_map",
    [
        "auto",
        {"": "cpu"},
        {"model.embed_tokens": "cpu", "model.layers": "disk", "model.norm": "cpu"}
        | {"model.rotary_emb": "cpu", "lm_head": "cpu"},
    ],
)
def test_a_final_model_by_device_map_writes_the_same_text(device_map, folders, target, tmp_path):
    pair = SpeculativeLM(
        folders["noisy"], folders["target"], device_map=device_map, offload_folder=tmp_path / "offload"
    )
    written = pair.generate(PROMPTS, max_new_tokens=COUNT)
    assert [each.tokens for each in written] == [expected(target, prompt) for prompt in PROMPTS]


def test_what_a_tokenizer_returns_is_a_prompt(pair, target):
    tokenizer = llama_tokenizer()
    written = expected(target, PROMPTS[0])
    assert pair.generate(tokenizer(PROMPTS[0]), max_new_tokens=COUNT).tokens == written
    assert pair.generate(list(np.array(ids_of(PROMPTS[0]))), max_new_tokens=COUNT).tokens == written
    both = pair.generate([tokenizer(PROMPTS[0]), PROMPTS[0]], max_new_tokens=COUNT)
    assert [each.tokens for each in both] == [written, written]


def test_weights_that_are_not_finite_are_an_error(target, tmp_path):
    broken = copy.deepcopy(target)
    next(broken.parameters()).data[0, 0] = float("nan")
    broken.model.norm.weight.data[0] = float("nan")
    lm = SpeculativeLM(None, save(broken, tmp_path / "broken"), "cpu")
    with pytest.raises(CheckpointError, match="weights are not finite"):
        lm.generate("the quick", max_new_tokens=3)


@pytest.mark.parametrize("rule", [{"repetition_penalty": 2}, {"no_repeat_ngram_size": 2.5}])
def test_rules_that_transformers_refuses_are_named(target, tmp_path, rule):
    with pytest.raises(CheckpointError, match="generation config cannot be followed"):
        SpeculativeLM(None, save(target, tmp_path / "refused", **rule), "cpu")
