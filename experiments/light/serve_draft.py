"""``python -m experiments.light.serve_draft``: serve a draft beside another shape, at the cost of both."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from experiments.common.replay.options import MaxSessions
from specwhisper.audio.recording import Recording
from specwhisper.engine.process import prepare_process
from specwhisper.errors import SpecWhisperError
from specwhisper.model.checkpoints.checkpoint import load_checkpoint
from specwhisper.model.choosing import Row, Scores
from specwhisper.model.model import WhisperModel
from specwhisper.model.translated import open_draft
from specwhisper.observe.logs import LogFormat, LogLevel, configure_logging
from specwhisper.rpc.serving import serve
from specwhisper.transcription.transcriber import TargetDescription
from specwhisper_draft_server.config import DraftConfig
from specwhisper_draft_server.server import running_service, services_of


class Beside:
    """A model whose every call another one repeats, for its cost."""

    def __init__(self, model: WhisperModel, repeating: WhisperModel) -> None:
        self._model = model
        self._repeating = repeating

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def encode(self, slot: int, recording: Recording, start_frame: int) -> None:
        """Encode a window with both."""
        self._repeating.encode(slot, recording, start_frame)
        self._model.encode(slot, recording, start_frame)

    def score(self, rows: Sequence[Row]) -> list[Scores]:
        """Append tokens to both; return what the model chooses."""
        self._repeating.score([replace(row, probe=None) for row in rows])
        return self._model.score(rows)

    def rollback(self, slot: int, length: int) -> None:
        """Remove tokens of both."""
        self._repeating.rollback(slot, length)
        self._model.rollback(slot, length)


def serve_draft(
    repeating: Annotated[Path, typer.Option(exists=True, file_okay=False, help="Folder of the other shape.")],
    target: Annotated[str, typer.Option(metavar="HOST:PORT", help="Target server.")],
    draft_model: Annotated[str, typer.Option(help="The draft.")] = "demo-draft-tiny",
    dtype: Annotated[str, typer.Option(help="Of the other shape's weights.")] = "float32",
    max_sessions: MaxSessions = 8,
    port: int = 0,
    threads: int | None = None,
    log_format: LogFormat = LogFormat.AUTO,
    log_level: LogLevel = LogLevel.INFO,
) -> None:
    """Serve a draft; another shape's model repeats what it does."""
    configure_logging(log_format, log_level)
    try:
        config = DraftConfig(
            target=target,
            draft_model=draft_model,
            threads=threads,
            max_sessions=max_sessions,
            port=port,
        )
        asyncio.run(_run(config, str(repeating), dtype))
    except SpecWhisperError as error:
        sys.exit(f"serve_draft: {error}")


async def _run(config: DraftConfig, repeating: str, dtype: str) -> None:
    prepare_process(config.device, config.threads, config.cores)
    draft = load_checkpoint(config.draft_model)
    other = load_checkpoint(repeating, dtype=dtype)

    def place(target: TargetDescription) -> Beside:
        slots = config.max_sessions
        return Beside(open_draft(draft, slots, target.vocabulary), WhisperModel(other, slots))

    async with running_service(config, draft, place) as service:
        await serve(services_of(service, config), config)


if __name__ == "__main__":
    typer.run(serve_draft)
