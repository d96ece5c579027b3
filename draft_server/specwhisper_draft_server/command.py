"""``specwhisper-draft-server``: draft near the audio, let a target verify."""

from __future__ import annotations

import asyncio

from specwhisper.extras import needs_extra
from specwhisper.settings.command_line import run_command
from specwhisper_draft_server.config import DraftConfig


def serve(config: DraftConfig) -> None:
    """Serve transcription: draft with a small model, verify with the target.

    The transcript is, token for token, what the target alone would have written.

    Every flag has an environment variable: --max-sessions is SPECWHISPER_MAX_SESSIONS.
    """
    # Heavy imports wait until the arguments are valid: --help answers at once.
    with needs_extra("a draft server", "draft"):
        from specwhisper_draft_server.server import run

    asyncio.run(run(config))


def main() -> None:
    """Run the command line."""
    run_command("specwhisper-draft-server", DraftConfig, serve)
