"""Every library in a process of its own, all pinned to the same core: one of them works at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from experiments.common.audio.samples import Sample
from experiments.common.servers.processes import Worker
from experiments.peers.arms import Arm, Part, Piece, Run, System
from experiments.peers.faster_whisper_peer import FasterWhisperPeer
from experiments.peers.openai_peer import OpenaiPeer
from experiments.peers.ours import as_replay, on_demo_pair
from experiments.peers.prepared import Weights
from experiments.peers.transformers_peer import TransformersPeer
from experiments.peers.whisper_cpp_peer import WhisperCppPeer
from specwhisper.errors import SpecWhisperError

LIBRARY = {
    System.TRANSFORMERS: "transformers",
    System.ASSISTED: "transformers",
    System.FASTER_WHISPER: "faster-whisper",
    System.FASTER_WHISPER_BATCHED: "faster-whisper",
    System.OPENAI_WHISPER: "openai-whisper",
    System.WHISPER_CPP: "whisper.cpp",
}
OURS = "specwhisper"


@dataclass(frozen=True, slots=True)
class Work:
    """Recordings and the models that transcribe them.

    Attributes
    ----------
    samples, weights : by part.
    gamma : of our drafts; ``None`` leaves it to the session.
    pieces : of the shape's recordings, the windows that peers are given.
    """

    samples: Mapping[Part, Sequence[Sample]]
    weights: Mapping[Part, Weights]
    gamma: int | None
    pieces: Sequence[Piece]
    trace: Path
    target: str
    draft: str
    distilled: str


class Host:
    """Builds models when they are first asked for; made in a process of its own."""

    def __init__(self) -> None:
        self._built: dict[tuple[str, ...], Any] = {}

    def ask(self, key: tuple[str, ...], build: Callable[[], Any], method: str, *arguments: Any) -> Any:
        """Call a method of what ``build`` makes."""
        if key not in self._built:
            self._built[key] = build()
        return getattr(self._built[key], method)(*arguments)


class Workers:
    """Runs arms, each where its library is."""

    def __init__(self, work: Work, core: int) -> None:
        self._work = work
        self._core = core
        self._hosts: dict[str, Worker] = {}
        self.models: dict[str, Any] = {}

    def stop(self) -> None:
        """End all processes."""
        for host in self._hosts.values():
            host.stop()

    def run(self, arm: Arm) -> Run:
        """Transcribe everything once."""
        run: Run
        if arm.part is Part.SHAPE and not arm.system.is_ours:
            run = self._ask(arm, "decode", self._work.pieces)
        else:
            run = self._ask(arm, "run", arm.system, self._work.samples[arm.part], arm.timestamps)
        return run

    def warm_up(self, arm: Arm) -> str | None:
        """Run an arm untimed; return the reason, if it cannot."""
        try:
            self.run(arm)
            if arm.system.is_ours:
                self.models |= self._ask(arm, "describe")
        except SpecWhisperError as error:
            return f"not offered: {error}"
        return None

    def _ask(self, arm: Arm, method: str, *arguments: Any) -> Any:
        library = LIBRARY.get(arm.system, OURS)
        if library not in self._hosts:
            self._hosts[library] = Worker(Host, cores=[self._core])
        key = str(arm.part), arm.precision
        return self._hosts[library].call("ask", key, self._builder(library, arm), method, *arguments)

    def _builder(self, library: str, arm: Arm) -> Callable[[], Any]:
        """Return how a library loads an arm's models."""
        work, weights, gamma = self._work, self._work.weights[arm.part], self._work.gamma
        match library, arm.part:
            case "transformers", part:
                assistant = work.distilled if part is Part.DEMO else weights.draft
                return partial(TransformersPeer, weights.folder, assistant)
            case "faster-whisper", _:
                vocabulary = weights.suppress, weights.end_of_text, weights.num_tokens
                return partial(FasterWhisperPeer, weights.ctranslate2, arm.precision, *vocabulary)
            case "openai-whisper", _:
                return partial(OpenaiPeer, weights.openai, weights.end_of_text)
            case "whisper.cpp", _:
                return partial(WhisperCppPeer, weights.ggml[arm.precision])
            case _, Part.DEMO:
                return partial(on_demo_pair, work.target, work.draft, work.distilled, arm.precision, gamma)
            case _:
                return partial(as_replay, weights.folder, weights.draft, work.trace, arm.precision, gamma)
