"""The cost of a hint from outside has a bound, whatever it says."""

from collections.abc import Sequence

import pytest

from specwhisper.speculation.hints import ScriptHint
from specwhisper.speculation.ledger import Ledger, SharedHints
from tests.nightly import examples, mostly_nightly

TEXT = list(range(1, 601))  # committed tokens, one word each
MAX_COST = 1.02  # over target-only


def misleading(num_right: int, num_wrong: int, text: Sequence[int] = TEXT, num_first: int = 0) -> str:
    """Return a hint of the text's words, with other words between them, and so many before them."""
    words, other = [*range(20_000, 20_000 + num_first)], 10_000
    for start in range(0, len(text), num_right):
        words += text[start : start + num_right]
        words += range(other, other + num_wrong)
        other += num_wrong
    return " ".join(map(str, words))


def cost_over_target_only(hint: str, token_share: float, text: Sequence[int] = TEXT) -> float:
    """Decode the text with a hint; return the time over that without one.

    A forward pass takes 1 without tokens, and ``token_share`` for each.
    """
    script = ScriptHint(hint, lambda text: [int(word) for word in text.split()], str)
    ledger = Ledger(shared=SharedHints(script=script, token_share=lambda: token_share))
    time = 0.0
    while (num_committed := len(ledger.committed)) < len(text):
        candidates = ledger.next_candidates()
        rest = text[num_committed:]
        num_accepted = 0
        while (
            num_accepted < min(len(candidates), len(rest))
            and candidates[num_accepted].token == rest[num_accepted]
        ):
            num_accepted += 1
        ledger.extend_committed(rest[: num_accepted + 1], candidates)
        time += 1 + token_share * (1 + len(candidates))
    return time / (len(text) * (1 + token_share))


@pytest.mark.parametrize("num_tokens", mostly_nightly([100, 30, 600]))
@pytest.mark.parametrize("token_share", [0.01, 0.07, 0.1, 0.15, 0.3, 0.5, 1.0])
def test_no_mixture_of_right_and_wrong_words_costs_more_than_a_little(token_share, num_tokens):
    text = TEXT[:num_tokens]
    costs = {
        (num_first, num_right, num_wrong): cost_over_target_only(
            misleading(num_right, num_wrong, text, num_first), token_share, text
        )
        for num_first in (0, 1)
        for num_right in range(1, 10, examples(by_day=2, at_night=1))
        for num_wrong in range(1, 16, examples(by_day=4, at_night=2))
    }
    worst = max(costs, key=lambda each: costs[each])
    assert costs[worst] <= MAX_COST, worst


@pytest.mark.parametrize(
    ("token_share", "same", "nearly_same"), [(0.01, 0.06, 0.15), (0.1, 0.14, 0.38), (0.5, 0.42, 0.72)]
)
def test_a_good_hint_saves_most_of_the_time(token_share, same, nearly_same):
    assert cost_over_target_only(" ".join(map(str, TEXT)), token_share) <= same
    words = [9_999 if index % 10 == 9 else token for index, token in enumerate(TEXT)]
    assert cost_over_target_only(" ".join(map(str, words)), token_share) <= nearly_same


def test_a_hint_that_begins_well_cannot_cost_more_than_it_saved():
    words = " ".join(map(str, TEXT[:200])) + " " + misleading(6, 10)
    assert cost_over_target_only(words, 0.1) < 1
