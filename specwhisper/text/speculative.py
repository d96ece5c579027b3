"""Draft and target text models in one process: :class:`SpeculativeLM`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, overload

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from specwhisper.api.speculative_config import SpeculativeConfig
from specwhisper.api.transcribe_call import check_batch_size
from specwhisper.engine.process import default_device
from specwhisper.engine.shared_pair import Prepared, SharedPair
from specwhisper.errors import CheckpointError, InvalidRequest, PairMismatch, RecordingsFailed
from specwhisper.options import DecodingOptions, options_from
from specwhisper.speculation.statistics import SpeculationStatistics
from specwhisper.text.model import TextModel
from specwhisper.transcription.transcription import Transcription
from specwhisper.transcription.windows import ClosedWindow, Windows
from specwhisper.types import Mode, Outcome, Window

OPTION_NAMES = frozenset(
    "temperature temperatures top_k top_p seed acceptance acceptance_threshold beam_size num_beams".split()
)
SILENCE = bytes(2)  # one sample: the engines need audio to begin


class PromptWindow(Windows):
    """The one window of a text: its prompt and the tokens after it."""

    def __init__(self, prompt: tuple[int, ...], options: DecodingOptions, max_length: int) -> None:
        super().__init__(options, max_length)
        if not prompt or max_length <= len(prompt):
            raise InvalidRequest(
                f"The prompt has {len(prompt)} tokens; this model takes between 1 and {max_length - 1}."
            )
        self._tokens = prompt

    def close(
        self,
        window: Window,
        tokens: Sequence[int],
        log_probs: Sequence[float] = (),
        no_speech_prob: float | None = None,
        attended_ms: Sequence[float] = (),
    ) -> ClosedWindow:
        """Keep the window; no other one follows."""
        self.next_frame = window.num_frames
        return ClosedWindow(Outcome.KEPT, (), (), num_kept=len(tokens))

    def _prompt(self) -> tuple[int, ...]:
        return self._tokens


@dataclass(frozen=True, slots=True)
class Completion:
    """The text that follows a prompt; it prints as its text.

    ``tokens`` end with end-of-text if the model ended.
    """

    text: str
    tokens: tuple[int, ...]
    stats: SpeculationStatistics

    def __str__(self) -> str:
        return self.text


class SpeculativeLM:
    """Continues prompts with a large model, faster with a draft; the text is its own.

    In a batch, logits may differ in their last bits from those of a prompt alone. So a text may continue
    differently where two tokens are equally likely.

    Thread-safe: calls of several threads share the ``batch_size`` slots and every forward pass.

    Parameters
    ----------
    draft_model, final_model : hub ids or folders of causal language models with one tokenizer, such as
        TinyLlama and Llama 2.
    device, dtype : of both, as torch names them.
    batch_size : most prompts that are continued at once, of all calls together.
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
    ) -> None:
        check_batch_size(batch_size)
        self.config = config or SpeculativeConfig()
        device = device or default_device()
        load = partial(_load, dtype=dtype, device=device)
        target, tokenizer = load(final_model)
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
        self._target = TextModel(target, tokenizer, batch_size, size)
        self._draft = None if draft is None else TextModel(draft, tokenizer, batch_size, size)
        self._pair = SharedPair(self._target, self._draft, plan=partial(_plan, self._target))

    @overload
    def generate(self, prompt: str, *, max_new_tokens: int = 256, **options: Any) -> Completion: ...
    @overload
    def generate(
        self, prompt: Sequence[str], *, max_new_tokens: int = 256, **options: Any
    ) -> list[Completion]: ...
    def generate(
        self, prompt: str | Sequence[str], *, max_new_tokens: int = 256, **options: Any
    ) -> Completion | list[Completion]:
        """Continue one prompt or several.

        ``options`` override the config, even with ``None``: temperature, top_k, top_p, seed, acceptance,
        acceptance_threshold.

        Raises
        ------
        InvalidRequest
            if prompts are too long, empty or no text; before any is continued.
        RecordingsFailed
            if another error ends some of several prompts, with the results of the others.
        """
        if unknown := options.keys() - OPTION_NAMES:
            raise InvalidRequest(
                f"There is no option '{min(unknown)}' for text; there are {', '.join(sorted(OPTION_NAMES))}."
            )
        limits = {"max_new_tokens": max_new_tokens, "timestamps": False}
        wanted = options_from(self.config.decoding, options | limits)
        if len(wanted.temperatures) > 1:
            raise InvalidRequest("A text has no fallback: name one temperature.")
        is_one = isinstance(prompt, str)
        asked = self._asked([prompt] if isinstance(prompt, str) else prompt, wanted, is_one=is_one)
        length = self.config.draft_length(Mode.TARGET_ONLY if self._draft is None else Mode.ONE_PROCESS)
        prepared = (Prepared(SILENCE, options) for options in asked)
        written = dict(self._pair.transcribe(prepared, length, max_sessions=self._target.num_slots))
        errors = {place: result for place, result in written.items() if isinstance(result, Exception)}
        if errors and is_one:
            raise errors[0]
        in_order = [self._completion(written[place]) for place in range(len(written))]
        if errors:
            raise RecordingsFailed.of(errors, len(written), in_order, kind="prompts")
        return in_order[0] if is_one else in_order

    def _asked(
        self, prompts: Sequence[str], wanted: DecodingOptions, *, is_one: bool
    ) -> list[DecodingOptions]:
        """Return the options of each prompt; raise one error for all invalid ones."""
        asked: list[DecodingOptions] = []
        errors: dict[int, InvalidRequest] = {}
        for place, text in enumerate(prompts):
            try:
                asked.append(replace(wanted, initial_prompt=_text(text)))
                _plan(self._target, asked[-1])
            except InvalidRequest as error:
                errors[place] = error
        if errors and is_one:
            raise errors[0]
        named = [f"Prompt number {place + 1}: {error}" for place, error in errors.items()]
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


def _text(prompt: Any) -> str:
    if not isinstance(prompt, str):  # None would be an option that is left out
        raise InvalidRequest(
            f"A prompt of type {type(prompt).__name__} cannot be continued: it must be text."
        )
    return prompt


def _plan(target: TextModel, options: DecodingOptions) -> PromptWindow:
    return PromptWindow(target.tokenize(options.initial_prompt), options, target.max_positions)


def _load(name: str, *, dtype: torch.dtype, device: str) -> tuple[Any, Any]:
    try:
        model: Any = AutoModelForCausalLM.from_pretrained(name, dtype=dtype, use_safetensors=True)
        return model.to(device), AutoTokenizer.from_pretrained(name)
    except (OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0].removesuffix(".")
        raise CheckpointError(
            f"Text model '{name}' cannot be loaded ({reason}): check name and connection, or name a folder."
        ) from error
