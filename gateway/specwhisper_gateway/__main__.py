"""``specwhisper-gateway``: OpenAI's audio API for a draft server.

Stop signals are handled first, then slow modules are imported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from specwhisper.rpc.process import exit_on_stop_signals

if TYPE_CHECKING:
    from specwhisper_gateway.config import GatewayConfig


def serve(config: GatewayConfig) -> None:
    """Serve OpenAI's audio API over HTTP; a draft server transcribes.

    Programs written for OpenAI's client work with it unchanged; /docs describes each field.

    Keys are in --tokens-file; a single one may be in $SPECWHISPER_API_KEY instead. No flag takes one, because
    every account on this machine can read command lines.

    Every flag has an environment variable: --max-sessions is SPECWHISPER_MAX_SESSIONS.
    """
    import asyncio

    from specwhisper.extras import needs_extra

    with needs_extra("the gateway", "gateway"):
        from specwhisper_gateway.server import run

    asyncio.run(run(config))


def main() -> None:
    """Run the command line; SIGTERM and SIGINT end the process from the start."""
    exit_on_stop_signals()
    from specwhisper.settings.command_line import run_command
    from specwhisper_gateway.config import GatewayConfig

    run_command("specwhisper-gateway", GatewayConfig, serve)


if __name__ == "__main__":
    main()
