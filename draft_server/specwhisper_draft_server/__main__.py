"""Start of ``specwhisper-draft-server``: first the signals that end it, then the slow imports."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from specwhisper.rpc.process import exit_on_stop_signals

if TYPE_CHECKING:
    from specwhisper_draft_server.config import DraftConfig


def serve(config: DraftConfig) -> None:
    """Serve transcription: draft with a small model, verify with the target.

    The transcript is, token for token, what the target alone would have written.

    Every flag has an environment variable: --max-sessions is SPECWHISPER_MAX_SESSIONS.
    """
    from specwhisper.extras import needs_extra

    # Heavy imports wait until the arguments are valid: --help answers at once.
    with needs_extra("a draft server", "draft"):
        from specwhisper_draft_server.server import run

    asyncio.run(run(config))


def main() -> None:
    """Run the command line; SIGTERM and SIGINT end it from its first moment on."""
    exit_on_stop_signals()
    from specwhisper.settings.command_line import run_command
    from specwhisper_draft_server.config import DraftConfig

    run_command("specwhisper-draft-server", DraftConfig, serve)


if __name__ == "__main__":
    main()
