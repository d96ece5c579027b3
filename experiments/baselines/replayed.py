"""Our modes at the cost of another shape: random weights, and what the demo pair wrote of the recordings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from experiments.baselines.local import InOneProcess, Models
from experiments.common.audio.samples import Sample
from experiments.common.replay.model import ReplayDraft, ReplayTarget
from experiments.common.replay.record import recorded
from experiments.common.replay.shapes import random_checkpoint, replay_name
from experiments.common.replay.trace import Trace
from experiments.common.servers.processes import running_server
from specwhisper.engine.inline_pair import InlinePair
from specwhisper.model.checkpoints.checkpoint import load_checkpoint
from specwhisper.model.model import WhisperModel
from specwhisper.options import DecodingOptions
from specwhisper.types import Mode

DRAFT_SHAPE = "tiny"
SERVERS = "experiments.common.replay"


@dataclass(frozen=True, slots=True)
class Replay:
    """Shape whose cost is replayed, and the trace of the text, with timestamps only."""

    shape: str
    dtype: str
    trace: Path

    def arguments(self, shape: str) -> tuple[str, ...]:
        """Return what both servers are started with."""
        return ("--shape", shape, "--dtype", self.dtype, "--trace", str(self.trace), "--max-sessions", "1")

    def describe(self) -> dict[str, Any]:
        """Name the models as what they are."""
        trace = Trace.load(self.trace)
        named = {"target": (self.shape, trace.target), "draft": (DRAFT_SHAPE, trace.draft)}
        return {role: f"{replay_name(*names)}, {self.dtype}" for role, names in named.items()}


class ReplayInOneProcess(InOneProcess):
    """Target and draft of a replay, taking turns in one thread."""

    def __init__(self, models: Models, replay: Replay) -> None:
        trace = Trace.load(replay.trace)
        demo = load_checkpoint(trace.target)
        target = WhisperModel(random_checkpoint(replay.shape, dtype=replay.dtype), 1)
        draft = WhisperModel(random_checkpoint(DRAFT_SHAPE, dtype=replay.dtype), 1)
        engine = InlinePair(
            ReplayTarget(trace, demo.vocabulary, target),
            ReplayDraft(trace, demo.vocabulary, draft),
            mode=Mode.ONE_PROCESS,
            gamma=models.gamma,
            max_new_tokens=demo.max_new_tokens,
        )
        super().__init__(models, demo, engine)


@contextmanager
def recorded_replay(models: Models, samples: Sequence[Sample], shape: str, dtype: str) -> Iterator[Replay]:
    """Record what the pair writes of the recordings, to be replayed at another cost."""
    with TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json"
        options = [DecodingOptions.greedy(language="en")]
        recorded(trace, samples, target=models.target, draft=models.draft, options=options)
        yield Replay(shape, dtype, trace)


@contextmanager
def replay_servers(
    replay: Replay, *, target_cores: Sequence[int], draft_cores: Sequence[int]
) -> Iterator[str]:
    """Start both servers; give the draft server's address."""
    with running_server(
        f"{SERVERS}.serve_target", *replay.arguments(replay.shape), cores=target_cores
    ) as target:
        arguments = (*replay.arguments(DRAFT_SHAPE), "--target", target)
        with running_server(f"{SERVERS}.serve_draft", *arguments, cores=draft_cores) as draft:
            yield draft
