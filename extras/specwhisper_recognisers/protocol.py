"""The protocol of recognisers that draft, and how one is loaded.

A recogniser needs neither Whisper's tokens nor its windows. It takes audio, and returns text with rough
times. ``--draft-recogniser MODULE:FACTORY`` names a function that returns one::

    def create(model: str) -> Recogniser:  # model: the value of --draft-model
        ...
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import NamedTuple, Protocol, cast

from specwhisper.errors import InvalidRequest, SpecWhisperError


class Recognised(NamedTuple):
    """The text recognised so far, starting at a given time.

    Attributes
    ----------
    start_s : when its first word begins, about, in seconds from the first sample that the stream took.
    text : all of it until now, not only what is new. Only its first 4,000 bytes in UTF-8 are used: begin
        another text before that, with the time of its first word.
    """

    start_s: float
    text: str


class RecogniserStream(Protocol):
    """Recognises one stretch of audio.

    It may have a method ``close()`` without parameters. That is called when no more audio follows, including
    after skipped audio and when the session ends early.
    """

    def accept(self, pcm: bytes, *, is_pause: bool, is_last: bool, waiting_s: float) -> Sequence[Recognised]:
        """Take the next audio; return the text that has changed, the oldest first.

        Each text replaces all that was returned for its time and later. An incremental recogniser returns an
        utterance again as it grows, always with the same time: a later one would repeat the words before it.
        Another recogniser returns it once, for example when speech pauses.

        Parameters
        ----------
        pcm : s16le, 16 kHz, mono; may be empty where speech pauses and in the last call.
        is_pause : whether speech pauses or ends in it, if that is known; only for live audio.
        is_last : whether no more audio follows.
        waiting_s : how much audio waits after it. If that grows, the recogniser is too slow: audio that the
            target has decoded meanwhile will be skipped.
        """


class Recogniser(Protocol):
    """A recogniser that serves many sessions, one call at a time.

    It may have an attribute ``piece_s``, the length of the pieces that its streams take, from 0.01 to 30 s.
    Then a piece is shorter only at a pause and at the end. Otherwise a piece is what has arrived, up to a
    second.

    Attributes
    ----------
    name : shown in messages and logs, and to clients.
    """

    name: str

    def open(self, language: str | None, start_s: float, *, is_live: bool) -> RecogniserStream | None:
        """Begin a stream, or return ``None`` for a language that it cannot recognise.

        It isn't called for translations.

        Parameters
        ----------
        language : Whisper's code, or ``None`` if it is not known.
        start_s : time of the stream's first sample in the recording.
        is_live : whether the client is shown its text until the target's is final. Otherwise the text only
            saves the target time.
        """


def load_recogniser(factory: str, model: str) -> Recogniser:
    """Call a factory, named as MODULE:FACTORY."""
    module_name, separator, function_name = factory.partition(":")
    if not (module_name and separator and function_name):
        raise InvalidRequest(f"--draft-recogniser is '{factory}': name it as MODULE:FACTORY.")
    try:
        function = getattr(import_module(module_name), function_name)
    except (ImportError, AttributeError) as error:
        raise InvalidRequest(f"--draft-recogniser {factory} cannot be loaded ({error}).") from error
    try:
        return cast(Callable[[str], Recogniser], function)(model)
    except SpecWhisperError:
        raise
    except Exception as error:  # any library's
        raise InvalidRequest(
            f"--draft-recogniser {factory} cannot use --draft-model '{model}' ({error})."
        ) from error
