"""Text pairs go through the same engines: the target's own text, greedy and sampled."""

from __future__ import annotations

import copy
from pathlib import Path

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


@pytest.fixture(scope="module")
def target() -> LlamaForCausalLM:
    return llama(3, 1)


@pytest.fixture(scope="module")
def folders(tmp_path_factory, target):
    root = tmp_path_factory.mktemp("text")
    noisy = copy.deepcopy(target)
    torch.manual_seed(2)
    for parameter in noisy.parameters():
        parameter.data += torch.randn_like(parameter) * 0.003
    for name, model in (("target", target), ("noisy", noisy), ("stranger", llama(1, 2, 310))):
        model.save_pretrained(root / name)
        llama_tokenizer().save_pretrained(root / name)
    return {path.name: str(path) for path in root.iterdir()}


def expected(target: LlamaForCausalLM, prompt: str, count: int) -> tuple[int, ...]:
    ids = torch.tensor([llama_tokenizer()(prompt).input_ids])
    with torch.inference_mode():
        written = target.generate(ids, max_new_tokens=count, do_sample=False, pad_token_id=1)
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


def ending(target: LlamaForCausalLM, folder: Path, ends: list[int] | None) -> str:
    """Save the target with other tokens that end a text."""
    model = copy.deepcopy(target)
    model.generation_config.eos_token_id = ends
    model.save_pretrained(folder)
    llama_tokenizer().save_pretrained(folder)
    return str(folder)


def test_every_token_that_ends_a_text_ends_it(folders, target, tmp_path):
    written = expected(target, PROMPTS[0], 40)
    ends = [int(target.generation_config.eos_token_id), written[7], written[11]]
    folder = ending(target, tmp_path / "chat", ends)
    stops_at = min(written.index(token) for token in ends[1:])
    for draft in (None, folders["noisy"], folder):
        completion = SpeculativeLM(draft, folder, "cpu").generate(PROMPTS[0], max_new_tokens=40)
        assert completion.tokens == written[: stops_at + 1]


def test_a_model_without_an_end_token_writes_up_to_the_limit(folders, target, tmp_path):
    folder = ending(target, tmp_path / "endless", None)
    completion = SpeculativeLM(folders["noisy"], folder, "cpu").generate(PROMPTS[0], max_new_tokens=40)
    assert completion.tokens == expected(target, PROMPTS[0], 40)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (
            {"word_timestamps": True},
            "no option 'word_timestamps' for text; .* gamma, .*max_new_tokens.*use_adaptive_gamma",
        ),
        ({"temperature": (0.0, 0.5)}, "name one temperature"),
        ({"temperature": -1.0}, "each 0 or from 1e-06"),
        ({"num_beams": 4}, "Beam search is not offered"),
    ],
)
def test_options_without_meaning_for_text_are_refused(folders, asked, message):
    with pytest.raises(SpecWhisperError, match=message):
        SpeculativeLM(None, folders["target"], "cpu").generate(PROMPTS[0], **asked)


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


def test_a_good_draft_saves_forward_passes(folders):
    pair = SpeculativeLM(folders["noisy"], folders["target"], "cpu")
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


def test_draft_lengths_are_compared(folders, capsys):
    pair = SpeculativeLM(folders["noisy"], folders["target"], "cpu")
    compared = compare_gammas(pair.generate, PROMPTS, (2, 10), max_tokens=20)
    assert [figures["gamma"] for figures in compared] == [2, 10]
    assert compared[0].stats.num_forwards > compared[1].stats.num_forwards
    lines = capsys.readouterr().out.splitlines()
    kept = compared[1]["stats"]
    assert lines[1].startswith("gamma 10: ")
    assert f" s, {kept.num_accepted} of {kept.num_drafted} drafted tokens kept, " in lines[1]


def test_invalid_prompts_are_named_before_anything_is_decoded(folders, monkeypatch):
    pair = SpeculativeLM(None, folders["target"], "cpu")
    monkeypatch.setattr(pair._target, "score", lambda rows: pytest.fail("written"))
    with pytest.raises(InvalidRequest, match=r"^Prompt number 2: The prompt has 401 tokens"):
        pair.generate(["the quick", "fox " * 200, "fox"])
    with pytest.raises(InvalidRequest, match=r"^2 prompts .*Prompt number 1: .* Prompt number 3: .* text"):
        pair.generate(["", "fox", 5])


def test_a_prompt_that_fails_later_leaves_the_others(folders, target, monkeypatch):
    pair = SpeculativeLM(None, folders["target"], "cpu")
    score, bad = pair._target.score, pair._target.tokenize(PROMPTS[1])

    def fails(rows):
        if any(tuple(row.tokens)[: len(bad)] == bad for row in rows):
            raise ValueError("mine")
        return score(rows)

    monkeypatch.setattr(pair._target, "score", fails)
    with pytest.raises(RecordingsFailed, match=r"1 of 3 prompts failed\. Number 2: mine") as raised:
        pair.generate(PROMPTS, max_new_tokens=8)
    first, failed, last = raised.value.results
    assert [first.tokens, last.tokens] == [expected(target, PROMPTS[place], 8) for place in (0, 2)]
    assert failed is raised.value.errors[1]
    with pytest.raises(ValueError, match="mine"):
        pair.generate(PROMPTS[1], max_new_tokens=8)


def test_invalid_requests_are_refused(folders, target, tmp_path):
    pair = SpeculativeLM(None, folders["target"], "cpu")
    with pytest.raises(InvalidRequest, match="takes between 1 and 95"):
        pair.generate("")
    with pytest.raises(InvalidRequest, match="takes between 1 and 95"):
        pair.generate("fox " * 200)
    with pytest.raises(CheckpointError, match="'nowhere' cannot be loaded"):
        SpeculativeLM(None, "nowhere", "cpu")
    target.save_pretrained(tmp_path / "other")
    llama_tokenizer(280).save_pretrained(tmp_path / "other")
    with pytest.raises(PairMismatch, match="different tokenizers"):
        SpeculativeLM(str(tmp_path / "other"), folders["target"], "cpu")
