"""Word errors of equal concurrent streams, of which a loaded target skips steps; and bars."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from jiwer import process_words
from rich.console import Console
from rich.table import Table

from experiments.common.bench.report import Bar
from experiments.streaming.live_client import pieces
from experiments.streaming.measures import final_words, normalised
from experiments.streaming.summary import Measured, quantile
from experiments.streaming.takes import Take
from specwhisper.live import EndpointingOptions, LiveOptions
from specwhisper.transcription.utterances import Utterances
from specwhisper.types import SAMPLE_RATE
from specwhisper_draft_server.voice_activity import VoiceActivity

MAX_ADDED_ERRORS = 0.02  # word error rate, mean over the concurrent sessions
COLUMNS = (
    "sessions",
    "steps decoded",
    "skipped",
    "final p95, s",
    "WER",
    "WER, maximum",
    "words other than unloaded",
    "sessions worse than unloaded",
    "other than target-only",
)


@dataclass(frozen=True, slots=True)
class Errors:
    """Word errors of one session.

    Attributes
    ----------
    rate : word error rate against the target's text of the whole take.
    unloaded_rate : the same of a session without load.
    changed : word error rate against the text of that session.
    """

    rate: float
    unloaded_rate: float
    changed: float


@dataclass(frozen=True, slots=True)
class Load:
    """Figures of a number of concurrent sessions, over all takes.

    Attributes
    ----------
    num_steps, num_due : steps decoded, and steps that a target without delay would decode.
    final_s : time from the end of each word to its final text.
    num_different : sessions whose text differs from the target's own in the same steps.
    """

    sessions: int
    errors: tuple[Errors, ...]
    num_steps: int
    num_due: int
    final_s: tuple[float, ...]
    num_different: int

    @property
    def skipped(self) -> float:
        """Share of due steps that were not decoded."""
        return 1 - self.num_steps / max(1, self.num_due)

    @property
    def added_errors(self) -> float:
        """Mean increase of the word error rate over a session without load."""
        return fmean(each.rate - each.unloaded_rate for each in self.errors)

    @property
    def num_worse(self) -> int:
        """Sessions with more word errors than one without load."""
        return sum(each.rate > each.unloaded_rate for each in self.errors)


def word_error_rate(reference: str, text: str) -> float:
    """Return the word error rate, without case and punctuation."""
    reference, text = " ".join(normalised(reference)), " ".join(normalised(text))
    return float(process_words(reference, text).wer) if reference else 0.0


def num_due(take: Take, live: LiveOptions) -> int:
    """Return the number of steps that a target without delay decodes."""
    step_samples = live.step_ms * SAMPLE_RATE // 1000
    utterances, voice = Utterances(), VoiceActivity(EndpointingOptions())
    num_samples, decoded_to, num_steps = 0, -1, 0
    cut = pieces(take.pcm)
    for number, (_, pcm) in enumerate(cut, start=1):
        num_samples += len(pcm) // 2
        utterances.append_audio(num_samples, asyncio.run(voice.detect(pcm)), is_last=number == len(cut))
        while (utterance := utterances.current) is not None:
            end_sample = utterance.step_end(num_samples, step_samples)
            num_steps += utterance.start_sample < end_sample and decoded_to < end_sample
            decoded_to = max(decoded_to, end_sample)
            if utterance.end_sample is None:
                break
            utterances.finish_current()
    return num_steps


def loads_of(measured: Sequence[Measured], live: LiveOptions) -> list[Load]:
    """Return a row for each number of concurrent sessions, of which one must be 1."""
    unloaded = {one.take.name: one.result.text for one in measured if one.sessions == 1}
    due = {one.take.name: num_due(one.take, live) for one in measured if one.sessions == 1}
    rows = []
    for sessions in sorted({one.sessions for one in measured}):
        together = [one for one in measured if one.sessions == sessions]
        rows.append(
            Load(
                sessions,
                tuple(_errors(one, unloaded[one.take.name]) for one in together),
                sum(len(one.result.steps) for one in together),
                sum(due[one.take.name] for one in together),
                tuple(word.latency_s for one in together for word in final_words(one.take, one.result)),
                sum(
                    one.target_only_text is not None and one.target_only_text != one.result.text
                    for one in together
                ),
            )
        )
    return rows


def _errors(one: Measured, unloaded: str) -> Errors:
    spoken = "".join(word.text for word in one.take.words)
    return Errors(
        word_error_rate(spoken, one.result.text),
        word_error_rate(spoken, unloaded),
        word_error_rate(unloaded, one.result.text),
    )


def load_bars(loads: Sequence[Load]) -> list[Bar]:
    """Return the bars: load costs latency, not words."""
    num_different = sum(load.num_different for load in loads)
    num_sessions = sum(len(load.errors) for load in loads)
    return [
        Bar(
            "sessions whose text differs from target-only in the same steps",
            num_different,
            1,
            f"{num_different} of {num_sessions}",
        ),
        *(
            Bar(
                f"{load.sessions} equal sessions: word error rate above that of one",
                load.added_errors,
                MAX_ADDED_ERRORS,
                f"{load.added_errors:+.3f}",
            )
            for load in loads
            if load.sessions > 1
        ),
    ]


def print_loads(loads: Sequence[Load], console: Console) -> None:
    """Print a table with a row per number of sessions."""
    table = Table(title="Equal concurrent sessions", title_justify="left")
    for heading in COLUMNS:
        table.add_column(heading, justify="right")
    for load in loads:
        num_sessions = len(load.errors)
        table.add_row(
            str(load.sessions),
            str(load.num_steps),
            f"{load.skipped:.0%}",
            f"{quantile(load.final_s, 0.95):.2f}",
            f"{fmean(each.rate for each in load.errors):.1%}",
            f"{max(each.rate for each in load.errors):.1%}",
            f"{fmean(each.changed for each in load.errors):.1%}",
            f"{load.num_worse} of {num_sessions}",
            f"{load.num_different} of {num_sessions}",
        )
    console.print(table)


def load_facts(loads: Sequence[Load]) -> list[dict[str, Any]]:
    """Return the rows as JSON values."""
    return [
        {
            "sessions": load.sessions,
            "num_steps": load.num_steps,
            "num_due": load.num_due,
            "num_different": load.num_different,
            "errors": [(each.rate, each.unloaded_rate, each.changed) for each in load.errors],
        }
        for load in loads
    ]
