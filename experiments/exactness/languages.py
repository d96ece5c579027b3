"""In which language windows are transcribed where the language changes: clips, joined with pauses."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer
from numpy.typing import NDArray
from rich.table import Table

from experiments.common.bench.program import Program, Target, program
from experiments.common.bench.report import Bar
from specwhisper import SpeculativeWhisper
from specwhisper.audio.decode import decode_file
from specwhisper.types import SAMPLE_RATE

Pcm = NDArray[np.int16]
LENGTHS_S = (5, 8, 14, 30)
PAUSES_S = (0.3, 1.0)
SHORTEST_SAMPLES = 3 * SAMPLE_RATE // 2  # the shortest piece
NUM_PARTS = 4


class Part(NamedTuple):
    """Speech in one language, by its place in a recording."""

    language: str
    start_s: float
    end_s: float


def join(clips: dict[str, list[Pcm]], random: np.random.Generator) -> tuple[Pcm, list[Part]]:
    """Join clips at random: parts of several lengths, no two of one language after each other."""
    pieces: list[Pcm] = []
    parts: list[Part] = []
    for _ in range(NUM_PARTS):
        language = str(random.choice([code for code in clips if not parts or code != parts[-1].language]))
        start_s = sum(map(len, pieces)) / SAMPLE_RATE
        left = int(random.choice(LENGTHS_S)) * SAMPLE_RATE
        while left > SHORTEST_SAMPLES:
            clip = clips[language][random.integers(len(clips[language]))]
            start = int(random.integers(max(1, len(clip) - left)))
            pause = np.zeros(round(random.uniform(*PAUSES_S) * SAMPLE_RATE), np.int16)
            pieces += [clip[start : start + left], pause]
            left -= len(pieces[-2])
        parts.append(Part(language, start_s, sum(map(len, pieces[:-1])) / SAMPLE_RATE))
    return np.concatenate(pieces), parts


@program
def languages(
    given: Program,
    clip: Annotated[
        list[str], typer.Option("--clip", help="A recording in a language, as fr=FILE; two or more.")
    ],
    target: Target = "base",
    num: Annotated[int, typer.Option("--recordings", min=1)] = 16,
) -> None:
    """Count windows in another language than their speech, with `languages` and with `multilingual`."""
    clips: dict[str, list[Pcm]] = {}
    for code, _, file in (each.partition("=") for each in clip):
        clips.setdefault(code, []).append(np.frombuffer(b"".join(decode_file(Path(file))), "<i2"))
    if len(clips) < 2:
        raise typer.BadParameter("Clips are of one language: pass --clip CODE=FILE for others, too.")
    random = np.random.default_rng(given.seed)
    made = [join(clips, random) for _ in range(given.choose(2, num))]
    audio_s = sum(len(pcm) for pcm, _ in made) / SAMPLE_RATE
    arms: dict[str, Any] = {"languages": {"languages": list(clips)}, "multilingual": {"multilingual": True}}
    whisper = SpeculativeWhisper(None, target)
    table = Table("option", "windows", "in a wrong language", "time / audio")
    figures = {}
    for arm, options in arms.items():
        num_windows = num_wrong = 0
        began_s = perf_counter()
        for pcm, parts in made:
            found = whisper.transcribe(pcm, padding="zero", **options).segments
            windows = sorted({(each.seek / 100, each.language) for each in found if each.text.strip()})
            ends_s = [*(seek_s for seek_s, _ in windows[1:]), parts[-1].end_s]
            for (seek_s, language), end_s in zip(windows, ends_s, strict=True):
                spoken = max(parts, key=lambda part: min(part.end_s, end_s) - max(part.start_s, seek_s))
                num_windows += 1
                num_wrong += language != spoken.language
        ratio = (perf_counter() - began_s) / audio_s
        figures[arm] = {"windows": num_windows, "wrong": num_wrong, "time_over_audio": ratio}
        table.add_row(arm, str(num_windows), str(num_wrong), f"{ratio:.2f}")
    given.console.print(table)
    wrong = figures["languages"]["wrong"]
    bars = [Bar("windows in a wrong language", wrong, 1, f"{wrong} of {figures['languages']['windows']}")]
    given.end({"target": target}, {"figures": figures, "audio_s": audio_s}, bars)
