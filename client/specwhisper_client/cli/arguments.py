"""Options that several commands have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from specwhisper.live import EndpointingOptions
from specwhisper.options import MAX_TEMPERATURE, MIN_TEMPERATURE, DecodingOptions
from specwhisper.selection import Selection
from specwhisper.settings.setting import part
from specwhisper.validated import LARGEST, Rule, number, option, switch
from specwhisper_client.resolving import servers_option
from specwhisper_client.servers import DEFAULT_SERVER

# Decoding options with a flag that is declared elsewhere, or without one.
NO_FLAGS = ("hint", "temperatures", "vad_parameters", "log_mel_max", "live")
# Names in errors of options whose flag has another name.
SPELLING = {"temperatures": "--temperature", "vad_parameters": "--vad-filter"}
FORMATS_OF_HINTS = "Text that the audio probably contains: captions (srt, vtt, ass, ttml) or plain text"

# Of a file that is written after a long measurement.
IN_A_FOLDER = Rule(lambda path: path.absolute().parent.is_dir(), "make its folder first")

FALLBACK: Mapping[str, Any] = {"temperature": 0.0, "temperature_increment_on_fallback": 0.2}


@dataclass(frozen=True, kw_only=True)
class Temperatures:
    """Temperatures, as on openai/whisper's command line."""

    greedy: bool = switch(False, "Decode greedily: no second attempt, and only the thresholds that you set.")
    temperature: float = number(
        FALLBACK["temperature"],
        0,
        MAX_TEMPERATURE,
        "Sampling temperature; 0 is greedy.",
        "T",
        not_with=("greedy",),
    )
    temperature_increment_on_fallback: float | None = number(
        FALLBACK["temperature_increment_on_fallback"],
        MIN_TEMPERATURE,
        LARGEST,
        "Step of the temperatures, up to 1, for a window that failed; None: no second try.",
        "T|None",
        takes_none=True,
    )
    beam_size: int = option(1, "Number of beams, of which there is one.", "N", is_hidden=True)


def server_option(default: str | None = DEFAULT_SERVER, purpose: str = "") -> Any:
    help = f"Addresses of draft servers, or locator:///HOST:PORT, which lists them{purpose}."
    return servers_option(default, help)


def quiet_option() -> Any:
    return switch(False, "Print nothing but the text.")


def decoding_part(*names: str) -> Any:
    """Declare a command's decoding options, by default all; its value maps those that the user wrote."""
    but = (*NO_FLAGS, *(each.name for each in fields(Selection)))
    return part(DecodingOptions, dict, only_written=True, only=names, but=but)


def endpointing_part(*needs: str) -> Any:
    but = ("prefix_padding_ms", "min_speech_ms")
    return part(EndpointingOptions, EndpointingOptions(), but=but, needs=needs)
