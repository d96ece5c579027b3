"""Text pairs go through the same engines: the target's own text, by its own rules."""

import copy
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import LlamaForCausalLM

from specwhisper import SpeculativeConfig, SpeculativeLM, compare_gammas
from specwhisper.errors import (
    CheckpointError,
    InvalidRequest,
    PairMismatch,
    RecordingsFailed,
    SpecWhisperError,
)
from specwhisper.speculation.draft_length import MAX_CHOSEN_GAMMA
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
    models = {"target": target, "noisy": noisy, "stranger": llama(1, 2, 310)}
    return {name: save(model, root / name) for name, model in models.items()}


@pytest.fixture(scope="module")
def pair(folders) -> SpeculativeLM:
    return SpeculativeLM(folders["noisy"], folders["target"], "cpu")


@pytest.fixture(scope="module")
def alone(folders) -> SpeculativeLM:
    return SpeculativeLM(None, folders["target"], "cpu")


def ids_of(prompt: str) -> list[int]:
    return list(llama_tokenizer()(prompt).input_ids)


@cache
def expected(target: LlamaForCausalLM, prompt: str, count: int = COUNT, **options: object) -> tuple[int, ...]:
    """Return what transformers writes; the same arguments come often."""
    ids = torch.tensor([ids_of(prompt)])
    with torch.inference_mode():
        written = target.generate(ids, max_new_tokens=count, do_sample=False, pad_token_id=1, **options)
    return tuple(written[0, ids.shape[1] :].tolist())


def test_loading_writes_nothing_to_the_terminal(folders, capfd):
    SpeculativeLM(folders["noisy"], folders["target"], "cpu").generate(PROMPTS[0], max_new_tokens=2)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("draft", mostly_nightly(["noisy", "stranger", "target", None], by_day=2))
@pytest.mark.parametrize("gamma", mostly_nightly([5, 1, 20]))
def test_greedy_text_is_that_of_generate(folders, target, draft, gamma):
    draft = None if draft is None else folders[draft]
    pair = SpeculativeLM(draft, folders["target"], "cpu", SpeculativeConfig(gamma=gamma))
    written = pair.generate(PROMPTS, max_new_tokens=40)
    assert [completion.tokens for completion in written] == [expected(target, p, 40) for p in PROMPTS]
    assert pair.generate(PROMPTS[0], max_new_tokens=40).tokens == written[0].tokens
    assert str(written[0]) == llama_tokenizer().decode(written[0].tokens, skip_special_tokens=True)


def test_every_token_that_ends_a_text_ends_it(folders, target, tmp_path):
    written = expected(target, PROMPTS[0], 40)
    ends = [int(target.generation_config.eos_token_id), written[7], written[11]]
    folder = save(target, tmp_path / "chat", eos_token_id=ends)
    stops_at = min(written.index(token) for token in ends[1:])
    for draft in (None, folders["noisy"], folder):
        completion = SpeculativeLM(draft, folder, "cpu").generate(PROMPTS[0], max_new_tokens=40)
        assert completion.tokens == written[: stops_at + 1]


def test_a_model_without_an_end_token_writes_up_to_the_limit(folders, target, tmp_path):
    folder = save(target, tmp_path / "endless", eos_token_id=None)
    completion = SpeculativeLM(folders["noisy"], folder, "cpu").generate(PROMPTS[0], max_new_tokens=40)
    assert completion.tokens == expected(target, PROMPTS[0], 40)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (
            {"word_timestamps": True},
            "Unknown option 'word_timestamps' for text: .* gamma, .*max_new_tokens.*use_adaptive_gamma",
        ),
        ({"temperature": (0.0, 0.5)}, "name one temperature"),
        ({"num_beams": 4}, "Beam search is not offered"),
        ({"stop_token_ids": ["x"]}, "stop_token_ids has 'x'"),
    ],
)
def test_options_without_meaning_for_text_are_refused(alone, asked, message):
    with pytest.raises(SpecWhisperError, match=message):
        alone.generate(PROMPTS[0], **asked)


@pytest.mark.parametrize("top_k", mostly_nightly([50, 0, 1]))
def test_a_seed_gives_the_same_text_with_any_draft(folders, top_k):
    config = SpeculativeConfig(temperature=0.8, top_k=top_k, seed=7)
    texts = {
        SpeculativeLM(draft and folders[draft], folders["target"], "cpu", config)
        .generate(PROMPTS[0], max_new_tokens=30)
        .tokens
        for draft in ("target", "noisy", "stranger", None)
    }
    assert len(texts) == 1


def test_a_good_draft_saves_forward_passes(pair):
    completion = pair.generate(PROMPTS[0], max_new_tokens=40)
    assert completion.stats.overall_acceptance_rate > 0.3
    assert completion["stats"]["avg_tokens_per_iteration"] > 1.5
    assert 0 < completion.num_kept == completion["stats"]["num_accepted"] < completion.num_drafted


def test_a_call_has_its_own_draft_length_and_limits_by_their_other_names(folders):
    pair = SpeculativeLM(
        folders["noisy"], folders["target"], "cpu", SpeculativeConfig(use_adaptive_gamma=True)
    )
    given = {"temperature": 1.0, "seed": 5}
    short = pair.generate(PROMPTS[0], gamma=2, max_tokens=12, k=3, **given)
    assert short.tokens == pair.generate(PROMPTS[0], gamma=9, max_new_tokens=12, top_k=3, **given).tokens
    assert short.tokens != pair.generate(PROMPTS[0], max_tokens=12, **given).tokens
    adaptive = pair.generate(PROMPTS[0], gamma=2, use_adaptive_gamma=True, max_tokens=12)
    assert (short.stats.gamma, adaptive.stats.gamma) == (2, MAX_CHOSEN_GAMMA)
    with pytest.raises(InvalidRequest, match="use_adaptive_gamma is 1: it must be True or False"):
        pair.generate(PROMPTS[0], use_adaptive_gamma=1)


def test_draft_lengths_are_compared(pair, capsys):
    compared = compare_gammas(pair.generate, PROMPTS, (2, 10), max_tokens=20)
    assert [figures["gamma"] for figures in compared] == [2, 10]
    assert compared[0].stats.num_forwards > compared[1].stats.num_forwards
    lines = capsys.readouterr().out.splitlines()
    kept = compared[1]["stats"]
    assert lines[1].startswith("gamma 10: ")
    assert f" s, {kept.num_accepted} of {kept.num_drafted} drafted tokens kept, " in lines[1]


def test_a_prompt_that_fails_later_leaves_the_others(alone, target, monkeypatch):
    score, bad = alone._target.score, alone._target.tokenize(PROMPTS[1])

    def fails(rows):
        if any(tuple(row.tokens)[: len(bad)] == bad for row in rows):
            raise ValueError("mine")
        return score(rows)

    monkeypatch.setattr(alone._target, "score", fails)
    with pytest.raises(RecordingsFailed, match=r"1 of 3 prompts failed\. Number 2: mine") as raised:
        alone.generate(PROMPTS, max_new_tokens=8)
    first, failed, last = raised.value.results
    assert [first.tokens, last.tokens] == [expected(target, PROMPTS[place], 8) for place in (0, 2)]
    assert failed is raised.value.errors[1]
    with pytest.raises(ValueError, match="mine"):
        alone.generate(PROMPTS[1], max_new_tokens=8)


NO_ID = r"^The prompt has .*not a token id here: .* 0 to "


@pytest.mark.parametrize(
    ("prompts", "message"),
    [
        ("", "takes between 1 and 95"),
        (["the quick", "fox " * 200], r"^Prompt number 2: The prompt has 401 tokens.* between 1 and 95"),
        (["", "fox", 5], r"^2 prompts .*Prompt number 1: .* Prompt number 3: .* text"),
        (["fox", {}], "type dict cannot be continued: it must be text or token ids"),
        ([1, 10**6], NO_ID),
        ([True, 2], NO_ID),
    ],
    ids=repr,
)
def test_invalid_prompts_are_named_before_anything_is_decoded(alone, prompts, message, monkeypatch):
    monkeypatch.setattr(alone._target, "score", lambda rows: pytest.fail("written"))
    with pytest.raises(InvalidRequest, match=message):
        alone.generate(prompts)


def test_models_that_cannot_be_a_pair_are_refused(folders, target, tmp_path):
    with pytest.raises(CheckpointError, match="'nowhere' cannot be loaded"):
        SpeculativeLM(None, "nowhere", "cpu")
    target.save_pretrained(tmp_path / "other")
    llama_tokenizer(280).save_pretrained(tmp_path / "other")
    with pytest.raises(PairMismatch, match="different tokenizers"):
        SpeculativeLM(str(tmp_path / "other"), folders["target"], "cpu")


def test_a_prompt_may_be_token_ids(pair, target):
    wanted = [expected(target, prompt) for prompt in PROMPTS]
    ids, tokenized = ids_of(PROMPTS[0]), llama_tokenizer()(PROMPTS[0])
    for prompt in (ids, tuple(ids), np.array(ids), list(np.array(ids)), torch.tensor(ids), tokenized):
        assert pair.generate(prompt, max_new_tokens=4).tokens == wanted[0][:4]
    mixed = [tokenized, ids_of(PROMPTS[1]), torch.tensor(ids_of(PROMPTS[2]))]
    assert [each.tokens for each in pair.generate(mixed, max_new_tokens=COUNT)] == wanted
    assert [each.tokens for each in pair.generate(torch.tensor([ids_of("fox")]), max_new_tokens=COUNT)] == [
        wanted[2]
    ]
    assert pair.generate([]) == []


@pytest.mark.parametrize("has_draft", [True, False])
def test_stop_tokens_end_a_text_as_in_generate(has_draft, alone, pair, target):
    pair = pair if has_draft else alone
    written = expected(target, PROMPTS[0])
    stops = [written[7], written[11]]
    end = int(target.generation_config.eos_token_id)
    wanted = expected(target, PROMPTS[0], eos_token_id=(end, *stops))
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


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        (
            {"suppress_tokens": [5], "min_length": 20},
            r"^The generation_config\.json .* sets min_length=20, sup",
        ),
        ({"repetition_penalty": 2}, "generation config cannot be followed"),
        ({"no_repeat_ngram_size": 2.5}, "generation config cannot be followed"),
    ],
)
def test_other_rules_are_refused(rules, message, target, tmp_path):
    with pytest.raises(CheckpointError, match=message):
        SpeculativeLM(None, save(target, tmp_path / "with", **rules), "cpu")


def test_rules_of_a_draft_do_not_count(folders, target, tmp_path):
    folder = save(target, tmp_path / "with", suppress_tokens=[5], min_length=20)
    pair = SpeculativeLM(folder, folders["target"], "cpu")
    assert pair.generate("fox", max_new_tokens=COUNT).tokens == expected(target, "fox")


@pytest.mark.parametrize(
    "device_map",
    mostly_nightly(
        [
            {"model.embed_tokens": "cpu", "model.layers": "disk", "model.norm": "cpu"}
            | {"model.rotary_emb": "cpu", "lm_head": "cpu"},
            "auto",
            {"": "cpu"},
        ]
    ),
)
def test_a_final_model_by_device_map_writes_the_same_text(device_map, folders, target, tmp_path):
    pair = SpeculativeLM(
        folders["noisy"], folders["target"], device_map=device_map, offload_folder=tmp_path / "offload"
    )
    written = pair.generate(PROMPTS, max_new_tokens=COUNT)
    assert [each.tokens for each in written] == [expected(target, prompt) for prompt in PROMPTS]


def test_weights_that_are_not_finite_are_an_error(target, tmp_path):
    broken = copy.deepcopy(target)
    next(broken.parameters()).data[0, 0] = float("nan")
    broken.model.norm.weight.data[0] = float("nan")
    lm = SpeculativeLM(None, save(broken, tmp_path / "broken"), "cpu")
    with pytest.raises(CheckpointError, match="weights are not finite"):
        lm.generate("the quick", max_new_tokens=3)
