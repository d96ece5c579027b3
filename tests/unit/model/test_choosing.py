"""A greedy choice reads its results from the device once."""

from collections import Counter
from dataclasses import replace

import pytest
import torch

from experiments.common.models.checkpoints import Shape, build_checkpoint
from specwhisper.model.choosing import Row, choose
from specwhisper.model.model import WhisperModel
from tests.unit.model.libraries import LIBRARIES

_, CHECKPOINT = build_checkpoint(Shape(d_model=32, max_target_positions=32))
ROWS = [Row(0, [5, 6, 7], 2, (), timestamps=True), Row(1, [8], 0, (9,), timestamps=False)]


@LIBRARIES
def test_the_lowest_of_equal_ids_wins(of):
    logits = torch.zeros(4, 51_866)
    logits[0, [9, 8, 51_865]] = 1.0
    logits[1, 5] = -1.0
    first, second = choose(ROWS, of(logits))
    assert first.tokens + second.tokens == [8, 0, 0, 0]
    assert first.margins + second.margins == [0.0] * 4


@pytest.fixture
def transfers(monkeypatch) -> Counter:
    """Return a counter of reads from the device."""
    counted = Counter()
    for name in ("tolist", "item", "__float__", "__int__", "__bool__"):
        method = getattr(torch.Tensor, name)

        def counting(self, *args, _method=method, **kwargs):
            counted["reads"] += 1
            return _method(self, *args, **kwargs)

        monkeypatch.setattr(torch.Tensor, name, counting)
    return counted


def test_a_greedy_forward_pass_reads_the_device_once(transfers):
    model = WhisperModel(CHECKPOINT, 2, has_static_shapes=True)
    model.score(ROWS)
    assert transfers["reads"] == 1
    model.score([replace(ROWS[1], probe=0)])
    assert transfers["reads"] == 3  # the probe's result is read too


@LIBRARIES
def test_results_belong_to_their_rows(of):
    logits = torch.randn(4, 51_866, generator=torch.Generator().manual_seed(3))
    logits[2, -1] = 9.0
    first, second = choose(ROWS, of(logits))
    best = logits.topk(2, dim=-1)
    assert first.tokens + second.tokens == best.indices[:, 0].tolist()
    assert first.tokens[2] == 51_865
    expected = logits.log_softmax(dim=-1).gather(1, best.indices[:, :1]).flatten().tolist()
    assert first.log_probs + second.log_probs == pytest.approx(expected, abs=1e-5)
    margins = (best.values[:, 0] - best.values[:, 1]).tolist()
    assert first.margins + second.margins == pytest.approx(margins, abs=1e-5)
