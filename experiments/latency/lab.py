"""The processes of a sweep: a far target, a near draft server, and both in one process."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from experiments.common.processes import Worker, first_two_cores, on_cores, running_server
from experiments.common.replay.model import HearsOnce, ReplayDraft, ReplayTarget
from experiments.common.replay.shapes import random_checkpoint, replay_name
from experiments.common.replay.trace import Trace
from experiments.common.samples import Sample
from experiments.latency.cells import Cell
from experiments.latency.marking import Marker, MarkingClient, Marks
from experiments.latency.networks.backends import Network
from specwhisper.errors import InvalidRequest
from specwhisper.options import DecodingOptions
from specwhisper.transcription.transcript import TranscriptBuilder
from specwhisper.types import Mode
from specwhisper.whisper.checkpoint import load_checkpoint
from specwhisper.whisper.model import Model, WhisperModel
from specwhisper.whisper.one_process import OneProcess
from specwhisper.whisper.pairing import draft_ids

DEMO, REPLAY = "demo", "replay-"
DRAFT_SHAPE = "tiny"
REPLAY_SERVERS = "experiments.common.replay"


@dataclass(frozen=True, slots=True)
class Pair:
    """The models: the demo pair itself, or a replay of it at the cost of another shape.

    Attributes
    ----------
    models : ``demo``, or ``replay-small`` and the like: the cost of whisper-small and whisper-tiny.
    trace : what the pair writes of the recordings.
    encodes : whether windows are encoded; else each slot keeps its first one, and all time is decoding.
    drafts_next_window : as a draft server takes it.
    """

    models: str
    trace: Path
    dtype: str = "float32"
    encodes: bool = False
    drafts_next_window: bool = True

    def __post_init__(self) -> None:
        if self.models != DEMO and not self.models.startswith(REPLAY):
            raise InvalidRequest(
                f"--models is '{self.models}': say demo, or replay-SHAPE such as replay-small."
            )

    @property
    def shape(self) -> str | None:
        """The shape that is replayed, if one is."""
        return None if self.models == DEMO else self.models.removeprefix(REPLAY)

    def describe(self) -> dict[str, str]:
        """Name both models as what they are."""
        trace = Trace.load(self.trace)
        named = {"target": trace.target, "draft": trace.draft}
        if self.shape is not None:
            shapes = {"target": self.shape, "draft": DRAFT_SHAPE}
            suffix = "" if self.encodes else ", decoding only"
            named = {
                role: f"{replay_name(shapes[role], name)}, {self.dtype}{suffix}"
                for role, name in named.items()
            }
        if not self.drafts_next_window:
            named["draft"] += ", one window at a time"
        return named

    def server(self, role: str) -> tuple[str, tuple[str, ...]]:
        """Give the module of a server and its arguments."""
        switches = [] if self.drafts_next_window or role == "target" else ["--no-next-window"]
        if self.shape is None:
            trace = Trace.load(self.trace)
            names = {
                "target": ("--model", trace.target, "--insecure"),
                "draft": ("--draft-model", trace.draft),
            }
            return f"{role}_server", (*names[role], *switches)
        shape = self.shape if role == "target" else DRAFT_SHAPE
        arguments = (
            "--shape",
            shape,
            "--dtype",
            self.dtype,
            "--trace",
            str(self.trace),
            "--max-sessions",
            "2",
        )
        if not self.encodes:
            switches.append("--decoding-only")
        return f"{REPLAY_SERVERS}.serve_{role}", (*arguments, *switches)

    def load(self) -> tuple[Model, Model]:
        """Load both into this process."""
        trace = Trace.load(self.trace)
        demo = load_checkpoint(trace.target)
        if self.shape is None:
            draft = load_checkpoint(trace.draft)
            ids = draft_ids(draft.vocabulary, demo.vocabulary, draft_name=draft.name, target_name=demo.name)
            draft_model = WhisperModel(draft, 1, vocabulary=demo.vocabulary, ids=ids, is_draft=True)
            return WhisperModel(demo, 1), draft_model
        once = not self.encodes
        target = HearsOnce(random_checkpoint(self.shape, dtype=self.dtype), 1, hears_once=once)
        tiny = random_checkpoint(DRAFT_SHAPE, dtype=self.dtype)
        small = HearsOnce(tiny, 1, hears_once=once, is_draft=True)
        return ReplayTarget(trace, demo.vocabulary, target), ReplayDraft(trace, demo.vocabulary, small)


class OneProcessWorker:
    """Both engines, taking turns in one thread of this process."""

    def __init__(self, pair: Pair) -> None:
        self._target, self._draft = pair.load()
        self._max_new_tokens = load_checkpoint(Trace.load(pair.trace).target).max_new_tokens

    def transcribe(self, sample: Sample, gamma: int) -> Marks:
        """Transcribe a recording."""
        engine = OneProcess(
            self._target,
            self._draft,
            mode=Mode.ONE_PROCESS,
            gamma=gamma or None,
            max_new_tokens=self._max_new_tokens,
        )
        options = DecodingOptions(language="en", log_mel_max=sample.log_mel_max)
        marker = Marker()

        def watch(place: int, builder: TranscriptBuilder) -> None:
            marker.observe(builder.statistics.num_committed)

        started_s = time.perf_counter()
        (transcript,) = engine.transcribe([sample.pcm], options, watch=watch)
        wall_s = time.perf_counter() - started_s
        tokens = tuple(token for segment in transcript.segments for token in segment.tokens)
        return Marks(tokens, wall_s, marker.first_s, marker.last_s, marker.num_first, transcript.statistics)


class Lab:
    """Runs a cell of the sweep; the network between its servers is whatever was applied last."""

    def __init__(self, client: MarkingClient, workers: dict[int, Worker]) -> None:
        self._client = client
        self._workers = workers

    def warm_up(self) -> None:
        """Let both servers and their connection see the network as it is now."""
        self._client.warm_up()

    def transcribe(self, cell: Cell, sample: Sample) -> Marks:
        """Transcribe a recording."""
        if cell.mode is Mode.ONE_PROCESS:
            marks: Marks = self._workers[cell.cores].call("transcribe", sample, cell.gamma)
            return marks
        return self._client.transcribe(sample, cell.mode, cell.gamma)


@contextmanager
def open_lab(pair: Pair, network: Network, cells: list[Cell]) -> Iterator[Lab]:
    """Start every process that the cells need, each pinned to its core."""
    cores = cores_used()
    with ExitStack() as stack:
        workers = {}
        for number in sorted({cell.cores for cell in cells if cell.mode is Mode.ONE_PROCESS}):
            build = partial(OneProcessWorker, pair)
            workers[number] = Worker(build, cores=cores["one process"][:number])
            stack.callback(workers[number].stop)
        module, arguments = pair.server("target")
        target = stack.enter_context(
            running_server(
                module,
                *arguments,
                *("--host", network.far_host),
                cores=cores["target server"],
                prefix=network.far_prefix,
                way_to=network.way_to,
            )
        )
        module, arguments = pair.server("draft")
        draft = stack.enter_context(
            running_server(module, *arguments, *("--target", target), cores=cores["draft server"])
        )
        stack.enter_context(on_cores(cores["client"]))
        client = MarkingClient(draft)
        stack.callback(client.close)
        yield Lab(client, workers)


def cores_used() -> dict[str, list[int]]:
    """Say which core each process gets; where there is only one, they share it."""
    first, second = first_two_cores()
    return {
        "target server": [first],
        "draft server": [second],
        "client": [second],
        "network": [second],
        "one process": sorted({first, second}),
    }
