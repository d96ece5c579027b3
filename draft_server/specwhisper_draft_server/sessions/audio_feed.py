"""A session's audio on its way to draft and target.

It is sent no further ahead than the target allows.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence

from specwhisper.audio.canonical import BYTES_PER_SAMPLE
from specwhisper.errors import InvalidAudio
from specwhisper.transcription.live_transcript import LiveTranscript
from specwhisper.transcription.transcriber import TargetStream
from specwhisper.transcription.transcript import TranscriptBuilder
from specwhisper.transcription.windows import Windows
from specwhisper.types import (
    SAMPLE_RATE,
    AudioChunk,
    Commit,
    EndUtterance,
    VoiceEvent,
    VoiceMark,
    WindowOpened,
)
from specwhisper.wire.pacing import PIECE_BYTES
from specwhisper_draft_server.debounce import Debouncer
from specwhisper_draft_server.voice_activity import VoiceActivity

POSITION_SAMPLES = 5 * SAMPLE_RATE  # in silence, a new position is reported this often


class AudioFeed:
    """Detects speech in live audio, and keeps draft and target supplied.

    Parameters
    ----------
    windows : follow those of the target.
    voice : marks where speech lies, of live audio; ``None`` of a recording.
    send_draft : passes a chunk to the draft.

    Attributes
    ----------
    is_complete : whether the last chunk has been sent.
    """

    def __init__(
        self,
        builder: TranscriptBuilder | LiveTranscript,
        voice: VoiceActivity | None,
        windows: Windows,
        debouncer: Debouncer,
        send_draft: Callable[[AudioChunk], None],
    ) -> None:
        self.is_complete = False
        self._builder = builder
        self._voice = voice
        self._windows = windows
        self._debouncer = debouncer
        self._send_draft = send_draft
        self._is_speech = False
        self._speech_events: list[VoiceMark] = []  # not taken yet
        self._has_progressed = asyncio.Event()

    def observe(self, event: WindowOpened | Commit) -> None:
        """Follow the target's windows.

        Audio before the open one is no longer counted as ahead.
        """
        if isinstance(event, WindowOpened):
            self._windows.on_window_opened(event.window)
        else:
            self._windows.on_commit(event)
        self._has_progressed.set()

    def take_speech_events(self) -> list[VoiceMark]:
        """Return the utterances that have begun or ended since the last call."""
        events, self._speech_events = self._speech_events, []
        return events

    async def send(self, stream: TargetStream, audio: AsyncIterator[bytes | EndUtterance]) -> None:
        """Send all audio; raise :class:`InvalidAudio` if there is none."""
        async for pcm in audio:
            if isinstance(pcm, EndUtterance):
                continue
            for start in range(0, len(pcm), PIECE_BYTES):
                await self._send_piece(stream, pcm[start : start + PIECE_BYTES])
        if not self._builder.num_samples:
            raise InvalidAudio("The recording is empty: it holds no audio samples.")
        await self._send_piece(stream, b"", is_last=True)

    async def _send_piece(self, stream: TargetStream, pcm: bytes, *, is_last: bool = False) -> None:
        marks = await self._detect_voice(pcm)
        chunk = AudioChunk(self._builder.num_samples, pcm, is_last, marks)
        end_sample = self._builder.num_samples + len(pcm) // BYTES_PER_SAMPLE
        while end_sample - self._windows.needed_from > stream.limits.max_ahead_samples:
            self._has_progressed.clear()
            await self._has_progressed.wait()
        self._windows.append_audio(chunk, end_sample)
        self._skip_silence()
        self._note_speech(marks)
        self._builder.num_samples = end_sample
        self.is_complete = is_last
        self._send_draft(chunk)  # first: the draft needs the audio of every window that the target opens
        await stream.send_audio(chunk)

    async def _detect_voice(self, pcm: bytes) -> tuple[VoiceMark, ...]:
        if self._voice is None:
            return ()
        known_to = self._builder.sentence_end_sample if isinstance(self._builder, LiveTranscript) else None
        return await self._voice.detect(pcm, known_to)

    def _skip_silence(self) -> None:
        """Move the position on in silence; report it now and then.

        Clients keep audio from there on.
        """
        if isinstance(self._builder, LiveTranscript):
            before = self._builder.position.start_sample
            self._builder.skip_silence(self._windows.needed_from)
            if self._builder.position.start_sample // POSITION_SAMPLES > before // POSITION_SAMPLES:
                self._debouncer.notify()

    def _note_speech(self, marks: Sequence[VoiceMark]) -> None:
        """Report utterances that begin or end, but no pauses."""
        for mark in marks:
            begins, ends = mark.event is VoiceEvent.BEGIN, mark.event is VoiceEvent.END
            if ends or (begins and not self._is_speech):
                self._is_speech = begins
                self._speech_events.append(mark)
                self._debouncer.notify(urgent=True)
