"""Decoding rules equal transformers' logits processors, row by row."""

from dataclasses import replace

import torch
from array_api_compat import device
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import GenerationConfig
from transformers.generation.logits_process import (
    LogitsProcessorList,
    SuppressTokensAtBeginLogitsProcessor,
    SuppressTokensLogitsProcessor,
    WhisperTimeStampLogitsProcessor,
)

from specwhisper.model.rules import DecodingRules
from specwhisper.transcription.vocabulary import Vocabulary
from tests.nightly import examples
from tests.unit.model.libraries import LIBRARIES, OfLibrary

NUM_TEXT, NUM_TIMES = 12, 20
END = NUM_TEXT
NO_TIMESTAMPS = END + 2
BEGIN = END + 3
SIZE = BEGIN + NUM_TIMES
PROMPT = [END + 1]
VOCABULARY = Vocabulary(
    tokens=tuple(f"t{i}" for i in range(SIZE)),
    end_of_text=END,
    start_of_transcript=END + 1,
    no_timestamps=NO_TIMESTAMPS,
    timestamp_begin=BEGIN,
    suppress=(1, 5, END + 1),
    begin_suppress=(0, END),
    max_initial_timestamp=4,
)


def processors(vocabulary: Vocabulary, *, timestamps: bool) -> LogitsProcessorList:
    """Return the processors of ``WhisperGenerationMixin._retrieve_logit_processors``."""
    config = GenerationConfig(
        eos_token_id=vocabulary.end_of_text,
        no_timestamps_token_id=vocabulary.no_timestamps,
        max_initial_timestamp_index=vocabulary.max_initial_timestamp,
    )
    made = LogitsProcessorList()
    if vocabulary.begin_suppress:
        made.append(SuppressTokensAtBeginLogitsProcessor(vocabulary.begin_suppress, len(PROMPT)))
    if vocabulary.suppress:
        made.append(SuppressTokensLogitsProcessor(vocabulary.suppress))
    if timestamps:
        made.append(WhisperTimeStampLogitsProcessor(config, begin_index=len(PROMPT)))
    return made


def apply_rules(
    vocabulary: Vocabulary, logits: torch.Tensor, rows: list[tuple[list[int], list[int], bool]], of: OfLibrary
) -> torch.Tensor:
    """Return the logits after the rules, by one of the libraries."""
    ours = of(logits)
    rules = DecodingRules(vocabulary, device(ours))
    allowed = [
        one
        for prefix, candidates, timestamps in rows
        for one in rules.allowed(prefix, candidates, timestamps=timestamps)
    ]
    rules.apply(ours, allowed)
    return torch.asarray(ours)


tokens = st.one_of(st.integers(0, SIZE - 1), st.integers(BEGIN, SIZE - 1), st.integers(0, NUM_TEXT - 1))
row = st.tuples(st.lists(tokens, max_size=6), st.lists(tokens, max_size=5), st.booleans())


@LIBRARIES
@settings(max_examples=examples(by_day=40, at_night=400))
@given(
    rows=st.lists(row, min_size=1, max_size=4),
    seed=st.integers(0, 2**16),
    time_bias=st.sampled_from([-8.0, -2.0, 0.0, 2.0]),
    max_initial_timestamp=st.sampled_from([None, 0, 4, NUM_TIMES - 1, 3 * NUM_TIMES]),
    suppress=st.sampled_from([(), VOCABULARY.suppress, (3, BEGIN + 2)]),
    begin_suppress=st.sampled_from([(), VOCABULARY.begin_suppress, (0, BEGIN, BEGIN + 1)]),
)
def test_rules_equal_transformers(of, rows, seed, time_bias, max_initial_timestamp, suppress, begin_suppress):
    vocabulary = replace(
        VOCABULARY,
        max_initial_timestamp=max_initial_timestamp,
        suppress=suppress,
        begin_suppress=begin_suppress,
    )
    prefixes = [
        ([*prefix, *candidates[:i]], timestamps)
        for prefix, candidates, timestamps in rows
        for i in range(len(candidates) + 1)
    ]
    logits = 3 * torch.randn(len(prefixes), SIZE, generator=torch.Generator().manual_seed(seed))
    logits[:, BEGIN:] += time_bias
    expected = torch.cat(
        [
            processors(vocabulary, timestamps=timestamps)(torch.tensor([PROMPT + prefix]), logits[i : i + 1])
            for i, (prefix, timestamps) in enumerate(prefixes)
        ]
    )
    assert torch.equal(apply_rules(vocabulary, logits, rows, of), expected)


@LIBRARIES
def test_a_model_without_timestamps_has_only_the_suppression_rules(of):
    vocabulary = replace(VOCABULARY, no_timestamps=None, timestamp_begin=SIZE, max_initial_timestamp=None)
    logits = torch.randn(2, SIZE, generator=torch.Generator().manual_seed(0))
    expected = logits.clone()
    expected[:, list(vocabulary.suppress)] = -torch.inf
    expected[0, list(vocabulary.begin_suppress)] = -torch.inf
    assert torch.equal(apply_rules(vocabulary, logits, [([], [2], False)], of), expected)
