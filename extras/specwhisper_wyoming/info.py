"""A draft server's models as Wyoming describes speech-to-text programs."""

from __future__ import annotations

from wyoming.info import AsrModel, AsrProgram, Attribution, Info

from specwhisper import __version__
from specwhisper_client.updates import ServerInfo

# Wyoming requires a name and an address for both. Every target is a model of OpenAI's architecture.
PROJECT = Attribution("specwhisper contributors", "")
WHISPER = Attribution("OpenAI", "https://github.com/openai/whisper")


def info_of(server: ServerInfo) -> Info:
    """Describe a draft server: one program with one model, the target."""
    target, draft = server.model.target, server.model.draft
    model = AsrModel(
        name=target,
        attribution=WHISPER,
        installed=True,
        description=f"{target}, drafted for by {draft}" if draft else target,
        version=None,
        languages=list(server.languages),
    )
    program = AsrProgram(
        name="specwhisper",
        attribution=PROJECT,
        installed=True,
        description="Whisper by speculative decoding",
        version=__version__,
        models=[model],
        supports_transcript_streaming=True,
    )
    return Info(asr=[program])
