"""From equal streams at once, of which a loaded target leaves steps out, to word errors and bars."""

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
from experiments.streaming.listening import pieces
from experiments.streaming.measures import final_words, normalised
from experiments.streaming.summary import Taken, quantile
from experiments.streaming.takes import Take
from specwhisper.live import EndpointingOptions, LiveOptions
from specwhisper.transcription.utterances import Utterances
from specwhisper.types import SAMPLE_RATE
from specwhisper_draft_server.voice_activity import VoiceActivity

MAX_ADDED_ERRORS = 0.02  # of the words, in the mean of the sessions at once
COLUMNS = (
    "sessions",
    "steps decoded",
    "left out",
    "final p95, s",
    "WER",
    "WER, most",
    "words other than idle",
    "sessions worse than idle",
    "other than alone",
)


@dataclass(frozen=True, slots=True)
class Errors:
    """Word errors of one session.

    Attributes
    ----------
    rate : against what the target writes of the whole take afterwards.
    idle_rate : the same of a session that was alone on the target.
    changed : against the text of that session.
    """

    rate: float
    idle_rate: float
    changed: float


@dataclass(frozen=True, slots=True)
class Load:
    """Figures of so many sessions at once, over all takes.

    Attributes
    ----------
    num_steps, num_due : decoded, and that a target without any delay would have decoded.
    final_s : from the end of a word to its final text, of each word.
    num_different : sessions whose text the target alone does not write in the same steps.
    """

    sessions: int
    errors: tuple[Errors, ...]
    num_steps: int
    num_due: int
    final_s: tuple[float, ...]
    num_different: int

    @property
    def left_out(self) -> float:
        """Share of the steps that were not decoded."""
        return 1 - self.num_steps / max(1, self.num_due)

    @property
    def added_errors(self) -> float:
        """By how much the word error rate exceeds that of a session alone, in the mean."""
        return fmean(each.rate - each.idle_rate for each in self.errors)

    @property
    def num_worse(self) -> int:
        """Sessions with more word errors than one that was alone."""
        return sum(each.rate > each.idle_rate for each in self.errors)


def word_error_rate(reference: str, text: str) -> float:
    """Return word errors per word of the reference, without case and punctuation."""
    reference, text = " ".join(normalised(reference)), " ".join(normalised(text))
    return float(process_words(reference, text).wer) if reference else 0.0


def num_due(take: Take, live: LiveOptions) -> int:
    """Count the steps of a take that a target without any delay decodes."""
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


def loads_of(taken: Sequence[Taken], live: LiveOptions) -> list[Load]:
    """Reduce the sessions to a row for each number of them at once; one of them is 1."""
    idle = {one.take.name: one.heard.text for one in taken if one.sessions == 1}
    due = {one.take.name: num_due(one.take, live) for one in taken if one.sessions == 1}
    rows = []
    for sessions in sorted({one.sessions for one in taken}):
        together = [one for one in taken if one.sessions == sessions]
        rows.append(
            Load(
                sessions,
                tuple(_errors(one, idle[one.take.name]) for one in together),
                sum(len(one.heard.steps) for one in together),
                sum(due[one.take.name] for one in together),
                tuple(word.latency_s for one in together for word in final_words(one.take, one.heard)),
                sum(one.text_alone is not None and one.text_alone != one.heard.text for one in together),
            )
        )
    return rows


def _errors(one: Taken, idle: str) -> Errors:
    spoken = "".join(word.text for word in one.take.words)
    return Errors(
        word_error_rate(spoken, one.heard.text),
        word_error_rate(spoken, idle),
        word_error_rate(idle, one.heard.text),
    )


def load_bars(loads: Sequence[Load]) -> list[Bar]:
    """Hold the sessions against what is promised: load costs latency, not words."""
    num_different = sum(load.num_different for load in loads)
    num_sessions = sum(len(load.errors) for load in loads)
    return [
        Bar(
            "sessions whose text the target alone does not write in the same steps",
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
    """Print a line for each number of sessions at once."""
    table = Table(title="Equal sessions at once", title_justify="left")
    for heading in COLUMNS:
        table.add_column(heading, justify="right")
    for load in loads:
        num_sessions = len(load.errors)
        table.add_row(
            str(load.sessions),
            str(load.num_steps),
            f"{load.left_out:.0%}",
            f"{quantile(load.final_s, 0.95):.2f}",
            f"{fmean(each.rate for each in load.errors):.1%}",
            f"{max(each.rate for each in load.errors):.1%}",
            f"{fmean(each.changed for each in load.errors):.1%}",
            f"{load.num_worse} of {num_sessions}",
            f"{load.num_different} of {num_sessions}",
        )
    console.print(table)


def load_facts(loads: Sequence[Load]) -> list[dict[str, Any]]:
    """Return the figures of each row."""
    return [
        {
            "sessions": load.sessions,
            "num_steps": load.num_steps,
            "num_due": load.num_due,
            "num_different": load.num_different,
            "errors": [(each.rate, each.idle_rate, each.changed) for each in load.errors],
        }
        for load in loads
    ]
