"""A turn of the realtime API: its audio until it is sent, and items, whose text only grows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass, field
from typing import Any

from specwhisper.errors import SpecWhisperError
from specwhisper.types import Segment, TimedHint, VoiceEvent
from specwhisper_client.updates import Deltas, Update
from specwhisper_gateway.errors import body_of
from specwhisper_gateway.messages import NO_INTERIM, event, interim_of, new_id

Events = Iterator[dict[str, Any]]
# Up to there the gateway reads on, so that it answers pings: otherwise a client gives up after 40 s
# (websockets' keepalive), however much it has sent.
MAX_WAITING_BYTES = 32 * 1024 * 1024
TURN_BYTES = 16 * 1024  # that a turn takes besides its audio

Piece = bytes | TimedHint


@dataclass(slots=True)
class Items:
    """State that the turns of a session share.

    Attributes
    ----------
    is_beta : whether the client uses OpenAI's beta, which has other events for new items.
    last_id : id of the last committed item.
    texts : those of all completed items.
    """

    is_beta: bool = False
    last_id: str | None = None
    texts: list[str] = field(default_factory=list)

    def last_event(self) -> dict[str, Any]:
        """Return the event that ends a session of Riva's client, which keeps the last text only."""
        transcript = " ".join(filter(None, self.texts))
        return _Item(0.0).text_event("completed", transcript=transcript, is_last_result=True)


@dataclass(slots=True)
class _Item:
    """An utterance, which begins, is committed and is completed."""

    begin_s: float
    end_s: float | None = None
    is_committed: bool = False
    id: str = field(default_factory=lambda: new_id("item"))
    deltas: Deltas = field(default_factory=Deltas)
    interim: dict[str, str] = field(default_factory=lambda: NO_INTERIM)  # last sent to the client

    def text_event(self, kind: str, **facts: Any) -> dict[str, Any]:
        kind = f"conversation.item.input_audio_transcription.{kind}"
        return event(kind, item_id=self.id, content_index=0, **facts)


class RealtimeTurn:
    """Audio from its first sample to a commit, which is one live transcription.

    With speech detection it has an item for each utterance, else one item.

    Parameters
    ----------
    start_s : audio of the session before the turn, in seconds.
    detects_speech : whether the server finds where utterances begin and end.
    interim_results : whether to yield text that may still change as well.
    """

    def __init__(
        self, items: Items, start_s: float, *, detects_speech: bool, interim_results: bool = False
    ) -> None:
        self._items = items
        self._start_s = start_s
        self._detects_speech = detects_speech
        self._interim_results = interim_results
        self._open: list[_Item] = []  # not completed; in order of their text
        self._reported_s = -1.0  # the last speech event's: a stream that resumes repeats some
        self._has_unanswered_commit = False
        self._takes_items = True

    def discard(self) -> bool:
        """Discard audio that is not committed; return whether items are left."""
        self._open = [item for item in self._open if item.is_committed]
        self._has_unanswered_commit = self._takes_items = False
        return bool(self._open)

    def on_update(self, update: Update) -> Events:
        if update.speech is not None and self._detects_speech and self._takes_items:
            yield from self._on_speech(update.speech, update.speech_at_s)
        for segment in update.segments:
            yield from self._write(segment)
        if self._interim_results:
            yield from self._show(update)

    def commit(self, end_s: float) -> Events:
        """Yield the answer to a client's commit after ``end_s`` seconds of this turn."""
        if not self._detects_speech:
            yield from self._commit(self._current(0.0), end_s)
        elif self._open and self._open[-1].end_s is None:
            yield from self._stop(self._open[-1], end_s)
        else:
            self._has_unanswered_commit = True  # an utterance may have begun that is not reported yet

    def end(self, end_s: float) -> Events:
        """Complete all open items: no audio follows."""
        if self._has_unanswered_commit and not self._open:
            yield from self._commit(self._current(end_s), end_s)
        while self._open:
            yield from self._complete(end_s)

    def fail(self, error: SpecWhisperError) -> Events:
        for item in self._open:
            if item.is_committed:
                yield item.text_event("failed", error=body_of(error)["error"])

    def _on_speech(self, speech: VoiceEvent, at_s: float) -> Events:
        if at_s <= self._reported_s:
            return
        self._reported_s = at_s
        current = self._open[-1] if self._open and self._open[-1].end_s is None else None
        if speech is VoiceEvent.BEGIN and current is None:
            yield from self._begin(at_s)
        if speech is VoiceEvent.END and current is not None:
            yield from self._stop(current, at_s)

    def _begin(self, at_s: float) -> Events:
        item = _Item(at_s)
        self._open.append(item)
        yield event("input_audio_buffer.speech_started", item_id=item.id, audio_start_ms=self._ms(at_s))

    def _stop(self, item: _Item, at_s: float) -> Events:
        yield event("input_audio_buffer.speech_stopped", item_id=item.id, audio_end_ms=self._ms(at_s))
        yield from self._commit(item, at_s)

    def _commit(self, item: _Item, end_s: float) -> Events:
        previous, self._items.last_id = self._items.last_id, item.id
        item.end_s, item.is_committed = end_s, True
        self._has_unanswered_commit = False
        yield event("input_audio_buffer.committed", item_id=item.id, previous_item_id=previous)
        message = {
            "id": item.id,
            "object": "realtime.item",
            "type": "message",
            "role": "user",
            "status": "completed",
            "content": [{"type": "input_audio", "transcript": None}],
        }
        for kind in ("created",) if self._items.is_beta else ("added", "done"):
            yield event(f"conversation.item.{kind}", item=message, previous_item_id=previous)

    def _write(self, segment: Segment) -> Events:
        if not self._open and not self._takes_items:
            return
        if not self._open and self._detects_speech:
            yield from self._begin(segment.start_s)  # the stream was lost before the speech event
        item = self._current(0.0)
        if delta := item.deltas.add([segment])[1]:
            yield item.text_event("delta", delta=delta)
        if segment.is_utterance_end and self._detects_speech:
            yield from self._complete(segment.end_s)

    def _show(self, update: Update) -> Events:
        """Yield the text that may still change, unless the client has it: not OpenAI's event."""
        interim = interim_of(update)
        is_due = self._takes_items and not self._detects_speech and interim != NO_INTERIM
        if not self._open and not is_due:
            return  # the text of an utterance follows its speech event
        item = self._current(0.0)
        if interim != item.interim:
            item.interim = interim
            yield item.text_event("interim", **interim)

    def _complete(self, end_s: float) -> Events:
        """Complete the first item; commit it first if necessary."""
        item = self._open[0]
        if not item.is_committed and self._detects_speech:
            yield from self._stop(item, end_s)
        elif not item.is_committed:
            yield from self._commit(item, end_s)
        self._open.remove(item)
        self._items.texts.append(item.deltas.sent)
        seconds = max(0.0, (item.end_s or end_s) - item.begin_s)
        usage = {"type": "duration", "seconds": round(seconds, 3)}
        yield item.text_event("completed", transcript=item.deltas.sent, usage=usage)

    def _current(self, begin_s: float) -> _Item:
        """Return the item whose text is written; without speech detection, the turn's only one."""
        if not self._open:
            self._open.append(_Item(begin_s))
        return self._open[0]

    def _ms(self, time_s: float) -> int:
        return round((self._start_s + time_s) * 1000)


class Backlog:
    """Counts what waits in all turns of a session."""

    def __init__(self) -> None:
        self._num_bytes = 0
        self._has_room = asyncio.Event()
        self._has_room.set()

    async def has_room(self) -> None:
        await self._has_room.wait()

    def add(self, num_bytes: int) -> None:
        """Count bytes that wait, or with a number below 0, that no longer do."""
        self._num_bytes += num_bytes
        if self._num_bytes <= MAX_WAITING_BYTES:
            self._has_room.set()
        else:
            self._has_room.clear()


class TurnAudio:
    """Audio of one turn, and hints for it, from when they come until they are taken; ``None`` ends it."""

    def __init__(self, backlog: Backlog) -> None:
        self._backlog = backlog
        self._pieces: asyncio.Queue[Piece | None] = asyncio.Queue()
        backlog.add(TURN_BYTES)

    def put(self, piece: Piece | None) -> None:
        self._backlog.add(_size(piece))
        self._pieces.put_nowait(piece)

    async def taken(self) -> AsyncGenerator[Piece]:
        while (piece := await self._pieces.get()) is not None:
            try:
                yield piece
            finally:
                self._backlog.add(-_size(piece))

    def discard(self) -> None:
        while not self._pieces.empty():
            self._backlog.add(-_size(self._pieces.get_nowait()))

    def end(self) -> None:
        """No longer count the turn: it is over."""
        self.discard()
        self._backlog.add(-TURN_BYTES)


def _size(piece: Piece | None) -> int:
    return len(piece.text.encode() if isinstance(piece, TimedHint) else piece or b"")
