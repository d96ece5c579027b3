"""A session's statistics as counters of all sessions."""

from __future__ import annotations

from itertools import zip_longest

from specwhisper.observe.metrics.registry import Registry
from specwhisper.speculation.statistics import SpeculationStatistics

NS_PER_S = 1_000_000_000
KEPT_CANDIDATES = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32)

COUNTED = {
    "windows": ("num_windows", "Windows that were opened; of live audio every step is one."),
    "drafted_tokens": ("num_drafted", "Tokens sent to the target as candidates."),
    "verified_tokens": ("num_verified", "Candidates of drafts that the target judged."),
    "accepted_tokens": ("num_accepted", "Those of them that it kept."),
    "recalled_tokens": ("num_reused", "Candidates that the target remembered by itself."),
    "recalled_accepted_tokens": ("num_reused_accepted", "Those of them that it kept."),
    "self_decoded_tokens": ("num_self_decoded", "Tokens that the target decoded without a candidate."),
    "committed_tokens": ("num_committed", "Tokens that were committed; of live audio those of every step."),
    "session_passes": ("num_forwards", "Forward passes, counted for each session that took part."),
    "align_passes": ("num_align_forwards", "Further passes that only look where words lie."),
    "candidate_blocks": ("num_blocks", "Blocks of candidates that were sent."),
}
OF_DRAFTS_NS = {
    "draft_seconds": ("draft_ns", "Time in the draft's forward passes."),
    "network_seconds": ("network_ns", "Time on the way, from a block sent to its answer heard."),
}


class TokenCounters:
    """Counts what sessions have written, and how much of it was proposed.

    Parameters
    ----------
    drafts : whether the drafts' own times are known.
    """

    def __init__(self, registry: Registry, *, drafts: bool) -> None:
        times = OF_DRAFTS_NS if drafts else {}
        self.counters = [
            (registry.counter(name, meaning), field, unit)
            for fields, unit in ((COUNTED, 1), (times, NS_PER_S))
            for name, (field, meaning) in fields.items()
        ]
        self.kept = registry.histogram(
            "pass_accepted_tokens",
            "Candidates of a draft that a pass kept, where it had any.",
            KEPT_CANDIDATES,
        )


class Tally:
    """Counts what one session's running totals have grown by."""

    def __init__(self, counters: TokenCounters) -> None:
        self._counters = counters
        self._totals = [0] * len(counters.counters)
        self._kept: list[int] = []

    def count(self, statistics: SpeculationStatistics) -> None:
        """Count up to these totals."""
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
