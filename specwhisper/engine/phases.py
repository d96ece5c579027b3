"""The phases of a session on the target.

The phase follows from the fields of :class:`VerifierState`: the first row that applies.

===============  ====================================================  ==================================
Phase            Applies while                                         Ended by
===============  ====================================================  ==================================
ALIGN            ``aligning`` is set                                   the executor
ENCODE           ``encoding`` is set                                   the executor
DECODE           ``open_window`` is set                                a final token in a forward pass
FINISHED         ``is_finished``
DETECT_LANGUAGE  no language yet, the next window's audio is encoded   a forward pass
AWAIT_WINDOW     otherwise                                             audio for a window, or its end
===============  ====================================================  ==================================
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import NamedTuple


class Phase(Enum):
    """The next action of a session."""

    AWAIT_WINDOW = auto()  # opens the next window, or finishes, when its audio has arrived
    ENCODE = auto()  # on the executor: a window, or audio for its language
    DETECT_LANGUAGE = auto()  # takes part in a forward pass
    DECODE = auto()  # takes part in forward passes with candidates, or by itself
    ALIGN = auto()  # on the executor: completes a commit
    FINISHED = auto()


class Detection(NamedTuple):
    """A detected language, to report with the next commit that has a probe."""

    language_probs: Mapping[str, float]
    forward_ns: int


class Derived(NamedTuple):
    """Facts of a session, found again after each change.

    Attributes
    ----------
    is_runnable : whether the session can take part in a forward pass.
    can_open : whether it waits for a window, and its audio, or the end, has arrived.
    """

    phase: Phase
    is_runnable: bool
    can_open: bool
