"""``specwhisper listen``: show live text, or print final utterances."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator, Mapping
from contextlib import aclosing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.text import Text

from specwhisper.live import EndpointingOptions, LiveOptions
from specwhisper.printable import blanked, print_table
from specwhisper.rpc.channels import OPEN, Credentials
from specwhisper.settings.command_line import takes
from specwhisper.settings.setting import offered, part
from specwhisper.transcription.formats import one_line
from specwhisper.transcription.hint_files import read_hint
from specwhisper.transcription.speakers import UtteranceSpeakers
from specwhisper.types import LIVE_MODES, Mode, Segment, VoiceEvent
from specwhisper.validated import choice, number, option, switch, text, whole
from specwhisper_client import sources
from specwhisper_client.cli.arguments import (
    FORMATS_OF_HINTS,
    decoding_part,
    endpointing_part,
    quiet_option,
    server_option,
)
from specwhisper_client.cli.display import Display, OpenText, clock, color_of, span, transcript_table
from specwhisper_client.live_transcription import LiveTranscription, whole_utterances, with_speakers
from specwhisper_client.streaming import StreamingClient
from specwhisper_client.updates import Update

DEMO_TARGET = "demo-target"  # the name that servers report


@dataclass(frozen=True, kw_only=True)
class ListenOptions:
    server: str = server_option()
    simulate: Path | None = option(None, "Recording to send in real time instead of the microphone.", "FILE")
    device: str | None = text(
        None,
        "Microphone: number or part of its name. Default: the system's.",
        "DEVICE",
        not_with=("simulate",),
    )
    decoding: Mapping[str, Any] = decoding_part(
        "language", "languages", "task", "initial_prompt", "hotwords", "padding"
    )
    hint: str | None = option(
        None, f"{FORMATS_OF_HINTS}. It saves time; the target verifies it.", "FILE", read=read_hint
    )
    live: LiveOptions = part(LiveOptions, LiveOptions(), but=("confirm_every_ms",))
    confirm_every: float | None = number(
        None,
        0.1,
        10,
        "Interval between texts of the target before an utterance has ended. It takes a target's time, "
        "and what is final stays the same. Default: none.",
        "SECONDS",
    )
    endpointing: EndpointingOptions = endpointing_part()
    mode: Mode | None = choice(
        None, "With the draft, full, or target-only. Default: the server's.", "MODE", LIVE_MODES
    )
    added_latency_ms: int = whole(
        0, 0, 2_000, "Latency injected into the round trip to the target, if the server allows it.", "MS"
    )
    continue_unverified: bool = switch(
        False, "Show the draft's unverified text while the target cannot be reached; it is verified later."
    )
    speakers: Any = offered("speaker_options", "listen")
    quiet: bool = quiet_option()

    def stream(self, credentials: Credentials, speakers: UtteranceSpeakers | None = None) -> StreamingClient:
        every_ms = None if self.confirm_every is None else round(1000 * self.confirm_every)
        hint = {} if self.hint is None else {"hint": self.hint}
        return StreamingClient(
            self.server,
            **{**self.decoding, **hint},
            live=replace(self.live, confirm_every_ms=every_ms),
            endpointing=self.endpointing,
            mode=self.mode,
            added_latency_ms=self.added_latency_ms,
            continue_unverified=self.continue_unverified,
            with_statistics=True,  # so that the final table also counts lost calls
            credentials=credentials,
            speakers=speakers,
        )


@takes(ListenOptions)
def command(context: typer.Context, wanted: ListenOptions) -> None:
    """Transcribe the microphone, live.

    On a terminal final words are bold, stable ones plain, tentative ones dim. Elsewhere standard output gets
    each utterance once it is complete. Ctrl-C ends the audio; the text until then becomes final.
    """
    asyncio.run(listen(wanted, Console(), Console(stderr=True), context.obj))


async def listen(
    wanted: ListenOptions, console: Console, errors: Console, credentials: Credentials = OPEN
) -> None:
    is_noted = wanted.quiet
    async with (
        nullcontext() if wanted.speakers is None else wanted.speakers.opened() as speakers,
        wanted.stream(credentials, speakers) as stream,
        sources.microphone(wanted.device)
        if wanted.simulate is None
        else aclosing(sources.file(wanted.simulate, is_paced=True)) as audio,
    ):
        transcription = LiveTranscription(stream, audio, keeps_segments=False)
        updates = with_speakers(transcription, speakers) if speakers else whole_utterances(transcription)
        display = LiveUtterances(console) if console.is_terminal else Display(console.file)
        async with aclosing(updates):
            with display, _stopped_by_ctrl_c(transcription):
                async for update in updates:
                    if wanted.simulate is None and not is_noted and stream.model is not None:
                        _note_limits(stream.model.target, console if console.is_terminal else errors)
                        is_noted = True
                    display.show(update)
        if not wanted.quiet:
            print_table(errors, transcript_table(transcription.result))


def _note_limits(target: str, console: Console) -> None:
    """Print the limits of the bundled target, whose text may surprise."""
    if target == DEMO_TARGET:
        console.print(f"[dim]{target} knows 990 words of slow synthetic English, and few voices.[/]")


class LiveUtterances(OpenText):
    """Shows complete utterances, then the open one: final bold, tentative dim."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._is_speech = False
        self._begins_s: list[float] = []  # open utterances'

    def show(self, update: Update) -> None:
        if update.speech is not None:
            self._is_speech = update.speech is VoiceEvent.BEGIN
            self._begins_s += [update.speech_at_s] if self._is_speech else []
        for utterance in update.segments:
            self._begins_s = [begin_s for begin_s in self._begins_s if begin_s >= utterance.end_s]
        begin_s = self._begins_s[0] if self._begins_s else None
        line = open_line(update, begin_s, is_speech=self._is_speech)
        self.draw([complete_line(each) for each in update.segments], line)


def complete_line(utterance: Segment) -> Text:
    text = blanked(one_line(utterance.text))
    if not utterance.speaker:
        return Text.assemble((f"{span(utterance)} ", "cyan"), text)
    color = color_of(utterance.speaker)
    return Text.assemble(
        (f"{span(utterance)} ", "cyan"), (f"{utterance.speaker}: ", f"bold {color}"), (text, color)
    )


def open_line(update: Update, begin_s: float | None, *, is_speech: bool) -> Text:
    """Format the open utterance.

    Its words are where those of the complete utterance will be. Text without a target is in italics.
    """
    style, notice = ("italic", " (no target answers)") if update.is_unverified else ("", "")
    parts = (
        (update.settled_text, "bold"),
        (update.verified_text.removeprefix(update.settled_text), ""),
        (update.stable_text, style),
        (update.tentative_text, f"dim {style}"),
    )
    text = Text.assemble(*((blanked(text), style) for text, style in parts))
    num_spaces = len(text.plain) - len(text.plain.lstrip())
    mark = ("●", "red") if is_speech else ("○", "dim")
    if begin_s is None:
        return Text.assemble(mark, " ", text[num_spaces:], (notice, "yellow"))
    begin = clock(begin_s)
    times = ((f"[{begin} → ", "cyan"), mark, (f"{']':>{len(begin)}} ", "cyan"))
    return Text.assemble(*times, text[num_spaces:], (notice, "yellow"))


@contextmanager
def _stopped_by_ctrl_c(transcription: LiveTranscription) -> Iterator[None]:
    """End the audio at the first Ctrl-C, so that the last words become final."""
    loop = asyncio.get_running_loop()

    def stop() -> None:
        transcription.stop()
        loop.remove_signal_handler(signal.SIGINT)

    with suppress(NotImplementedError):  # unsupported on this system: Ctrl-C ends the program
        loop.add_signal_handler(signal.SIGINT, stop)
    try:
        yield
    finally:
        with suppress(NotImplementedError):  # no handler was added
            loop.remove_signal_handler(signal.SIGINT)
