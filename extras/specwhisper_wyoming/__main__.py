"""``specwhisper-wyoming``: the Wyoming protocol for a draft server.

Stop signals are handled first, then slow modules are imported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from specwhisper.rpc.process import exit_on_stop_signals

if TYPE_CHECKING:
    from specwhisper_wyoming.config import WyomingConfig


def serve(config: WyomingConfig) -> None:
    """Serve speech-to-text over the Wyoming protocol; a draft server transcribes.

    Home Assistant and other Wyoming clients use it without changes.

    The token for draft servers is in --server-token-file or $SPECWHISPER_SERVER_TOKEN. No flag takes it,
    because every account on this machine can read command lines.

    Every flag has an environment variable: --uri is SPECWHISPER_URI.
    """
    import asyncio

    from specwhisper.extras import needs_extra

    with needs_extra("the Wyoming server", "wyoming"):
        from specwhisper_wyoming.server import run

    asyncio.run(run(config))


def main() -> None:
    """Run the command line; SIGTERM and SIGINT end the process from the start."""
    exit_on_stop_signals()
    from specwhisper.settings.command_line import run_command
    from specwhisper_wyoming.config import WyomingConfig

    run_command("specwhisper-wyoming", WyomingConfig, serve)


if __name__ == "__main__":
    main()
