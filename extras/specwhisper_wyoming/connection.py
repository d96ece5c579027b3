"""One client's connection: its events, its utterances, its limits."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from asyncio import IncompleteReadError, LimitOverrunError, StreamReader
from contextlib import suppress
from dataclasses import replace
from typing import Any

from wyoming.asr import Transcribe, TranscriptStart
from wyoming.error import Error
from wyoming.event import Event, async_write_event
from wyoming.info import AsrModel, AsrProgram, Attribution, Info
from wyoming.ping import Ping, Pong

from specwhisper import __version__
from specwhisper.errors import IdleClient, InvalidAudio, InvalidRequest, MessageTooLarge, SpecWhisperError
from specwhisper.observe.current_call import received_request_id, request_id
from specwhisper.options import DecodingOptions, options_from
from specwhisper.wire.status import INTERNAL_ERROR, refusal
from specwhisper_client.api import TranscriptionClient
from specwhisper_client.updates import ServerInfo
from specwhisper_wyoming.utterance import WyomingUtterance, read_format, send_transcript

logger = logging.getLogger(__name__)

LINGER_S = 1.0  # for the client to read an error: closing at once could discard it
INTERNAL = "Internal"  # code of the event for a bug
MAX_HEADER_BYTES = 64 * 1024
MAX_DATA_BYTES = 256 * 1024
MAX_PAYLOAD_BYTES = 4 * 1024 * 1024  # two minutes at 16 kHz; clients send a fraction of a second
# Wyoming requires a name and an address for both. Every target is a model of OpenAI's architecture.
PROJECT = Attribution("specwhisper contributors", "")
WHISPER = Attribution("OpenAI", "https://github.com/openai/whisper")


class Connection:
    """Answers one client.

    An utterance that fails is answered by an ``error``. If the client ends its audio nevertheless, the
    connection is closed: Home Assistant ignores errors and waits for a transcript or the end.

    Parameters
    ----------
    idle_timeout_s : seconds that the client may send nothing, or read nothing.
    refusal : the only answer, if there is one.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        client: TranscriptionClient,
        idle_timeout_s: float,
        defaults: DecodingOptions,
        refusal: SpecWhisperError | None = None,
    ) -> None:
        self.refusal = refusal
        self._reader = reader
        self._writer = writer
        self._client = client
        self._idle_timeout_s = idle_timeout_s
        self._defaults = defaults
        self._options = defaults  # for the next utterance
        self._utterance: WyomingUtterance | None = None  # the last one
        self._reading: asyncio.Timeout | None = None
        self._has_failed = False  # audio is dropped until the next request
        self._has_ended = False
        self._is_draining = False

    async def run(self) -> None:
        """Answer events until the client leaves or breaks a limit."""
        try:
            if self.refusal is not None:
                raise self.refusal
            while (event := await self._next_event()) is not None:
                await self._answer(event)
        except ConnectionError:
            pass  # the client has left
        except Exception as error:
            await self._refuse(error)
        finally:
            self._writer.close()  # first: this task may be cancelled while it waits
            await self._cancel()
            await self._closed()

    def drain(self) -> None:
        """Close once no utterance is open."""
        self._is_draining = True
        self._set_deadline()

    @property
    def is_transcribing(self) -> bool:
        return self._utterance is not None and not self._utterance.answering.done()

    @property
    def _is_over(self) -> bool:
        return self._has_ended or (self._is_draining and not self.is_transcribing)

    async def _next_event(self) -> Event | None:
        if self._is_over:
            return None
        try:
            async with asyncio.timeout(None) as self._reading:
                self._set_deadline()
                return await read_event(self._reader)
        except TimeoutError:
            if self._is_over:
                return None
            raise IdleClient(f"No event has arrived for {self._idle_timeout_s:g} seconds.") from None
        finally:
            self._reading = None

    def _set_deadline(self) -> None:
        """Set when reading ends; while the client waits for its transcript, it need not send."""
        if self._reading is None or self._reading.expired():
            return
        is_waiting = self.is_transcribing and self._utterance is not None and self._utterance.is_finished
        after_s = 0.0 if self._is_over else None if is_waiting else self._idle_timeout_s
        now_s = asyncio.get_running_loop().time()
        self._reading.reschedule(None if after_s is None else now_s + after_s)

    async def _answer(self, event: Event) -> None:
        """Answer one event; events of other kinds are ignored, as Wyoming requires."""
        try:
            match event.type:
                case "ping":
                    await self._send(Pong(Ping.from_event(event).text).event())
                case "describe":
                    await self._describe()
                case "transcribe":
                    await self._answered()
                    if self._has_failed:
                        await self._cancel()  # audio may follow without an audio-start
                    self._has_failed = False
                    self._options = options_of(event, self._defaults)
                case "audio-start":
                    await self._answered()
                    await self._cancel()
                case "audio-chunk" if not self._has_failed:
                    await self._put(event)
                case "audio-stop":
                    await self._finish()
        except SpecWhisperError as error:
            await self._fail(error)
            await self._cancel()

    async def _describe(self) -> None:
        try:
            info = info_of(await self._client.get_model())
        except SpecWhisperError as error:
            await self._report(error)  # the connection stays: the draft server may come back
        else:
            await self._send(info.event())

    async def _put(self, event: Event) -> None:
        """Send a chunk on; the first one begins an utterance and has its format."""
        pcm_format = read_format(event.data)
        await self._answered()
        if self._utterance is None and not event.payload:
            return  # an utterance has audio
        if self._utterance is None:
            request_id.set(received_request_id(()))
            self._utterance = WyomingUtterance(self._client.servers, self._options, pcm_format)
            self._utterance.answering = asyncio.create_task(self._transcribe(self._utterance))
            self._utterance.answering.add_done_callback(lambda _: self._set_deadline())
        if pcm_format != self._utterance.pcm_format:
            raise InvalidAudio(
                f"The format of the audio changes from {self._utterance.pcm_format} to {pcm_format}: end the "
                "utterance first."
            )
        await self._utterance.put(event.payload or b"")

    async def _finish(self) -> None:
        """End the audio of the utterance; without audio, the transcript is empty."""
        await self._answered()
        options, self._options = self._options, self._defaults
        if self._has_failed:
            self._has_ended = True
        elif self._utterance is not None:
            await self._utterance.finish()
        else:
            await self._send(TranscriptStart(language=options.language).event())
            await send_transcript(self._send, "", options.language)

    async def _transcribe(self, utterance: WyomingUtterance) -> None:
        started_s = time.perf_counter()
        try:
            await utterance.transcribe(self._send)
        except ConnectionError:
            self._has_ended = True  # the client has left, or reads nothing
        except Exception as error:
            await self._fail(error)
        else:
            facts = {"audio_s": round(utterance.received_s, 3), "language": utterance.language}
            elapsed_s = round(time.perf_counter() - started_s, 3)
            logger.info("transcribed", extra=facts | {"elapsed_s": elapsed_s})

    async def _answered(self) -> None:
        """Wait for the answer to an utterance whose audio has ended."""
        if self._utterance is not None and self._utterance.is_finished:
            await self._utterance.answering
            self._utterance = None

    async def _cancel(self) -> None:
        """Cancel the open utterance, which frees its session."""
        if self._utterance is not None:
            self._utterance.answering.cancel()
            await asyncio.gather(self._utterance.answering, return_exceptions=True)
        self._utterance = None

    async def _fail(self, error: Exception) -> None:
        """Report the error of an utterance, whose remaining audio is dropped."""
        self._has_failed = True
        try:
            await self._report(error)
        except ConnectionError:
            self._has_ended = True
        if self._utterance is not None and self._utterance.is_finished:
            self._has_ended = True

    async def _report(self, error: Exception) -> None:
        if isinstance(error, SpecWhisperError):
            code, text, _ = refusal(error)
            name = type(error).__name__
            logger.info("refused", extra={"code": code.name, "error": name})
        else:
            name, text = INTERNAL, INTERNAL_ERROR
            logger.error("failed", exc_info=error)
        await self._send(Error(text, name).event())

    async def _refuse(self, error: Exception) -> None:
        """Report an error that ends the connection, and let the client read it."""
        with suppress(ConnectionError, TimeoutError):
            await self._report(error)
            if self._writer.can_write_eof():
                self._writer.write_eof()
            async with asyncio.timeout(LINGER_S):
                while await self._reader.read(MAX_HEADER_BYTES):
                    pass

    async def _send(self, event: Event) -> None:
        """Send an event; the connection ends if the client does not read it."""
        try:
            async with asyncio.timeout(self._idle_timeout_s):
                await async_write_event(event, self._writer)
        except TimeoutError:
            self._writer.transport.abort()
            raise ConnectionError("The client does not read its events.") from None

    async def _closed(self) -> None:
        """Wait until the last events are sent, or the client does not read them."""
        try:
            async with asyncio.timeout(LINGER_S):
                await self._writer.wait_closed()
        except (OSError, TimeoutError):
            self._writer.transport.abort()


def options_of(event: Event, defaults: DecodingOptions) -> DecodingOptions:
    """Return the options of a request: its language and words, else the defaults.

    A request for one of the languages that may be spoken stands for any of them: Home Assistant always names
    its pipeline's language. The only model is the target, whatever the request calls it.
    """
    request = Transcribe.from_event(event)
    words: list[Any] = []
    for given in (request.transcript_names, request.transcript_terms):
        if not isinstance(given, list | None) or not all(isinstance(word, str) for word in given or ()):
            raise InvalidRequest("Names and terms of a 'transcribe' event must be lists of strings.")
        words += given or ()
    language = request.language or defaults.language
    named = options_from(defaults, {"language": language, "languages": (), "keywords": words})
    if named.language is None or named.language in defaults.languages:
        return replace(named, language=None, languages=defaults.languages)
    return named


def info_of(server: ServerInfo) -> Info:
    """Describe a draft server: one program with one model, the target."""
    target, draft = server.model.target, server.model.draft
    model = AsrModel(
        name=target,
        attribution=WHISPER,
        installed=True,
        description=f"{target}, drafted for by {draft}" if draft else target,
        version=None,
        languages=list(server.languages),
    )
    program = AsrProgram(
        name="specwhisper",
        attribution=PROJECT,
        installed=True,
        description="Whisper by speculative decoding",
        version=__version__,
        models=[model],
        supports_transcript_streaming=True,
    )
    return Info(asr=[program])


async def read_event(reader: StreamReader) -> Event | None:
    """Read an event, or ``None`` at the end of the connection, which may be within an event.

    The package's own reader has no limits, and fails on JSON that is not an object.

    Parameters
    ----------
    reader : its limit is :data:`MAX_HEADER_BYTES`.
    """
    try:
        header = _parsed(await reader.readuntil(b"\n"))
        kind, data = header.get("type"), header.get("data")
        if not isinstance(kind, str):
            raise InvalidRequest("An event has no 'type'.")
        if not isinstance(data, dict | None):
            raise InvalidRequest("The 'data' of an event is not a JSON object.")
        more = await reader.readexactly(_length(header, "data_length", MAX_DATA_BYTES))
        payload = await reader.readexactly(_length(header, "payload_length", MAX_PAYLOAD_BYTES))
    except LimitOverrunError as error:
        raise MessageTooLarge(
            f"An event begins with a line of JSON of at most {MAX_HEADER_BYTES} bytes; this one is longer."
        ) from error
    except (IncompleteReadError, ConnectionError):
        return None
    return Event(kind, (data or {}) | (_parsed(more) if more else {}), payload or None)


def _parsed(text: bytes) -> dict[str, Any]:
    try:
        parsed = json.loads(text)
        json.dumps(parsed, ensure_ascii=False).encode()  # no answer could quote half of a surrogate pair
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(
            "An event of the Wyoming protocol is a line of JSON; this one is not."
        ) from error
    if not isinstance(parsed, dict):
        raise InvalidRequest("An event is a JSON object; this one is not.")
    return parsed


def _length(header: dict[str, Any], name: str, limit: int) -> int:
    length = header.get(name)
    if length is None:
        return 0
    if not isinstance(length, int) or isinstance(length, bool) or length < 0:
        raise InvalidRequest(f"The '{name}' of an event is not a number of bytes.")
    if length > limit:
        raise MessageTooLarge(f"The '{name}' of an event is {length}; the limit is {limit} bytes.")
    return length
