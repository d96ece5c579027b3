"""The flag of a recogniser that drafts, and what loads it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING

from specwhisper.errors import UnsupportedOption
from specwhisper.settings.setting import MODEL, Part
from specwhisper.types import Mode
from specwhisper.validated import text

if TYPE_CHECKING:
    from collections.abc import Callable

    from specwhisper_draft_server.config import DraftConfig
    from specwhisper_draft_server.draft_source import DraftSource, LoadDraft


@dataclass(frozen=True, kw_only=True)
class RecogniserOptions:
    draft_recogniser: str | None = text(
        None,
        "Recogniser that drafts in place of a Whisper model; its factory is called with --draft-model.",
        "MODULE:FACTORY",
        panel=MODEL,
    )


SETTINGS = Part(kind=RecogniserOptions, then=attrgetter("draft_recogniser"))


def check_mode(mode: Mode) -> None:
    """Raise :class:`UnsupportedOption` for a mode that a recogniser cannot draft in."""
    if mode not in (Mode.FULL, Mode.TARGET_ONLY):
        raise UnsupportedOption(
            f"A recogniser drafts in mode full: mode {mode} needs a Whisper model as the draft."
        )


def recogniser_draft(config: DraftConfig) -> LoadDraft | None:
    name = config.extras.get("recogniser")
    if name is None:
        return None
    check_mode(config.mode)
    return partial(_load, config, name)


def _load(config: DraftConfig, name: str, on_failure: Callable[[], None]) -> DraftSource:
    from specwhisper_recognisers.protocol import load_recogniser
    from specwhisper_recognisers.recognising import RecogniserDrafting

    recogniser = load_recogniser(name, config.draft_model)
    return RecogniserDrafting(recogniser, timeout_s=config.draft_timeout_s, on_failure=on_failure)
