"""Call a pair as transformers' pipeline for speech recognition is called."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from specwhisper.audio.inputs import Audio, is_recording
from specwhisper.errors import InvalidRequest, UnsupportedOption
from specwhisper.options import WordTimes
from specwhisper.transcription.transcription import Transcription

if TYPE_CHECKING:
    from specwhisper.api.speculative import SpeculativeWhisper

OUR_NAMES = {"condition_on_prev_tokens": "condition_on_previous_text", "num_assistant_tokens": "gamma"}
DEFAULTS = {"chunk_length_s": 0, "do_sample": False}  # their values that mean what None means here
NOT_OFFERED = {
    "assistant_model": "the draft is an argument of SpeculativeWhisper",
    "do_sample": "a temperature above 0 samples",
    "prompt_ids": "write the prompt as text, in initial_prompt",
}


def call_as_pipeline(
    pair: SpeculativeWhisper,
    inputs: Audio | Iterable[Audio],
    *,
    return_timestamps: bool | str | None = None,
    return_language: bool | None = None,
    generate_kwargs: Mapping[str, Any] | None = None,
    **more: Any,
) -> Any:
    """Transcribe as transformers' pipeline for speech recognition does.

    Parameters
    ----------
    inputs : a recording, or several, as :meth:`transcribe` takes them.
    return_timestamps : whether segments have times, and there are ``chunks``; "word" for words instead.
    return_language : whether each chunk of segments has the English name of its language.
    generate_kwargs, more : options of :meth:`transcribe`, also by the names of ``generate``.

    Returns
    -------
    a dict of ``text``, and of ``chunks`` with ``timestamp`` and ``text`` each; for a list a list of them. For
    other iterables it is an iterator, which raises the error of a recording in its place.
    """
    if return_timestamps not in (None, False, True, "word"):
        raise InvalidRequest(f"return_timestamps is {return_timestamps!r}: choose True, False or 'word'.")
    options = _options({**(generate_kwargs or {}), **more})
    options["timestamps"] = bool(options.pop("return_timestamps", False) or return_timestamps)
    options["word_timestamps"] = return_timestamps == "word"
    options.setdefault("word_times", WordTimes.MODEL)  # as their pipeline's

    def written(result: Transcription) -> dict[str, Any]:
        document: dict[str, Any] = {"text": "".join(segment.text for segment in result.segments)}
        if return_timestamps or return_language:
            parts = result.words if return_timestamps == "word" else result.segments
            document["chunks"] = [
                {
                    **({"language": result.language_name} if return_language else {}),
                    **({"timestamp": (part.start_s, part.end_s)} if return_timestamps else {}),
                    "text": part.text,
                }
                for part in parts
            ]
        return document

    if is_recording(inputs):
        return written(pair.transcribe(inputs, **options))
    if isinstance(inputs, Sequence):
        return list(map(written, pair.transcribe(inputs, **options)))
    return map(written, _in_order(pair.transcribe_iter(inputs, **options, on_error="return")))


def _options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return our options of ``generate``'s."""
    given = {
        name: value for name, value in given.items() if value is not None and value != DEFAULTS.get(name)
    }
    for name in given.keys() & NOT_OFFERED:
        raise UnsupportedOption(f"{name} is not offered: {NOT_OFFERED[name]}.")
    return {OUR_NAMES.get(name, name): value for name, value in given.items()}


def _in_order(results: Iterable[tuple[int, Any]]) -> Iterator[Any]:
    """Yield results in the order of their recordings, and raise an error in its place."""
    waiting: dict[int, Any] = {}
    next_index = 0
    for index, result in results:
        waiting[index] = result
        while next_index in waiting:
            ready = waiting.pop(next_index)
            next_index += 1
            if isinstance(ready, Exception):
                raise ready
            yield ready
