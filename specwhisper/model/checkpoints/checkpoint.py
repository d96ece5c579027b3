"""Load Whisper checkpoints: a hub id, a bare name, a folder or a file.

Neither torch nor transformers is needed: :mod:`specwhisper.model.pytorch` makes modules of a checkpoint.
"""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass, field

from specwhisper.errors import CheckpointError, UnsupportedOption
from specwhisper.model.checkpoints.files import ModelFiles, digest_of
from specwhisper.model.checkpoints.formats import open_model
from specwhisper.model.checkpoints.generation import build_vocabulary, check_generation
from specwhisper.model.checkpoints.names import public_name
from specwhisper.model.checkpoints.sizes import ModelSizes
from specwhisper.model.checkpoints.tokenizer import Tokenizer
from specwhisper.model.checkpoints.weights import Weights, complete_weights
from specwhisper.transcription.vocabulary import Vocabulary
from specwhisper.transcription.windows import TokenLimit
from specwhisper.types import DTYPES

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Checkpoint:
    """The weights of a Whisper model, and what decoding needs to know of it.

    Attributes
    ----------
    name : what the user wrote; only the last part of a path, since servers' clients see it.
    weights : read when they are asked for; :meth:`Weights.close` frees them.
    weights_digest : SHA-256 of the weight files, and of what else changes the text, such as another dtype
        than float32. No session migrates between targets with different digests.
    dtype : one of :data:`specwhisper.types.DTYPES`, which the model computes in. The weights are rounded to
        it when they are placed.
    max_new_tokens : the checkpoint's own limit per window; ``None`` if only its positions limit it.
    tokenizer : converts prompts to tokens; a draft needs none.
    alignment_heads : (layer, head) whose cross-attention follows the speech; empty if unknown.
    """

    name: str
    sizes: ModelSizes
    vocabulary: Vocabulary
    weights: Weights = field(repr=False)
    weights_digest: str = ""
    dtype: str = "float32"
    max_new_tokens: TokenLimit | None = None
    tokenizer: Tokenizer | None = field(default=None, repr=False)
    alignment_heads: tuple[tuple[int, int], ...] = ()

    @property
    def num_mel_bins(self) -> int:
        """Mel bins of the encoder: 80, or 128 for large-v3 and its variants."""
        return self.sizes.num_mel_bins


def load_checkpoint(
    name: str, *, revision: str | None = None, dtype: object = "float32", is_draft: bool = False
) -> Checkpoint:
    """Load a checkpoint by name.

    Parameters
    ----------
    dtype : one of :data:`specwhisper.types.DTYPES`, or torch's name for it.
    is_draft : whether it drafts for a target, whose generation config counts.

    Raises
    ------
    CheckpointError
        if there is no such checkpoint, it is incomplete, or its generation config cannot be followed.
    UnsupportedOption
        for another dtype.
    """
    dtype = str(dtype).removeprefix("torch.")
    if dtype not in DTYPES:
        raise UnsupportedOption(f"There is no dtype '{dtype}': choose one of {', '.join(DTYPES)}.")
    files = ModelFiles(name, revision)
    with files.errors_reported():
        model = open_model(files)
        # Small files first: the download of the weights may be ended, and the next start may be offline.
        sizes, tokenizer, generation = model.sizes, model.tokenizer, model.generation
        check_generation(name, generation, is_draft=is_draft)
        if model.is_quantised:
            logger.info("Model '%s' is quantised: its text is that of these weights.", name)
        tokens = [] if tokenizer is None else tokenizer.tokens()
        found, paths = model.weights()
        weights = complete_weights(name, found, sizes)
        vocabulary = build_vocabulary(name, tokens, sizes, generation)
        if len(tokens) < vocabulary.end_of_text:
            raise CheckpointError(
                f"Model '{name}' has no tokenizer: fetch or save it again together with it."
            )
        digest = digest_of(paths)
        if dtype != "float32":
            digest = hashlib.sha256(f"{digest} in {dtype}".encode()).hexdigest()
        return Checkpoint(
            name=public_name(name),
            sizes=sizes,
            vocabulary=vocabulary,
            weights=weights,
            weights_digest=digest,
            dtype=dtype,
            max_new_tokens=generation.max_new_tokens,
            tokenizer=tokenizer,
            alignment_heads=generation.alignment_heads(sizes),
        )
