"""For tests of live text: scripted windows with their transcript."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from experiments.common.models.speech import SPOKEN
from specwhisper.live import LiveOptions
from specwhisper.transcription.live.transcript import LiveTranscript
from specwhisper.types import (
    Commit,
    Segment,
    Window,
    WindowOpened,
)
from tests.live import ScriptedWindows, token_ids


class ScriptedTranscript(ScriptedWindows):
    """Live windows that a test drives, and the transcript of their text."""

    def __init__(self, live: LiveOptions | None = None, vocabulary=SPOKEN, **options) -> None:
        super().__init__(live, vocabulary, **options)
        self.transcript = LiveTranscript(vocabulary, (live or LiveOptions()).position)
        self.segments: list[Segment] = []
        self.opening: tuple[int, ...] = ()

    def append(self, to_s, *marks, is_last=False) -> None:
        super().append(to_s, *marks, is_last=is_last)
        self.transcript.num_samples = self.received_samples

    def open(self) -> Window:
        """Open the window that is ready, and report it to the transcript."""
        num_final = self.windows.num_final
        window = super().open()
        assert self.transcript.observe(WindowOpened(window, None, self.opening, num_final)) == []
        return window

    def write(self, tokens: Sequence[int], pieces: Sequence[int] = (1000,), **scores) -> list[Segment]:
        """Report tokens in commits of the given sizes; the last closes the window."""
        window, at, number = self.opened, 0, 0
        closed = self.close(tokens, **scores)
        self.opening = closed.opening
        fresh: list[Segment] = []
        while True:
            piece = tokens[at : at + pieces[number % len(pieces)]]
            is_final = at + len(piece) == len(tokens)
            commit = Commit(window.id, at, tuple(piece), tuple(-0.1 for _ in piece), is_final=is_final)
            if is_final:
                commit = replace(commit, outcome=closed.outcome, step=closed.step)
            fresh += self.transcript.observe(commit)
            at, number = at + len(piece), number + 1
            if is_final:
                self.segments += fresh
                return fresh

    def step(self, *parts: str | float, **scores) -> list[Segment]:
        self.open()
        return self.write(token_ids(*parts), **scores)

    def commit_part(self, *parts: str | float) -> None:
        """Open the window that is ready, and commit its first tokens."""
        window = self.open()
        tokens = token_ids(*parts)
        self.transcript.observe(Commit(window.id, 0, tokens, tuple(-0.1 for _ in tokens)))
