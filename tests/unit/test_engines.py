"""The promise, on a scripted model: whatever the draft proposes, the text is the target's own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specwhisper.types import Candidates, Mode
from specwhisper.whisper.one_process import OneProcess
from tests.scripted import VOCABULARY, ScriptedModel

MODES = [Mode.SYNC, Mode.PIPELINED, Mode.FULL, Mode.ONE_PROCESS]


class Interference:
    """Changes candidate blocks on their way, as a bad network or a hostile draft might."""

    def __init__(self, kind: str, seed: int) -> None:
        self.kind = kind
        self.random = np.random.default_rng(seed)
        self.kept: list[Candidates] = []

    def __call__(self, block: Candidates) -> Sequence[Candidates]:
        return getattr(self, self.kind)(block)

    def normal(self, block: Candidates) -> Sequence[Candidates]:
        return [block]

    def _with_tokens(self, block: Candidates, tokens: Sequence[int]) -> Candidates:
        return Candidates(block.window_id, block.base, block.known_committed, tuple(tokens))

    def noisy(self, block: Candidates) -> Sequence[Candidates]:
        tokens = [int(self.random.integers(24)) if self.random.random() < 0.3 else t for t in block.tokens]
        return [self._with_tokens(block, tokens)]

    def garbage(self, block: Candidates) -> Sequence[Candidates]:
        tokens = tuple(int(t) for t in self.random.integers(0, len(VOCABULARY), size=self.random.integers(0, 20)))
        base, known = (int(n) for n in self.random.integers(0, 70, size=2))
        return [Candidates(int(self.random.integers(0, 3)), base, known, tokens), self._with_tokens(block, tokens)]

    def empty(self, block: Candidates) -> Sequence[Candidates]:
        return [self._with_tokens(block, ())]

    def duplicated(self, block: Candidates) -> Sequence[Candidates]:
        return [block, block, *self.kept[-1:], *(self.kept.append(block) or ())]  # type: ignore[func-returns-value]

    def delayed(self, block: Candidates) -> Sequence[Candidates]:
        """Some blocks come one block late; the last one of all cannot, so each is also sent alone at times."""
        self.kept.append(block)
        if self.random.random() < 0.5 and len(self.kept) < 2:
            return [self._with_tokens(block, ())]
        late, self.kept = self.kept, []
        return late

    def shuffled(self, block: Candidates) -> Sequence[Candidates]:
        self.kept.append(block)
        order = self.random.permutation(len(self.kept))
        return [self.kept[i] for i in order]


KINDS = ["normal", "noisy", "garbage", "empty", "duplicated", "delayed", "shuffled"]


def recording(seed: int, length_s: float) -> bytes:
    """Noise of changing loudness, so that every window sounds different."""
    random = np.random.default_rng(seed)
    samples = random.normal(0, 0.05, int(length_s * 16000)) * (1 + np.linspace(0, 3, int(length_s * 16000)))
    return (np.clip(samples, -1, 1) * 32767).astype("<i2").tobytes()


RECORDINGS = {(seed, length): recording(seed, length) for seed in range(3) for length in (0.3, 1.0, 33.0)}


def target_text(pcms: Sequence[bytes], seed: int) -> list[list[tuple[int, ...]]]:
    alone = OneProcess(ScriptedModel(len(pcms), seed=seed)).transcribe(pcms)
    return [transcript.window_tokens for transcript in alone]


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
        edit_block=Interference(kind, seed),
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
