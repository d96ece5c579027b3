"""The bundled pair: on every sample, every mode writes what plain transformers writes."""

from collections.abc import Iterator
from functools import cache
from itertools import product
from typing import Any

import pytest

from experiments.common.audio.samples import bundled
from experiments.common.inline_pair import InlinePair
from experiments.exactness.comparison import differences
from experiments.exactness.oracle import OracleText, Steered
from experiments.exactness.prepared import DemoPair
from specwhisper.options import DecodingOptions, Padding
from specwhisper.types import Mode

SAMPLES = range(len(bundled()))  # the shortest first
MODES_AND_DRAFTS = [
    (Mode.TARGET_ONLY, None),
    (Mode.SYNC, "demo-draft-tiny"),
    (Mode.PIPELINED, "demo-draft-tiny"),
    (Mode.FULL, "demo-draft-tiny"),
    (Mode.ONE_PROCESS, "demo-draft-tiny"),
    (Mode.ONE_PROCESS, "demo-draft-distil"),
]


@cache
def demo_pair(padding: Padding = Padding.SILENCE) -> DemoPair:
    return DemoPair(DecodingOptions.greedy(language="en", padding=padding))


@cache
def reference(sample: int, padding: Padding) -> OracleText:
    made = demo_pair(padding)
    return made.oracle(made.pcms[sample], made.recording_options[sample])


def runs() -> Iterator[Any]:
    """Yield every sample with every mode and padding; by day each of both on the shortest."""
    for sample, padding, (mode, draft) in product(SAMPLES, Padding, MODES_AND_DRAFTS):
        is_by_day = sample == 0 and (padding is Padding.SILENCE or mode in (Mode.TARGET_ONLY, Mode.FULL))
        marks = () if is_by_day else pytest.mark.nightly
        yield pytest.param(sample, padding, mode, draft, marks=marks)


@pytest.mark.parametrize(("sample", "padding", "mode", "draft"), list(runs()))
def test_every_mode_equals_transformers(sample: int, padding: Padding, mode: Mode, draft: str | None):
    made, expected = demo_pair(padding), reference(sample, padding)
    pcm, limit = made.pcms[sample], made.checkpoint.max_new_tokens
    target = Steered(made.target(1), {len(pcm) // 2: expected})
    engine = InlinePair(target, made.draft(draft, 1) if draft else None, mode=mode, max_new_tokens=limit)
    assert differences(engine.transcribe([pcm], made.recording_options[sample]), [expected]) == []


@pytest.mark.nightly
def test_hardly_a_token_is_a_tie():
    windows = [window for sample in SAMPLES for window in reference(sample, Padding.SILENCE).windows]
    num_tokens = sum(len(window.tokens) for window in windows)
    assert sum(len(window.ties) for window in windows) <= 0.005 * num_tokens
    assert len(windows) >= len(SAMPLES) == 7
