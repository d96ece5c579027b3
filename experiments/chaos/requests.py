"""Clients' requests: every mode and option, of recordings and of live audio."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from experiments.common.servers.clients import MODES
from specwhisper.options import DecodingOptions, Padding, Task
from specwhisper.types import LIVE_MODES, Mode

PLAIN = "plain"
OPTIONS = {
    PLAIN: DecodingOptions.greedy(language="en"),
    "detected language": DecodingOptions.greedy(),
    "multilingual": DecodingOptions.greedy(multilingual=True),
    "languages": DecodingOptions.greedy(languages=("de", "en")),
    "translated": DecodingOptions.greedy(language="de", task=Task.TRANSLATE),
    "word times": DecodingOptions.greedy(language="en", word_timestamps=True),
    "invented": DecodingOptions.greedy(
        language="en", word_timestamps=True, hallucination_silence_threshold=1.0
    ),
    "fallback": DecodingOptions.greedy(
        language="en", temperatures=(0.0, 0.5, 1.0), logprob_threshold=-0.45, seed=4
    ),
    "silence": DecodingOptions.greedy(language="en", logprob_threshold=-0.01, no_speech_threshold=0.3),
    "prompts": DecodingOptions.greedy(
        language="en", initial_prompt="abc", hotwords="fg", condition_on_previous_text=True
    ),
    "zeros": DecodingOptions.greedy(language="en", padding=Padding.ZERO),
    "no timestamps": DecodingOptions.greedy(language="de", timestamps=False, max_new_tokens=9),
}
DEMO = "demo"
LENGTHS_S = (120.0, 200.0)
NUM_RECORDINGS = 2  # of each length


@dataclass(frozen=True, slots=True)
class FileRequest:
    """A recording, sent as fast as the server accepts it.

    Attributes
    ----------
    option : a name in :data:`OPTIONS`, or :data:`DEMO` for speech that the demo pair transcribes.
    start_after_s : delay before the client starts.
    """

    option: str
    mode: Mode
    gamma: int | None
    length_s: float
    audio_seed: int
    start_after_s: float

    def __str__(self) -> str:
        return f"{self.option}, {self.mode}, {self.length_s:g} s"


@dataclass(frozen=True, slots=True)
class LiveRequest:
    """Live audio, sent at ``speed`` times real time.

    Attributes
    ----------
    has_utterances : whether pauses end utterances; otherwise all audio is one utterance.
    """

    mode: Mode
    has_utterances: bool
    continue_unverified: bool
    start_after_s: float
    speed: float = 4.0

    def __str__(self) -> str:
        draft_only = ", draft-only in outages" if self.continue_unverified else ""
        return f"live, {self.mode}{draft_only}"


Request = FileRequest | LiveRequest


def draw_file(random: Random) -> FileRequest:
    """Draw the request of a client with a recording."""
    return FileRequest(
        option=random.choice(sorted(OPTIONS)),
        mode=random.choice(MODES),
        gamma=random.choice((None, 4)),
        length_s=random.choice(LENGTHS_S),
        audio_seed=random.randrange(NUM_RECORDINGS),
        start_after_s=random.uniform(0, 0.3),
    )


def draw_demo(random: Random) -> FileRequest:
    """Draw the request of a client of the demo pair."""
    return FileRequest(
        DEMO, random.choice(MODES), None, 0.0, random.randrange(NUM_RECORDINGS), random.uniform(0, 0.3)
    )


def draw_live(random: Random) -> LiveRequest:
    """Draw the request of a live client."""
    return LiveRequest(
        mode=random.choice(LIVE_MODES),
        has_utterances=random.random() < 0.7,
        continue_unverified=random.random() < 0.5,
        start_after_s=random.uniform(0, 0.3),
    )
