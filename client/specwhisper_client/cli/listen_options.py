"""``specwhisper listen``: its options."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

from specwhisper.live import LiveOptions
from specwhisper.options import DecodingOptions, Task, options_from
from specwhisper.rpc.channels import Credentials
from specwhisper.transcription.speakers import UtteranceSpeakers
from specwhisper_client.cli.arguments import (
    Endpointing,
    Hint,
    Languages,
    LiveMode,
    PaddingOption,
    Quiet,
    Server,
    TaskOption,
    hint_of,
)
from specwhisper_client.cli.grouped_options import OptionsOfExtra
from specwhisper_client.servers import DEFAULT_SERVER
from specwhisper_client.streaming import StreamingClient


@dataclass(frozen=True, kw_only=True)
class LiveDecoding:
    """Decoding options."""

    language: Annotated[
        str | None,
        typer.Option(
            metavar="LANGUAGE",
            help="Code or name of the language; en-US is en. Default: detected per utterance.",
        ),
    ] = None
    languages: Languages = ""
    task: TaskOption = Task.TRANSCRIBE
    hotwords: Annotated[str, typer.Option(metavar="TEXT", help="Words in the prompt of every window.")] = ""
    initial_prompt: Annotated[str, typer.Option(metavar="TEXT", help="Prompt of every utterance.")] = ""
    hint: Hint = ""
    padding: PaddingOption = DecodingOptions().padding


@dataclass(frozen=True, kw_only=True)
class DraftOptions:
    """How draft and target work together."""

    mode: LiveMode = None
    added_latency_ms: Annotated[
        int,
        typer.Option(
            min=0,
            metavar="MS",
            help="Latency injected into the round trip to the target, if the server allows it.",
        ),
    ] = 0
    continue_unverified: Annotated[
        bool,
        typer.Option(
            "--continue-unverified",
            help="Unverified text of the draft while the target cannot be reached; it is verified later.",
        ),
    ] = False


@dataclass(frozen=True, kw_only=True)
class ListenOptions:
    """All options of the command."""

    server: Server = DEFAULT_SERVER
    simulate: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Recording to send in real time instead of the microphone."),
    ] = None
    device: Annotated[
        str | None,
        typer.Option(metavar="DEVICE", help="Microphone: number or part of its name. Default: the system's."),
    ] = None
    decoding: LiveDecoding = LiveDecoding()
    step_ms: Annotated[
        int, typer.Option(metavar="MS", help="Milliseconds of speech between two texts of the draft.")
    ] = LiveOptions().step_ms
    confirm_every: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="Text of the target so often before an utterance has ended. It takes a target's time, and "
            "what is final stays the same. Default: none.",
        ),
    ] = None
    endpointing: Endpointing = Endpointing()  # noqa: RUF009  # it is frozen
    drafting: DraftOptions = DraftOptions()
    speakers: Annotated[
        Callable[[], AbstractAsyncContextManager[UtteranceSpeakers | None]],
        OptionsOfExtra("speaker_options", "listen"),
    ] = nullcontext
    quiet: Quiet = False

    def stream(self, credentials: Credentials, speakers: UtteranceSpeakers | None = None) -> StreamingClient:
        """Return a stream with these options, whose audio ``speakers`` has too.

        Raises
        ------
        InvalidRequest : for a value that an option cannot have.
        """
        return StreamingClient(
            self.server,
            options_from({}, asdict(self.decoding) | {"hint": hint_of(self.decoding.hint)}),
            live=LiveOptions(
                step_ms=self.step_ms,
                confirm_every_ms=None if self.confirm_every is None else round(1000 * self.confirm_every),
            ),
            endpointing=self.endpointing.options(),
            **asdict(self.drafting),
            with_statistics=True,  # so that the table at the end also counts calls that were lost
            credentials=credentials,
            speakers=speakers,
        )
