"""``python -m experiments.demo_pair.measure``: how like real pairs a pair of models errs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from huggingface_hub import snapshot_download
from rich.console import Console
from rich.table import Table

from experiments.common.audio.samples import BUNDLED, Sample
from experiments.common.bench.passes import pass_times_s
from experiments.common.bench.program import Folder, Program, Target, program
from experiments.common.bench.report import Bar
from experiments.demo_pair.corpus import Corpus
from experiments.demo_pair.pair import Pair, SetErrors, Spoken, folder_recordings, print_errors
from experiments.demo_pair.windows import test_windows
from specwhisper.model.backends import limit_threads
from specwhisper.model.checkpoints.names import resolve

BUNDLED_TARGET, BUNDLED_DRAFTS = "demo-target", ("demo-draft-tiny", "demo-draft-distil")
NUM_CLIPS, NUM_WINDOWS = 200, 40  # clips of each split; full windows with noise, and as many without
QUICK_CLIPS, QUICK_WINDOWS, QUICK_RECORDINGS = 8, 2, 2
TARGET_WER = {"noisy": 0.08, "clean": 0.03}
DRAFT_WER = 0.20
ACCEPTANCE = (0.85, 0.92)
STEP = 1 / 5  # a step of a draft named tiny over the target's
MEGABYTES = 30
HELD = 60  # tokens in the slot of a timed step: the middle of a window of speech


@program
def measure(
    given: Program,
    target: Target = BUNDLED_TARGET,
    draft: Annotated[
        list[str] | None,
        typer.Option(help="A draft model, as --target; repeat for more. [default: both bundled ones]"),
    ] = None,
    folder: Folder = BUNDLED,
    work: Annotated[
        Path | None,
        typer.Option(exists=True, file_okay=False, help="Work folder of a training: its test recordings."),
    ] = None,
) -> None:
    """Measure how a pair errs.

    Each model transcribes alone; then each draft chooses after every prefix of the target's text, and is
    followed where it is wrong.
    """
    limit_threads(1)
    drafts = tuple(draft or BUNDLED_DRAFTS)
    models = Pair.load(target, drafts)
    results: dict[str, SetErrors] = {}
    for name, recordings in find_recordings(folder, work, given.seed, quick=given.quick).items():
        results[name] = models.measure(recordings)
        print_errors(name, results[name], given.console)
    every, silence = {target: models.target, **models.drafts}, Sample("silence", bytes(32_000), {})
    times = pass_times_s(every, silence.recording, HELD, [(1, 1)], given.choose(50, 200))
    step_ms = {name: 1e3 * found[1, 1] for name, found in times.items()}
    sizes = {name: bytes_on_disk(name) for name in (target, *drafts)}
    print_costs(target, step_ms, sizes, given.console)
    is_demo = work is not None or (target == BUNDLED_TARGET and set(drafts) <= set(BUNDLED_DRAFTS))
    steps = {name: step_ms[name] / step_ms[target] for name in drafts}
    bars = find_bars(results, steps, sum(sizes.values())) if is_demo else []
    errors = {name: result.facts() for name, result in results.items()}
    figures = {"errors": errors, "step_ms": step_ms, "bytes": sizes}
    given.end({"target": target, "drafts": drafts}, figures, bars)


def find_recordings(folder: Path, work: Path | None, seed: int, *, quick: bool) -> dict[str, list[Spoken]]:
    if work is None:
        return {"recordings": folder_recordings(folder, QUICK_RECORDINGS if quick else None)}
    sizes = (QUICK_CLIPS, QUICK_WINDOWS) if quick else (NUM_CLIPS, NUM_WINDOWS)
    sets = test_windows(Corpus.load(work), *sizes, seed)
    return {name: [_spoken(*window) for window in windows] for name, windows in sets.items()}


def _spoken(audio: np.ndarray, text: str) -> Spoken:
    pcm = (np.clip(audio, -1, 1) * 32_767).astype("<i2").tobytes()
    return Spoken.of(Sample("window", pcm, {}), text, one_window=True)


def bytes_on_disk(name: str) -> int:
    source = resolve(name)
    folder = Path(source) if Path(source).is_dir() else Path(snapshot_download(source, local_files_only=True))
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def find_bars(results: Mapping[str, SetErrors], steps: Mapping[str, float], num_bytes: int) -> list[Bar]:
    """Return the bars that a demo pair must meet to err like a real one, as far as they were measured.

    Parameters
    ----------
    steps : each draft's step over the target's.
    """
    bars: list[Bar] = []

    def add(name: str, value: float, bound: float, shown: str = "{:.1%}") -> None:
        bars.append(Bar(name, value, bound, shown.format(value)))

    for kind in TARGET_WER.keys() & results.keys():
        add(f"WER of the target on full {kind} windows", results[kind].target_wer, TARGET_WER[kind])
    for name, errors in results["noisy"].drafts.items() if "noisy" in results else ():
        draft, accepted = Path(name).name, errors.agreement.acceptance
        add(f"WER of {draft} alone on full noisy windows", errors.wer, DRAFT_WER)
        add(f"tokens of {draft} that the target refuses", 1 - accepted, 1 - ACCEPTANCE[0])
        add(f"tokens of {draft} that the target accepts", accepted, ACCEPTANCE[1])
    for name, step in steps.items():
        if name.endswith("tiny"):
            add(f"a step of {Path(name).name} over the target's", step, STEP, "{:.3f}")
    add("all models on disk, MB", num_bytes / 1e6, MEGABYTES, "{:.1f}")
    return bars


def print_costs(
    target: str, step_ms: Mapping[str, float], sizes: Mapping[str, int], console: Console
) -> None:
    table = Table("model", "step, ms", "over the target's", "times cheaper", "MB on disk", title="Cost")
    for name, milliseconds in step_ms.items():
        ratio = milliseconds / step_ms[target]
        cells = ("", "") if name == target else (f"{ratio:.3f}", f"{1 / ratio:.1f}")
        table.add_row(name, f"{milliseconds:.2f}", *cells, f"{sizes[name] / 1e6:.1f}")
    table.add_row("all", "", "", "", f"{sum(sizes.values()) / 1e6:.1f}")
    table.caption = "One token, float32, processor time on one core, all models in turn."
    console.print(table)


if __name__ == "__main__":
    typer.run(measure)
