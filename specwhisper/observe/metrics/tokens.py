"""Counters of all sessions, computed from each session's statistics."""

from __future__ import annotations

from itertools import zip_longest

from specwhisper.observe.metrics.registry import Registry
from specwhisper.speculation.statistics import SpeculationStatistics
from specwhisper.types import NS_PER_S

KEPT_CANDIDATES = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32)

COUNTED = {
    "windows": (
        "num_windows",
        "Windows opened, each attempt; of live audio one for each of the target's texts.",
    ),
    "drafted_tokens": ("num_drafted", "Tokens sent to the target as candidates."),
    "verified_tokens": ("num_verified", "Draft candidates that the target verified."),
    "accepted_tokens": ("num_accepted", "Draft candidates that the target accepted."),
    "hinted_tokens": ("num_hinted", "Candidates from hints that the target verified."),
    "hinted_accepted_tokens": ("num_hinted_accepted", "Candidates from hints that the target accepted."),
    "self_decoded_tokens": ("num_self_decoded", "Tokens that the target decoded without a candidate."),
    "committed_tokens": (
        "num_committed",
        "Tokens that the target wrote, including those that did not become text.",
    ),
    "session_forward_passes": ("num_forwards", "Forward passes, counted once for each session in them."),
    "align_forward_passes": ("num_align_forwards", "Further forward passes, which only find word times."),
    "candidate_blocks": ("num_blocks", "Blocks of candidates sent."),
}
DRAFT_TIMES_NS = {
    "draft_seconds": ("draft_ns", "Time in the draft's steps."),
    "network_seconds": ("network_ns", "Network time of blocks and their answers."),
}


class TokenCounters:
    """Counters of tokens, candidates and forward passes.

    Parameters
    ----------
    drafts : whether the draft's times are known.
    """

    def __init__(self, registry: Registry, *, drafts: bool) -> None:
        times = DRAFT_TIMES_NS if drafts else {}
        self.counters = [
            (registry.counter(name, meaning), field, unit)
            for fields, unit in ((COUNTED, 1), (times, NS_PER_S))
            for name, (field, meaning) in fields.items()
        ]
        self.kept = registry.histogram(
            "forward_pass_accepted_tokens",
            "Draft candidates accepted per forward pass that verified some.",
            KEPT_CANDIDATES,
        )


class Tally:
    """Adds the growth of one session's totals to the counters."""

    def __init__(self, counters: TokenCounters) -> None:
        self._counters = counters
        self._totals = [0] * len(counters.counters)
        self._kept: list[int] = []

    def count(self, statistics: SpeculationStatistics) -> None:
        for index, (counter, field, unit) in enumerate(self._counters.counters):
            before, now = self._totals[index], getattr(statistics, field)
            if now > before:
                counter.inc((now - before) / unit)
                self._totals[index] = now
        kept = list(statistics.acceptance_histogram)
        for num_kept, (before, now) in enumerate(zip_longest(self._kept, kept, fillvalue=0)):
            for _ in range(now - before):
                self._counters.kept.observe(num_kept)
        self._kept = kept
