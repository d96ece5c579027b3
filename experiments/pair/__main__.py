"""``python -m experiments.pair``: how like real pairs a pair of models errs."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from experiments.common.audio.samples import BUNDLED
from experiments.common.bench.options import Check, JsonFile, Quick, Seed, Target
from experiments.common.bench.report import open_console, print_bars, write_json
from experiments.pair.bars import KINDS, WindowFigures, find_bars, recorded_figures
from experiments.pair.measure import Pair, SetErrors, bytes_on_disk
from experiments.pair.published import load_published, print_published
from experiments.pair.recordings import NUM_WINDOWS, Spoken, folder_recordings, training_windows
from experiments.pair.step_cost import step_milliseconds
from specwhisper.model.threads import limit_threads

BUNDLED_TARGET, BUNDLED_DRAFTS = "demo-target", ("demo-draft-tiny", "demo-draft-distil")
METRICS = BUNDLED.parent / "metrics.json"
QUICK_WINDOWS, QUICK_RECORDINGS = 4, 2


def pair(
    target: Target = BUNDLED_TARGET,
    draft: Annotated[
        list[str] | None,
        typer.Option(help="A draft model, as --target; repeat for more. [default: both bundled ones]"),
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(exists=True, file_okay=False, help="Recordings and metadata.jsonl. [default: bundled]"),
    ] = None,
    work: Annotated[
        Path | None,
        typer.Option(
            exists=True, file_okay=False, help="Work folder of experiments.demo_pair: its 80 full windows."
        ),
    ] = None,
    language: Annotated[str, typer.Option(help="Language code of the recordings.")] = "en",
    threads: Annotated[int, typer.Option(min=1, help="Threads of the models.")] = 1,
    cut_windows: Annotated[
        bool, typer.Option(help="Drafts encode only a window's audio and 6 s of silence.")
    ] = False,
    quick: Quick = False,
    seed: Seed = 0,
    json: JsonFile = None,
    check: Check = False,
) -> None:
    """Measure how a pair errs, beside published figures of real pairs.

    Each model transcribes alone; then each draft chooses after every prefix of the target's text, and is
    followed where it is wrong.
    """
    console = open_console()
    limit_threads(threads)
    drafts = tuple(draft or BUNDLED_DRAFTS)
    models = Pair.load(target, drafts, cut_windows=cut_windows)
    results: dict[str, SetErrors] = {}
    for name, recordings in find_recordings(folder, work, seed, quick=quick).items():
        results[name] = models.measure(recordings, language)
        print_errors(name, results[name], console)
    step_ms = step_milliseconds({target: models.target, **models.drafts}, rounds=50 if quick else 200)
    sizes = {name: bytes_on_disk(name) for name in (target, *drafts)}
    print_costs(target, step_ms, sizes, console)
    print_published(load_published(), console)
    is_bundled = target == BUNDLED_TARGET and set(drafts) <= set(BUNDLED_DRAFTS)
    windows = window_figures(results, is_bundled=(target, drafts) == (BUNDLED_TARGET, BUNDLED_DRAFTS))
    steps = {name: step_ms[name] / step_ms[target] for name in drafts}
    titles = {name: Path(name).name for name in drafts}
    bars, absent = find_bars(windows, steps, sum(sizes.values()), titles) if is_bundled else ([], [])
    if json is not None:
        figures = {
            "errors": {name: result.facts() for name, result in results.items()},
            "step_ms": step_ms,
            "bytes": sizes,
            "bars": [*map(str, bars), *(f"{name}: n/a" for name in absent)],
        }
        write_json(json, models={"target": target, "drafts": drafts}, figures=figures)
    holds = print_bars(bars, console)
    for name in absent:
        console.print(f"{name}: n/a (pass --work)", style="yellow", highlight=False, markup=False)
    sys.exit(1 if check and not holds else 0)


def find_recordings(
    folder: Path | None, work: Path | None, seed: int, *, quick: bool
) -> dict[str, list[Spoken]]:
    """Return the recordings by the name of their set."""
    if work is not None:
        return training_windows(work, QUICK_WINDOWS if quick else NUM_WINDOWS, seed)
    limit = QUICK_RECORDINGS if quick else None
    return {"recordings": folder_recordings(folder or BUNDLED, limit)}


def window_figures(results: Mapping[str, SetErrors], *, is_bundled: bool) -> WindowFigures:
    """Return the measured figures of full windows; those of the bundled evaluation where none were."""
    measured = {kind: results[kind] for kind in KINDS if kind in results}
    if not measured and is_bundled and METRICS.is_file():
        return recorded_figures(METRICS, {name: name.removeprefix("demo-") for name in BUNDLED_DRAFTS})
    noisy = measured["noisy"].drafts if "noisy" in measured else {}
    return WindowFigures(
        {kind: result.target_wer for kind, result in measured.items()},
        {name: errors.wer for name, errors in noisy.items()},
        {name: errors.agreement.acceptance for name, errors in noisy.items()},
    )


def print_errors(name: str, errors: SetErrors, console: Console) -> None:
    """Print the errors on one set of recordings."""
    table = Table(
        "model",
        "WER alone",
        "words unlike the target's",
        "accepted",
        "realigns",
        "then holds, tokens",
        title=f"{name}: {errors.num_recordings}",
        caption="accepted: tokens given the target's prefix. realigns: corrections after which what the "
        "draft had written holds again within three tokens.",
    )
    table.add_row("target", f"{errors.target_wer:.1%}", "", "", "", "")
    for draft, found in errors.drafts.items():
        agreement = found.agreement
        table.add_row(
            draft,
            f"{found.wer:.1%}",
            f"{found.unlike_target:.1%}",
            f"{agreement.acceptance:.1%} of {agreement.num_tokens}",
            f"{agreement.realigns:.1%} of {agreement.num_corrections}",
            f"{agreement.mean_run:.1f}",
        )
    console.print(table)


def print_costs(
    target: str, step_ms: Mapping[str, float], sizes: Mapping[str, int], console: Console
) -> None:
    """Print the cost of a step and the size of each model."""
    table = Table("model", "step, ms", "over the target's", "times cheaper", "MB on disk", title="Cost")
    for name, milliseconds in step_ms.items():
        ratio = milliseconds / step_ms[target]
        cells = ("", "") if name == target else (f"{ratio:.3f}", f"{1 / ratio:.1f}")
        table.add_row(name, f"{milliseconds:.2f}", *cells, f"{sizes[name] / 1e6:.1f}")
    table.add_row("all", "", "", "", f"{sum(sizes.values()) / 1e6:.1f}")
    table.caption = "One token, float32, processor time on one core, all models in turn."
    console.print(table)


if __name__ == "__main__":
    typer.run(pair)
