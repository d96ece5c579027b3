"""Accept arguments in the form of openai/whisper's command line.

Flags may have the value ``True`` or ``False``; ``None`` leaves an option out. An option of openai/whisper
that is not offered is refused with the reason, unless its value changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from typer.core import TyperOption

from specwhisper.errors import InvalidRequest, UnsupportedOption
from specwhisper.options import NO_BEAMS
from specwhisper.settings.command_line import Program, reading

SET_AT_SERVER = "{name} is set at the server: see specwhisper-target-server --help; leave it out here."
NOT_OFFERED = "{name} is not offered: leave it out."
# Options of openai/whisper that are not offered: values that change nothing, and the reason.
REFUSED: dict[str, tuple[tuple[str, ...], str]] = {
    "--patience": (("1", "1.0"), NO_BEAMS),
    "--length-penalty": ((), NO_BEAMS),
    "--best-of": (("1",), "One text is sampled per window, not several: leave best_of out."),
    "--suppress-tokens": (("-1",), "{name} is set in the checkpoint's generation config: leave it out."),
    "--model": ((), SET_AT_SERVER),
    "--model-dir": ((), SET_AT_SERVER),
    "--device": ((), SET_AT_SERVER),
    "--fp16": ((), SET_AT_SERVER),
    "--threads": (("0",), SET_AT_SERVER),
    "--verbose": (("True",), "Leave {name} out; --quiet prints nothing but the text."),
    "--prepend-punctuations": ((), NOT_OFFERED),
    "--append-punctuations": ((), NOT_OFFERED),
    "--clip-timestamps": (("0",), NOT_OFFERED),
}


class OpenAICommand(Program):
    """A command that also accepts options in the form of openai/whisper's command line."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        options = [param for param in self.params if isinstance(param, TyperOption)]
        switches: dict[str, tuple[list[str], list[str]]] = {}  # flag for True, flag for False
        for option in options:
            if option.is_flag:
                switches |= dict.fromkeys(option.opts, (option.opts[:1], option.secondary_opts[:1]))
                switches |= dict.fromkeys(option.secondary_opts, (option.secondary_opts[:1], option.opts[:1]))
        # Whether None is a value of the option; otherwise it leaves the option out.
        valued = {
            name: (option.metavar or "").endswith("None")
            for option in options
            if not option.is_flag
            for name in option.opts
        }
        with reading():
            translated = list(_translated(args, switches, valued))
        return super().parse_args(ctx, translated)


def _translated(
    args: Sequence[str], switches: Mapping[str, tuple[list[str], list[str]]], valued: Mapping[str, bool]
) -> Iterator[str]:
    rest = list(args)
    while rest:
        arg = rest.pop(0)
        if arg == "--":
            yield from (arg, *rest)
            return
        name, has_value, value = arg.partition("=")
        name = name.replace("_", "-") if name.startswith("--") else name
        following = value if has_value else (rest[0] if rest else "")
        if name in switches:
            if following in ("True", "False"):
                del rest[: not has_value]
                yield from switches[name][following == "False"]
            elif has_value or (following.isalnum() and not Path(following).exists()):
                file = "" if has_value else ", or the name of a file"
                raise InvalidRequest(f"{name} is '{following}': write True or False{file}.")
            else:
                yield arg
        elif name in REFUSED or (following == "None" and valued.get(name) is False):
            harmless, why = REFUSED.get(name, ((), ""))
            if following not in ("None", *harmless):
                raise UnsupportedOption(why.format(name=name.removeprefix("--").replace("-", "_")))
            del rest[: not has_value]
        elif name in valued and not has_value and rest:
            yield from (arg, rest.pop(0))
        else:
            yield arg
