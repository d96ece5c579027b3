"""When a window has failed, and the temperatures at which it is decoded again."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated, Any

import typer

from specwhisper.options import CompressionRatio, DecodingOptions, options_from
from specwhisper_client.cli.grouped_options import Given

DEFAULT = DecodingOptions()


def number_or_none(text: str) -> float | None:
    """Read a number, or ``None`` as openai/whisper's command line does."""
    return None if text == "None" else float(text)


def _or_none(letter: str, help: str) -> Any:
    """Declare an option that is a number or ``None``."""
    return typer.Option(parser=number_or_none, metavar=f"{letter}|None", help=help)


@dataclass(frozen=True, kw_only=True)
class Fallback:
    """Options of fallback, by the names of openai/whisper's command line."""

    greedy: Annotated[
        bool,
        typer.Option(
            "--greedy", help="Plain greedy decoding: no second attempt, and no threshold that is not given."
        ),
    ] = False
    temperature: Annotated[
        float, typer.Option(min=0, metavar="T", help="Sampling temperature; 0 is greedy.")
    ] = 0.0
    temperature_increment_on_fallback: Annotated[
        float | None,
        _or_none("T", "Step of the temperatures, up to 1, for a window that failed; None: no second try."),
    ] = 0.2
    compression_ratio_threshold: Annotated[
        float | None, _or_none("X", "Compression ratio above which a window failed.")
    ] = DEFAULT.compression_ratio_threshold
    compression_ratio_of: Annotated[
        CompressionRatio,
        typer.Option(
            metavar="text|tokens",
            help="Data of the compression ratio: the text, as OpenAI, or the tokens, as transformers.",
        ),
    ] = DEFAULT.compression_ratio_of
    logprob_threshold: Annotated[
        float | None, _or_none("X", "Mean log-probability below which a window failed.")
    ] = DEFAULT.logprob_threshold
    no_speech_threshold: Annotated[
        float | None,
        _or_none(
            "P",
            "Probability of silence above which a window is skipped, unless its mean log-probability "
            "reaches --logprob-threshold.",
        ),
    ] = DEFAULT.no_speech_threshold
    given: Given = Given(frozenset())  # noqa: RUF009  # it is frozen

    def options(self) -> DecodingOptions:
        """Return them as decoding options, checked."""
        values = asdict(self)
        given = values.pop("given")
        if self.greedy:  # it replaces the defaults, and nothing that the command line has
            values = {name: value for name, value in values.items() if name in given}
        return options_from({}, values)
