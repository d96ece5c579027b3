"""Load Whisper checkpoints: a hub id, a bare name or a folder with safetensors."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from transformers import WhisperConfig, WhisperForConditionalGeneration, WhisperTokenizer
from transformers.utils import SAFE_WEIGHTS_INDEX_NAME, SAFE_WEIGHTS_NAME

from specwhisper.errors import CheckpointError, UnsupportedOption
from specwhisper.model.compat import HAS_INT8_SUMS, find_file
from specwhisper.model.generation import check_generation, own_language, start_of_prev
from specwhisper.model.kernels.linear import pack_linears
from specwhisper.transcription.vocabulary import Vocabulary
from specwhisper.types import DTYPES, FRAMES_PER_TIMESTAMP, WINDOW_FRAMES

T = TypeVar("T")

DEMO_FOLDER = Path(__file__).parent.parent / "demo"
DEMO_MODELS = ("demo-target", "demo-draft-tiny", "demo-draft-distil")
OPENAI_MODELS = (
    *("tiny", "tiny.en", "base", "base.en", "small", "small.en", "medium", "medium.en"),
    *("large-v1", "large-v2", "large-v3", "large-v3-turbo"),
)
# Names of openai/whisper and faster-whisper; on the hub "whisper-large" is the first version.
OTHER_NAMES = {"large": "large-v3", "turbo": "large-v3-turbo"}
ADVICE = (
    "name a folder, a hub id with safetensors weights such as openai/whisper-small, distil-..., or one of "
    f"{', '.join((*DEMO_MODELS, *OPENAI_MODELS, *OTHER_NAMES))}."
)
HUB_ID = re.compile(r"\w[\w.-]*/\w[\w.-]*")
NUM_TIMESTAMPS = WINDOW_FRAMES // FRAMES_PER_TIMESTAMP + 1


@dataclass(frozen=True)
class Checkpoint:
    """The weights of a Whisper model, and what decoding needs to know of it.

    Attributes
    ----------
    name : the name that the user gave.
    state : transformers' state dict of decoder and projection, on the CPU.
    encoder : transformers' encoder module, on the requested device.
    weights_digest : SHA-256 of the weight files, and of the dtype unless it is float32. Targets with
        different digests write different texts, so no session migrates between them.
    dtype : one of :data:`specwhisper.types.DTYPES`. The decoder of an int8 checkpoint is rounded when it is
        placed.
    max_new_tokens : the checkpoint's own limit per window, or ``None``.
    tokenizer : converts prompts to tokens and tokens to words; a draft needs none.
    alignment_heads : (layer, head) whose cross-attention follows the speech; empty if unknown.
    """

    name: str
    config: WhisperConfig
    vocabulary: Vocabulary
    encoder: nn.Module
    state: dict[str, Tensor] = field(repr=False)
    weights_digest: str = ""
    dtype: str = "float32"
    max_new_tokens: int | None = None
    tokenizer: WhisperTokenizer | None = field(default=None, repr=False)
    alignment_heads: tuple[tuple[int, int], ...] = ()

    @property
    def num_mel_bins(self) -> int:
        """Mel bins of the encoder: 80, or 128 for large-v3 and its variants."""
        return int(self.config.num_mel_bins)


def resolve(name: str) -> str:
    """Return the hub id or folder of a model's name; hub ids and folders stay."""
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
    dtype: str | torch.dtype = "float32",
    device: str | torch.device = "cpu",
) -> Checkpoint:
    """Load a checkpoint by name.

    Parameters
    ----------
    dtype : one of :data:`specwhisper.types.DTYPES`, or torch's name for it.
    device : of the encoder; the decoder stays on the CPU until it is placed.

    Raises
    ------
    CheckpointError
        if there is no such checkpoint, or it is incomplete.
    UnsupportedOption
        for a dtype that this device does not have.
    """
    dtype = str(dtype).removeprefix("torch.")
    if dtype not in DTYPES:
        raise UnsupportedOption(f"There is no dtype '{dtype}': choose one of {', '.join(DTYPES)}.")
    is_int8 = dtype == "int8"
    if is_int8 and torch.device(device).type != "cpu":
        raise UnsupportedOption(f"int8 weights are for CPUs: choose float16 or bfloat16 on '{device}'.")
    if is_int8 and not HAS_INT8_SUMS:
        raise UnsupportedOption("int8 weights need a processor with VNNI: choose float32 on this one.")
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
            dtype=torch.float32 if is_int8 else getattr(torch, dtype),
            use_safetensors=True,
            ignore_mismatched_sizes=True,  # reported below, in one sentence
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
    if dtype != "float32":
        digest = digest_in(digest, dtype)
    # The decoder stays on the CPU: a device map may place it elsewhere.
    model.model.encoder.to(device)
    checkpoint = checkpoint_from_model(model, tokens, name=name, weights_digest=digest, tokenizer=tokenizer)
    if len(tokens) < checkpoint.vocabulary.end_of_text:
        raise CheckpointError(f"Model '{name}' has no tokenizer: fetch or save it again together with it.")
    return rounded(checkpoint) if is_int8 else checkpoint


def rounded(checkpoint: Checkpoint) -> Checkpoint:
    """Round a float32 checkpoint's weights to int8, its encoder in place."""
    pack_linears(checkpoint.encoder, is_int8=True)
    return replace(checkpoint, dtype="int8")


def digest_in(weights_digest: str, precision: str) -> str:
    """Return the digest of weights that are used in another precision than float32."""
    return hashlib.sha256(f"{weights_digest} in {precision}".encode()).hexdigest()


def _check_folder(name: str, folder: Path) -> None:
    """Check that a folder holds a model, for a shorter error than transformers'."""
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
    """Load a part; any error becomes a :class:`CheckpointError` of one sentence."""
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
    """Build a checkpoint of a transformers model in memory.

    ``tokens`` are its token strings in id order.
    """
    model.eval()
    check_generation(name, model)
    vocabulary = _vocabulary(tokens, model)
    state = {key: value for key, value in model.state_dict().items() if not key.startswith("model.encoder.")}
    return Checkpoint(
        name=name,
        config=model.config,
        vocabulary=vocabulary,
        encoder=model.model.encoder,
        state=state,
        weights_digest=weights_digest,
        dtype=str(model.dtype).removeprefix("torch."),
        max_new_tokens=model.generation_config.max_length,
        tokenizer=tokenizer,
        alignment_heads=tuple(
            (int(layer), int(head))
            for layer, head in getattr(model.generation_config, "alignment_heads", None) or ()
        ),
    )


def _vocabulary(tokens: list[str], model: WhisperForConditionalGeneration) -> Vocabulary:
    """Build the vocabulary from token strings and generation config."""
    config, generation = model.config, model.generation_config
    no_timestamps = getattr(generation, "no_timestamps_token_id", None)
    timestamp_begin = config.vocab_size if no_timestamps is None else no_timestamps + 1
    strings = [*tokens, *(f"<|unused{i}|>" for i in range(len(tokens), config.vocab_size))][
        : config.vocab_size
    ]
    for i in range(timestamp_begin, min(timestamp_begin + NUM_TIMESTAMPS, config.vocab_size)):
        strings[i] = f"<|{(i - timestamp_begin) * 0.02:.2f}|>"  # missing in older tokenizers
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
        start_of_prev=start_of_prev(generation),
        no_speech=None if no_timestamps is None else no_timestamps - 1,
        own_language=own_language(model, languages),
    )


def _one_id(value: int | list[int]) -> int:
    return value if isinstance(value, int) else value[0]


def _weights_digest(source: str, revision: str | None) -> str:
    """Return the SHA-256 of the safetensors files, in name order.

    If there is a single file, transformers loads it, whatever an index beside it names.
    """
    paths = [find_file(source, SAFE_WEIGHTS_NAME, revision)]
    if paths == [None] and (index := find_file(source, SAFE_WEIGHTS_INDEX_NAME, revision)) is not None:
        names = sorted(set(json.loads(Path(index).read_text())["weight_map"].values()))
        paths = [find_file(source, name, revision) for name in names]
    digest = hashlib.sha256()
    for path in paths:
        with open(str(path), "rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()
