"""Load any Whisper checkpoint transformers can load: a hub id, a bare name or a folder; safetensors only."""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from transformers import GenerationConfig, WhisperConfig, WhisperForConditionalGeneration, WhisperTokenizer
from transformers.utils.hub import cached_file

from specwhisper.errors import CheckpointError
from specwhisper.transcription.vocabulary import Vocabulary
from specwhisper.types import FRAMES_PER_TIMESTAMP, WINDOW_FRAMES
from specwhisper.whisper.languages import language_code

logger = logging.getLogger(__name__)

T = TypeVar("T")

DEMO_FOLDER = Path(__file__).parent.parent / "demo"
DEMO_MODELS = ("demo-target", "demo-draft-tiny", "demo-draft-distil")
OPENAI_MODELS = (
    *("tiny", "tiny.en", "base", "base.en", "small", "small.en", "medium", "medium.en"),
    *("large-v1", "large-v2", "large-v3", "large-v3-turbo"),
)
# As openai/whisper and faster-whisper name them; on the hub "whisper-large" is the first.
OTHER_NAMES = {"large": "large-v3", "turbo": "large-v3-turbo"}
ADVICE = (
    "name a folder, a hub id with safetensors weights such as openai/whisper-small, distil-..., or one of "
    f"{', '.join((*DEMO_MODELS, *OPENAI_MODELS, *OTHER_NAMES))}."
)
HUB_ID = re.compile(r"\w[\w.-]*/\w[\w.-]*")
# What a generation config may hold that only a caller can ask for here, with what means nothing.
CALLERS_OWN = {
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
NUM_TIMESTAMPS = WINDOW_FRAMES // FRAMES_PER_TIMESTAMP + 1


@dataclass(frozen=True)
class Checkpoint:
    """A Whisper model ready to be placed in slots.

    Attributes
    ----------
    name : as the user named it.
    state : transformers' state dict of decoder and projection, on the CPU.
    encoder : transformers' encoder module, on the device that was asked for.
    weights_digest : SHA-256 over the weight files.
    max_new_tokens : the checkpoint's own limit per window, or ``None``.
    tokenizer : turns prompts into tokens and tokens into words; a draft does without.
    alignment_heads : (layer, head) whose cross-attention follows the speech; empty where unknown.
    """

    name: str
    config: WhisperConfig
    vocabulary: Vocabulary
    encoder: nn.Module
    state: dict[str, Tensor] = field(repr=False)
    weights_digest: str = ""
    max_new_tokens: int | None = None
    tokenizer: WhisperTokenizer | None = field(default=None, repr=False)
    alignment_heads: tuple[tuple[int, int], ...] = ()

    @property
    def dtype(self) -> str:
        """Numeric type of the weights, e.g. "float32"."""
        return str(next(self.encoder.parameters()).dtype).removeprefix("torch.")

    @property
    def num_mel_bins(self) -> int:
        """Mel bins the encoder takes: 80, or 128 for large-v3 and its kin."""
        return int(self.config.num_mel_bins)


def resolve(name: str) -> str:
    """Turn a bare name into what transformers understands; hub ids and folders pass through."""
    if name in DEMO_MODELS:
        folder = DEMO_FOLDER / name.removeprefix("demo-")
        if not folder.is_dir():
            raise CheckpointError(f"Model '{name}' is not part of this installation: {ADVICE}")
        return str(folder)
    if Path(name).is_dir() or HUB_ID.fullmatch(name):
        return name
    full_name = OTHER_NAMES.get(name, name)
    if full_name in OPENAI_MODELS:
        return f"openai/whisper-{full_name.removesuffix('-v1')}"
    if name.startswith("distil-"):
        return f"distil-whisper/{name}"
    raise CheckpointError(f"There is no model '{name}': {ADVICE}")


def load_checkpoint(
    name: str,
    *,
    revision: str | None = None,
    dtype: torch.dtype = torch.float32,
    device: str | torch.device = "cpu",
) -> Checkpoint:
    """Load a checkpoint by name; every failure is one :class:`CheckpointError` that says what to do."""
    source = resolve(name)
    if Path(source).is_dir():
        _check_folder(name, Path(source))
    revision = revision or "main"
    config = _fetch(name, source, lambda: WhisperConfig.get_config_dict(source, revision=revision)[0])
    if config.get("model_type") != "whisper":
        raise CheckpointError(
            f"Model '{name}' is of type '{config.get('model_type')}': choose a Whisper checkpoint."
        )
    loaded: Any = _fetch(
        name,
        source,
        lambda: WhisperForConditionalGeneration.from_pretrained(
            source,
            revision=revision,
            dtype=dtype,
            use_safetensors=True,
            ignore_mismatched_sizes=True,  # told below, in one sentence
            attn_implementation="sdpa",
            output_loading_info=True,
        ),
    )
    model, info = loaded
    for problem, keys in (("are missing", "missing_keys"), ("do not fit its config.json", "mismatched_keys")):
        if found := sorted(key if isinstance(key, str) else key[0] for key in info[keys]):
            raise CheckpointError(
                f"Model '{name}' is incomplete: {len(found)} weights {problem}, '{found[0]}' first; "
                "fetch or save it again."
            )
    tokenizer = _fetch(name, source, lambda: WhisperTokenizer.from_pretrained(source, revision=revision))
    tokens = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
    digest = _fetch(name, source, lambda: _weights_digest(source, revision))
    # The decoder stays where it is: whoever places it knows whether it fits onto the device.
    model.model.encoder.to(device)
    checkpoint = checkpoint_from_model(model, tokens, name=name, weights_digest=digest, tokenizer=tokenizer)
    if len(tokens) < checkpoint.vocabulary.end_of_text:
        raise CheckpointError(f"Model '{name}' has no tokenizer: fetch or save it again together with it.")
    return checkpoint


def _check_folder(name: str, folder: Path) -> None:
    """Say what a folder lacks, before transformers says it at length."""
    if not (folder / "config.json").is_file():
        raise CheckpointError(f"Folder '{name}' holds no model: it has no config.json; name another.")
    if any(folder.glob("*.safetensors")):
        return
    if any(folder.glob("*.bin")):
        raise CheckpointError(
            f"Model '{name}' has pickled weights, which can carry code: save it again as safetensors."
        )
    raise CheckpointError(f"Model '{name}' has no weights: fetch or save it again as safetensors.")


def _fetch(name: str, source: str, load: Callable[[], T]) -> T:
    """Load a part; whatever transformers, the hub or the disk raise becomes one sentence."""
    try:
        return load()
    except Exception as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        is_folder = Path(source).is_dir()
        remedy = "fetch or save it again" if is_folder else "check name and connection, or name a folder"
        raise CheckpointError(
            f"Model '{name}' cannot be loaded from {source} ({lines[0].removesuffix('.')}): {remedy}."
        ) from error


def checkpoint_from_model(
    model: WhisperForConditionalGeneration,
    tokens: list[str],
    *,
    name: str,
    weights_digest: str = "",
    tokenizer: WhisperTokenizer | None = None,
) -> Checkpoint:
    """Take apart a transformers model that is in memory; ``tokens`` are its token strings in id order."""
    model.eval()
    _check_generation(name, model)
    vocabulary = _vocabulary(tokens, model)
    state = {key: value for key, value in model.state_dict().items() if not key.startswith("model.encoder.")}
    return Checkpoint(
        name=name,
        config=model.config,
        vocabulary=vocabulary,
        encoder=model.model.encoder,
        state=state,
        weights_digest=weights_digest,
        max_new_tokens=model.generation_config.max_length,
        tokenizer=tokenizer,
        alignment_heads=tuple(
            (int(layer), int(head))
            for layer, head in getattr(model.generation_config, "alignment_heads", None) or ()
        ),
    )


def _check_generation(name: str, model: WhisperForConditionalGeneration) -> None:
    """Refuse an outdated generation config, and say what of another is not followed."""
    generation = model.generation_config
    if not getattr(generation, "lang_to_id", None):
        if len(_forced(model)) > 1:  # English-only models force a single token: no timestamps
            raise CheckpointError(
                f"Model '{name}' has an outdated generation_config.json without lang_to_id: copy that of the "
                "model it was tuned from."
            )
    asked = {key: getattr(generation, key, None) for key in CALLERS_OWN}
    if asked["task"] is None:
        tasks = {id_: task for task, id_ in (getattr(generation, "task_to_id", None) or {}).items()}
        asked["task"] = next((tasks[i] for i in _forced(model).values() if i in tasks), None)
    for key, value in asked.items():
        if value is None or value == CALLERS_OWN[key]:
            continue
        logger.warning(
            "Model '%s' asks for %s=%s in its generation_config.json, which is not followed: ask for it with "
            "each transcription, where it is offered.",
            name,
            key,
            value,
        )


def _forced(model: WhisperForConditionalGeneration) -> dict[int, int | None]:
    """Give the tokens that a config of old forces, by position; 1 is the language, 2 the task."""
    forced = getattr(model.generation_config, "forced_decoder_ids", None)
    if forced is None:
        forced = getattr(model.config, "forced_decoder_ids", None)
    return dict(forced or ())


def _own_language(model: WhisperForConditionalGeneration, languages: Mapping[str, int]) -> str | None:
    """Find the language a model was tuned to, as transformers does: in new form, else in old."""
    generation = model.generation_config
    language, task = getattr(generation, "language", None), getattr(generation, "task", None)
    if isinstance(language, str):
        code = str(language_code(language.strip("<|>")))
        return code if code in languages else None
    if task is None:
        forced = _forced(model).get(1)
        return next((code for code, id_ in languages.items() if id_ == forced), None)
    return None


def _vocabulary(tokens: list[str], model: WhisperForConditionalGeneration) -> Vocabulary:
    """Collect what decoding needs from the tokenizer and the generation config."""
    config, generation = model.config, model.generation_config
    no_timestamps = getattr(generation, "no_timestamps_token_id", None)
    timestamp_begin = config.vocab_size if no_timestamps is None else no_timestamps + 1
    strings = [*tokens, *(f"<|unused{i}|>" for i in range(len(tokens), config.vocab_size))][
        : config.vocab_size
    ]
    for i in range(timestamp_begin, min(timestamp_begin + NUM_TIMESTAMPS, config.vocab_size)):
        strings[i] = f"<|{(i - timestamp_begin) * 0.02:.2f}|>"  # older tokenizers do not list them
    languages = {
        token.strip("<|>"): id_ for token, id_ in (getattr(generation, "lang_to_id", None) or {}).items()
    }
    return Vocabulary(
        tokens=tuple(strings),
        end_of_text=_one_id(generation.eos_token_id),
        start_of_transcript=_one_id(generation.decoder_start_token_id),
        no_timestamps=no_timestamps,
        timestamp_begin=timestamp_begin,
        languages=languages,
        tasks=dict(getattr(generation, "task_to_id", None) or {}) if languages else {},
        suppress=tuple(sorted(set(generation.suppress_tokens or ()))),
        begin_suppress=tuple(sorted(set(generation.begin_suppress_tokens or ()))),
        max_initial_timestamp=getattr(generation, "max_initial_timestamp_index", None),
        max_length=config.max_target_positions,
        start_of_prev=_start_of_prev(generation),
        no_speech=None if no_timestamps is None else no_timestamps - 1,
        own_language=_own_language(model, languages),
    )


def _start_of_prev(generation: GenerationConfig) -> int | None:
    """Find ``<|startofprev|>`` as transformers does: older checkpoints tell it only by what they suppress."""
    named = getattr(generation, "prev_sot_token_id", None)
    if named is not None:
        return int(named)
    suppressed = list(generation.suppress_tokens or ())
    return int(suppressed[-2]) if len(suppressed) >= 2 else None


def _one_id(value: int | list[int]) -> int:
    return value if isinstance(value, int) else value[0]


def _weights_digest(source: str, revision: str | None) -> str:
    """Hash the checkpoint's safetensors files, in name order."""
    index = cached_file(
        source, "model.safetensors.index.json", revision=revision, _raise_exceptions_for_missing_entries=False
    )
    names = ["model.safetensors"]
    if index is not None:
        names = sorted(set(json.loads(Path(index).read_text())["weight_map"].values()))
    digest = hashlib.sha256()
    for name in names:
        path = cached_file(source, name, revision=revision)
        with open(str(path), "rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()
