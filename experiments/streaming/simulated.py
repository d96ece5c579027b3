"""The delays of the table at the costs of a GPU, in simulated time: one target, a core for each draft.

Where text becomes final is found in the audio, as a server does. The models are replaced by their costs and
the words that were spoken, so that no text changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from rich.console import Console
from rich.table import Table

from experiments.streaming.measures import Shown, SpokenWord, final_after_s, shown_after_s
from experiments.streaming.session import PIECE_BYTES, PIECE_S, SILENCE_MS
from experiments.streaming.table import seconds
from experiments.streaming.takes import Take
from specwhisper.live import EndpointingOptions
from specwhisper.types import SAMPLE_RATE
from specwhisper_draft_server.voice_activity import VoiceActivity

LAST_WORD_S = 0.3  # in noise, a piece's last word may seem to end this long after it
ENDS = ("cut", "end")  # events of voice activity
NUM_SESSIONS = (1, 16, 64, 192)
NUM_ROUNDS, COUNTED_ROUND = 3, 1  # rounds of all takes in a session; all sessions speak during the second
COSTS_S = {  # large-v3 on a GPU as in `experiments.latency expect`, tiny.en on a core
    "confirm": 0.012 + 6 * 0.001,  # a window, and six forward passes over a drafted text
    "one_way": 0.020,  # between draft and target server
    "draft": 0.100,  # a cut window
    "word": 0.008,  # the draft writes a word
}
EDGE_S = 0.1  # last sound of the audio, which the draft leaves out
STEP_S = 0.3  # least new audio between two texts of the draft
Boundaries = list[tuple[float, float]]  # a place where text becomes final, and when that is known or done


@dataclass(frozen=True, slots=True)
class Simulated:
    """Delays with a number of sessions; ``target_use`` is the share of time in which the target works."""

    num_sessions: int
    shown_s: tuple[float, ...]
    final_s: tuple[float, ...]
    target_use: float


def simulate(takes: Sequence[Take], num_sessions: int, seed: int) -> Simulated:
    """Simulate sessions on one target, each of which begins with its takes at a random moment."""
    ends, random = [boundaries(take) for take in takes], Random(seed)
    round_s = sum(take.duration_s for take in takes)
    said: list[tuple[Take, float, Boundaries]] = []  # with its begin, and when its text became final
    pieces, counted = [], []
    for _ in range(num_sessions):
        begins_s = random.uniform(0, round_s)
        for number in range(NUM_ROUNDS):
            for take, of_take in zip(takes, ends, strict=True):
                pieces += [(begins_s + known_s, end_s, len(said)) for end_s, known_s in of_take]
                counted += [len(said)] * (number == COUNTED_ROUND)
                said.append((take, begins_s, []))
                begins_s += take.duration_s
    free_s = 0.0
    for known_s, end_s, number in sorted(pieces):  # the target takes them in turn
        free_s = max(free_s, known_s + COSTS_S["one_way"]) + COSTS_S["confirm"]
        said[number][2].append((end_s, free_s + COSTS_S["one_way"] - said[number][1]))
    seen = [(said[number][0], shown(said[number][0], said[number][2])) for number in counted]
    return Simulated(
        num_sessions,
        tuple(s for take, of_take in seen for s in shown_after_s(take.words, of_take)),
        tuple(s for take, of_take in seen for s in final_after_s(take.words, take.ends_s, of_take)),
        sum(map(len, ends)) * num_sessions * COSTS_S["confirm"] / round_s,
    )


def boundaries(take: Take) -> Boundaries:
    """Return where text becomes final, and when that is known, in seconds of the take."""
    voice = VoiceActivity(EndpointingOptions(silence_duration_ms=SILENCE_MS))
    found = []
    for start in range(0, len(take.pcm), PIECE_BYTES):
        known_s = (start / PIECE_BYTES + 1) * PIECE_S
        marks = asyncio.run(voice.detect(take.pcm[start : start + PIECE_BYTES]))
        found += [(m.sample / SAMPLE_RATE + LAST_WORD_S, known_s) for m in marks if m.event in ENDS]
    return [*found, (take.duration_s, take.duration_s)]


def shown(take: Take, final: Boundaries) -> list[Shown]:
    """Return what a reader sees, from the moments at which the text up to a place becomes final."""
    updates = [(at_s, end_s, True) for end_s, at_s in final]
    at_s = received_s = 0.0
    while received_s < take.duration_s:
        received_s = max(at_s, received_s + STEP_S)
        final_s = max((end_s for end_s, known_s in final if known_s <= received_s), default=0.0)
        num_words = len(_words(take.words, final_s, received_s - EDGE_S))
        at_s = received_s + (COSTS_S["draft"] + num_words * COSTS_S["word"] if num_words else 0.0)
        updates.append((at_s, received_s - EDGE_S, False))
    found, final_s, seen_s = list[Shown](), 0.0, 0.0
    for at_s, end_s, is_final in sorted(updates):
        text = " ".join(_words(take.words, final_s, end_s)) if is_final else ""
        final_s, seen_s = (end_s, seen_s) if is_final else (final_s, end_s)
        found.append(Shown(at_s, text, "", " ".join(_words(take.words, final_s, seen_s))))
    return found


def print_simulated(found: Sequence[Simulated], console: Console) -> None:
    costs = ", ".join(f"{name} {1000 * cost_s:.0f}" for name, cost_s in COSTS_S.items())
    table = Table(
        *("sessions on a target", "shown, s", "utterance final, s", "target busy"),
        caption=f"In simulated time; costs in ms: {costs}. Seconds are median / 95th percentile.",
    )
    for one in found:
        delays = seconds(one.shown_s), seconds(one.final_s)
        table.add_row(str(one.num_sessions), *delays, f"{one.target_use:.0%}")
    console.print(table)


def _words(words: Sequence[SpokenWord], from_s: float, to_s: float) -> list[str]:
    return [word.text for word in words if from_s < word.end_s <= to_s]
