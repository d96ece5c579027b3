"""Read a generation config as transformers does; warn of ignored values."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from transformers import GenerationConfig, WhisperForConditionalGeneration

from specwhisper.errors import CheckpointError
from specwhisper.model.languages import language_code

logger = logging.getLogger(__name__)

# Values that only a caller can set here, with the neutral value of each.
CALLER_OPTIONS = {
    "num_beams": 1,
    "do_sample": False,
    "repetition_penalty": 1.0,
    "no_repeat_ngram_size": 0,
    "task": "transcribe",
    "compression_ratio_threshold": None,
    "logprob_threshold": None,
    "no_speech_threshold": None,
    "condition_on_prev_tokens": False,
}


def check_generation(name: str, model: WhisperForConditionalGeneration) -> None:
    """Refuse an outdated generation config; warn of values that are ignored."""
    generation = model.generation_config
    if not getattr(generation, "lang_to_id", None):
        if len(_forced(model)) > 1:  # English-only models force a single token: no timestamps
            raise CheckpointError(
                f"Model '{name}' has an outdated generation_config.json without lang_to_id: copy that of the "
                "model it was tuned from."
            )
    values = {key: getattr(generation, key, None) for key in CALLER_OPTIONS}
    if values["task"] is None:
        tasks = {id_: task for task, id_ in (getattr(generation, "task_to_id", None) or {}).items()}
        values["task"] = next((tasks[i] for i in _forced(model).values() if i in tasks), None)
    for key, value in values.items():
        if value is None or value == CALLER_OPTIONS[key]:
            continue
        logger.warning(
            "The generation_config.json of model '%s' sets %s=%s, which is ignored: pass it as an option of "
            "each transcription, if there is such an option.",
            name,
            key,
            value,
        )


def _forced(model: WhisperForConditionalGeneration) -> dict[int, int | None]:
    """Return an old config's forced tokens, by position: 1 language, 2 task."""
    forced = getattr(model.generation_config, "forced_decoder_ids", None)
    if forced is None:
        forced = getattr(model.config, "forced_decoder_ids", None)
    return dict(forced or ())


def own_language(model: WhisperForConditionalGeneration, languages: Mapping[str, int]) -> str | None:
    """Return the language a model was tuned to, in the new or the old form."""
    generation = model.generation_config
    language, task = getattr(generation, "language", None), getattr(generation, "task", None)
    if isinstance(language, str):
        code = str(language_code(language.strip("<|>")))
        return code if code in languages else None
    if task is None:
        forced = _forced(model).get(1)
        return next((code for code, id_ in languages.items() if id_ == forced), None)
    return None


def start_of_prev(generation: GenerationConfig) -> int | None:
    """Return the id of ``<|startofprev|>``; older checkpoints only suppress it."""
    named = getattr(generation, "prev_sot_token_id", None)
    if named is not None:
        return int(named)
    suppressed = list(generation.suppress_tokens or ())
    return int(suppressed[-2]) if len(suppressed) >= 2 else None
