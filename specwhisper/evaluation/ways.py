"""The two ways that are compared: both in one process, or both through servers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from specwhisper.errors import InvalidRequest, ServerFull
from specwhisper.evaluation.references import Reference
from specwhisper.evaluation.side_by_side import OnPosition, Way
from specwhisper.options import DecodingOptions
from specwhisper.rpc.channels import OPEN, Credentials
from specwhisper.transcription.transcription import Transcription
from specwhisper.types import Mode
from specwhisper_client.api import TranscriptionClient

if TYPE_CHECKING:
    from specwhisper.api.speculative import SpeculativeWhisper


def in_one_process(pair: SpeculativeWhisper, **options: Any) -> tuple[Way, Way]:
    """Return the ways of a pair's target alone, and of the pair.

    Parameters
    ----------
    options : as of :meth:`SpeculativeWhisper.transcribe`.
    """

    def transcribe(
        model: SpeculativeWhisper, batch: Sequence[Reference], on_position: OnPosition
    ) -> list[Transcription]:
        results: list[Transcription] = model.transcribe(
            [reference.audio for reference in batch],
            progress=False,
            watch=lambda index, builder: on_position(index, builder.span_s[0]),
            **options,
        )
        return results

    return (
        Way("target alone", partial(transcribe, pair.without_draft())),
        Way("speculative", partial(transcribe, pair)),
    )


@contextmanager
def over_servers(
    server: str,
    credentials: Credentials = OPEN,
    options: DecodingOptions | None = None,
    *,
    mode: Mode | None = None,
    gamma: int | None = None,
) -> Iterator[tuple[Way, Way]]:
    """Return the ways of ``target-only`` and another mode over one draft server.

    Times are those that a client waits, with opening, audio and encoder.

    Parameters
    ----------
    mode, gamma : of the pair; by default the server's own.

    Raises
    ------
    InvalidRequest : if the mode has no draft.
    SpecWhisperError : if the server does not answer.
    """
    with TemporaryDirectory() as folder, asyncio.Runner() as runner:
        client = TranscriptionClient(server, credentials)
        try:
            chosen = mode or runner.run(client.get_model()).model.mode
            if not chosen.drafts:
                raise InvalidRequest(
                    f"Mode '{chosen}' has no draft, and would be compared with itself: choose another --mode."
                )
            split = _Split(client, runner, Path(folder), options or DecodingOptions())
            yield (
                Way(Mode.TARGET_ONLY, partial(split.transcribe, Mode.TARGET_ONLY, None)),
                Way(chosen, partial(split.transcribe, chosen, gamma)),
            )
        finally:
            runner.run(client.close())


class _Split:
    """Transcribes batches through servers; ``folder`` is for recordings that are no files."""

    def __init__(
        self, client: TranscriptionClient, runner: asyncio.Runner, folder: Path, options: DecodingOptions
    ) -> None:
        self._client = client
        self._runner = runner
        self._folder = folder
        self._options = options

    def transcribe(
        self, mode: Mode, gamma: int | None, batch: Sequence[Reference], on_position: OnPosition
    ) -> list[Transcription]:
        """Transcribe recordings at the same time."""

        async def one(index: int, reference: Reference) -> Transcription:
            file = self._client.stream_file(
                self._file_of(index, reference), self._options, mode=mode, gamma=gamma, interim_results=False
            )
            async for update in file:
                if update.segments:
                    on_position(index, update.segments[-1].end_s)
            return file.result

        async def all_at_once() -> list[Transcription]:
            """Transcribe all; retry those for which a server was full."""
            found: dict[int, Transcription] = {}
            while len(found) < len(batch):
                left = [item for item in enumerate(batch) if item[0] not in found]
                results = await asyncio.gather(*(one(*item) for item in left), return_exceptions=True)
                done = {
                    index: result
                    for (index, _), result in zip(left, results, strict=True)
                    if not isinstance(result, BaseException)
                }
                for error in (result for result in results if isinstance(result, BaseException)):
                    if not (done and isinstance(error, ServerFull)):
                        raise error
                found |= done
            return [found[index] for index in range(len(batch))]

        return self._runner.run(all_at_once())

    def _file_of(self, index: int, reference: Reference) -> Path:
        """Return the file of a recording; one of a dataset is written to a file first."""
        if isinstance(reference.audio, Path):
            return reference.audio
        path = self._folder / str(index)
        reference.audio.seek(0)
        path.write_bytes(reference.audio.read())
        return path
