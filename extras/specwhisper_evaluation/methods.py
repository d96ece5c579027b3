"""The two methods that are compared: both in one process, or both through servers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from specwhisper.errors import InvalidRequest, ServerFull
from specwhisper.options import DecodingOptions
from specwhisper.rpc.channels import OPEN, Credentials
from specwhisper.transcription.transcription import Transcription
from specwhisper.types import Mode
from specwhisper_client.api import TranscriptionClient
from specwhisper_evaluation.comparison import Method, OnPosition
from specwhisper_evaluation.references import Reference

if TYPE_CHECKING:
    from specwhisper.api.speculative import SpeculativeWhisper


def in_one_process(pair: SpeculativeWhisper, **options: Any) -> tuple[Method, Method]:
    """Return a pair's target alone and the pair, with options of :meth:`SpeculativeWhisper.transcribe`."""

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
        Method("target alone", partial(transcribe, pair.without_draft())),
        Method("speculative", partial(transcribe, pair)),
    )


@contextmanager
def over_servers(
    server: str,
    credentials: Credentials = OPEN,
    options: DecodingOptions | None = None,
    *,
    mode: Mode | None = None,
    gamma: int | None = None,
) -> Iterator[tuple[Method, Method]]:
    """Return ``target-only`` and another mode, by default the server's, over one draft server.

    Times are those that a client waits, with opening, audio and encoder.
    """
    with TemporaryDirectory() as folder, asyncio.Runner() as runner:
        client = TranscriptionClient(server, credentials)

        def transcribe(
            mode: Mode, gamma: int | None, batch: Sequence[Reference], on_position: OnPosition
        ) -> list[Transcription]:
            files = [_file_of(reference, Path(folder, str(index))) for index, reference in enumerate(batch)]

            async def transcribe_file(index: int) -> Transcription:
                updates = client.stream_file(
                    files[index], options, mode=mode, gamma=gamma, interim_results=False
                )
                async for update in updates:
                    if update.segments:
                        on_position(index, update.segments[-1].end_s)
                return updates.result

            return runner.run(_all_at_once(len(files), transcribe_file))

        try:
            chosen = mode or runner.run(client.get_model()).model.mode
            if not chosen.drafts:
                raise InvalidRequest(
                    f"Mode '{chosen}' has no draft, and would be compared with itself: choose another --mode."
                )
            yield (
                Method(Mode.TARGET_ONLY, partial(transcribe, Mode.TARGET_ONLY, None)),
                Method(chosen, partial(transcribe, chosen, gamma)),
            )
        finally:
            runner.run(client.close())


async def _all_at_once(
    count: int, transcribe: Callable[[int], Awaitable[Transcription]]
) -> list[Transcription]:
    """Transcribe all; once some are done, retry those for which a server was full."""
    found: dict[int, Transcription] = {}
    while len(found) < count:
        left = [index for index in range(count) if index not in found]
        results = await asyncio.gather(*map(transcribe, left), return_exceptions=True)
        done = {
            index: result
            for index, result in zip(left, results, strict=True)
            if not isinstance(result, BaseException)
        }
        for error in results:
            if isinstance(error, BaseException) and not (done and isinstance(error, ServerFull)):
                raise error
        found |= done
    return [found[index] for index in range(count)]


def _file_of(reference: Reference, path: Path) -> Path:
    """Return the file of a recording; one of a dataset is written to ``path`` first."""
    if isinstance(reference.audio, Path):
        return reference.audio
    reference.audio.seek(0)
    path.write_bytes(reference.audio.read())
    return path
