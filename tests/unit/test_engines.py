"""The promise, on a scripted model: whatever the draft proposes, the text is the target's own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specwhisper.types import Mode
from specwhisper.whisper.one_process import OneProcess
from tests.interference import KINDS, Interference
from tests.scripted import VOCABULARY, ScriptedModel

MODES = [Mode.SYNC, Mode.PIPELINED, Mode.FULL, Mode.ONE_PROCESS]


def recording(seed: int, length_s: float) -> bytes:
    """Noise of changing loudness, so that every window sounds different."""
    random = np.random.default_rng(seed)
    samples = random.normal(0, 0.05, int(length_s * 16000)) * (1 + np.linspace(0, 3, int(length_s * 16000)))
    return (np.clip(samples, -1, 1) * 32767).astype("<i2").tobytes()


RECORDINGS = {(seed, length): recording(seed, length) for seed in range(3) for length in (0.3, 1.0, 33.0)}


def target_text(pcms: Sequence[bytes], seed: int) -> list[list[tuple[int, ...]]]:
    alone = OneProcess(ScriptedModel(len(pcms), seed=seed)).transcribe(pcms)
    return [transcript.window_tokens for transcript in alone]


@pytest.mark.timeout(900)  # a thousand cases, on whatever machine
@settings(max_examples=1000, deadline=None)
@given(
    mode=st.sampled_from(MODES),
    kind=st.sampled_from(KINDS),
    gamma=st.integers(1, 16),
    depth=st.integers(1, 5),
    error_rate=st.sampled_from([0.0, 0.2, 0.5, 1.0]),
    seed=st.integers(0, 10_000),
    keys=st.lists(st.sampled_from(sorted(RECORDINGS)[:6]), min_size=1, max_size=3),
    max_positions=st.sampled_from([64, 20]),
)
def test_any_draft_gives_the_targets_text(mode, kind, gamma, depth, error_rate, seed, keys, max_positions):
    pcms = [RECORDINGS[key] for key in keys]
    split = OneProcess(
        ScriptedModel(len(pcms), seed=seed),
        ScriptedModel(len(pcms), seed=seed, error_rate=error_rate, max_positions=max_positions),
        mode=mode,
        gamma=gamma,
        depth=depth,
        edit_block=Interference(kind, seed, vocabulary_size=len(VOCABULARY)),
    ).transcribe(pcms)
    assert [transcript.window_tokens for transcript in split] == target_text(pcms, seed)


@pytest.mark.parametrize("mode", MODES)
def test_a_perfect_draft_is_accepted_and_saves_passes(mode):
    pcm = RECORDINGS[0, 33.0]
    target = ScriptedModel(seed=3)
    transcript = OneProcess(target, ScriptedModel(seed=3), mode=mode, gamma=4).transcribe([pcm])[0]
    statistics = transcript.statistics
    assert statistics.num_accepted == statistics.num_verified > 0
    assert statistics.num_passes == target.num_passes < statistics.num_committed
