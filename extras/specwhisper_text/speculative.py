"""Draft and target text models in one process: :class:`SpeculativeLM`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from numbers import Integral
from pathlib import Path
from typing import Any, TypeAlias, overload

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from specwhisper.api.speculative_config import SpeculativeConfig
from specwhisper.api.transcribe_call import check_batch_size
from specwhisper.engine.process import check_device, default_device
from specwhisper.engine.shared_pair import Prepared, SharedPair
from specwhisper.errors import CheckpointError, InvalidRequest, PairMismatch, RecordingsFailed
from specwhisper.model.checkpoints.generation import refuse
from specwhisper.model.pytorch.compat import quiet_transformers
from specwhisper.options import GREEDY, DecodingOptions, options_from
from specwhisper.speculation.statistics import SpeculationStatistics
from specwhisper.transcription.transcription import Transcription
from specwhisper.transcription.windows import ClosedWindow, Windows
from specwhisper.types import Keyed, Mode, Outcome, Window
from specwhisper_text.model import REFUSED_IN_TEXT, TextModel, rules_of

OPTION_NAMES = frozenset(
    "temperature temperatures top_k k top_p seed acceptance acceptance_threshold beam_size num_beams "
    "max_tokens".split()
)
PARAMETERS = {"gamma", "use_adaptive_gamma", "max_new_tokens", "stop_token_ids"}  # ``generate``'s own
MAX_NEW_TOKENS = 256
SILENCE = bytes(2)  # one sample: the engines need audio to begin
Prompt: TypeAlias = str | Sequence[int]  # text or token ids


@dataclass(frozen=True, slots=True)
class TextOptions(DecodingOptions):
    prompt: tuple[int, ...] = ()
    stops: frozenset[int] = frozenset()


class PromptWindow(Windows):
    """The one window of a text: its prompt and the tokens after it."""

    def __init__(self, options: TextOptions, max_length: int) -> None:
        super().__init__(options, max_length)
        if not options.prompt or max_length <= len(options.prompt):
            raise InvalidRequest(
                f"The prompt has {len(options.prompt)} tokens; this model takes between 1 and "
                f"{max_length - 1}."
            )
        self._tokens, self.stops = options.prompt, options.stops

    def close(
        self,
        window: Window,
        tokens: Sequence[int],
        log_probs: Sequence[float] = (),
        no_speech_prob: float | None = None,
    ) -> ClosedWindow:
        """Keep the window; no other one follows."""
        self.next_frame = window.num_frames
        return ClosedWindow(Outcome.KEPT, (), (), num_kept=len(tokens))

    def _prompt(self) -> tuple[int, ...]:
        return self._tokens


@dataclass(frozen=True, slots=True)
class Completion(Keyed):
    """The text that follows a prompt; it prints as its text.

    ``tokens`` end with end-of-text if the model ended, or with the stop token that it wrote.
    """

    text: str
    tokens: tuple[int, ...]
    stats: SpeculationStatistics

    @property
    def num_drafted(self) -> int:
        """How many tokens the draft proposed."""
        return self.stats.num_drafted

    @property
    def num_kept(self) -> int:
        """How many of them are in the text."""
        return self.stats.num_accepted

    def __str__(self) -> str:
        return self.text


class SpeculativeLM:
    """Continues prompts with a large model, faster with a draft; the text is its own.

    Thread-safe: calls of several threads share the ``batch_size`` slots. Each prompt has forward passes of
    its own, so its text doesn't depend on the others.

    Of the final model's generation config, ``eos_token_id`` (one or a list), ``repetition_penalty`` and
    ``no_repeat_ngram_size`` are followed; how to sample is an option of each call. Other values that would
    change the text are refused.

    Parameters
    ----------
    draft_model, final_model : hub ids or folders of causal language models with one tokenizer, such as
        TinyLlama and Llama 2.
    device : torch's name of the device of both; "auto" is the first of cuda, mps and cpu that there is. By
        default cuda if there is one, else cpu.
    dtype : torch's type of both models' weights.
    batch_size : most prompts that are continued at once, over all calls.
    device_map : places the final model instead of ``device``: "auto" or a map from module to device, as
        transformers takes them. Weights are loaded straight to their place.
    offload_folder : folder for weights that the map puts on disk.

    Raises
    ------
    CheckpointError : if a model cannot be loaded, or its generation config cannot be followed.
    PairMismatch : if the tokenizers differ.
    """

    def __init__(
        self,
        draft_model: str | None,
        final_model: str,
        device: str | None = None,
        config: SpeculativeConfig | None = None,
        *,
        dtype: torch.dtype = torch.float32,
        batch_size: int = 8,
        device_map: str | dict[str, int | str] | None = None,
        offload_folder: str | Path | None = None,
    ) -> None:
        check_batch_size(batch_size)
        self.config = config or SpeculativeConfig()
        load = partial(_load, dtype=dtype, device=check_device(device or default_device(), "device"))
        target, tokenizer = load(final_model, device_map=device_map, offload_folder=offload_folder)
        generation = target.generation_config
        # transformers reads the second without the first; which one it was is not kept.
        file = "generation_config.json or config.json"
        refuse(final_model, file, generation.to_dict(), REFUSED_IN_TEXT)
        rules = rules_of(generation)
        self._tokenizer = tokenizer
        size = target.config.vocab_size
        draft = None
        if draft_model is not None:
            draft, draft_tokenizer = load(draft_model)
            if draft_tokenizer.get_vocab() != tokenizer.get_vocab():
                raise PairMismatch(
                    f"Draft '{draft_model}' cannot work with '{final_model}': they have different tokenizers."
                )
            size = min(size, draft.config.vocab_size)
        self._size = size
        self._target = TextModel(target, tokenizer, batch_size, size, rules)
        self._draft = None if draft is None else TextModel(draft, tokenizer, batch_size, size, rules)
        self._pair = SharedPair(self._target, self._draft, plan=partial(_plan, self._target))

    @overload
    def generate(self, prompt: Prompt, **options: Any) -> Completion: ...
    @overload
    def generate(self, prompt: Sequence[Prompt], **options: Any) -> list[Completion]: ...
    def generate(
        self,
        prompt: Prompt | Sequence[Prompt],
        *,
        gamma: int | None = None,
        use_adaptive_gamma: bool | None = None,
        max_new_tokens: int | None = None,
        stop_token_ids: Sequence[int] = (),
        **options: Any,
    ) -> Completion | list[Completion]:
        """Continue one prompt or several.

        A prompt is text, or its token ids, to which no special tokens are added. ``stop_token_ids`` end a
        text besides the model's own end-of-text. ``max_new_tokens``, or ``max_tokens``, is 256 by default.

        ``gamma`` and ``use_adaptive_gamma`` override the config; a ``gamma`` alone stays as it is. Also
        ``options`` override the config, even with ``None``: temperature, top_k (or k), top_p, seed,
        acceptance, acceptance_threshold.

        Raises
        ------
        InvalidRequest
            if prompts are too long, empty, or neither text nor ids; before any is continued.
        RecordingsFailed
            if another error ends some of several prompts, with the results of the others.
        """
        if unknown := options.keys() - OPTION_NAMES:
            names = ", ".join(sorted(OPTION_NAMES | PARAMETERS))
            raise InvalidRequest(f"Unknown option '{min(unknown)}' for text: choose from {names}.")
        limits = {} if max_new_tokens is None else {"max_new_tokens": max_new_tokens}
        given = {name: value for name, value in self.config.decoding.items() if value is not None}
        defaults = {**GREEDY, **given, "max_new_tokens": MAX_NEW_TOKENS}
        wanted = options_from(defaults, options | limits | {"timestamps": False})
        if len(wanted.temperatures) > 1:
            raise InvalidRequest("A text has no fallback: name one temperature.")
        stops = frozenset(self._ids(stop_token_ids, "stop_token_ids"))
        prompt = _listed(prompt)
        is_one = isinstance(prompt, str) or _is_ids(prompt)
        asked = self._asked([prompt] if is_one else prompt, wanted, stops, is_one=is_one)
        mode = Mode.TARGET_ONLY if self._draft is None else Mode.ONE_PROCESS
        length = self.config.draft_length(mode, gamma, use_adaptive_gamma)
        prepared = (Prepared(SILENCE, options) for options in asked)
        written = dict(self._pair.transcribe(prepared, length, max_sessions=self._target.num_slots))
        errors = {index: result for index, result in written.items() if isinstance(result, Exception)}
        if errors and is_one:
            raise errors[0]
        in_order = [self._completion(written[index]) for index in range(len(written))]
        if errors:
            raise RecordingsFailed.of(errors, len(written), in_order, kind="prompts")
        return in_order[0] if is_one else in_order

    def _asked(
        self, prompts: Sequence[Any], wanted: DecodingOptions, stops: frozenset[int], *, is_one: bool
    ) -> list[TextOptions]:
        options = {field.name: getattr(wanted, field.name) for field in fields(wanted)}
        asked: list[TextOptions] = []
        errors: dict[int, InvalidRequest] = {}
        for index, prompt in enumerate(prompts):
            try:
                asked.append(TextOptions(**options, prompt=self._tokens(prompt), stops=stops))
                _plan(self._target, asked[-1])
            except InvalidRequest as error:
                errors[index] = error
        if errors and is_one:
            raise errors[0]
        named = [f"Prompt number {index + 1}: {error}" for index, error in errors.items()]
        if len(named) == 1:
            raise InvalidRequest(named[0])
        if named:
            raise InvalidRequest(f"{len(named)} prompts cannot be continued. {' '.join(named)}")
        return asked

    def _completion(self, written: Transcription | Exception) -> Any:
        if isinstance(written, Exception):
            return written
        (tokens,) = written.window_tokens
        text = self._tokenizer.decode(tokens, skip_special_tokens=True)
        return Completion(text, tokens, written.stats or SpeculationStatistics())

    def _tokens(self, prompt: Any) -> tuple[int, ...]:
        prompt = _listed(prompt)
        if isinstance(prompt, str):
            return self._target.tokenize(prompt)
        if not isinstance(prompt, list | tuple):
            raise InvalidRequest(
                f"A prompt of type {type(prompt).__name__} cannot be continued: it must be text or token ids."
            )
        return self._ids(prompt, "The prompt")

    def _ids(self, ids: Any, name: str) -> tuple[int, ...]:
        listed = _listed(ids)
        listed = listed if isinstance(listed, list | tuple) else [listed]
        for i in listed:
            if not (isinstance(i, Integral) and not isinstance(i, bool) and 0 <= int(i) < self._size):
                raise InvalidRequest(
                    f"{name} has {i!r}, which is not a token id here: they are 0 to {self._size - 1}."
                )
        return tuple(map(int, listed))


def _listed(ids: Any) -> Any:
    """Return an array, a tensor, or what a tokenizer returns, as a list."""
    if isinstance(ids, Mapping) and "input_ids" in ids:
        ids = ids["input_ids"]
    return ids.tolist() if hasattr(ids, "tolist") else ids


def _is_ids(prompt: Any) -> bool:
    return isinstance(prompt, list | tuple) and bool(prompt) and all(isinstance(i, Integral) for i in prompt)


def _plan(target: TextModel, options: DecodingOptions) -> PromptWindow:
    assert isinstance(options, TextOptions)
    return PromptWindow(options, target.max_positions)


def _load(
    name: str,
    *,
    dtype: torch.dtype,
    device: str,
    device_map: str | dict[str, int | str] | None = None,
    offload_folder: str | Path | None = None,
) -> tuple[Any, Any]:
    try:
        with quiet_transformers():
            model: Any = AutoModelForCausalLM.from_pretrained(
                name,
                dtype=dtype,
                use_safetensors=True,
                device_map={"": device} if device_map is None else device_map,
                offload_folder=offload_folder,
            )
            return model, AutoTokenizer.from_pretrained(name)
    except (OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0].removesuffix(".")
        raise CheckpointError(
            f"Text model '{name}' cannot be loaded ({reason}): check name and connection, or name a folder."
        ) from error
