"""Command ``specwhisper-target-server``: verify candidates and transcribe.

It runs on the machine with the large model.
"""

from __future__ import annotations

import asyncio
import sys

from specwhisper.extras import needs_extra
from specwhisper.settings.command_line import run_command
from specwhisper_target_server.config import TargetConfig


def serve(config: TargetConfig) -> None:
    """Serve a Whisper model as the target of speculative decoding.

    Draft servers connect to it, stream audio and candidate tokens, and receive the text this model writes.

    Every flag has an environment variable: --max-sessions is SPECWHISPER_MAX_SESSIONS.
    """
    # Heavy imports wait until the arguments are valid: --help answers at once.
    with needs_extra("a target server", "server"):
        from specwhisper_target_server.server import run, self_test

    if config.self_test:
        table, agrees = self_test(config)
        print(table)
        sys.exit(0 if agrees else 1)
    asyncio.run(run(config))


def main() -> None:
    """Run the command line."""
    run_command("specwhisper-target-server", TargetConfig, serve)
