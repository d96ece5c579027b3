"""One transcription as the draft sees it: the open window, the expected one, and what was not told yet."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from specwhisper.audio.recording import Recording
from specwhisper.engine.window_draft import WindowDraft
from specwhisper.options import DecodingOptions
from specwhisper.speculation.controller import Choice, Controller
from specwhisper.speculation.draft_length import DraftLength
from specwhisper.speculation.statistics import DraftReport
from specwhisper.transcription.windows import Windows
from specwhisper.types import Believed, Candidates

NOTHING = DraftReport()


@dataclass(frozen=True, slots=True)
class Drafted:
    """A block to send, if there is one, what the draft has to report, and all it believes of the window."""

    candidates: Candidates | None
    report: DraftReport = NOTHING
    belief: Believed | None = None


@dataclass(slots=True, eq=False)
class DraftState:
    """One transcription as the draft sees it.

    Attributes
    ----------
    current : the open window; ``ahead`` is what is expected to follow, where the draft runs ahead.
    """

    length: DraftLength
    controller: Controller
    options: DecodingOptions
    recording: Recording
    windows: Windows
    current: WindowDraft
    ahead: WindowDraft | None = None
    report: DraftReport = NOTHING  # what was not told yet
    told_choice: Choice | None = None
    num_blocks: dict[int, int] = field(default_factory=dict)  # sent, by window; of the open one and the next

    @property
    def drafts(self) -> list[WindowDraft]:
        """The windows there are, the open one first."""
        return [
            draft for draft in (self.current, self.ahead) if draft is not None and draft.window is not None
        ]

    @property
    def has_paused(self) -> bool:
        """Whether nothing was told of a choice that lets no block follow."""
        choice = self.controller.choice
        return choice is not self.told_choice and not choice.max_ahead

    def take_report(self) -> DraftReport:
        """Give what was not told yet."""
        controller = self.controller
        report, self.report = self.report, NOTHING
        self.told_choice = controller.choice
        return replace(report, choice=controller.choice, estimates=controller.estimates)
