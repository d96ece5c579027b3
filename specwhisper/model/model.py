"""A Whisper model with slots: encode windows, choose tokens for many sessions."""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Generic, NamedTuple, Protocol, TypeVar

import numpy as np
from array_api_compat import array_namespace

from specwhisper.audio.recording import Recording
from specwhisper.errors import CheckpointError, UnsupportedOption
from specwhisper.model.arrays import Array, softmax, to_device
from specwhisper.model.backend import Backend, Encoder, Features, is_device_fault
from specwhisper.model.backends import SharedEncoder, open_backend
from specwhisper.model.checkpoints.checkpoint import Checkpoint
from specwhisper.model.choosing import ProbeResult, Row, Scores, choose
from specwhisper.model.rules import DecodingRules
from specwhisper.model.word_times import align_words, begin_alignment
from specwhisper.transcription.vocabulary import Vocabulary
from specwhisper.types import WINDOW_FRAMES, DeviceMap, Window, WordAlignment

T = TypeVar("T")


CUT_FRAMES = 100  # 1 s: the steps in which windows are cut
# 6 s of silence after the audio: with less, a real tiny.en repeats itself at the end of short recordings.
MARGIN_FRAMES = 600
WARM_UP_WIDTHS = (1, 4, 16)  # tokens of forward passes
logger = logging.getLogger(__name__)


class MicroBatcher(Generic[T]):
    """Batches concurrent calls.

    The caller that holds the lock runs up to ``max_items`` waiting items.

    Parameters
    ----------
    work : processes the items of several threads. If it fails, each item is processed alone, so that only
        the calls whose item fails raise.
    max_items : most items in one call of ``work``.
    """

    def __init__(self, work: Callable[[Sequence[T]], None], max_items: int) -> None:
        self._work = work
        self._max_items = max_items
        self._waiting: deque[tuple[T, Future[None]]] = deque()
        self._turn = Lock()

    def run(self, item: T) -> None:
        """Return when this thread or another one has processed the item; raise its error."""
        done = Future[None]()
        self._waiting.append((item, done))
        with self._turn:
            while not done.done():
                num_items = min(len(self._waiting), self._max_items)
                batch = [self._waiting.popleft() for _ in range(num_items)]
                try:
                    self._process(batch)
                except BaseException as error:  # Ctrl-C: other threads must not wait forever
                    for _, other in batch:
                        if not other.done():
                            other.set_exception(error)
                    raise
        done.result()

    def _process(self, batch: Sequence[tuple[T, Future[None]]]) -> None:
        has_failed = False
        try:
            self._work([item for item, _ in batch])
        except Exception as error:
            if len(batch) == 1:
                batch[0][1].set_exception(error)
                return
            has_failed = True
        for one in batch:  # outside the except block: the error keeps the memory of the failed call alive
            if has_failed:
                self._process([one])
            else:
                one[1].set_result(None)


class Model(Protocol):
    """The interface of a model for both engines.

    Attributes
    ----------
    max_windows : most windows that are encoded faster together, each by a thread.
    has_word_times : whether :meth:`align` can find words.
    """

    vocabulary: Vocabulary
    num_slots: int
    num_mel_bins: int
    max_positions: int
    max_windows: int
    has_word_times: bool

    def encode(self, slot: int, recording: Recording, start_frame: int) -> None:
        """Empty a slot and encode the window that starts at a mel frame into it."""

    def score(self, rows: Sequence[Row]) -> list[Scores]:
        """Append each row's tokens to its slot and choose after each candidate.

        Choices after the first candidate that is not chosen may be made up.
        """

    def rollback(self, slot: int, length: int) -> None: ...

    def length(self, slot: int) -> int: ...

    def can_continue(self, prompt: Sequence[int]) -> bool:
        """Return whether the model knows the language and the task of a prompt."""

    def tokenize(self, text: str, *, after_space: bool = True) -> tuple[int, ...]:
        """Return the tokens of a text of a prompt or a hint, by default as after a space."""

    def align(
        self, slot: int, window: Window, tokens: Sequence[int], num_frames: int
    ) -> Callable[[], tuple[WordAlignment, ...]]:
        """Begin to find the words of the window in a slot, and empty the slot.

        Parameters
        ----------
        num_frames : mel frames of the window that hold audio.

        Returns
        -------
        A function for any thread that ends it. It uses neither slot nor model, so the slot may serve another
        session by then.
        """


class WhisperModel:
    """A checkpoint with ``num_slots`` slots, in its own or its target's vocabulary."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        num_slots: int,
        *,
        device: object = "cpu",
        encoder: Encoder | None = None,
        vocabulary: Vocabulary | None = None,
        ids: Sequence[int | None] | None = None,
        device_map: DeviceMap | None = None,
        offload_folder: Path | None = None,
        has_static_shapes: bool | None = None,
        cut_windows: bool = False,
    ) -> None:
        """Place a checkpoint's weights and allocate its slots.

        Parameters
        ----------
        vocabulary, ids : the target's vocabulary and this model's id of each of its tokens
            (:func:`specwhisper.model.translated.draft_ids`). The embedding is reordered once, so no id is
            translated later.
        cut_windows : encode only the audio of a window and :data:`MARGIN_FRAMES` of silence, in steps of
            :data:`CUT_FRAMES`, instead of silence up to 30 s. It takes less time, and the model was not
            trained for it: for drafts, on ONNX Runtime. Without effect on an encoder that draft and target
            share.

        The others are those of :func:`specwhisper.model.backends.open_backend`.
        """
        self.vocabulary = vocabulary or checkpoint.vocabulary
        self.num_slots = num_slots
        self.num_mel_bins = checkpoint.num_mel_bins
        self.max_positions = checkpoint.sizes.max_target_positions
        self._name, self._dtype = checkpoint.name, checkpoint.dtype
        self._tokenizer = checkpoint.tokenizer
        self._alignment_heads = checkpoint.alignment_heads
        self.has_word_times = bool(self._alignment_heads)
        self._median_width = checkpoint.sizes.median_filter_width
        self._backend: Backend = open_backend(
            checkpoint,
            num_slots,
            device=device,
            encoder=encoder,
            ids=ids,
            device_map=device_map,
            offload_folder=offload_folder,
            has_static_shapes=has_static_shapes,
        )
        self.max_windows = self._backend.max_windows
        self._has_own_encoder = has_own_encoder = not isinstance(encoder, SharedEncoder)
        self._may_cut = has_own_encoder and self._backend.takes_short_windows
        self._cut_windows = cut_windows and has_own_encoder
        if self._cut_windows and not self._may_cut:
            raise UnsupportedOption("Windows are cut on ONNX Runtime only, so on a CPU: leave that out.")
        self._encoder_batcher = MicroBatcher[tuple[int, Features]](self._backend.encode, self.max_windows)
        absent = [target_id for target_id, own_id in enumerate(ids or ()) if own_id is None]
        device = self._backend.device
        self._rules = DecodingRules(self.vocabulary, device, absent=absent)
        self._language_ids = to_device(np.array(list(self.vocabulary.languages.values()), np.int64), device)

    def warm_up(self) -> None:
        """Run what the first session would wait for: on a GPU, every shape is captured.

        On a CPU the first passes touch their memory; they would also mislead the estimates of times.
        """
        self._backend.warm_up()
        if self._backend.device is not None:
            return
        if self._has_own_encoder:
            self._backend.encode([(0, np.zeros((self.num_mel_bins, WINDOW_FRAMES), np.float32))])
        for width in WARM_UP_WIDTHS:
            self.score(
                [Row(0, [self.vocabulary.start_of_transcript] * width, width - 1, (), timestamps=False)]
            )
            self.rollback(0, 0)

    @property
    def bytes_per_slot(self) -> int:
        return self._backend.bytes_per_slot

    def encode(self, slot: int, recording: Recording, start_frame: int) -> None:
        """See :meth:`Model.encode`; a GPU batches concurrent calls, and encodes beside forward passes."""
        features = recording.window_features(start_frame, self.num_mel_bins)
        if self._may_cut and (self._cut_windows or recording.is_cut):
            num_frames = recording.audio_frames - start_frame + MARGIN_FRAMES
            num_steps = max(1, -(-num_frames // CUT_FRAMES))  # a window may begin after the audio
            features = np.ascontiguousarray(features[:, : num_steps * CUT_FRAMES])
        self._encoder_batcher.run((slot, features))

    def score(self, rows: Sequence[Row]) -> list[Scores]:
        """See :meth:`Model.score`.

        Raise :class:`CheckpointError` for logits that are not numbers. Their text would be the
        vocabulary's first token, again and again.
        """
        with self._backend.inference(), np.errstate(invalid="ignore"):  # what comes of it is checked
            scores = self._scores(rows)
        if any(math.isnan(log_prob) for score in scores for log_prob in score.log_probs):
            is_exact = self._dtype == "float32"
            reason = "it suppresses all:" if is_exact else "too large for this dtype: choose float32, or"
            raise CheckpointError(
                f"Model '{self._name}' in {self._dtype} has no likeliest token: its weights are not finite, "
                f"or {reason} fetch or save it again."
            )
        return scores

    def _scores(self, rows: Sequence[Row]) -> list[Scores]:
        counts = [row.num_candidates + 1 for row in rows]
        probes = [(i, row.probe) for i, row in enumerate(rows) if row.probe is not None]
        slots, tokens = [row.slot for row in rows], [row.tokens for row in rows]
        logits = self._backend.append(slots, tokens, counts, probes)
        logits, probed = logits[: sum(counts)], logits[sum(counts) :]
        probs = self._probe_probs(probed) if probes else None  # read below, while a GPU computes
        self._rules.apply(
            logits,
            [
                state
                for row in rows
                for state in self._rules.allowed(
                    row.generated,
                    row.candidates,
                    timestamps=row.timestamps,
                    max_initial_timestamp=row.max_initial_timestamp,
                )
            ],
        )
        scores = choose(rows, logits)
        if probs is not None:
            for (i, _), values in zip(probes, probs.tolist(), strict=True):
                no_speech_prob = None if self.vocabulary.no_speech is None else values[-1]
                languages = dict(zip(self.vocabulary.languages, values, strict=False))
                scores[i] = replace(scores[i], probe_result=ProbeResult(no_speech_prob, languages))
        return scores

    def _probe_probs(self, logits: Array) -> Array:
        """Return the probabilities of every language, then of silence: one row for each probe."""
        probs = [softmax(logits[:, self._language_ids])]
        if self.vocabulary.no_speech is not None:
            probs.append(softmax(logits)[:, self.vocabulary.no_speech, None])
        return array_namespace(logits).concat(probs, axis=1)

    def can_continue(self, prompt: Sequence[int]) -> bool:
        """Return ``True``: prompts are in the model's own vocabulary."""
        return True

    def tokenize(self, text: str, *, after_space: bool = True) -> tuple[int, ...]:
        """Return the tokens of a text; refuse special tokens."""
        if not text.strip():
            return ()
        assert self._tokenizer is not None  # a draft has none, and no prompts
        ids = tuple(self._tokenizer.encode(" " * after_space + text.strip()))
        if specials := [i for i in ids if i >= self.vocabulary.end_of_text]:
            raise UnsupportedOption(
                f"A prompt may not hold special tokens such as {self.vocabulary.tokens[specials[0]]}."
            )
        return ids

    def align(
        self, slot: int, window: Window, tokens: Sequence[int], num_frames: int
    ) -> Callable[[], tuple[WordAlignment, ...]]:
        vocabulary, tokens = self.vocabulary, tuple(tokens)
        fed = [*window.prompt, *tokens[:-1]]
        with self._backend.inference():
            weights = self._backend.cross_attention(slot, fed, self._alignment_heads)
            weights = weights[:, len(window.prompt) :]
            finish = begin_alignment(weights, num_frames=num_frames, median_width=self._median_width)
        return lambda: align_words(finish(), window, tokens, vocabulary)

    def rollback(self, slot: int, length: int) -> None:
        self._backend.rollback(slot, length)

    def length(self, slot: int) -> int:
        return self._backend.length(slot)


class ForwardPass(NamedTuple):
    """A forward pass: its rows, their scores, its start and its time."""

    rows: Sequence[Row]
    scores: Sequence[Scores]
    started_ns: int
    forward_ns: int


def run_forward(
    model: Model,
    rows: Sequence[Row],
    *,
    clock: Callable[[], int],
    on_error: Callable[[Row, Exception], None],
) -> Iterator[ForwardPass]:
    """Score rows and yield the pass; after an error, score each half again, down to the row at fault.

    ``on_error``: called with a row that fails alone, or with any row after a device fault.
    """
    started_ns = clock()
    held = [model.length(row.slot) for row in rows]
    scores = None
    try:
        scores = model.score(rows)
    except Exception as error:
        if len(rows) == 1 or is_device_fault(error):
            on_error(rows[0], error)
            return
        logger.warning("forward pass repeated", extra={"sessions": len(rows), "error": str(error)})
    if scores is not None:
        yield ForwardPass(rows, scores, started_ns, clock() - started_ns)
        return
    # Outside of the except block, because the error keeps the memory of the failed pass alive.
    for row, length in zip(rows, held, strict=True):
        model.rollback(row.slot, length)
    half = len(rows) // 2
    for part in (rows[:half], rows[half:]):
        yield from run_forward(model, part, clock=clock, on_error=on_error)
