"""Predict the cells of a sweep, by closed form and by simulation of the service's engines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import median

from experiments.common.replay.trace import Decoding, Trace
from experiments.latency.cells import CHOSEN, Cell, Hints
from experiments.latency.prediction.fit import (
    OVERLAPPING,
    fit_costs,
    realigned_of,
    runs_beside,
    survival_of,
    theory_costs,
)
from experiments.latency.simulation.scripted import slowed
from experiments.latency.simulation.world import Costs, simulate_session
from experiments.latency.sweep.hint_text import simulated_words, with_hints
from experiments.latency.sweep.store import Sweep
from experiments.latency.terms import HINT_SEED, OPTIONS
from specwhisper.model.checkpoints.checkpoint import load_checkpoint
from specwhisper.options import DecodingOptions
from specwhisper.speculation import theory
from specwhisper.speculation.draft_length import MAX_CHOSEN_GAMMA, DraftLength
from specwhisper.transcription.vocabulary import Vocabulary
from specwhisper.types import Mode


@dataclass(frozen=True)
class CostModel:
    """Costs and texts from which times per token are predicted.

    Attributes
    ----------
    is_measured : whether they come from a sweep, whose times count from each recording's first commit.
    """

    costs: Costs
    decodings: tuple[Decoding, ...]
    vocabulary: Vocabulary
    jitter_s: float = 0.0
    is_measured: bool = False

    @staticmethod
    def of(sweep: Sweep) -> CostModel:
        """Fit the model to a sweep."""
        trace = Trace.parse(sweep.header["trace"], "The sweep")
        return CostModel(
            fit_costs(sweep),
            trace.decodings,
            load_checkpoint(trace.target).vocabulary,
            sweep.header["conditions"].get("jitter_s", 0.0),
            is_measured=True,
        )

    def closed_form_s(
        self, mode: Mode, gamma: int, round_trip_s: float, hints: Hints = Hints.REALIGNED
    ) -> float:
        """Return the time per token by closed form."""
        costs = theory_costs(self.costs, round_trip_s)
        if mode is Mode.ONE_PROCESS:
            costs = replace(costs, round_trip_s=0.0)  # and no messages
        if mode is Mode.TARGET_ONLY:
            return theory.target_only_s(costs)
        if mode is Mode.FULL:
            realigned = 0.0 if hints is Hints.OFF else realigned_of(self.decodings)
            return theory.full_s(
                costs, self._survival(first=1), realigned
            )  # the first pass has no candidates
        if mode is Mode.PIPELINED:
            gamma = 1 if gamma == CHOSEN else gamma
            return theory.pipelined_s(costs, self._survival(first=gamma + 1), gamma)
        gammas = range(1, MAX_CHOSEN_GAMMA + 1) if gamma == CHOSEN else (gamma,)
        return min(theory.sync_s(costs, self._survival(each, first=each + 1), each) for each in gammas)

    def _survival(self, gamma: int | None = None, *, first: int) -> list[float]:
        return survival_of(self.decodings, gamma, first=first if self.is_measured else 0)

    def simulated_s(
        self, mode: Mode, gamma: int, round_trip_s: float, hints: Hints = Hints.REALIGNED
    ) -> float:
        """Return the time per token by simulation."""
        length, costs = DraftLength(mode, gamma or None), self.costs
        if mode in OVERLAPPING:
            costs = replace(costs, target=slowed(costs.target, costs.overlap))
        simulated = simulate_session(
            self.decodings,
            self.vocabulary,
            costs,
            length,
            round_trip_s=round_trip_s,
            jitter_s=self.jitter_s,
            options=self._options(hints),
        )
        return simulated.time_per_token_s

    def _options(self, hints: Hints) -> DecodingOptions:
        """Return the options with the hints of all recordings; each has the errors that it has in a sweep."""
        words: dict[str, list[str]] = {}
        for one in self.decodings:
            words.setdefault(one.recording, []).extend(simulated_words(one.tokens, self.vocabulary))
        made = [with_hints(OPTIONS[0], hints, each, seed=HINT_SEED) for each in words.values()]
        return replace(made[0], hint=" ".join(filter(None, (each.hint for each in made))))


@dataclass(frozen=True, slots=True)
class Predicted:
    """Both predictions of a cell, by repeat, in seconds per token."""

    closed_forms_s: Mapping[int, float]
    simulations_s: Mapping[int, float]

    @property
    def closed_form_s(self) -> float:
        """Median over the repeats."""
        return median(self.closed_forms_s.values())

    @property
    def simulated_s(self) -> float | None:
        """Median over the repeats; ``None`` where nothing was simulated."""
        return median(self.simulations_s.values()) if self.simulations_s else None


def predict(sweep: Sweep, cells: Mapping[Cell, Mapping[int, float]]) -> dict[Cell, Predicted]:
    """Predict every repeat of the cells from the runs of that repeat and round trip.

    ``one-process`` is not simulated, since nothing overlaps in it.
    """
    model, found = CostModel.of(sweep), {}
    models: dict[tuple[int, int], CostModel] = {}
    for cell, repeats in cells.items():
        if cell.cores > 1:
            continue
        round_trip_s = sweep.round_trips_s[cell.round_trip]
        closed_forms_s, simulations_s = {}, {}
        for repeat in repeats:
            place = (repeat, cell.round_trip)
            if place not in models:
                models[place] = replace(model, costs=fit_costs(sweep, runs_beside(sweep, *place)))
            closed_forms_s[repeat] = models[place].closed_form_s(
                cell.mode, cell.gamma, round_trip_s, cell.hints
            )
            if cell.mode is not Mode.ONE_PROCESS:
                simulations_s[repeat] = models[place].simulated_s(
                    cell.mode, cell.gamma, round_trip_s, cell.hints
                )
        found[cell] = Predicted(closed_forms_s, simulations_s)
    return found


def describe_costs(costs: Costs, step_s: float) -> str:
    """Describe fitted costs in a sentence."""
    return (
        f"forward pass {1e3 * costs.target.pass_s:.1f} ms and {1e3 * costs.target.token_s:.2f} ms a token, "
        f"draft step {1e3 * costs.draft.pass_s:.1f} ms ({costs.draft.pass_s / step_s:.2f} of a "
        f"target-only forward pass), message {1e3 * costs.message_s:.2f} ms one way; beside a draft that "
        f"drafts, a forward pass takes {costs.overlap:.2f} times as long"
    )


def costs_facts(costs: Costs) -> dict[str, float]:
    """Return costs as JSON values."""
    return {
        "pass_s": costs.target.pass_s,
        "pass_token_s": costs.target.token_s,
        "draft_s": costs.draft.pass_s,
        "message_s": costs.message_s,
        "overlap": costs.overlap,
    }
