"""Start of ``specwhisper-target-server``: first the signals that end it, then the slow imports."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

from specwhisper.rpc.process import exit_on_stop_signals

if TYPE_CHECKING:
    from specwhisper_target_server.config import TargetConfig


def serve(config: TargetConfig) -> None:
    """Serve a Whisper model as the target of speculative decoding.

    Draft servers connect to it, stream audio and candidate tokens, and receive the text this model writes.

    Every flag has an environment variable: --max-sessions is SPECWHISPER_MAX_SESSIONS.
    """
    from specwhisper.extras import needs_extra

    # Heavy imports wait until the arguments are valid: --help answers at once.
    with needs_extra("a target server", "server"):
        from specwhisper_target_server.server import run, self_test

    if config.self_test:
        table, agrees = self_test(config)
        print(table)
        sys.exit(0 if agrees else 1)
    asyncio.run(run(config))


def main() -> None:
    """Run the command line; SIGTERM and SIGINT end it from its first moment on."""
    exit_on_stop_signals()
    from specwhisper.settings.command_line import run_command
    from specwhisper_target_server.config import TargetConfig

    run_command("specwhisper-target-server", TargetConfig, serve)


if __name__ == "__main__":
    main()
