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

from specwhisper.engine.draft_session import DraftSession
from specwhisper.engine.drafter import Drafter
from specwhisper.speculation import draft_length, ledger
from specwhisper.speculation.belief import Belief
from specwhisper.speculation.draft_length import BlockSize, DraftLength
from specwhisper.speculation.hints.given import GivenHint
from specwhisper.speculation.hints.hint import Hint
from specwhisper.speculation.ledger import Ledger
from specwhisper_draft_server.link import sharing

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
        with ExitStack() as stack:
            for target, name, value in self.patches:
                stack.enter_context(patch.object(target, name, value))
            yield


MECHANISMS: dict[str, Mechanism] = {
    "hints of dropped candidates": Mechanism(
        [(Ledger, "_keep_sent", lambda self, tokens, position: None)],
        [ledger.SentHint, Ledger._keep_sent, Ledger._extend_sent, Hint],
    ),
    "drafting dropped candidates at once": Mechanism(
        [(DraftSession, "stale_tokens", lambda self, belief: ())],
        [DraftSession.stale_tokens, Belief.next_stale, Belief._keep_stale],
    ),
    "balance of given hints": Mechanism(
        [(GivenHint, "reach", Hint.reach)], [GivenHint.reach, GivenHint.pay, Ledger._pay]
    ),
    "blocks as short as messages allow, against 5 tokens": Mechanism(
        [(BlockSize, "gamma", property(lambda self: self._length.gamma or draft_length.FIRST_GAMMA))],
        [BlockSize],
    ),
    "confidence that ends a block": Mechanism(
        [(DraftLength, "min_confidence", 0.0)],
        [DraftLength.min_confidence.fget],  # type: ignore[attr-defined]
    ),
    "streams that sessions share": Mechanism([(sharing, "MIN_SESSIONS", 10**9)], [sharing]),
    "drafting the first window before it is opened": Mechanism(
        [(Drafter, "_predict_first", lambda self, session: None)], [Drafter._predict_first]
    ),
}
