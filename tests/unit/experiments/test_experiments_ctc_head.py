"""A CTC head as a source of hints: its text, how it is trained, and what it saves."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import soundfile
import torch
from typer import Typer
from typer.testing import CliRunner

from experiments.common.audio.samples import bundled
from experiments.ctc_head.__main__ import ctc_head
from experiments.ctc_head.agreement import Agreement, compare
from experiments.ctc_head.head import Block, CtcHead, collapse
from experiments.ctc_head.passes import Passes, corrupted, count_passes
from experiments.ctc_head.pieces import cut, split
from experiments.ctc_head.store import Example
from experiments.ctc_head.summary import Result, bars
from experiments.ctc_head.timing import Arm, Times, ratio
from experiments.ctc_head.training import ctc_loss, train
from specwhisper.speculation.hints.hint import PLAIN
from specwhisper.types import SAMPLE_RATE

BLANK = 9
END = 99
EPOCHS = 60


@pytest.mark.parametrize(
    ("path", "tokens"),
    [
        ([], []),
        ([BLANK, BLANK], []),
        ([1, 1, BLANK, 1, 2, 2], [1, 1, 2]),  # a blank between two of a kind makes them two
        ([BLANK, 3, 3, 3, BLANK], [3]),
    ],
)
def test_a_path_is_collapsed(path, tokens):
    assert collapse(path, BLANK) == tokens


def passes_of(tokens: list[int], hint: list[int]) -> Passes:
    passes = Passes()
    count_passes(passes, tokens, " ".join(map(str, hint)), lambda text: tuple(map(int, text.split())), PLAIN)
    return passes


def test_a_perfect_hint_takes_few_passes():
    text = list(range(50))
    passes = passes_of([*text, END], text)
    assert passes.num_tokens == 51
    assert passes.num_accepted == 50 - (passes.num_passes - 1)  # each pass but the last adds a token
    assert passes.num_passes < 5
    assert (passes.alpha, passes.num_wrong) == (1.0, 0)


def test_without_a_hint_a_token_takes_a_pass():
    passes = passes_of([1, 2, 3, END], [])
    assert (passes.passes_per_token, passes.num_candidates) == (1.0, 0)
    assert passes.relative_time(candidate_cost=0.5) == 1.0


def test_a_wrong_token_costs_a_pass_and_the_hint_goes_on_after_it():
    text = list(range(40))
    hint = [*text[:10], 77, *text[11:]]
    good, wrong = passes_of([*text, END], text), passes_of([*text, END], hint)
    assert wrong.num_wrong == 1
    assert wrong.realigned == [True]
    assert good.num_passes <= wrong.num_passes <= good.num_passes + 2
    assert good.alpha > wrong.alpha > 0.9


def test_a_hint_of_another_text_is_dropped():
    passes = passes_of([*range(60), END], list(range(100, 160)))
    assert passes.passes_per_token == 1.0
    assert (passes.alpha, passes.beta) == (0.0, 0.0)
    assert passes.num_candidates < 60


def test_candidates_have_a_price():
    passes = Passes(num_tokens=10, num_passes=2, num_candidates=8)
    assert passes.relative_time(candidate_cost=0.25) == pytest.approx(0.4)


def test_the_asked_share_of_tokens_is_wrong():
    text = list(range(3000))
    assert corrupted(text, 0.0, np.random.default_rng(0)) == text
    wrong = corrupted(text, 0.2, np.random.default_rng(0))
    kept = set(wrong)
    assert sum(token not in kept for token in text) == pytest.approx(2 / 3 * 0.2 * 3000, rel=0.25)
    assert len(wrong) == pytest.approx(3000, rel=0.03)


def test_agreement_counts_tokens_and_words():
    found = compare(
        [[1, 2, 3, 4], []], [[1, 2, 9, 4], [5]], ["The big red dog.", ""], ["the big Red cat", "x"]
    )
    assert found.tokens == 0.25
    assert found.words == 0.25
    assert found.written_words == 0.75


def test_silence_has_no_agreement():
    assert compare([[]], [[1]], [" "], ["x"]).words == 0.0


def test_a_recording_is_cut_into_windows():
    pieces = list(cut("talk", bytes(2 * (61 * SAMPLE_RATE))))
    assert [len(piece.pcm) / 2 / SAMPLE_RATE for piece in pieces] == [30, 30, 1]
    assert pieces[0].digest == pieces[1].digest != pieces[2].digest
    assert [len(piece.pcm) for piece in cut("talk", bytes(2 * 100))] == []


def test_no_recording_is_in_training_and_held_out(tmp_path):
    recordings = [tmp_path / f"{i}.wav" for i in range(25)]
    training, unseen = split(recordings)
    assert sorted(training + unseen) == sorted(recordings)
    assert len(unseen) == 2


def spoken(num_windows: int, num_tokens: int, width: int) -> list[Example]:
    """Return windows in which each token is one direction of the encoder, for three positions."""
    rng, examples = np.random.default_rng(0), []
    for _ in range(num_windows):
        tokens = rng.integers(0, num_tokens, 6).tolist()
        encoded = torch.zeros(24, width)
        for index, token in enumerate(tokens):
            encoded[4 * index : 4 * index + 3, token] = 4.0
        examples.append(Example(encoded.half(), [*tokens, END]))
    return examples


@pytest.mark.parametrize("block", list(Block))
def test_a_head_learns_and_a_cut_training_continues(block, tmp_path):
    examples, losses = spoken(16, 5, 8), []
    torch.manual_seed(0)
    head = CtcHead(8, 5, block)
    path = tmp_path / "head.pt"

    def stop_after_4(epoch: int, loss: float) -> None:
        losses.append(loss)
        if epoch == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(head, examples, path, epochs=EPOCHS, peak=0.1, seed=0, report=stop_after_4)
    continued = CtcHead(8, 5, block)
    epochs: list[int] = []
    train(
        continued,
        examples,
        path,
        epochs=EPOCHS,
        peak=0.1,
        seed=0,
        report=lambda epoch, _: epochs.append(epoch),
    )
    assert epochs == list(range(5, EPOCHS + 1))
    with torch.inference_mode():
        loss, count = ctc_loss(continued, examples)
    assert loss / count < 0.2 * losses[0]
    assert continued.tokens(examples[0].encoded) == examples[0].tokens[:-1]


@pytest.mark.parametrize("block", list(Block))
def test_padding_does_not_change_a_rows_loss(block):
    torch.manual_seed(0)
    head = CtcHead(8, 5, block).eval()
    short, long = spoken(2, 5, 8)
    short = Example(short.encoded[:16], short.tokens[:3])  # the other row pads it
    with torch.inference_mode():
        alone = sum(ctc_loss(head, [example])[0].item() for example in (short, long))
        assert ctc_loss(head, [short, long])[0].item() == pytest.approx(alone, rel=1e-3)


def test_arms_are_compared_by_their_sums():
    found = ratio([1.0, 6.0], [1.0, 10.0])
    assert found.value == pytest.approx(7 / 11)
    assert (found.low, found.high) == pytest.approx((0.6, 1.0))
    assert str(ratio([3.0], [6.0])) == "0.50 [n = 1]"


def test_a_set_meets_its_bar_by_processor_time():
    base = Times(wall_s=[1.0], cpu_s=[2.0], decoding_s=[1.0], encode_s=[0.2])
    for cpu_s, holds in ((1.1, True), (1.3, False)):
        times = {Arm.TARGET_ONLY: base, Arm.HEAD: replace(base, wall_s=[9.0], cpu_s=[cpu_s])}
        (bar,) = bars([Result("speech", Agreement(0, 0, 0), Passes(), times)])
        assert bar.holds is holds


@pytest.mark.nightly
def test_a_quick_run_writes_its_figures(tmp_path):
    samples, rate = soundfile.read(bundled()[0], frames=8 * SAMPLE_RATE)
    for index, part in enumerate((samples[: 4 * rate], samples[4 * rate :])):
        soundfile.write(tmp_path / f"{index}.wav", part, rate)
    app, out = Typer(), tmp_path / "figures.json"
    app.command()(ctc_head)
    arguments = ["--work", str(tmp_path), "--audio", str(tmp_path), "--quick", "--epochs", "1"]
    found = CliRunner().invoke(app, [*arguments, "--json", str(out)])
    assert found.exit_code == 0, found.output
    (result,) = json.loads(out.read_text())["results"]
    arms = result["arms"]
    assert arms["own text"]["num_forwards"] < arms["target-only"]["num_forwards"] / 3
    assert arms["own text"]["num_tokens"] == arms["target-only"]["num_tokens"]
    assert len(list(tmp_path.rglob("*.npz"))) == 2
