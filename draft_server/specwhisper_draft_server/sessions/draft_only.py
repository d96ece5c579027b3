"""Continue a live session without a target, and verify its text afterwards.

While no target takes the session, :class:`AcceptAllTarget` commits whatever the draft proposes, so that the
draft works as usual. Its text is shown as unverified and is never final. :class:`UnverifiedText` caches it:
the next target verifies it as candidates. :class:`.merged_transcript.MergedTranscript` has the text of all
parts.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from specwhisper.options import DecodingOptions
from specwhisper.transcription.live_windows import LiveWindows
from specwhisper.transcription.transcriber import TargetDescription
from specwhisper.transcription.vocabulary import Vocabulary
from specwhisper.types import (
    WINDOW_FRAMES,
    AudioChunk,
    Candidates,
    Commit,
    Finished,
    Limits,
    Mode,
    Resume,
    TimedHint,
    Window,
    WindowOpened,
)

Event = WindowOpened | Commit | Finished


class ReceivedAudio:
    """How far live audio reaches; a window may begin anywhere in it."""

    def __init__(self) -> None:
        self.received_samples = 0

    def window_is_ready(self, start_frame: int) -> bool:
        """Return whether the audio of a window has been received.

        Live windows need no more than there is.
        """
        return True

    def window_frames(self, start_frame: int) -> int:
        """Return the number of frames of a window."""
        return WINDOW_FRAMES


class AcceptAllTarget:
    """Accept every candidate: a target without a model, as a pure state machine.

    It answers audio and candidates with the windows and commits of a real target.
    """

    def __init__(
        self, vocabulary: Vocabulary, options: DecodingOptions, limits: Limits, *, max_new_tokens: int
    ) -> None:
        self._vocabulary = vocabulary
        self._windows = LiveWindows(vocabulary, options, max_new_tokens=max_new_tokens)
        self._limits = limits
        self._audio = ReceivedAudio()
        self._window: Window | None = None
        self._committed: list[int] = []
        self._early: list[Candidates] = []  # blocks of windows that are not open yet
        self._newest_block = 0  # number of the newest block of the window
        self._is_finished = False

    def append_audio(self, chunk: AudioChunk) -> list[Event]:
        """Append audio; return the events that follow from it."""
        end_sample = chunk.start_sample + len(chunk.pcm) // 2
        self._audio.received_samples = max(self._audio.received_samples, end_sample)
        self._windows.append_audio(chunk, self._audio.received_samples)
        return self._open_next()

    def propose(self, block: Candidates) -> list[Event]:
        """Commit a block if it continues the open window; return the events."""
        window = self._window
        if window is None or block.window_id != window.id:
            if block.start_frame is not None:
                self._early = [*self._early, block][-self._limits.max_ahead_tokens :]
            return []
        if block.start_frame is not None and block.start_frame != window.start_frame:
            return []
        self._newest_block = max(self._newest_block, block.number)
        end = len(self._committed)
        fresh = block.tokens[max(0, end - block.base) :] if block.base <= end else ()
        tokens = self._cut_at_end(fresh, window.max_new_tokens - end)
        self._committed += tokens
        is_final = bool(tokens) and (
            tokens[-1] in self._vocabulary.ends or len(self._committed) == window.max_new_tokens
        )
        commit = Commit(
            window_id=window.id,
            base=end,
            tokens=tokens,
            candidates_received=self._newest_block,
            held=len(self._committed),
            credit=len(self._committed) + self._limits.max_ahead_tokens,
            is_final=is_final,
            step=self._windows.close(window, self._committed).step if is_final else None,
        )
        if not is_final:
            return [commit]
        self._window = None
        return [commit, *self._open_next()]

    def _cut_at_end(self, tokens: Sequence[int], max_tokens: int) -> tuple[int, ...]:
        """Return the tokens up to the first end of the text."""
        for i, token in enumerate(tokens[:max_tokens]):
            if token in self._vocabulary.ends:
                return tuple(tokens[: i + 1])
        return tuple(tokens[:max_tokens])

    def _open_next(self) -> list[Event]:
        """Open the next window, if its audio has been received."""
        if self._window is not None or self._is_finished:
            return []
        num_frames = self._windows.ready_frames(self._audio)
        if num_frames is None:
            return []
        if num_frames == 0:
            self._is_finished = True
            return [Finished()]
        self._window, self._committed, self._newest_block = self._windows.open(num_frames), [], 0
        events: list[Event] = [WindowOpened(self._window, num_final=self._windows.num_final)]
        early, self._early = self._early, []
        for block in early:
            events += self.propose(block)
        return events


class UnverifiedText:
    """Cache the draft-only text of each window, to propose it to the next target.

    Of several windows that begin at the same frame, the last one is kept.
    """

    def __init__(self) -> None:
        self._texts: dict[int, tuple[int, tuple[int, ...]]] = {}  # frames and tokens, by first frame
        self._window: Window | None = None
        self._tokens: list[int] = []

    def observe(self, event: Event) -> None:
        """Follow the events of a draft-only stream."""
        if isinstance(event, WindowOpened):
            self._window, self._tokens = event.window, []
        elif isinstance(event, Commit) and self._window is not None:
            self._tokens += event.tokens
            if event.is_final:
                self._texts[self._window.start_frame] = (self._window.num_frames, tuple(self._tokens))

    def candidates(self, window: Window, vocabulary: Vocabulary, limits: Limits) -> list[Candidates]:
        """Return the cached text of a window, cut into blocks.

        The text's ending is left out unless the cached window ended at the same frame.
        """
        num_frames, tokens = self._texts.get(window.start_frame, (0, ()))
        if num_frames != window.num_frames:
            tokens = vocabulary.without_ending(tokens)
        tokens = tokens[: min(limits.max_ahead_tokens, window.max_new_tokens)]
        starts = range(0, len(tokens), limits.max_block_tokens)
        return [
            Candidates(window.id, start, 0, tokens[start : start + limits.max_block_tokens])
            for start in starts
        ]


class DraftOnlyStream:
    """The :class:`TargetStream` of a session that has no target."""

    min_round_trip_ns = 0

    def __init__(self, target: TargetDescription, accept_all: AcceptAllTarget, text: UnverifiedText) -> None:
        self.target = target
        self.limits: Limits = target.limits
        self._accept_all = accept_all
        self._text = text
        self._events: asyncio.Queue[Event] = asyncio.Queue()

    def propose(self, block: Candidates) -> None:
        """Commit candidates."""
        self._put(self._accept_all.propose(block))

    def hint(self, hint: TimedHint) -> None:
        """Drop it: there is no target that could verify it."""

    async def send_audio(self, chunk: AudioChunk) -> None:
        """Append audio, of which only the length matters."""
        self._put(self._accept_all.append_audio(chunk))

    async def events(self) -> AsyncIterator[WindowOpened | Commit]:
        """Yield windows and commits, until the audio has ended."""
        while not isinstance(event := await self._events.get(), Finished):
            yield event

    def _put(self, events: list[Event]) -> None:
        for event in events:
            self._text.observe(event)
            self._events.put_nowait(event)


class DraftOnlyTarget:
    """Opens draft-only streams, in place of a target that is lost.

    Attributes
    ----------
    text : what the draft has written so far.
    """

    address = "none (draft-only)"

    def __init__(self) -> None:
        self.text = UnverifiedText()

    @asynccontextmanager
    async def open(
        self,
        session_id: str,
        target: TargetDescription,
        mode: Mode,
        options: DecodingOptions,
        *,
        draft_model: str,
        same_weights: bool = False,
        avoid: str = "",
        resume: Resume | None = None,
    ) -> AsyncIterator[DraftOnlyStream]:
        """Open a stream of live audio; it is never refused."""
        accept_all = AcceptAllTarget(
            target.vocabulary, options, target.limits, max_new_tokens=target.vocabulary.max_length
        )
        yield DraftOnlyStream(target, accept_all, self.text)
