"""A turn of the realtime API: audio as items, whose text only grows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar, get_args

from openai.types.realtime import (
    ConversationItemAdded,
    ConversationItemCreatedEvent,
    ConversationItemDone,
    ConversationItemInputAudioTranscriptionCompletedEvent,
    ConversationItemInputAudioTranscriptionDeltaEvent,
    ConversationItemInputAudioTranscriptionFailedEvent,
    InputAudioBufferCommittedEvent,
    InputAudioBufferSpeechStartedEvent,
    InputAudioBufferSpeechStoppedEvent,
    RealtimeConversationItemUserMessage,
)
from openai.types.realtime.conversation_item_input_audio_transcription_completed_event import (
    UsageTranscriptTextUsageDuration,
)
from openai.types.realtime.conversation_item_input_audio_transcription_failed_event import Error
from openai.types.realtime.realtime_conversation_item_user_message import Content
from pydantic import BaseModel

from specwhisper.errors import SpecWhisperError
from specwhisper.types import Segment, VoiceEvent
from specwhisper_client.deltas import Deltas
from specwhisper_client.updates import Update
from specwhisper_gateway.errors import body_of
from specwhisper_gateway.transport.messages import new_id

Events = Iterator[BaseModel]
E = TypeVar("E", bound=BaseModel)


def event(kind: type[E], **facts: Any) -> E:
    """Return an event of this kind; the kind has its type's only name."""
    (name,) = get_args(kind.model_fields["type"].annotation)
    return kind(type=name, event_id=new_id("event"), **facts)


class InterimEvent(BaseModel):
    """An item's text after its deltas, which may still change: not OpenAI's.

    Attributes
    ----------
    verified : the target's text.
    stable : the draft's text after that that four of its hypotheses in a row have.
    tentative : the rest of the draft's text.
    """

    type: Literal["conversation.item.input_audio_transcription.interim"]
    event_id: str
    item_id: str
    content_index: int
    verified: str
    stable: str
    tentative: str


@dataclass(slots=True)
class Items:
    """State that the turns of a session share.

    Attributes
    ----------
    is_beta : whether the client uses OpenAI's beta, which has other events for new items.
    last_id : id of the last committed item.
    keeps_transcript : whether the text is kept.
    transcript : text of all completed items, for Riva's client, which keeps the last text only.
    """

    is_beta: bool = False
    last_id: str | None = None
    keeps_transcript: bool = False
    transcript: str = ""


@dataclass(slots=True)
class _Item:
    """An utterance, which begins, is committed and is completed."""

    begin_s: float
    end_s: float | None = None
    is_committed: bool = False
    id: str = field(default_factory=lambda: new_id("item"))
    deltas: Deltas = field(default_factory=Deltas)
    interim: tuple[str, ...] = ("", "", "")  # last sent to the client


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
        details = body_of(error)["error"]
        for item in self._open:
            if item.is_committed:
                yield event(
                    ConversationItemInputAudioTranscriptionFailedEvent,
                    item_id=item.id,
                    content_index=0,
                    error=Error(**details),
                )

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
        yield event(InputAudioBufferSpeechStartedEvent, item_id=item.id, audio_start_ms=self._ms(at_s))

    def _stop(self, item: _Item, at_s: float) -> Events:
        yield event(InputAudioBufferSpeechStoppedEvent, item_id=item.id, audio_end_ms=self._ms(at_s))
        yield from self._commit(item, at_s)

    def _commit(self, item: _Item, end_s: float) -> Events:
        previous, self._items.last_id = self._items.last_id, item.id
        item.end_s, item.is_committed = end_s, True
        self._has_unanswered_commit = False
        yield event(InputAudioBufferCommittedEvent, item_id=item.id, previous_item_id=previous)
        message = RealtimeConversationItemUserMessage(
            id=item.id,
            object="realtime.item",
            type="message",
            role="user",
            status="completed",
            content=[Content(type="input_audio", transcript=None)],
        )
        today = (ConversationItemAdded, ConversationItemDone)
        for kind in (ConversationItemCreatedEvent,) if self._items.is_beta else today:
            yield event(kind, item=message, previous_item_id=previous)

    def _write(self, segment: Segment) -> Events:
        if not self._open and not self._takes_items:
            return
        if not self._open and self._detects_speech:
            yield from self._begin(segment.start_s)  # the stream was lost before the speech event
        item = self._current(0.0)
        if delta := item.deltas.add([segment])[1]:
            yield event(
                ConversationItemInputAudioTranscriptionDeltaEvent,
                item_id=item.id,
                content_index=0,
                delta=delta,
            )
        if segment.is_utterance_end and self._detects_speech:
            yield from self._complete(segment.end_s)

    def _show(self, update: Update) -> Events:
        """Yield the text that may still change, unless the client has it."""
        interim = (update.verified_text, update.stable_text, update.tentative_text)
        is_due = self._takes_items and not self._detects_speech and any(interim)
        if not self._open and not is_due:
            return  # the text of an utterance follows its speech event
        item = self._current(0.0)
        if interim != item.interim:
            item.interim = interim
            verified, stable, tentative = interim
            yield event(
                InterimEvent,
                item_id=item.id,
                content_index=0,
                verified=verified,
                stable=stable,
                tentative=tentative,
            )

    def _complete(self, end_s: float) -> Events:
        """Complete the first item; commit it first if necessary."""
        item = self._open[0]
        if not item.is_committed and self._detects_speech:
            yield from self._stop(item, end_s)
        elif not item.is_committed:
            yield from self._commit(item, end_s)
        self._open.remove(item)
        if self._items.keeps_transcript:
            self._items.transcript = " ".join(filter(None, (self._items.transcript, item.deltas.sent)))
        seconds = max(0.0, (item.end_s or end_s) - item.begin_s)
        yield event(
            ConversationItemInputAudioTranscriptionCompletedEvent,
            item_id=item.id,
            content_index=0,
            transcript=item.deltas.sent,
            usage=UsageTranscriptTextUsageDuration(type="duration", seconds=round(seconds, 3)),
        )

    def _current(self, begin_s: float) -> _Item:
        """Return the item whose text is written; without speech detection, the turn's only one."""
        if not self._open:
            self._open.append(_Item(begin_s))
        return self._open[0]

    def _ms(self, time_s: float) -> int:
        return round((self._start_s + time_s) * 1000)
