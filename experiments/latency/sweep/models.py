"""Models of a sweep: the demo pair, or a replay of its text at the cost of another shape."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from experiments.common.models.published import PUBLISHED
from experiments.common.replay.error_process import ErrorProcess
from experiments.common.replay.model import EncodeOnceModel, ReplayDraft, ReplayTarget
from experiments.common.replay.shapes import random_checkpoint, replay_name
from experiments.common.replay.trace import Trace
from specwhisper.errors import InvalidRequest
from specwhisper.model.checkpoints.checkpoint import load_checkpoint
from specwhisper.model.model import Model, WhisperModel
from specwhisper.model.translated import open_draft
from specwhisper.types import DTYPES

DEMO, REPLAY = "demo", "replay-"
DRAFT_SHAPE = "tiny"
CHOSEN_ERRORS = ", errors: "  # in the displayed name of a draft
REPLAY_SERVERS = "experiments.common.replay"


@dataclass(frozen=True, slots=True)
class Models:
    """Names of the measured models.

    Attributes
    ----------
    kind : ``demo``, or ``replay-small`` and the like, with the cost of whisper-small and whisper-tiny.
    target, draft : the measured pair, or the pair whose text is replayed.
    dtype : data type of a replay's weights.
    encodes : whether every window is encoded. Otherwise each slot of a replay keeps its first encoding, and
        all time is decoding.
    drafts_next_window : as ``--next-window`` of a draft server.
    errors : of a replay's draft, instead of those of the pair.
    """

    kind: str
    target: str
    draft: str
    dtype: str = "float32"
    encodes: bool = False
    drafts_next_window: bool = True
    errors: ErrorProcess | None = None

    def __post_init__(self) -> None:
        if self.kind != DEMO and (not self.kind.startswith(REPLAY) or self.shape not in PUBLISHED):
            raise InvalidRequest(
                f"--models is '{self.kind}': pass {DEMO}, or {REPLAY} and one of {', '.join(PUBLISHED)}."
            )
        if self.errors is not None and self.kind == DEMO:
            raise InvalidRequest(f"--acceptance is for a replay: pass --models {REPLAY}SHAPE as well.")
        if self.dtype not in DTYPES:
            raise InvalidRequest(f"--dtype is '{self.dtype}': choose one of {', '.join(DTYPES)}.")

    @property
    def shape(self) -> str | None:
        """The replayed shape; ``None`` for the demo pair."""
        return None if self.kind == DEMO else self.kind.removeprefix(REPLAY)


@dataclass(frozen=True, slots=True)
class Pair:
    """Models with the trace of their text.

    Attributes
    ----------
    trace : file with the pair's text of the recordings.
    """

    models: Models
    trace: Path

    def describe(self) -> dict[str, str]:
        """Return the displayed names of both models."""
        trace, models = Trace.load(self.trace), self.models
        named = {"target": trace.target, "draft": trace.draft}
        if models.shape is not None:
            shapes = {"target": models.shape, "draft": DRAFT_SHAPE}
            suffix = "" if models.encodes else ", decoding only"
            named = {
                role: f"{replay_name(shapes[role], name)}, {models.dtype}{suffix}"
                for role, name in named.items()
            }
        if models.errors is not None:
            named["draft"] += f"{CHOSEN_ERRORS}{models.errors}"
        if not models.drafts_next_window:
            named["draft"] += ", one window at a time"
        return named

    def server(self, role: str) -> tuple[str, tuple[str, ...]]:
        """Return a server's module and arguments."""
        models = self.models
        switches = [] if models.drafts_next_window or role == "target" else ["--no-next-window"]
        if models.shape is None:
            trace = Trace.load(self.trace)
            names = {
                "target": ("--model", trace.target, "--insecure"),
                "draft": ("--draft-model", trace.draft),
            }
            return f"specwhisper_{role}_server", (*names[role], *switches)
        shape = models.shape if role == "target" else DRAFT_SHAPE
        cost = ("--shape", shape, "--dtype", models.dtype)
        if not models.encodes:
            switches.append("--decoding-only")
        arguments = (*cost, "--trace", str(self.trace), "--max-sessions", "2", *switches)
        return f"{REPLAY_SERVERS}.serve_{role}", arguments

    def load_forward(self) -> Model:
        """Load what runs the target's forward passes into this process."""
        if self.models.shape is None:
            return WhisperModel(load_checkpoint(Trace.load(self.trace).target), 1)
        return WhisperModel(random_checkpoint(self.models.shape, dtype=self.models.dtype), 1)

    def load(self) -> tuple[Model, Model]:
        """Load both into this process."""
        trace, models = Trace.load(self.trace), self.models
        demo = load_checkpoint(trace.target)
        if models.shape is None:
            return WhisperModel(demo, 1), open_draft(load_checkpoint(trace.draft), 1, demo.vocabulary)
        once = not models.encodes
        target = EncodeOnceModel(random_checkpoint(models.shape, dtype=models.dtype), 1, encode_once=once)
        tiny = random_checkpoint(DRAFT_SHAPE, dtype=models.dtype)
        small = EncodeOnceModel(tiny, 1, encode_once=once)
        return ReplayTarget(trace, demo.vocabulary, target), ReplayDraft(trace, demo.vocabulary, small)
