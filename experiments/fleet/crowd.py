"""Clients of a fleet, and which weights wrote the text that each of them received."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from time import monotonic

from experiments.common.models.scripted import recording
from experiments.common.models.speech import SPOKEN_MULTILINGUAL, SpeechOrNoiseModel
from experiments.common.oracle import Final, final_of
from experiments.common.servers.clients import LOG_MEL_MAX, recording_file
from experiments.fleet.servers import SEEDS, Weights
from specwhisper.engine.inline_pair import InlinePair
from specwhisper.errors import SpecWhisperError
from specwhisper.options import DecodingOptions
from specwhisper.types import Mode
from specwhisper_client.api import TranscriptionClient

NUM_RECORDINGS = 3  # different ones of each length
OPTIONS = DecodingOptions.greedy(language="en", log_mel_max=LOG_MEL_MAX)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Updates of one client.

    Attributes
    ----------
    weights : those that alone write this very text; ``None`` where the text is no target's, or none came.
    error : how it failed; empty where it did not.
    first_s : when a target first committed something; ``None`` where none did.
    mode : in which the session ended, as its server reports.
    """

    weights: Weights | None
    error: str
    began_s: float
    ended_s: float
    first_s: float | None = None
    mode: Mode | None = None

    @property
    def is_whole(self) -> bool:
        """Whether a transcript came, and one target's weights write it."""
        return not self.error and self.weights is not None

    def __str__(self) -> str:
        return self.error or (f"text of {self.weights} weights" if self.weights else "text of no target")


class Client:
    """One client with one recording.

    Parameters
    ----------
    resume_timeout_s : how long it looks for a server with room; 0 fails at the first refusal.

    Attributes
    ----------
    has_begun : set once a target has committed something.
    """

    def __init__(
        self, folder: Path, number: int = 0, *, length_s: float = 60.0, resume_timeout_s: float = 60.0
    ) -> None:
        self.has_begun = asyncio.Event()
        self._audio_seed = number % NUM_RECORDINGS
        self._length_s = length_s
        self._folder = folder
        self._resume_timeout_s = resume_timeout_s

    async def run(self, address: str) -> Outcome:
        """Transcribe at one of the addresses, which have commas between them."""
        async with TranscriptionClient(address, resume_timeout_s=self._resume_timeout_s) as connections:
            return await self.run_over(connections)

    async def run_over(self, connections: TranscriptionClient) -> Outcome:
        """Transcribe over connections that others may use too, as a gateway's clients do."""
        began_s = monotonic()
        first_s: float | None = None
        mode: Mode | None = None
        path = recording_file(self._length_s, self._audio_seed, self._folder)
        finals: list[Final] = []
        error = ""
        transcription = connections.stream_file(path, OPTIONS, with_statistics=True)
        try:
            async for update in transcription:
                finals += map(final_of, update.segments)
                if update.statistics is not None and update.statistics.num_committed:
                    first_s = first_s or monotonic()
                    self.has_begun.set()
            mode = transcription.result.model.mode
        except SpecWhisperError as failure:
            error = f"{type(failure).__name__}: {failure}"
        finally:
            self.has_begun.set()
        weights = None if error else _weights_of(finals, self._length_s, self._audio_seed)
        return Outcome(weights, error, began_s, monotonic(), first_s, mode)


async def run_together(clients: Sequence[Client], address: str) -> list[Outcome]:
    """Run clients at the same time, each with connections of its own."""
    return await asyncio.gather(*(client.run(address) for client in clients))


async def run_over_one(clients: Sequence[Client], address: str) -> list[Outcome]:
    """Run clients at the same time over the same connections; none waits for a server with room."""
    async with TranscriptionClient(address, resume_timeout_s=0) as connections:
        return await asyncio.gather(*(client.run_over(connections) for client in clients))


def not_whole(outcomes: Iterable[Outcome]) -> list[str]:
    """Describe each client that failed, or whose text is no target's."""
    return [str(outcome) for outcome in outcomes if not outcome.is_whole]


def text_alone(length_s: float, audio_seed: int, weights: Weights = Weights.OLD) -> str:
    """Return the text that a target with these weights writes alone."""
    return "".join(text for _, _, _, text, _, _ in _text_of(weights, length_s, audio_seed))


def _weights_of(finals: Sequence[Final], length_s: float, audio_seed: int) -> Weights | None:
    texts = {weights: _text_of(weights, length_s, audio_seed) for weights in Weights}
    return next((weights for weights, text in texts.items() if list(text) == list(finals)), None)


@cache
def _text_of(weights: Weights, length_s: float, audio_seed: int) -> tuple[Final, ...]:
    """Return what a target with these weights writes alone."""
    model = SpeechOrNoiseModel(vocabulary=SPOKEN_MULTILINGUAL, seed=SEEDS[weights])
    options = replace(OPTIONS, log_mel_max=LOG_MEL_MAX)
    transcript = InlinePair(model).transcribe([recording(length_s, audio_seed)], options)[0]
    return tuple(map(final_of, transcript.segments))
