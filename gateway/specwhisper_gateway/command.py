"""``specwhisper-gateway``: OpenAI's audio API for a draft server."""

from __future__ import annotations

import asyncio
import sys
from importlib import import_module

from specwhisper.settings.command_line import run_command
from specwhisper_gateway.config import GatewayConfig


def serve(config: GatewayConfig) -> None:
    """Serve OpenAI's audio API over HTTP; a draft server transcribes.

    Programs written for OpenAI's client work with it unchanged; /docs describes each field.

    Keys are in --tokens-file; a single one may be in $SPECWHISPER_API_KEY instead. No flag takes one, because
    every account on this machine can read command lines.

    Every flag has an environment variable: --max-sessions is SPECWHISPER_MAX_SESSIONS.
    """
    try:
        gateway = import_module("specwhisper_gateway.server")  # needs the extra, which a client has not
    except ModuleNotFoundError as error:
        needs = f"the gateway needs {error.name}: pip install 'specwhisper[gateway]'."
        sys.exit(f"specwhisper-gateway: {needs}")
    asyncio.run(gateway.run(config))


def main() -> None:
    """Run the command line."""
    run_command("specwhisper-gateway", GatewayConfig, serve)
