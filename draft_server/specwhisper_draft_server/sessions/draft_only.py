"""Continue a live session without a target, and verify its text afterwards.

While no target takes the session, :class:`AcceptAllTarget` commits whatever the draft proposes, so that the
draft works as usual. Its text is shown as unverified and is never final. :class:`UnverifiedText` caches it:
the next target verifies it as candidates. :class:`MergedTranscript` reads all parts as one transcript.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

from specwhisper.live import LivePosition
from specwhisper.options import DecodingOptions
from specwhisper.speculation.statistics import SpeculationStatistics
from specwhisper.transcription.live_transcript import LiveTranscript
from specwhisper.transcription.live_windows import LiveWindows
from specwhisper.transcription.transcriber import TargetDescription
from specwhisper.transcription.vocabulary import Vocabulary
from specwhisper.types import (
    SAMPLE_RATE,
    WINDOW_FRAMES,
    AudioChunk,
    Candidates,
    Commit,
    Finished,
    HintText,
    Limits,
    Mode,
    Resume,
    Segment,
    Window,
    WindowOpened,
)
from specwhisper_draft_server.sessions.update import SessionUpdate

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

    def hint(self, hint: HintText) -> None:
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


class MergedTranscript:
    """The merged transcripts of one live session's parts.

    It reads as :class:`LiveTranscript` does. A part is what one target wrote, or the draft without one.
    Draft-only text is never final. It is replaced, utterance by utterance, once a target has decoded the same
    audio.

    Parameters
    ----------
    part : the transcript of the first target's part.
    """

    def __init__(self, part: LiveTranscript) -> None:
        self._part = part
        self._is_draft_only = False  # whether the current part is
        self._verified = part.position  # where the draft-only part began
        self._unverified: dict[int, tuple[int, ...]] = {}  # draft-only tokens, by utterance
        self._final: tuple[int, ...] = ()  # final since then, in the open utterance
        self._earlier = SpeculationStatistics()  # of the targets' parts that have ended
        self._language: str | None = None  # the last one of earlier parts
        self._earlier_samples = part.num_samples  # received in earlier parts
        self._end_s = 0.0  # of the last final segment

    def follow_target(self, part: LiveTranscript) -> None:
        """Continue with another target's part, from :attr:`position`."""
        if self._is_draft_only:
            self._add_unverified(self._part.position.num_utterances + 1, self._part.unfinished)
        else:
            self._earlier.add(self._part.statistics)
        self._follow(part, is_draft_only=False)

    def follow_draft(self, part: LiveTranscript) -> None:
        """Continue with a draft-only part, from :attr:`position`."""
        self._earlier.add(self._part.statistics)
        self._verified, self._unverified = self._part.position, {}
        self._follow(part, is_draft_only=True)

    def _follow(self, part: LiveTranscript, *, is_draft_only: bool) -> None:
        self._earlier_samples, self._language = self.num_samples, self.detected_language
        self._part, self._is_draft_only, self._final = part, is_draft_only, ()

    def take(self, update: SessionUpdate) -> SessionUpdate:
        """Add an update of the part; return it for the whole session.

        Draft-only text is not final.
        """
        if self._is_draft_only:
            for segment in update.segments:
                self._add_unverified(segment.utterance, segment.tokens)
            return replace(update, segments=(), steps=())
        for segment in update.segments:
            self._final += tuple(segment.tokens)
            if segment.is_utterance_end:
                self._final = ()
                self._unverified = {n: text for n, text in self._unverified.items() if n > segment.utterance}
        return replace(update, segments=[self._in_order(segment) for segment in update.segments])

    def _in_order(self, segment: Segment) -> Segment:
        """Move a segment's times after the last one's, which another target estimated."""
        segment = segment.not_before(self._end_s)
        self._end_s = segment.end_s
        return segment

    def _add_unverified(self, utterance: int, tokens: Sequence[int]) -> None:
        if self._part.text_after((), tokens).strip():
            self._unverified[utterance] = (*self._unverified.get(utterance, ()), *tokens)

    @property
    def is_unverified(self) -> bool:
        """Whether some of the draft text was written without a target."""
        return self._is_draft_only or bool(self._unverified)

    @property
    def num_samples(self) -> int:
        """Samples received so far; audio that is decoded again counts once."""
        return max(self._earlier_samples, self._part.num_samples)

    @property
    def language(self) -> str:
        """Language code of the open utterance, or of the last one."""
        return self.detected_language or self._part.language

    @property
    def detected_language(self) -> str | None:
        """Language code of the last window; ``None`` before the first."""
        return self._part.language if self._part.statistics.num_windows else self._language

    @property
    def language_probs(self) -> Mapping[str, float]:
        """Probabilities by language code, where the language was detected."""
        return self._part.language_probs

    @property
    def statistics(self) -> SpeculationStatistics:
        """Statistics of all targets' parts."""
        total = SpeculationStatistics()
        total.add(self._earlier)
        if not self._is_draft_only:
            total.add(self._part.statistics)
        return total

    @property
    def position(self) -> LivePosition:
        """Where another session would continue: after the last verified word."""
        return self._verified if self._is_draft_only else self._part.position

    @property
    def span_s(self) -> tuple[float, float]:
        """Start and end of the text that is not final, in seconds."""
        return self.position.start_sample / SAMPLE_RATE, self.num_samples / SAMPLE_RATE

    @property
    def settled_text(self) -> str:
        """Verified text that only grows: of live audio it is final."""
        return self._part.settled_text

    @property
    def verified_text(self) -> str:
        """Text of the target that is not final."""
        return "" if self._is_draft_only else self._part.verified_text

    @property
    def draft_text(self) -> str:
        """Draft-only text, and the draft's text after it."""
        part = self._part
        if self._is_draft_only:
            return self._unverified_from(0) + part.verified_text + part.draft_text
        current = part.position.num_utterances + 1
        # Of the open utterance, only the words after those that are verified by now.
        rest = part.text_after((*self._final, *part.unfinished), self._unverified.get(current, ()))
        return part.draft_text + rest + self._unverified_from(current + 1)

    def _unverified_from(self, utterance: int) -> str:
        later = (tokens for number, tokens in sorted(self._unverified.items()) if number >= utterance)
        return "".join(self._part.text_after((), tokens) for tokens in later)
