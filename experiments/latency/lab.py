"""A pair of models, its servers over an emulated link, and both models in one process."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Annotated

import numpy as np
import typer

from experiments.common.audio.conditions import Condition, in_condition
from experiments.common.audio.samples import Sample
from experiments.common.inline_pair import InlinePair
from experiments.common.replay.record import record
from experiments.common.replay.trace import Trace
from experiments.common.servers.processes import Server, Worker, first_two_cores, on_cores, running_process
from experiments.latency.cells import Arm
from experiments.latency.link import Link
from experiments.latency.timed_client import TimedClient, TimedTokens, timed_in_process
from specwhisper.model.checkpoints.checkpoint import load_checkpoint
from specwhisper.model.model import WhisperModel
from specwhisper.model.translated import open_draft
from specwhisper.options import DecodingOptions
from specwhisper.types import Mode

OPTIONS = DecodingOptions.greedy(language="en")
WRONG_SHARE = 0.1  # of the words of a given hint
SERVE = "experiments.latency.serve"
POLL_S, SWITCH_S = 0.01, 10.0
Spoken = Mapping[Condition, Sequence[Sample]]
DraftDtype = Annotated[str, typer.Option(help="Numeric type of the draft's weights.")]


@dataclass(frozen=True, slots=True)
class Pair:
    """Names of two models, and the numeric type of the draft's weights."""

    target: str
    draft: str
    draft_dtype: str = "int8"

    def facts(self) -> dict[str, str]:
        return {"target": self.target, "draft": f"{self.draft}, {self.draft_dtype}"}

    def record(self, samples: Sequence[Sample]) -> Trace:
        """Record the target's text and the errors of the draft as the servers run it."""
        return record(
            samples,
            target=self.target,
            draft=self.draft,
            draft_dtype=self.draft_dtype,
            cut_windows=True,
            options=[OPTIONS],
        )


def spoken_in(samples: Sequence[Sample], conditions: Sequence[Condition], seed: int) -> Spoken:
    return {
        condition: in_condition(samples, condition, np.random.default_rng(seed)) for condition in conditions
    }


def mostly_right(words: Sequence[str], random: Random) -> list[str]:
    """Return a text in which a tenth of the words is replaced, left out or followed by another one."""
    made: list[str] = []
    for word in words:
        if random.random() >= WRONG_SHARE:
            made.append(word)
        else:
            made += random.choice([[random.choice(words)], [], [word, random.choice(words)]])
    return made


class OneProcess:
    def __init__(self, pair: Pair) -> None:
        target = load_checkpoint(pair.target)
        draft = load_checkpoint(pair.draft, dtype=pair.draft_dtype, is_draft=True)
        self._target = WhisperModel(target, 1)
        self._draft = open_draft(draft, 1, target.vocabulary, cut_windows=True)
        self._max_new_tokens = target.max_new_tokens

    def transcribe(self, sample: Sample, gamma: int) -> TimedTokens:
        engine = InlinePair(
            self._target, self._draft, gamma=gamma or None, max_new_tokens=self._max_new_tokens
        )
        return timed_in_process(engine, sample, OPTIONS)


@dataclass
class Lab:
    """A target server far away, a draft server here, and their client; both models in one process.

    Attributes
    ----------
    files : which mechanism each server is to do without.
    words : the words of the target's own text, by recording: hints are made of them.
    """

    pair: Pair
    client: TimedClient
    link: Link
    servers: tuple[Server, Server]
    files: tuple[Path, Path]
    words: dict[str, list[str]]

    def switch_off(self, mechanism: str | None) -> None:
        """Do without a mechanism from now on, or with all."""
        for server, file in zip(self.servers, self.files, strict=True):
            file.write_text(mechanism or "")
            os.kill(server.process, signal.SIGUSR1)
        deadline_s = time.monotonic() + SWITCH_S
        while any(file.exists() for file in self.files):
            if time.monotonic() > deadline_s:
                raise RuntimeError("A server has not switched its mechanisms.")
            time.sleep(POLL_S)

    def connect(self, rtt_ms: float) -> None:
        """Use a round trip from now on, and let the connections adapt to it."""
        self.link.set_round_trip(rtt_ms / 1e3)
        self.client.warm_up()

    def transcribe(self, arm: Arm, sample: Sample) -> TimedTokens:
        if arm.mode is Mode.ONE_PROCESS:
            timed: TimedTokens = self._worker.call("transcribe", sample, arm.gamma)
            return timed
        hint = " ".join(mostly_right(self.words[sample.name], Random(0))) if arm.has_hint else ""
        return self.client.transcribe(sample, arm.mode, arm.gamma, OPTIONS, hint)

    def close(self) -> None:
        if "_worker" in self.__dict__:
            self._worker.stop()

    @cached_property
    def _worker(self) -> Worker:
        return Worker(partial(OneProcess, self.pair), cores=cores_used()["target"])


@contextmanager
def open_lab(pair: Pair, link: Link) -> Iterator[Lab]:
    """Start both servers, a core each."""
    cores = cores_used()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        files = folder / "target", folder / "draft"
        far = stack.enter_context(
            running_process(
                SERVE,
                *("--model", pair.target, "--insecure", "--host", link.far_host),
                cores=cores["target"],
                prefix=link.far_prefix,
                route_to=link.route_to,
                before=("specwhisper_target_server", str(files[0])),
            )
        )
        near = stack.enter_context(
            running_process(
                SERVE,
                *("--draft-model", pair.draft, "--dtype", pair.draft_dtype, "--cut-windows"),
                *("--target", far.address),
                cores=cores["draft"],
                before=("specwhisper_draft_server", str(files[1])),
            )
        )
        stack.enter_context(on_cores(cores["draft"]))
        client = TimedClient(near.address)
        stack.callback(client.close)
        lab = Lab(pair, client, link, (far, near), files, {})
        stack.callback(lab.close)
        yield lab


def cores_used() -> dict[str, list[int]]:
    """Return the cores of the target, and of draft, client and link; the same on a single-core machine."""
    first, second = first_two_cores()
    return {"target": [first], "draft": [second]}
