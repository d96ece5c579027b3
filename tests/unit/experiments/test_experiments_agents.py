"""The time from the end of speech to final text, for voice agents."""

from __future__ import annotations

import numpy as np
import pytest

from experiments.agents.clients import Text
from experiments.agents.takes import GAP_S, latencies, take_of
from specwhisper.types import SAMPLE_RATE


def test_an_utterance_without_a_text_after_its_end_counts_as_late():
    take = take_of([np.full(SAMPLE_RATE, 1000, np.int16)] * 3)
    (_, first), (begin_s, second), _ = take.spans_s
    texts = [
        Text(first + 0.2, "final", "one,"),
        Text(first + 0.4, "final", "two"),
        Text(begin_s + 0.5, "final", "cut off at a pause"),
        Text(second + 0.5, "interim", "not final"),
    ]
    assert latencies(take, texts) == pytest.approx([0.4, GAP_S, GAP_S])
