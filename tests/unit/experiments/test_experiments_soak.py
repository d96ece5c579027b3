"""Growth and leaks, and what fails the run."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest

from experiments.soak.__main__ import MAX_GROWTH_KIB, Soaked, bars
from experiments.soak.census import Sample, growth_kib, leaked
from experiments.soak.servers import GATEWAY
from experiments.soak.sessions import WEIGHTS, Kind, Tally
from experiments.soak.streams import Stream, spans

CALM = Stream((), 0, 0.3, 1.0)


def samples(growth_per_session: float, **last: int) -> list[Sample]:
    """Twenty looks at a process that grows steadily, and swings by 300 KiB."""
    held = [
        Sample(n, 50_000 + 150 * (-1) ** (n // 50) + n * growth_per_session, 90_000, 20, 10, 9, 0, 0)
        for n in range(200, 1_200, 50)
    ]
    return [*held[:-1], replace(held[-1], **last)]


def soaked(growth_per_session: float = 0.5, errors: tuple[str, ...] = (), **last: int) -> Soaked:
    tally = Tally(Counter({Kind.WHOLE: 70, Kind.CANCELLED: 30}), list(errors))
    return Soaked(tally, {"target": samples(growth_per_session, **last)})


@pytest.mark.parametrize("growth", [0.0, 1.0, 8.0])
def test_growth_is_fitted_to_all_samples(growth):
    assert growth_kib(samples(growth)) == pytest.approx(growth, abs=0.1)


def test_leaks_are_named():
    first, *_, last = samples(0.0, files=21, tasks=8)
    assert leaked(first, last) == {"files": 1}
    assert leaked(first, first) == {}
    assert leaked(first, replace(first, threads=first.threads + 8)) == {}
    assert leaked(first, replace(first, threads=first.threads + 9)) == {"threads": 9}


def test_a_calm_run_passes_every_bar():
    assert all(bar.holds for bar in bars(soaked(), soaked(8.0), [CALM]))


@pytest.mark.parametrize(
    "spoilt",
    [
        (soaked(MAX_GROWTH_KIB + 1), soaked(8.0), [CALM]),
        (soaked(errors=("one failed",)), soaked(8.0), [CALM]),
        (soaked(files=21), soaked(8.0), [CALM]),
        (soaked(taken_slots=1), soaked(8.0), [CALM]),
        (soaked(), soaked(1.0), [CALM]),  # a leak would not be detected
        (soaked(), soaked(8.0), [CALM, Stream(("lost",), 0, 0.3, 1.0)]),
        (soaked(), soaked(8.0), [Stream((), 1, 0.3, 1.0)]),
        (soaked(), soaked(8.0), [Stream((), 0, 9.0, 1.0)]),
    ],
)
def test_each_fault_fails_one_bar(spoilt):
    assert sum(not bar.holds for bar in bars(*spoilt)) == 1


@pytest.mark.parametrize("counted", ["files", "tasks", "taken_slots", "sessions"])
def test_early_leaks_count_too(counted):
    first, *others = samples(0.5)
    early = [first, *(replace(sample, **{counted: getattr(sample, counted) + 1}) for sample in others)]
    left = {"target": early}
    assert sum(not bar.holds for bar in bars(Soaked(Tally(), left), soaked(8.0), [CALM])) == 1


def test_thread_pools_may_grow_to_their_size():
    first, *others = samples(0.5)
    filled = {"target": [first, *(replace(sample, threads=sample.threads + 3) for sample in others)]}
    assert all(bar.holds for bar in bars(Soaked(Tally(), filled), soaked(8.0), [CALM]))


def test_a_leak_must_be_detected_in_every_server():
    leaky = Soaked(Tally(), {"target": samples(8.0), "gateway": samples(1.0)})
    (missed,) = (bar for bar in bars(soaked(), leaky, [CALM]) if not bar.holds)
    assert "gateway" in missed.name


def test_growth_is_per_session_of_the_server():
    tally = Tally(Counter({Kind.WHOLE: 4, Kind.CANCELLED: 2, Kind.GATEWAY: 2, Kind.CANCELLED_GATEWAY: 1}))
    assert (tally.num_at("target"), tally.num_at("draft server"), tally.num_at(GATEWAY)) == (9, 9, 3)


def test_three_of_ten_sessions_leave_early():
    whole = {Kind.WHOLE, Kind.LIVE, Kind.GATEWAY}
    assert sum(WEIGHTS.values()) == pytest.approx(1)
    assert sum(weight for kind, weight in WEIGHTS.items() if kind not in whole) == pytest.approx(0.3)


def test_speech_ends_before_the_audio():
    found = spans(300.0)
    assert len(found) == 37 and found[-1][1] < 300.0
    assert all(end_s < begin_s for (_, end_s), (begin_s, _) in pairwise(found))
