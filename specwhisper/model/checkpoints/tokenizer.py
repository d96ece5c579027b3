"""Read a Whisper tokenizer as transformers does: byte-level BPE and added tokens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import inf
from operator import add
from typing import Any

import tokenizers
from tokenizers import AddedToken
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel

from specwhisper.model.checkpoints.files import ModelFiles
from specwhisper.transcription.vocabulary import BYTE_OF_CHARACTER

END_OF_TEXT = "<|endoftext|>"
CHARACTER_OF_BYTE = {byte: character for character, byte in BYTE_OF_CHARACTER.items()}
# Settings that name a token, in the order in which those that the vocabulary lacks are added.
NAMED_TOKENS = {
    "bos_token": END_OF_TEXT,
    "eos_token": END_OF_TEXT,
    "unk_token": END_OF_TEXT,
    **dict.fromkeys(("sep_token", "pad_token", "cls_token", "mask_token")),
}


class Tokenizer:
    def __init__(self, backend: tokenizers.Tokenizer) -> None:
        self._backend = backend

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text; special tokens in it become their ids."""
        return list(self._backend.encode(text, add_special_tokens=False).ids)

    def tokens(self) -> list[str]:
        """Return the token strings in id order; ids without a token get made-up ones."""
        found = map(self._backend.id_to_token, range(self._backend.get_vocab_size(with_added_tokens=True)))
        # Whisper's multilingual vocabulary has an empty token.
        return [f"<|unused{i}|>" if token is None else token for i, token in enumerate(found)]


def read_tokenizer(files: ModelFiles) -> Tokenizer | None:
    whole, settings = files.read("tokenizer.json"), files.read("tokenizer_config.json") or {}
    if whole is not None:
        vocab, merges = whole["model"]["vocab"], [_pair(merge) for merge in whole["model"]["merges"]]
    else:
        paths = files.find("vocab.json"), files.find("merges.txt")
        if paths[0] is None or paths[1] is None:
            return None
        vocab, merges = BPE.read_file(str(paths[0]), str(paths[1]))
    backend = tokenizers.Tokenizer(BPE(vocab, merges, continuing_subword_prefix="", end_of_word_suffix=""))
    backend.pre_tokenizer = ByteLevel(add_prefix_space=bool(settings.get("add_prefix_space")))
    if "added_tokens_decoder" in settings:
        added = {int(i): AddedToken(**token) for i, token in settings["added_tokens_decoder"].items()}
    else:  # older files
        settings = settings | (files.read("special_tokens_map.json") or {})
        added = _older_added_tokens(files.read("added_tokens.json") or {}, whole or {}, settings)
    backend.add_tokens([added[i] for i in sorted(added)])
    known = {token.content for token in added.values()}
    backend.add_tokens(
        [AddedToken(token, special=True) for token in _special_tokens(settings) if token not in known]
    )
    return Tokenizer(backend)


def tokenizer_of(tokens: Sequence[bytes], special: Sequence[str]) -> Tokenizer:
    """Make a tokenizer of the bytes of its text tokens, in the order of merges.

    ``special``: tokens after them.
    """
    strings = ["".join(CHARACTER_OF_BYTE[byte] for byte in token) for token in tokens]
    vocab = {token: i for i, token in enumerate(strings)}
    if len(vocab) < len(strings):
        raise ValueError("its tokens are damaged: one is there twice")
    merges = [(strings[left], strings[right]) for left, right in _merges(tokens)]
    backend = tokenizers.Tokenizer(BPE(vocab, merges))
    backend.pre_tokenizer = ByteLevel(add_prefix_space=False)
    backend.add_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    return Tokenizer(backend)


def _merges(tokens: Sequence[bytes]) -> Iterator[tuple[int, int]]:
    """Yield the two tokens that each token is merged of: what those before it make of its bytes."""
    ranks = {token: rank for rank, token in enumerate(tokens)}
    for rank, token in enumerate(tokens):
        parts = merged(token, ranks, rank)
        if len(parts) == 2 and all(part in ranks for part in parts):
            yield ranks[parts[0]], ranks[parts[1]]


def merged(data: bytes, ranks: Mapping[bytes, int], end: float = inf) -> list[bytes]:
    """Merge the neighbours whose union has the lowest rank, again and again while that is below ``end``."""
    parts = [data[i : i + 1] for i in range(len(data))]
    while len(parts) > 1:
        lowest, at = min((ranks.get(pair, end), i) for i, pair in enumerate(map(add, parts, parts[1:])))
        if lowest >= end:
            break
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return parts


def _pair(merge: str | list[str]) -> tuple[str, str]:
    """Return the two halves of a merge, in the old or the new form."""
    left, right = merge.split(" ") if isinstance(merge, str) else merge
    return left, right


def _older_added_tokens(
    ids: Mapping[str, int], whole: Mapping[str, Any], settings: Mapping[str, Any]
) -> dict[int, AddedToken]:
    """Return the added tokens by id.

    Parameters
    ----------
    ids : the content of added_tokens.json.
    whole : tokenizer.json, whose tokens take precedence.
    """
    special = set(_special_tokens(settings))
    added = {
        id_: AddedToken(token, normalized=token not in special, special=token in special)
        for token, id_ in ids.items()
    }
    for token in whole.get("added_tokens") or ():
        added[token["id"]] = AddedToken(**{key: value for key, value in token.items() if key != "id"})
    return added


def _special_tokens(settings: Mapping[str, Any]) -> Iterator[str]:
    named = NAMED_TOKENS | {key: value for key, value in settings.items() if key.endswith("_token")}
    more = settings.get("extra_special_tokens") or settings.get("additional_special_tokens") or ()
    for token in (*named.values(), *(more.values() if isinstance(more, Mapping) else more)):
        if isinstance(token, Mapping):
            token = token["content"]
        if isinstance(token, str) and token:
            yield token
