"""``python -m experiments.gpu STAGE``: the engine on a machine with a GPU, in three stages.

Each stage begins with what matters most, and writes its figures after each item.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from functools import partial
from typing import Annotated, Any

import torch
import typer
from rich.table import Table

from experiments.common.bench.program import Program, program
from experiments.common.bench.report import Bar, none
from experiments.gpu import passes
from experiments.gpu.service import Texts, Throughput, measure_service
from experiments.gpu.weights import Place, Weights
from specwhisper.engine.process import check_device
from specwhisper.model.pytorch.backend import force_float32_accumulation
from specwhisper.types import Mode

DTYPES = ("float16", "bfloat16", "float32")  # for the logits
DTYPE = DTYPES[0]  # of passes, encoding and service
TOKENS_OF_A_REQUEST = 28  # 10 s of speech
JUDGED = "large-v3"
PASS_MS = {(1, 8): 1.0, (32, 5): 3.5}
REQUESTS_PER_S, REQUEST_S = 80.0, 0.1  # 32 clients; 95th percentile of one client
Item = tuple[str, str, Callable[[], Iterable[Any]]]
TITLES = {
    "checks": "equalities",
    "passes": "forward passes of sessions x tokens",
    "encodings": "encoding a window",
    "carried": "sessions on one target, over gRPC, replay",
}
Stage = StrEnum("Stage", [(name, name) for name in ("correctness", "profile", "service")])


@dataclass
class Figures:
    """Rows of each kind; ``failures`` has the traceback of each failed part, by name."""

    checks: list[passes.Check] = field(default_factory=list)
    passes: list[passes.Timed] = field(default_factory=list)
    encodings: list[passes.Encoding] = field(default_factory=list)
    carried: list[Throughput] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)

    @property
    def broken(self) -> list[str]:
        """Describe what failed or differs."""
        lines = [f"{part} failed: {trace.splitlines()[-1]}" for part, trace in self.failures.items()]
        lines += [f"{each.name}: {each.found}" for each in self.checks if not each.holds]
        return lines + [
            f"{of.mode}, {of.num_sessions} sessions: {of.num_different} texts differ {' '.join(of.failures)}"
            for of in self.carried
            if of.num_different or of.failures
        ]


@program
def gpu(
    given: Program,
    stage: Annotated[list[Stage] | None, typer.Argument(help="Stages. [default: all]")] = None,
    device: Annotated[str, typer.Option(help="Torch device; on a CPU, shapes are narrow.")] = "cuda",
) -> None:
    """Measure the engine with random weights of published shapes on a machine with a GPU.

    The service is a replay with true costs, but random text, and drafts that are right in 85 %. Exits with 1
    if anything differs that must be equal.
    """
    names = given.choose([JUDGED], [JUDGED, "turbo"])
    check_device(device, "--device")
    if torch.device(device).type == "cuda":
        torch.cuda.set_device(torch.empty(0, device=device).device)  # with its number
        force_float32_accumulation()
    place = Place(torch.device(device), is_narrow=torch.device(device).type == "cpu", seed=given.seed)
    described = torch.cuda.get_device_name(place.device) if place.is_gpu else "a CPU, narrow shapes"
    given.print(described)
    figures = Figures()

    def results() -> tuple[dict[str, Any], dict[str, Any], list[Bar], list[str]]:
        models = {"weights": "random", "dtype": DTYPE, "device": device}
        return models, {"device": described, **asdict(figures)}, find_bars(figures), figures.broken

    for name in names:
        weights = Weights(name, place)
        for title, kind, measure in items_of(stage or list(Stage), weights, quick=given.quick):
            given.print(f"{name}: {title}")
            try:
                for row in measure():
                    getattr(figures, kind).append(row)
            except Exception:  # one failed item must not discard the others
                figures.failures[f"{name}: {title}"] = traceback.format_exc()
                given.console.print_exception()
            place.tidy()
            given.save(*results())  # the machine may be taken away
        del weights
        place.tidy()
    for kind, title in TITLES.items():
        if rows := getattr(figures, kind):
            given.console.print(table_of(title, rows))
    given.end(*results())


def items_of(stages: Sequence[Stage], weights: Weights, *, quick: bool) -> Iterator[Item]:
    """Yield titles, kinds of rows and what measures them; what matters most comes first."""
    if Stage.correctness in stages:  # the kernels have a test of their own in the target server
        for dtype in DTYPES:
            check = partial(passes.check_logits, weights, dtype, quick=quick)
            yield f"logits, {dtype}", "checks", check
        yield "texts with a draft", "checks", partial(passes.check_texts, weights)
    if Stage.profile in stages:
        few, more = (passes.QUICK, passes.QUICK) if quick else (passes.FEW, passes.MORE)
        batches = passes.QUICK_BATCHES if quick else passes.BATCHES
        timed = partial(passes.measure_passes, weights)
        yield "passes", "passes", partial(timed, few, dtype=DTYPE)
        encode = partial(passes.measure_encoding, weights, batches, dtype=DTYPE)
        yield "encoding", "encodings", encode
        if weights.name == JUDGED:
            for dtype in ("bfloat16", "float32"):
                yield f"passes, {dtype}", "passes", partial(timed, few, dtype=dtype)
        yield "passes of other sizes", "passes", partial(timed, more, dtype=DTYPE)
    if Stage.service in stages:
        seed, levels = weights.place.seed, (2,) if quick else (1, 16, 32, 64, 128)
        texts = Texts(4, 20, seed) if quick else Texts(64, TOKENS_OF_A_REQUEST, seed)
        for modes in ((Mode.TARGET_ONLY, Mode.FULL), (Mode.SYNC,)):
            serve = partial(measure_service, weights, texts, levels, modes, dtype=DTYPE)
            yield f"requests, {' and '.join(modes)}", "carried", serve


def find_bars(figures: Figures) -> list[Bar]:
    """Hold what there is of the judged shape against the engine's goals."""
    bars = []
    for one in figures.passes:
        bound = PASS_MS.get((one.rows, one.width))
        is_half = one.dtype in ("float16", "bfloat16")
        if bound is not None and one.shape == JUDGED and is_half:
            name = f"{JUDGED}: forward pass of {one.rows} x {one.width} tokens, {one.dtype}, ms"
            bars.append(Bar(name, one.ms, bound, f"{one.ms:.2f}"))
    carried = [one for one in figures.carried if one.shape == JUDGED and one.requests_per_s]
    if of_32 := [one for one in carried if one.num_sessions == 32]:
        best = max(of_32, key=lambda one: one.requests_per_s)
        name, shown = (
            f"{JUDGED}: requests of 32 clients a second",
            f"{best.requests_per_s:.1f} in {best.mode}",
        )
        bars.append(Bar(name, best.requests_per_s, REQUESTS_PER_S, shown, at_least=True))
    if alone := [one for one in carried if one.num_sessions == 1]:
        quickest = min(alone, key=lambda one: one.p95_s)
        name = f"{JUDGED}: 95th percentile of one client's requests, s"
        bars.append(Bar(name, quickest.p95_s, REQUEST_S, f"{quickest.p95_s:.3f} in {quickest.mode}"))
    if exact := [one for one in figures.checks if "float32" in one.name]:
        num_broken = sum(not one.holds for one in exact)
        bars.append(none("equalities in float32 that do not hold", num_broken, len(exact)))
    return bars


def table_of(title: str, rows: Sequence[Any]) -> Table:
    """Return a table with the fields of the rows as columns."""
    names = [each.name for each in fields(rows[0]) if each.name != "failures"]
    table = Table(*names, title=title)
    for row in rows:
        values = (getattr(row, name) for name in names)
        table.add_row(*(f"{each:.4g}" if isinstance(each, float) else str(each) for each in values))
    return table


if __name__ == "__main__":
    typer.run(gpu)
