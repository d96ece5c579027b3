"""The mechanisms that may be switched off, with the code that each of them costs.

None changes a text. A mechanism is switched off in a running process, between two sessions.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any
from unittest.mock import patch

import numpy as np

from specwhisper.engine.draft_state import DraftState
from specwhisper.engine.drafter import Drafter
from specwhisper.engine.window_draft import WindowDraft
from specwhisper.speculation import arrivals, batching_delay, controller, ledger, survival, throughput
from specwhisper.speculation.controller import Choice, Estimates
from specwhisper.speculation.draft_length import DraftLength
from specwhisper.speculation.hints.given import GivenHint
from specwhisper.speculation.hints.hint import Hint
from specwhisper.speculation.ledger import Ledger
from specwhisper.speculation.survival import Survival
from specwhisper.speculation.throughput import Throughput
from specwhisper_draft_server.link import sharing

WHOLE_WINDOW = 256  # tokens ahead: as far as a target holds them
LOCK_STEP_TOKENS, LOCK_STEP_CONFIDENCE = 16, 0.3

Patch = tuple[Any, str, Any]  # object, attribute, its value while the mechanism is off
Part = ModuleType | type | Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Mechanism:
    """A mechanism.

    Attributes
    ----------
    patches : what switches it off.
    parts : modules, classes and functions that only it needs.
    """

    patches: Sequence[Patch]
    parts: Sequence[Part]

    @property
    def num_lines(self) -> int:
        """Lines of its code, without its options, tests and pages."""
        return sum(len(inspect.getsourcelines(part)[0]) for part in self.parts)

    @contextmanager
    def switched_off(self) -> Iterator[None]:
        """Do without the mechanism while the body runs."""
        with ExitStack() as stack:
            for target, name, value in self.patches:
                stack.enter_context(patch.object(target, name, value))
            yield


class OneRate(Survival):
    """Acceptance that is the same at every distance."""

    @property
    def chances(self) -> tuple[float, ...]:
        """See :class:`Survival`."""
        rate = self._kept.sum() / self._judged.sum()
        return tuple((rate ** np.arange(survival.MAX_DISTANCE + 1)).tolist())


def _no_choice(length: DraftLength, estimates: Estimates | None) -> Choice:
    """Choose without any estimate of acceptance or time, but the size of blocks outside lock-step."""
    if length.mode.is_lock_step:
        return Choice(LOCK_STEP_TOKENS, LOCK_STEP_TOKENS, "the same for all", LOCK_STEP_CONFIDENCE)
    gamma = length.gamma if estimates is None else controller._shortest_block(estimates)
    return Choice(gamma, WHOLE_WINDOW, "the same for all")


def _set_length(length: DraftLength, estimates: Estimates | None) -> Choice:
    return Choice(length.gamma, length.gamma * length.first_depth, "the same for all")


MECHANISMS: dict[str, Mechanism] = {
    "hints of dropped candidates": Mechanism(
        [(Ledger, "_keep_sent", lambda self, tokens, position: None)],
        [ledger.SentHint, Ledger._keep_sent, Ledger._extend_sent, Ledger._drop_ended, Hint],
    ),
    "several such hints": Mechanism([(ledger, "NUM_SENT", 1)], []),
    "drafting dropped candidates at once": Mechanism(
        [(DraftState, "stale_tokens", lambda self, draft: ())],
        [DraftState.stale_tokens, WindowDraft.stale_tokens, WindowDraft.keep_stale],
    ),
    "balance of given hints": Mechanism(
        [(GivenHint, "reach", Hint.reach)], [GivenHint.reach, GivenHint.pay, Ledger._pay]
    ),
    "minimum confidence": Mechanism(
        [(controller, "_min_confidence", lambda length, estimates: 0.0)], [controller._min_confidence]
    ),
    "pause": Mechanism([(controller, "MIN_GAIN", -np.inf)], []),
    "realignment in the controller": Mechanism(
        [(controller, "_realigned", lambda length, estimates: 0.0)],
        [controller._realigned, controller.Controller.observe_realigned, WindowDraft.judge_realignment],
    ),
    "survival curves": Mechanism([(controller, "Survival", OneRate)], [survival]),
    "chosen lengths, against 5 tokens and 4 blocks": Mechanism(
        [(controller, "choose", _set_length)], [controller]
    ),
    "chosen lengths, against the whole window": Mechanism(
        [(controller, "choose", _no_choice)], [controller, survival]
    ),
    "batching delay": Mechanism([(batching_delay, "MAX_DELAY", 0.0)], [batching_delay]),
    "waiting for candidates on their way": Mechanism(
        [(Throughput, "is_worth", lambda self, expected_tokens, num_fed: True)], [throughput, arrivals]
    ),
    "streams that sessions share": Mechanism([(sharing, "MIN_SESSIONS", 10**9)], [sharing]),
    "drafting the next window": Mechanism(
        [(Drafter, "_predict_next", lambda self, session: None)], [Drafter._predict_next]
    ),
}
